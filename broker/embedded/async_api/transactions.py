"""`AsyncTransactions`: the transactional ids of a broker, as a test reads them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.broker.control.errors import NotFoundError

if TYPE_CHECKING:
    from oncelog.broker.control.types import Assignment, Occurrence, TransactionInfo
    from oncelog.broker.embedded.async_api.facade import AsyncFacade


class AsyncTransactions:
    """``transactions["app"]`` is the transactional id app; `all` has all of them."""

    # Python would look for the ids 0, 1, 2 and so on for ever: `all` and `exists` are there for that.
    __iter__ = None
    __contains__ = None

    def __init__(self, broker: AsyncFacade) -> None:
        self._broker = broker

    def __getitem__(self, transactional_id: str) -> AsyncTransaction:
        return AsyncTransaction(self._broker, transactional_id)

    async def all(self) -> list[TransactionInfo]:
        """Return all transactional ids with their last transaction, by id."""
        found: list[TransactionInfo] = await self._broker._call("transactions")
        return found

    async def open(self) -> list[TransactionInfo]:
        """Return the transactions that are neither committed nor aborted yet, by transactional id."""
        return [one for one in await self.all() if one.is_open]

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._broker!r}: all(), open(), or ['app'] for one>"


class AsyncTransaction:
    """A transactional id and its last transaction, as it is at each call. Its properties raise NotFoundError if the
    broker does not know the id.
    """

    def __init__(self, broker: AsyncFacade, transactional_id: str) -> None:
        self._broker = broker
        self.transactional_id = transactional_id

    @property
    async def info(self) -> TransactionInfo:
        """All there is to know, at one moment."""
        info: TransactionInfo = await self._broker._call(
            "transaction", transactional_id=self.transactional_id
        )
        return info

    @property
    async def exists(self) -> bool:
        """Whether the broker knows the id."""
        try:
            await self.info
        except NotFoundError:
            return False
        return True

    @property
    async def state(self) -> str:
        """As Kafka's tools show it: Empty, Ongoing, PrepareCommit, PrepareAbort, CompleteCommit, CompleteAbort."""
        return (await self.info).state

    @property
    async def partitions(self) -> Assignment:
        """The partitions in the transaction: ``{"orders": [0, 2]}``."""
        return (await self.info).partitions

    @property
    async def producer_id(self) -> int:
        """The id under which the broker knows the producer."""
        return (await self.info).producer_id

    @property
    async def producer_epoch(self) -> int:
        """Producers with a lower epoch are fenced."""
        return (await self.info).producer_epoch

    async def expire(self) -> list[Occurrence]:
        """Let the open transaction time out now: it is aborted, and its producer fenced.

        Returns the work that followed, when the markers are written. Raises NotFoundError; InvalidArgumentError if none
        is open.
        """
        result: list[Occurrence] = await self._broker._call(
            "expire_transaction", transactional_id=self.transactional_id
        )
        return result

    async def wait_for(self, state: str, *, timeout: float = 10) -> TransactionInfo:
        """Wait until the transaction has that state, such as "CompleteCommit"; return it. The id need not exist yet.

        timeout: seconds of real time. WaitTimeoutError says what there was instead.
        """
        info: TransactionInfo = await self._broker._call(
            "wait_for_transaction", transactional_id=self.transactional_id, state=state, timeout=timeout
        )
        return info

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.transactional_id}>"
