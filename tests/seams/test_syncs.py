"""Invariant 13: who syncs in the loop of a node that serves stands in docs/invariants.md, and nobody else does."""

import ast
import pathlib
from collections.abc import Iterator

ROOT = pathlib.Path(__file__).parents[2]
[PAGE] = (ROOT / "docs").rglob("invariants.md")
SYNCS = {"fsync", "sync_dir"}
FILE_SYSTEMS = {"files", "_files"}
"""The names of a `FileSystem`, whose `replace` syncs, too."""

IN_A_THREAD = {
    "FlushWork.run",
    "Flusher._sync_new_names",
    "OffsetCheckpoint.save",
    "broker.control.snapshots.load",
    "broker.control.snapshots.write_file",
    "broker.control.snapshots._write",
}
BEFORE_OR_AFTER_IT_SERVES = {
    "DataDirectory.open",
    "DataDirectory.mark_clean",
    "DataDirectory._write_identity",
    "MetadataLog.load",
    "MetadataLog.lead",
    "MetadataLog._cut",
    "broker.control.disks.new_disk",
}


def is_sync(call: ast.AST) -> bool:
    if not isinstance(call, ast.Attribute):
        return False
    owner = call.value
    name = owner.attr if isinstance(owner, ast.Attribute) else owner.id if isinstance(owner, ast.Name) else ""
    return call.attr in SYNCS or (call.attr == "replace" and name in FILE_SYSTEMS)


def who_syncs(source: str, module: str) -> Iterator[str]:
    """The functions that sync: ``Class.method``, or ``module.function``."""

    def search(node: ast.AST, owner: str) -> Iterator[str]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.ClassDef):
                yield from search(child, child.name)
            elif isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                yield from (f"{owner}.{child.name}" for inner in ast.walk(child) if is_sync(inner))
            else:
                yield from search(child, owner)

    return search(ast.parse(source), module)


def test_who_syncs_in_the_loop_is_on_the_page() -> None:
    found = {
        who
        for path in (ROOT / "broker").rglob("*.py")
        if "seams" not in path.parts
        for who in who_syncs(path.read_text(), ".".join(path.relative_to(ROOT).with_suffix("").parts))
    }
    table = PAGE.read_text().split("**Syncs in the loop**")[1].split("\n## ")[0]
    rows = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    listed = {name for row in rows for name in row.split("`")[1::2]}
    assert len(listed) > 5
    assert found == listed | IN_A_THREAD | BEFORE_OR_AFTER_IT_SERVES
    assert not listed & (IN_A_THREAD | BEFORE_OR_AFTER_IT_SERVES)


def test_a_sync_is_found() -> None:
    source = """
class Log:
    async def save(self):
        await self._files.offload(lambda: self._files.sync_dir("/"))
    def name(self):
        return "a".replace("a", "b")
def write(files):
    files.replace("path", b"")
"""
    assert list(who_syncs(source, "broker.x")) == ["Log.save", "broker.x.write"]
