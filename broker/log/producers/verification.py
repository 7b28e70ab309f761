"""`Verification`: what a partition remembers of a producer from its verification by the coordinator to its
write (KIP-890)."""

from __future__ import annotations


class Verification:
    """A producer whose next transactional batch the coordinator is verifying (Kafka:
    ``VerificationStateEntry``).

    When a producer sends several batches, the first may be refused for now and the second verified. So no batch
    above ``lowest_sequence`` is written before the one that has it.
    """

    __slots__ = ("lowest_sequence", "producer_epoch", "raises_epochs", "timestamp")

    def __init__(self, sequence: int, epoch: int, raises_epochs: bool, timestamp: int) -> None:
        self.lowest_sequence = sequence
        self.producer_epoch = epoch
        self.raises_epochs = raises_epochs
        """Whether the producer uses transactions v2, which raise its epoch with every transaction."""
        self.timestamp = timestamp
        """In ms."""

    def note(self, sequence: int, epoch: int) -> None:
        if epoch == self.producer_epoch:
            self.lowest_sequence = min(self.lowest_sequence, sequence)
        elif epoch > self.producer_epoch:
            self.producer_epoch = epoch
            self.lowest_sequence = sequence
