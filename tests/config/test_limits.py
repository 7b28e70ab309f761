"""The constants of docs/reference/limits.md are the code's, and every constant of the code with MAX in its name is
there, but for those that no user and no peer meets.
"""

import ast
import importlib
import pathlib
from collections.abc import Iterator

import pytest

from tests.config.test_docs import rows

ROOT = pathlib.Path(__file__).parents[2]
FOLDERS = ("wire", "coordinator", "broker", "spark_it/sink", "oncelog/pytest_plugin")

WHAT_A_TYPE_OR_A_FORMAT_HOLDS = {
    "wire/batch.py": {"SEQUENCE_MAX"},
    "wire/compiler.py": {"VARINT_MAX"},
    "wire/compression.py": {
        "_LZ4_HC_LEVEL_MAX", "_ZSTD_BLOCK_SIZE_MAX", "_ZSTD_KEPT_WINDOW_MAX", "_SNAPPY_SIZE_BYTES_MAX",
    },
    "wire/framing.py": {"FRAME_BYTES_MAX"},
    "wire/records.py": {"ARRAY_BYTES_MAX"},
    "wire/validation_rules.py": {"INT64_MAX"},
    "wire/varint.py": {"VARINT_BYTES_MAX", "VARLONG_BYTES_MAX"},
    "coordinator/producer_ids.py": {"PRODUCER_ID_MAX"},
    "coordinator/transactions/state.py": {"PRODUCER_EPOCH_MAX"},
    "broker/client/cluster_client.py": {"ONE_KEY_MAX"},
    "broker/client/connection.py": {"CORRELATION_ID_MAX"},
    "broker/client_metrics/otlp.py": {"VARINT_BYTES_MAX"},
    "broker/config/definitions_log.py": {"LONG_MAX", "INT_MAX"},
    "broker/config/options.py": {"PORT_MAX"},
    "broker/control/new_records.py": {"TIMESTAMP_MAX"},
    "broker/fetch/sessions.py": {"MAX_EPOCH"},
    "broker/handlers/list_offsets.py": {"MAX_TIMESTAMP"},
    "broker/log/indexes.py": {"RELATIVE_OFFSET_MAX"},
    "broker/log/producers/entry.py": {"SEQUENCE_MAX"},
    "broker/log/producers/state.py": {"EPOCH_MAX"},
    "broker/metadata/configs.py": {"NODE_ID_DIGITS_MAX"},
    "broker/net/unexpected_bytes.py": {"_TLS_MINOR_VERSION_MAX"},
    "broker/proxy/relay/endpoints.py": {"_UVARINT_BYTES_MAX"},
    "broker/security/delegation_tokens.py": {"_LONG_MAX"},
    "broker/security/quotas.py": {"INT_MAX"},
    "broker/security/rates.py": {"THROTTLE_MS_MAX"},
    "broker/share/letters.py": {"RECORD_OVERHEAD_MAX"},
    "broker/share/sessions.py": {"MAX_EPOCH"},
}  # fmt: skip
HOW_WORK_IS_CUT_AND_REMEMBERED = {
    "wire/compiler.py": {"UNCHECKED_COUNT_MAX"},
    "wire/compression.py": {"_GZIP_INPUT_MAX"},
    "wire/walk.py": {"_FRONTS_MAX", "_COPIED_BYTES_MAX"},
    "wire/walk_equal_length.py": {"RISING_MAX", "_RUN_HEADERS_MAX", "DELTA_MAX"},
    "broker/client/metadata.py": {"METADATA_MAX_AGE_S"},
    "broker/dispatch/fast_produce.py": {"POSITIONS_MAX"},
    "broker/fetch/delayed_fetches.py": {"COMPLETED_BY_APPEND_MAX"},
    "broker/fetch/fetch.py": {"INLINE_BYTES_MAX"},
    "broker/log/local_log.py": {"READ_POSITIONS_MAX"},
    "broker/log/partition_log.py": {"VALIDATION_STEPS_MAX"},
    "broker/log/recovery/queue.py": {"STEP_BYTES_MAX"},
    "broker/log/validation.py": {"RULES_KEPT_MAX"},
    "broker/net/server.py": {"POOLED_BUFFERS_MAX"},
    "broker/node/member.py": {"FETCH_BYTES_MAX"},
    "broker/prove/trials/trial.py": {"LOCK_MOVES_MAX"},
    "broker/replication/fetcher.py": {"THROTTLED_S_MAX"},
    "broker/replication/waits.py": {"ABANDONED_MAX"},
    "broker/scheduling/slices.py": {"SLICE_STEPS_MAX"},
    "broker/seams/memory_files.py": {"UNSYNCED_NAMES_MAX"},
    "broker/share/reading.py": {"INLINE_BYTES_MAX"},
}
NOBODY_MEETS = {
    (file, name)
    for table in (WHAT_A_TYPE_OR_A_FORMAT_HOLDS, HOW_WORK_IS_CUT_AND_REMEMBERED)
    for file, names in table.items()
    for name in names
}
CONSTANTS = rows("limits.md", "Constants")


def numbers(file: str) -> Iterator[str]:
    """The names of a module's constants that have MAX among their words and are no text."""
    for statement in ast.parse((ROOT / file).read_bytes()).body:
        targets = statement.targets if isinstance(statement, ast.Assign) else []
        if isinstance(statement, ast.AnnAssign) and statement.value is not None:
            targets = [statement.target]
        value = getattr(statement, "value", None)
        if isinstance(value, ast.Constant) and isinstance(value.value, str):
            continue
        for target in targets:
            for name in target.elts if isinstance(target, ast.Tuple) else [target]:
                if isinstance(name, ast.Name) and "MAX" in name.id.split("_"):
                    yield name.id


def test_every_limit_is_on_the_page_or_met_by_nobody() -> None:
    files = [path.relative_to(ROOT).as_posix() for top in FOLDERS for path in (ROOT / top).rglob("*.py")]
    code = {(file, name) for file in files for name in numbers(file) if "sync_api" not in file}
    page = {(row[1].strip("`"), row[0].strip("`")) for row in CONSTANTS}
    assert sorted(code - page - NOBODY_MEETS) == []
    assert sorted(NOBODY_MEETS - code) == []
    assert sorted(NOBODY_MEETS & page) == []


@pytest.mark.parametrize("row", CONSTANTS, ids=lambda row: f"{row[0]} {row[1]}".replace("`", ""))
def test_the_values_are_the_codes(row: list[str]) -> None:
    name, file, value, _ = row
    path = file.strip("`").removesuffix(".py").replace("spark_it/sink/", "spark/").removeprefix("oncelog/")
    module = importlib.import_module("oncelog." + path.replace("/", "."))
    assert getattr(module, name.strip("`")) == float(value)
