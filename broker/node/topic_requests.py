"""`AsksController`: the `TopicCreator` of a node that follows a controller (Kafka: ``AutoTopicCreationManager``)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelog.broker.logging.logs import get_logger
from oncelog.wire.errors import ErrorCode, KafkaError
from oncelog.wire.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse

if TYPE_CHECKING:
    import trio

    from oncelog.broker.logging.line_limiter import LineLimiter
    from oncelog.broker.metadata.topics import Charge
    from oncelog.broker.node.forwarding import Forwarding
    from oncelog.wire.messages.create_topics import CreatableTopic, CreatableTopicResult
    from oncelog.wire.steps import Steps

CREATE_TOPICS_VERSION = 7

_log = get_logger(__name__)


class AsksController:
    """Asks the controller for topics, each once at a time. Who wants one asks again, and finds it in the metadata."""

    def __init__(self, forwarding: Forwarding, lines: LineLimiter) -> None:
        self._forwarding = forwarding
        self._lines = lines
        self._asked: set[str] = set()
        """The topics whose creation is under way."""
        self.nursery: trio.Nursery | None = None
        """Where it asks; None: the node does not serve yet."""

    def create(
        self, wanted: list[CreatableTopic], charge: Charge | None = None
    ) -> Steps[list[CreatableTopicResult]]:
        """See `TopicCreator`. The controller knows how many partitions a topic gets, so nothing is charged. Returns no
        rows: a topic that is created comes with the metadata.
        """
        new = []
        for topic in wanted:
            if topic.name not in self._asked:
                new.append(topic)
            yield
        if new and self.nursery is not None:
            self._asked.update(topic.name for topic in new)
            self.nursery.start_soon(self._ask, new)
        return []

    async def _ask(self, wanted: list[CreatableTopic]) -> None:
        try:
            response = await self._forwarding.call(CreateTopicsRequest(wanted), CREATE_TOPICS_VERSION)
            assert isinstance(response, CreateTopicsResponse)
            for row in response.topics:
                if row.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                    self._not_created(row.name, row.error_message)
        except KafkaError as error:
            for topic in wanted:
                self._not_created(topic.name, str(error))
        finally:
            self._asked.difference_update(topic.name for topic in wanted)

    def _not_created(self, name: str, reason: str | None) -> None:
        self._lines.write(_log.warning, "topic not created on first use", {"topic": name}, reason=reason)
