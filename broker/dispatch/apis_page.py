"""Makes docs/reference/apis.md of `HANDLERS`: ``python -m oncelog.broker.dispatch.apis_page``."""

from __future__ import annotations

from oncelog.broker.dispatch.api import Api
from oncelog.broker.handlers.table import HANDLERS

KAFKA_APIS: dict[int, tuple[str, int, int]] = {
    0: ("Produce", 3, 13),
    1: ("Fetch", 4, 18),
    2: ("ListOffsets", 1, 11),
    3: ("Metadata", 0, 13),
    8: ("OffsetCommit", 2, 10),
    9: ("OffsetFetch", 1, 10),
    10: ("FindCoordinator", 0, 6),
    11: ("JoinGroup", 0, 9),
    12: ("Heartbeat", 0, 4),
    13: ("LeaveGroup", 0, 5),
    14: ("SyncGroup", 0, 5),
    15: ("DescribeGroups", 0, 6),
    16: ("ListGroups", 0, 5),
    17: ("SaslHandshake", 0, 1),
    18: ("ApiVersions", 0, 5),
    19: ("CreateTopics", 2, 7),
    20: ("DeleteTopics", 1, 6),
    21: ("DeleteRecords", 0, 2),
    22: ("InitProducerId", 0, 6),
    23: ("OffsetForLeaderEpoch", 2, 4),
    24: ("AddPartitionsToTxn", 0, 5),
    25: ("AddOffsetsToTxn", 0, 4),
    26: ("EndTxn", 0, 5),
    27: ("WriteTxnMarkers", 1, 2),
    28: ("TxnOffsetCommit", 0, 6),
    29: ("DescribeAcls", 1, 3),
    30: ("CreateAcls", 1, 3),
    31: ("DeleteAcls", 1, 3),
    32: ("DescribeConfigs", 1, 4),
    33: ("AlterConfigs", 0, 2),
    34: ("AlterReplicaLogDirs", 1, 2),
    35: ("DescribeLogDirs", 1, 5),
    36: ("SaslAuthenticate", 0, 2),
    37: ("CreatePartitions", 0, 3),
    38: ("CreateDelegationToken", 1, 3),
    39: ("RenewDelegationToken", 1, 2),
    40: ("ExpireDelegationToken", 1, 2),
    41: ("DescribeDelegationToken", 1, 3),
    42: ("DeleteGroups", 0, 3),
    43: ("ElectLeaders", 0, 2),
    44: ("IncrementalAlterConfigs", 0, 1),
    45: ("AlterPartitionReassignments", 0, 1),
    46: ("ListPartitionReassignments", 0, 0),
    47: ("OffsetDelete", 0, 0),
    48: ("DescribeClientQuotas", 0, 1),
    49: ("AlterClientQuotas", 0, 1),
    50: ("DescribeUserScramCredentials", 0, 0),
    51: ("AlterUserScramCredentials", 0, 0),
    55: ("DescribeQuorum", 0, 2),
    57: ("UpdateFeatures", 0, 2),
    60: ("DescribeCluster", 0, 2),
    61: ("DescribeProducers", 0, 0),
    64: ("UnregisterBroker", 0, 0),
    65: ("DescribeTransactions", 0, 0),
    66: ("ListTransactions", 0, 2),
    68: ("ConsumerGroupHeartbeat", 0, 1),
    69: ("ConsumerGroupDescribe", 0, 1),
    71: ("GetTelemetrySubscriptions", 0, 0),
    72: ("PushTelemetry", 0, 0),
    74: ("ListConfigResources", 0, 1),
    75: ("DescribeTopicPartitions", 0, 0),
    76: ("ShareGroupHeartbeat", 1, 1),
    77: ("ShareGroupDescribe", 1, 1),
    78: ("ShareFetch", 1, 2),
    79: ("ShareAcknowledge", 1, 2),
    80: ("AddRaftVoter", 0, 1),
    81: ("RemoveRaftVoter", 0, 0),
    83: ("InitializeShareGroupState", 0, 0),
    84: ("ReadShareGroupState", 0, 0),
    85: ("WriteShareGroupState", 0, 1),
    86: ("DeleteShareGroupState", 0, 0),
    87: ("ReadShareGroupStateSummary", 0, 1),
    88: ("StreamsGroupHeartbeat", 0, 1),
    89: ("StreamsGroupDescribe", 0, 1),
    90: ("DescribeShareGroupOffsets", 0, 1),
    91: ("AlterShareGroupOffsets", 0, 0),
    92: ("DeleteShareGroupOffsets", 0, 0),
    93: ("StreamsGroupTopologyDescriptionUpdate", 0, 0),
    94: ("UnregisterController", 0, 0),
}
"""The APIs of brokers of Kafka 4.4.0: name, lowest and highest version; a test compares it with their definitions."""

HEAD = """\
# APIs

`make docs` makes this page from `broker/handlers/table.py` and the handlers' docstrings; a test compares. oncelog
serves and announces no other API. A version is flexible if its request has tagged fields (KIP-482). Of the {count}
APIs that brokers of Kafka 4.4.0 serve to clients, {served} are served here.

| key | API | versions | in Kafka 4.4.0 | first flexible version | what it does |
|--:|---|---|---|--:|---|
"""

CONDITIONS = {
    22: "version 6 with `unstable.api.versions.enable`",
    71: "with `oncelog.client.metrics.enable`, in Kafka with a plug-in",
    72: "with `oncelog.client.metrics.enable`, in Kafka with a plug-in",
}
"""By API key: what decides whether it, or a version of it, is served."""


def table() -> str:
    """Return the whole page, as Markdown."""
    head = HEAD.format(count=len(KAFKA_APIS), served=len(KAFKA_APIS.keys() & HANDLERS.keys()))
    return head + "".join(_row(api_key) for api_key in sorted(KAFKA_APIS.keys() | HANDLERS.keys()))


def _row(api_key: int) -> str:
    name, low, high = KAFKA_APIS[api_key]
    row = HANDLERS.get(api_key)
    if row is None:
        return f"| {api_key} | {name} | none | {_range(low, high)} | | not served |\n"
    api = Api(row)
    versions = _range(row.min_version, row.max_version)
    if row.announced_min != row.min_version:
        versions += f" (announced from {row.announced_min})"
    flexible_from = api.request.FLEXIBLE_VERSIONS[0]
    first_flexible = str(flexible_from) if flexible_from <= row.max_version else "-"
    purpose = _purpose(api)
    if api_key in CONDITIONS:
        purpose += f" ({CONDITIONS[api_key]})"
    return f"| {api_key} | {name} | {versions} | {_range(low, high)} | {first_flexible} | {purpose} |\n"


def _range(low: int, high: int) -> str:
    return f"{low}-{high}"


def _purpose(api: Api) -> str:
    """Return the first sentence of the handler's docstring, without the API's name."""
    text = " ".join((api.documentation or "").split())
    sentence = text.split(". ")[0].rstrip(".")
    before, colon, after = sentence.partition(": ")
    return (after if colon and "API key" in before else "").strip()


if __name__ == "__main__":
    print(table(), end="")
