"""What a proxy learns of its cluster's topics from the responses that pass."""

from __future__ import annotations

from oncelog.broker.proxy.upstream import UpstreamTopic
from oncelog.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from oncelog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from tests.common.batches import batch
from tests.harness.requests import create_topic, produce
from tests.harness.sim_broker import SimBroker
from tests.harness.simulation import simulated
from tests.proxy.sim_proxy import SimProxy


@simulated
async def test_topics_come_and_go() -> None:
    async with SimBroker() as broker:
        old_id = await create_topic(broker.connect(), "old", 2)
        async with SimProxy(broker.open_transport, [("simulated", 9092)]) as proxy:
            upstream = proxy.proxy.upstream
            assert upstream.topics == {"old": UpstreamTopic("old", old_id, range(2))}
            gone: list[str | None] = []
            proxy.proxy.watch_metadata(lambda topic: gone.append(None if topic is None else topic.name))
            client = proxy.connect()
            new_id = await create_topic(client, "new")
            assert upstream.topic_name(new_id) == "new"
            await produce(client, "new", batch())
            request = DeleteTopicsRequest([DeleteTopicState("old")], timeout_ms=1000)
            await client.call(request, 6, DeleteTopicsResponse)
            assert list(upstream.topics) == ["new"]
            assert upstream.topic_name(old_id) is None
            # One that was deleted and made again beside the proxy.
            direct = broker.connect()
            await direct.call(
                DeleteTopicsRequest([DeleteTopicState("new")], timeout_ms=1000), 6, DeleteTopicsResponse
            )
            again_id = await create_topic(direct, "new", 3)
            metadata = MetadataRequest([MetadataRequestTopic(name="new")])
            await client.call(metadata, 9, MetadataResponse)
            assert upstream.topics["new"] == UpstreamTopic("new", new_id, range(3))  # no ids in version 9
            await client.call(metadata, 12, MetadataResponse)
            assert upstream.topics["new"] == UpstreamTopic("new", again_id, range(3))
            assert upstream.topic_name(new_id) is None
            assert gone == [None, "old", None, "new", None]
