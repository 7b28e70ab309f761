"""`TrialResult`: what came out of a trial: records, offsets, and what was done to the program."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from oncelog.broker.control.journal import Journal
    from oncelog.broker.control.types import Offsets, Record
    from oncelog.broker.prove.disturbances import Disturbance
    from oncelog.broker.prove.plan import ProofPlan
    from oncelog.broker.prove.trials.bench import Bench
    from oncelog.broker.prove.trials.program import ProcessEnd
    from oncelog.broker.prove.trials.watch import Watch


@dataclass(frozen=True)
class LastWords:
    """What a process of the program wrote last, to standard output and to standard error."""

    instance: int
    run: int
    """Which process of the instance it was, from 1 on."""
    lines: Sequence[str]
    output: str = field(default="", repr=False)
    """The end of its output; ``lines`` are the last lines of it."""

    def to_data(self) -> dict[str, object]:
        """Return what JSON has of it."""
        return {"instance": self.instance, "run": self.run, "lines": list(self.lines)}

    @property
    def text(self) -> str:
        """The process, in words."""
        start = f", start {self.run}," if self.run > 1 else ""
        return f"instance {self.instance}{start} wrote last"


@dataclass
class TrialResult:
    """The result of a trial."""

    disturbances: tuple[Disturbance, ...]
    happened: int = 0
    """How many of them the journal shows."""
    records: dict[str, list[Record]] = field(default_factory=dict)
    """The outputs, at read_committed, by topic."""
    offsets: dict[str, Offsets] = field(default_factory=dict)
    """The committed offsets of each group."""
    inputs: list[Record] = field(default_factory=list)
    """The records that the program was given."""
    aborted_reads: dict[str, list[Record]] = field(default_factory=dict)
    """The records of aborted transactions, by topic, where the program reads them as if they were committed."""
    late_ms: int = 0
    """For how long readers waited for a transaction that the program had left open, in milliseconds of broker time."""
    stuck: str | None = None
    """Why the program did not come to an end in time."""
    ends: list[ProcessEnd] = field(default_factory=list)
    """The ends of all processes except those in `finished`."""
    finished: set[tuple[int, int]] = field(default_factory=set)
    """The processes of batch jobs that have ended by themselves, well: instance and run."""
    last_words: list[LastWords] = field(default_factory=list)
    """The last lines of each process that wrote something, in the order of their ends."""
    check_output: str | None = None
    """None: there is no ``--check``, or it failed."""
    check_error: str | None = None
    """How ``--check`` failed."""
    rest: TrialResult | None = None
    """The result of one more start of a job that had ended and lacked something; None: there was none."""
    waited_s: float = 0.0
    """How long the program was waited for that seemed to be done, and was behind."""
    duration_s: float = 0.0
    broker_ends: list[float] = field(default_factory=list)
    """When the broker died, in seconds since the trial began."""
    fired_at: list[float] = field(default_factory=list)
    """When each disturbance happened."""
    judged_at_s: float = inf
    """When it was as it is here: what the requests after that time have done is not in it."""
    journal: Journal | None = None
    watch: Watch | None = None
    matched: list[int] = field(default_factory=list)
    """How often each of the counters matched."""

    @property
    def own_ends(self) -> list[ProcessEnd]:
        """The ends of the program that the trial did not want."""
        return [end for end in self.ends if not end.was_wanted]

    async def collect(
        self, plan: ProofPlan, bench: Bench, watch: Watch, output_ends: Mapping[str, Mapping[int, int]]
    ) -> None:
        """Note what is in the topics and groups now, in place of what was noted before. ``output_ends``: where the
        outputs of the program begin. Raises NotRunningError, NotFoundError, KafkaError.
        """
        self.inputs.clear()
        self.aborted_reads.clear()
        self.offsets.clear()
        call = bench.controlled.call
        for topic in plan.topics:
            records = await call("records", {"topic": topic, "isolation": "read_committed"})
            if topic in watch.read_uncommitted:
                known = {(one.partition, one.offset) for one in records}
                every = await call("records", {"topic": topic})
                if aborted := [one for one in every if (one.partition, one.offset) not in known]:
                    self.aborted_reads[topic] = aborted
            if topic in plan.outputs:
                ends = output_ends[topic]
                self.records[topic] = [one for one in records if one.offset >= ends.get(one.partition, 0)]
            if topic in plan.inputs:
                self.inputs += records
        for group_id in await bench.groups():
            self.offsets[group_id] = (await call("group", {"group_id": group_id})).committed
