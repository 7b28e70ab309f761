"""`Stripes`: new partitions' replicas, spread over racks and brokers. Source: Kafka's ``StripedReplicaPlacer``."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from oncelog.broker.metadata.placement import active

if TYPE_CHECKING:
    import random

    from oncelog.broker.metadata.image import MetadataImage


class Stripes:
    """Deals out replicas, partition after partition.

    Leaders go round the racks, and inside a rack round its brokers that serve; the other replicas are on other racks
    than the leader as long as there are any, the fenced brokers of a rack come last. Each round of as many partitions
    as brokers serve begins with another order of the brokers, so that not always the same brokers are together.
    """

    def __init__(self, image: MetadataImage, usable: list[int], rng: random.Random) -> None:
        self._rng = rng
        racks: dict[str | None, _Rack] = {}
        for broker in usable:
            rack = racks.setdefault(image.brokers[broker].rack, _Rack(_Brokers(), _Brokers()))
            (rack.fenced if image.brokers[broker].fenced else rack.unfenced).brokers.append(broker)
        # A broker without a rack comes before those with one.
        self._racks = [racks[name] for name in sorted(racks, key=lambda name: (name is not None, name))]
        self._unfenced_count = len(active(image, usable))
        for rack in self._racks:
            for brokers in rack:
                brokers.start = rng.randrange(len(brokers.brokers)) if brokers.brokers else 0
        self._first_rack = rng.randrange(len(self._racks))
        self._partition = 0

    def next_replicas(self, factor: int) -> list[int]:
        if self._partition == self._unfenced_count > 1:
            self._shuffle()
            self._partition = 0
        racks, partition = self._racks, self._partition
        first = self._first_rack % len(racks)
        at, leader = first, racks[first].unfenced.next_broker(partition)
        while leader is None:
            at = (at + 1) % len(racks)
            leader = racks[at].unfenced.next_broker(partition)
        replicas = [leader]
        leaders_rack: int | None = at
        at = first
        while len(replicas) < factor:
            if at == leaders_rack:
                leaders_rack = None  # it has its replica; in the next round it is as the others
            else:
                broker = racks[at].next_broker(partition)
                if broker is not None:
                    replicas.append(broker)
            at = (at + 1) % len(racks)
        self._partition += 1
        self._first_rack = first + 1
        return replicas

    def _shuffle(self) -> None:
        self._rng.shuffle(self._racks)
        for rack in self._racks:
            for brokers in rack:
                self._rng.shuffle(brokers.brokers)


class _Rack(NamedTuple):
    unfenced: _Brokers
    fenced: _Brokers

    def next_broker(self, partition: int) -> int | None:
        found = self.unfenced.next_broker(partition)
        return self.fenced.next_broker(partition) if found is None else found


class _Brokers:
    """Brokers of a rack, each of which a partition gets at most once; each partition begins at another one."""

    __slots__ = ("_dealt", "_partition", "brokers", "start")

    def __init__(self) -> None:
        self.brokers: list[int] = []
        self.start = 0
        self._partition = 0
        self._dealt = 0

    def next_broker(self, partition: int) -> int | None:
        if partition != self._partition:
            self._partition = partition
            self._dealt = 0
            self.start += 1
        if self._dealt == len(self.brokers):
            return None
        self._dealt += 1
        return self.brokers[(self.start + self._dealt - 1) % len(self.brokers)]
