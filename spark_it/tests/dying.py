"""The sink's data source with deaths: a worker that comes to a step where it is to die, dies.

A folder holds what is to happen: a file `<batch>-<task>-<step>-<number>` is a death that is taken once.
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
    """With two attempts per task, one death is an executor's, two are the end of the query: the driver's."""
    folder.mkdir(exist_ok=True)
    for number in range(times):
        (folder / f"{batch}-{task}-{step}-{number}").touch()
