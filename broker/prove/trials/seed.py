"""`Seed`: the broker with which every trial begins: its topics and inputs, as a snapshot. It is a `Ground`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import trio

from oncelog.broker.control.controlled_broker import ControlledBroker
from oncelog.broker.control.instruments import Extras
from oncelog.broker.control.options import checked_options
from oncelog.broker.prove.disturbances import NODE_KINDS
from oncelog.broker.prove.plan import new_record
from oncelog.broker.prove.trials.own_broker import OwnBroker
from oncelog.broker.prove.trials.program import listener_config, listener_of
from oncelog.broker.prove.trials.security import Security
from oncelog.broker.seams.error_groups import first_error
from oncelog.wire.topic_names import OFFSETS_TOPIC, TRANSACTIONS_TOPIC

if TYPE_CHECKING:
    from oncelog.broker.control.journal import Observer
    from oncelog.broker.prove.plan import ProofPlan
    from oncelog.broker.prove.trials.own_nodes import OwnNodes

REQUESTS_KEPT = 20_000
"""Requests of each API that the journal of a trial keeps."""

CONFIG_OF_NODES: Final = {
    # Kafka's default, in place of the test kit's second: trials side by side may keep a node from its heartbeat as
    # long. No trial waits for it: a node's session ends when the node starts again.
    "broker.session.timeout.ms": "9000",
    # Kafka looks every five minutes, which no trial lasts; moved time would let it move leaders in every one.
    "auto.leader.rebalance.enable": "false",
}
"""What the nodes of a trial have in place of the test kit's and Kafka's defaults."""


class Seed(NamedTuple):
    """See the module."""

    snapshot: bytes
    security: Security
    output_ends: dict[str, dict[int, int]]
    """Where the outputs of the program begin, by topic and partition."""
    left_out: tuple[str, ...]

    @property
    def variables(self) -> dict[str, str]:
        """See `Ground`."""
        return self.security.variables

    def bench(self, plan: ProofPlan, observer: Observer) -> OwnBroker | OwnNodes:
        """Return the broker of a trial; see `Ground`."""
        return _bench(plan, self.security, self.snapshot, observer, listeners=plan.instances + 1)


async def make_seed(plan: ProofPlan, security: Security) -> Seed:
    """Return the seed of a plan's trials. Raises InvalidArgumentError, SnapshotError, KafkaError."""
    bench = _bench(plan, security, plan.from_snapshot, None, listeners=1)
    try:
        async with trio.open_nursery() as nursery:
            await nursery.start(bench.controlled.run)
            await bench.controlled.start()
            ends = await _fill(bench, plan)
            snapshot = await bench.controlled.call("snapshot", {})
            nursery.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        raise first_error(group) from None
    return Seed(snapshot, security, ends, NODE_KINDS if plan.nodes == 1 else ())


async def _fill(bench: OwnBroker | OwnNodes, plan: ProofPlan) -> dict[str, dict[int, int]]:
    """Make the topics and inputs of a plan; return where its outputs begin."""
    broker = bench.controlled
    there = await broker.call("topics", {})
    missing: dict[str, object] = {name: count for name, count in plan.topics.items() if name not in there}
    await broker.call("create_topics", {"topics": missing})
    for topic, rows in plan.inputs.items():
        records = [new_record(row)._asdict() for row in rows]
        await broker.call("produce", {"topic": topic, "records": records})
    for name in (OFFSETS_TOPIC, TRANSACTIONS_TOPIC):  # so that no trial waits for them
        await bench.create_internal_topic(name)
    return {topic: bench.log_end_offsets(topic) for topic in plan.outputs}


def _bench(
    plan: ProofPlan,
    security: Security,
    snapshot: str | bytes | None,
    observer: Observer | None,
    *,
    listeners: int,
) -> OwnBroker | OwnNodes:
    """Return a broker for a trial, with a listener for each of so many instances. Raises InvalidArgumentError."""
    options = checked_options(
        config={
            **listener_config(listeners, security.protocol),
            "inter.broker.listener.name": listener_of(1),
            **(CONFIG_OF_NODES if plan.nodes > 1 else {}),
            **plan.config,
        },
        seed=plan.seed,
        requests_kept=REQUESTS_KEPT,
        from_snapshot=snapshot,
        users=security.users,
        tls=security.tls,
    )
    extras = Extras(observer=observer)
    if plan.nodes == 1:
        return OwnBroker(ControlledBroker(options, extras))
    from oncelog.broker.prove.trials.own_nodes import own_nodes

    return own_nodes(plan.nodes, options, extras)
