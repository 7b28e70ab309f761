"""The verdict as text, and as one HTML page that needs nothing from outside."""

from __future__ import annotations

import re
from html import escape
from textwrap import dedent
from typing import TYPE_CHECKING, Any, Final

from oncelog.broker.prove.disturbances import FETCHES
from oncelog.broker.prove.judging.judge import STUCK
from oncelog.broker.prove.judging.mistakes import explained
from oncelog.broker.prove.verdict import NOT_JUDGED

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from oncelog.broker.prove.trials.trial_result import LastWords
    from oncelog.broker.prove.verdict import Finding, Verdict

NO_FILES: Final[Mapping[int, str]] = {}
LATE_TEXT: Final = "readers wait up to {:g} s for a transaction that was abandoned: {}"


def text_of(
    verdict: Verdict, files: Mapping[int, str] = NO_FILES, unsteady_files: Mapping[int, str] = NO_FILES
) -> str:
    """Return the verdict for a terminal. ``files``: what ``--again`` takes for a finding, by number from 0 on;
    ``unsteady_files``: for one that is unsteady.
    """
    lines = [f"verdict: {verdict.word} ({verdict.plan.promise}: {verdict.promise})"]
    if verdict.reason is not None:
        lines.append(f"  {verdict.reason}")
    lines.append(
        f"  {verdict.basis}; {verdict.plan.input_count} inputs, {verdict.outputs} outputs in an undisturbed run"
    )
    if verdict.clients:
        lines.append(f"  clients: {', '.join(verdict.clients)}")
    if verdict.late_ms:
        lines.append("  late: " + LATE_TEXT.format(verdict.late_ms / 1000, verdict.late_step))
    lines += [f"  note: {note}" for note in verdict.notes]
    lines += _written_lines(verdict.last_words)
    for number, finding in enumerate(verdict.findings):
        lines += ["", *_finding_lines(number, finding, files)]
    for number, finding in enumerate(verdict.unsteady):
        lines += ["", f"unsteady: {finding.title}, then passed: {finding.step}"]
        lines += [f"   {problem.text}" for problem in finding.problems]
        if number in unsteady_files:
            lines.append(f"   again: oncelog prove --again {unsteady_files[number]}")
    return "\n".join(lines) + "\n"


def _finding_lines(number: int, finding: Finding, files: Mapping[int, str]) -> Iterator[str]:
    more = finding.same - 1
    same = f" (and {more} more {'trial' if more == 1 else 'trials'})" if more else ""
    yield f"{number + 1}. {finding.title}{same}"
    yield f"   step: {finding.step}"
    for problem in finding.problems:
        yield f"   {problem.text}"
    for sentence in finding.why:
        yield f"   why: {sentence}"
    if finding.mend is not None:
        yield f"   mend: {finding.mend}"
    if STUCK in finding.kinds:
        yield from _written_lines(finding.last_words)
    if number in files:
        yield f"   again: oncelog prove --again {files[number]}"
    else:
        yield f"   again: oncelog.prove(..., again={finding.again!r})"


def _written_lines(last_words: Sequence[LastWords]) -> Iterator[str]:
    """Yield what the latest process of each instance wrote; the page has all."""
    for one in {one.instance: one for one in last_words}.values():
        yield f"   {one.text}:"
        yield from (f"      {line}" for line in one.lines)


# -- HTML

_STYLE: Final = """
body { font: 15px/1.45 system-ui, sans-serif; margin: 2rem auto; max-width: 75rem; padding: 0 1rem; color: #1c1c1c; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2.5rem; }
.kept { color: #146c2e; } .broken { color: #a4161a; }
table { border-collapse: collapse; width: 100%; font-size: 13px; }
th, td { text-align: left; padding: .15rem .6rem; vertical-align: top; border-bottom: 1px solid #e4e4e4; }
td.time, td.number { text-align: right; white-space: nowrap; color: #666; font-variant-numeric: tabular-nums; }
tr.disturbance td { background: #fff0d6; font-weight: 600; } tr.error td { background: #fdecec; }
tr.program td, tr.broker td { background: #eef2fb; }
tr.named td { outline: 2px solid #d08700; outline-offset: -2px; }
code, pre { font: 13px/1.4 ui-monospace, monospace; background: #f5f5f5; } pre { padding: .6rem; overflow-x: auto; }
@media (prefers-color-scheme: dark) {
  body { background: #181818; color: #e6e6e6; } code, pre { background: #262626; }
  th, td { border-color: #333; } tr.disturbance td { background: #4a3a14; } tr.error td { background: #4a1f1f; }
  tr.program td, tr.broker td { background: #22304a; } .kept { color: #66d186; } .broken { color: #ff7b7f; }
}
"""


def html_of(verdict: Verdict, files: Mapping[int, str], unsteady_files: Mapping[int, str]) -> str:
    """Return the verdict as a page. ``files``, ``unsteady_files``: see `text_of`."""
    title = f"oncelog prove: {verdict.word}"
    state = "" if verdict.promise == NOT_JUDGED else verdict.promise
    parts = [
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{escape(title)}</title>',
        f"<style>{_STYLE}</style><h1>{escape(verdict.word)}</h1>",
        f'<p class="{state}">{escape(verdict.plan.promise)}: <b>{escape(verdict.promise)}</b></p>',
        f"<p>{escape(verdict.basis)}; {verdict.plan.input_count} inputs, {verdict.outputs} outputs undisturbed.</p>",
        f"<pre>{escape(' '.join(verdict.plan.command))}</pre>",
    ]
    if verdict.reason is not None:
        parts.append(f"<p>{escape(verdict.reason)}</p>")
    if verdict.clients:
        parts.append(f"<p>Clients: {escape(', '.join(verdict.clients))}</p>")
    if verdict.late_ms:
        parts.append(f"<p>{escape(LATE_TEXT.format(verdict.late_ms / 1000, verdict.late_step))}</p>")
    parts += [f"<p>Note: {escape(note)}.</p>" for note in verdict.notes]
    for number, finding in enumerate(verdict.findings):
        parts += _finding_parts(number, finding, files)
    if verdict.unsteady:
        parts.append("<h2>Unsteady: failed once, then passed</h2><ul>")
        for number, one in enumerate(verdict.unsteady):
            texts = "; ".join([one.step, *(problem.text for problem in one.problems)])
            again = f" <code>oncelog prove --again {escape(unsteady_files[number])}</code>"
            parts.append(f"<li>{escape(one.title)}: {escape(texts)}.{again}</li>")
        parts.append("</ul>")
    parts += _written_parts(verdict.last_words)
    if verdict.undisturbed:
        parts += ["<h2>The undisturbed run</h2>", *_timeline_parts(verdict.undisturbed, frozenset())]
    if not verdict.findings and verdict.promise != NOT_JUDGED:
        parts.append("<p>No trial failed.</p>")
    return "\n".join(parts) + "</html>\n"


def _finding_parts(number: int, finding: Finding, files: Mapping[int, str]) -> Iterator[str]:
    same = f" <small>({finding.same} trials)</small>" if finding.same > 1 else ""
    yield f'<h2 id="finding-{number + 1}">{number + 1}. {escape(finding.title)}{same}</h2>'
    yield f"<p>{escape(finding.step)}.</p>"
    yield "<ul>" + "".join(f"<li>{escape(one.text)}</li>" for one in finding.problems) + "</ul>"
    if finding.why:
        yield "<p>Why:</p><ul>" + "".join(f"<li>{escape(one)}</li>" for one in finding.why) + "</ul>"
    if finding.mend is not None:
        yield f"<p>Mend: {escape(finding.mend)}</p>"
    if finding.mistake is not None:
        yield f"<details><summary>More</summary>{''.join(_section_parts(explained(finding.mistake)))}</details>"
    yield from _written_parts(finding.last_words)
    if number in files:
        yield f"<pre>oncelog prove --again {escape(files[number])}</pre>"
    named = frozenset(int(number) for number in re.findall(r"request (\d+)", " ".join(finding.why)))
    yield from _timeline_parts(finding.timeline, named)


def _written_parts(last_words: Sequence[LastWords]) -> Iterator[str]:
    for one in last_words:
        lines = escape("\n".join(one.lines))
        yield f"<details><summary>{one.text[0].upper()}{one.text[1:]}</summary><pre>{lines}</pre></details>"


def _section_parts(section: str) -> Iterator[str]:
    """Yield a section of the page of mistakes: its paragraphs and programs. Other sections that it links to are named,
    not linked.
    """
    for block in section.split("\n\n"):
        if block.startswith("## "):
            yield f"<h3>{escape(block[3:])}</h3>"
        elif block.startswith("    "):
            yield f"<pre>{escape(dedent(block))}</pre>"
        else:
            text = re.sub(r"\[([^\]]+)\]\([^)]+\)", r"\1", escape(block, quote=False))
            text = re.sub(r"`([^`]+)`", r"<code>\1</code>", text)
            yield f"<p>{text}</p>"


def _timeline_parts(rows: Sequence[Mapping[str, Any]], named: frozenset[int]) -> Iterator[str]:
    """Yield the table of a timeline; ``named`` are the numbers of the requests that the text above it names."""
    yield "<details open><summary>Timeline</summary>"
    yield "<p><small>Log: the number of writes to all logs, before and after a request that writes.</small></p>"
    yield "<table><tr><th>ms</th><th>request</th><th>program</th><th>broker</th><th>log</th></tr>"
    for row in rows:
        yield _row(row, is_named=row.get("number") in named)
    yield "</table></details>"


def _row(row: Mapping[str, Any], *, is_named: bool) -> str:
    kind = next((one for one in ("disturbance", "program", "broker") if one in row), "")
    time = f'<td class="time">{row["at_ms"]}</td>'
    if kind == "disturbance":
        return f'<tr class="{kind}">{time}<td></td><td colspan="3">{escape(row[kind])}</td></tr>'
    if kind:
        cells = [escape(row.get(one, "")) for one in ("program", "broker")]
        return f'<tr class="{kind}">{time}<td></td><td>{cells[0]}</td><td>{cells[1]}</td><td></td></tr>'
    names = [
        name for name, holds in (("error", row["result"] != "acknowledged"), ("named", is_named)) if holds
    ]
    who = f"{row['instance']}" if row["run"] == 1 else f"{row['instance']}, start {row['run']}"
    is_write = (
        row["writes_after"] != row["writes"] and row["request"].partition(" ")[0] not in FETCHES
    )  # which wait
    written = f"{row['writes']} &rarr; {row['writes_after']}" if is_write else ""
    return (
        f'<tr class="{" ".join(names)}">{time}<td class="number">{row["number"]}</td>'
        f"<td>{escape(who)}: {escape(row['request'])}</td><td>{escape(row['result'])}</td><td>{written}</td></tr>"
    )
