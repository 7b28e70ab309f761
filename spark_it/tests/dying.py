"""The sink's data source with planned deaths: a worker that reaches a planned step exits.

The plan is a folder: each file `<batch>-<task>-<step>-<number>` is one death, and is deleted when it happens.
"""

import os
import pathlib
from typing import Any

from oncelog.spark.source import ARROW_WRITER, ArrowWriter, OncelogSource, RowWriter
from oncelog.spark.task import Batch


class DyingSource(OncelogSource):
    def streamWriter(self, schema: Any, overwrite: bool) -> Any:  # noqa: N802 - Spark calls it by these names
        writer = super().streamWriter(schema, overwrite)
        writer.__class__ = DyingRows if ARROW_WRITER is None else DyingArrow
        writer.deaths = self.options["deaths"]
        return writer


class _Dying:
    deaths: str

    def on_step(self, step: str) -> None:
        batch: Batch = self.this_batch()  # type: ignore[attr-defined]
        for death in sorted(pathlib.Path(self.deaths).glob(f"{batch.batch}-{batch.task}-{step}-*")):
            death.unlink()
            os._exit(9)


class DyingRows(_Dying, RowWriter):
    pass


class DyingArrow(_Dying, ArrowWriter):  # type: ignore[misc]
    pass


def plan_deaths(folder: pathlib.Path, batch: int, task: int, step: str, times: int) -> None:
    """Plan `times` deaths. A task has two attempts: one death ends an executor, two end the query."""
    folder.mkdir(exist_ok=True)
    for number in range(times):
        (folder / f"{batch}-{task}-{step}-{number}").touch()
