"""`Verification`: what a partition knows of a producer between asking the coordinator and writing (KIP-890)."""

from __future__ import annotations


class Verification:
    """A producer whose next transactional batch waits for the coordinator's word (Kafka: ``VerificationStateEntry``).

    Of batches sent one behind the other the first may be refused for now and the second not: nothing above
    ``lowest_sequence`` is written before it.
    """

    __slots__ = ("lowest_sequence", "producer_epoch", "raises_epochs", "timestamp")

    def __init__(self, sequence: int, epoch: int, raises_epochs: bool, timestamp: int) -> None:
        self.lowest_sequence = sequence
        self.producer_epoch = epoch
        self.raises_epochs = raises_epochs
        """Whether the producer speaks transactions v2."""
        self.timestamp = timestamp
        """In ms."""

    def note(self, sequence: int, epoch: int) -> None:
        if epoch == self.producer_epoch:
            self.lowest_sequence = min(self.lowest_sequence, sequence)
        elif epoch > self.producer_epoch:
            self.producer_epoch = epoch
            self.lowest_sequence = sequence
