"""The progress of a streaming query, from Spark's listener: a bar per topic, a summary, a plot of the lag."""

import json
import pathlib
import sys
from typing import Any

from pyspark.sql.streaming.listener import StreamingQueryListener

BAR_WIDTH = 24
WIDTH, HEIGHT = 640, 240


class Progress(StreamingQueryListener):
    """Prints each batch's progress to standard error, one line per topic, and keeps it for the summary."""

    def __init__(self, output: Any = None) -> None:
        self._output = sys.stderr if output is None else output
        self.rows = 0
        self.batches = 0
        # Late groups; Spark counts each window and country (per task) once, and not events.
        self.dropped = 0
        self.lags: list[tuple[str, dict[str, int]]] = []

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802 - Spark's names
        pass

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802
        pass

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
        pass

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        progress = json.loads(event.progress.json)
        self.batches += 1
        self.rows += int(progress["numInputRows"])
        self.dropped += sum(
            int(one.get("numRowsDroppedByWatermark", 0)) for one in progress["stateOperators"]
        )
        rate = float(progress.get("processedRowsPerSecond") or 0)
        lags: dict[str, int] = {}
        for source in progress["sources"]:
            for topic, (read, end) in by_topic(source).items():
                lags[topic] = end - read
                line = f"{topic:20} {bar(read, end)} {self.rows:>9} rows {rate:>9.0f}/s lag {end - read}"
                print(line, file=self._output, flush=True)
        self.lags.append((progress["timestamp"], lags))

    def save(self, folder: pathlib.Path) -> None:
        """Write `summary.json` and `lag.svg`."""
        summary = {
            "batches": self.batches,
            "rows": self.rows,
            "late groups dropped": self.dropped,
            "lag": self.lags,
        }
        (folder / "summary.json").write_text(json.dumps(summary, indent=1))
        (folder / "lag.svg").write_text(lag_plot([sum(lags.values()) for _, lags in self.lags]))


def by_topic(source: dict[str, Any]) -> dict[str, tuple[int, int]]:
    """By topic of a Kafka source: the sums of its partitions' read offsets and of their end offsets."""
    ends, latest = (_offsets(source.get(key)) for key in ("endOffset", "latestOffset"))
    return {
        topic: (sum(read.values()), sum(latest.get(topic, read).values())) for topic, read in ends.items()
    }


def _offsets(value: Any) -> dict[str, dict[str, int]]:
    found = json.loads(value) if isinstance(value, str) else value
    return found if isinstance(found, dict) else {}


def bar(read: int, end: int) -> str:
    """[#####.....]"""
    done = BAR_WIDTH if end <= 0 else min(BAR_WIDTH, BAR_WIDTH * read // end)
    return f"[{'#' * done}{'.' * (BAR_WIDTH - done)}]"


def lag_plot(lags: list[int]) -> str:
    """An SVG with the lag in records after each batch."""
    most = max([1, *lags])
    step = WIDTH / max(1, len(lags) - 1)
    points = " ".join(
        f"{number * step:.1f},{HEIGHT - lag * HEIGHT / most:.1f}" for number, lag in enumerate(lags)
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="-10 -30 {WIDTH + 20} {HEIGHT + 40}">'
        f'<text y="-12">lag in records, at most {most}, over {len(lags)} batches</text>'
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="none" stroke="#ccc"/>'
        f'<polyline points="{points}" fill="none" stroke="#06c" stroke-width="2"/></svg>\n'
    )
