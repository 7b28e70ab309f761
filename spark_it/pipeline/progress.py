"""Progress of a streaming query, from Spark's own listener: a bar per topic, a summary, a plot of the lag."""

import json
import pathlib
import sys
from typing import Any

from pyspark.sql.streaming.listener import StreamingQueryListener

BAR_WIDTH = 24
WIDTH, HEIGHT = 640, 240


class Progress(StreamingQueryListener):
    """Shows each batch's progress on standard error, one line per topic, and remembers it."""

    def __init__(self, shown: Any = None) -> None:
        self._shown = sys.stderr if shown is None else shown
        self.rows = 0
        self.batches = 0
        # What came after its window was closed; Spark counts it by window and country (and task), not by event.
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
            for topic, (read, there) in by_topic(source).items():
                lags[topic] = there - read
                line = f"{topic:20} {bar(read, there)} {self.rows:>9} rows {rate:>9.0f}/s lag {there - read}"
                print(line, file=self._shown, flush=True)
        self.lags.append((progress["timestamp"], lags))

    def save(self, folder: pathlib.Path) -> None:
        """`summary.json` and `lag.svg`."""
        summary = {
            "batches": self.batches,
            "rows": self.rows,
            "late groups dropped": self.dropped,
            "lag": self.lags,
        }
        (folder / "summary.json").write_text(json.dumps(summary, indent=1))
        (folder / "lag.svg").write_text(lag_plot([sum(lags.values()) for _, lags in self.lags]))


def by_topic(source: dict[str, Any]) -> dict[str, tuple[int, int]]:
    """For each topic of a Kafka source the sums of the offsets that are read and that are there."""
    ends, latest = (_offsets(source.get(key)) for key in ("endOffset", "latestOffset"))
    return {
        topic: (sum(read.values()), sum(latest.get(topic, read).values())) for topic, read in ends.items()
    }


def _offsets(given: Any) -> dict[str, dict[str, int]]:
    found = json.loads(given) if isinstance(given, str) else given
    return found if isinstance(found, dict) else {}


def bar(read: int, there: int) -> str:
    """[#####.....]"""
    done = BAR_WIDTH if there <= 0 else min(BAR_WIDTH, BAR_WIDTH * read // there)
    return f"[{'#' * done}{'.' * (BAR_WIDTH - done)}]"


def lag_plot(lags: list[int]) -> str:
    """A line of the lag in records, batch by batch, as SVG."""
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
