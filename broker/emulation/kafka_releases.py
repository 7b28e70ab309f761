"""The API versions and features of earlier releases of Apache Kafka.

They are those that their brokers (3.9.2, 4.0.2, 4.1.2, 4.2.1, 4.3.1), formatted with their defaults, answer to
ApiVersions. ``compat_tests/every_version/test_emulated_versions.py`` compares them.
"""

RELEASES = ("3.9", "4.0", "4.1", "4.2", "4.3")

API_VERSIONS: dict[int, tuple[tuple[int, int] | None, ...]] = {
    0: ((0, 11), (0, 12), (0, 13), (0, 13), (0, 13)),  # Produce
    1: ((0, 17), (4, 17), (4, 18), (4, 18), (4, 18)),  # Fetch
    2: ((0, 9), (1, 10), (1, 10), (1, 11), (1, 11)),  # ListOffsets
    3: ((0, 12), (0, 13), (0, 13), (0, 13), (0, 13)),  # Metadata
    8: ((0, 9), (2, 9), (2, 9), (2, 10), (2, 10)),  # OffsetCommit
    9: ((0, 9), (1, 9), (1, 9), (1, 10), (1, 10)),  # OffsetFetch
    10: ((0, 6), (0, 6), (0, 6), (0, 6), (0, 6)),  # FindCoordinator
    11: ((0, 9), (0, 9), (0, 9), (0, 9), (0, 9)),  # JoinGroup
    12: ((0, 4), (0, 4), (0, 4), (0, 4), (0, 4)),  # Heartbeat
    13: ((0, 5), (0, 5), (0, 5), (0, 5), (0, 5)),  # LeaveGroup
    14: ((0, 5), (0, 5), (0, 5), (0, 5), (0, 5)),  # SyncGroup
    15: ((0, 5), (0, 6), (0, 6), (0, 6), (0, 6)),  # DescribeGroups
    16: ((0, 5), (0, 5), (0, 5), (0, 5), (0, 5)),  # ListGroups
    17: ((0, 1), (0, 1), (0, 1), (0, 1), (0, 1)),  # SaslHandshake
    18: ((0, 4), (0, 4), (0, 4), (0, 4), (0, 4)),  # ApiVersions
    19: ((0, 7), (2, 7), (2, 7), (2, 7), (2, 7)),  # CreateTopics
    20: ((0, 6), (1, 6), (1, 6), (1, 6), (1, 6)),  # DeleteTopics
    21: ((0, 2), (0, 2), (0, 2), (0, 2), (0, 2)),  # DeleteRecords
    22: ((0, 5), (0, 5), (0, 5), (0, 5), (0, 5)),  # InitProducerId
    23: ((0, 4), (2, 4), (2, 4), (2, 4), (2, 4)),  # OffsetForLeaderEpoch
    24: ((0, 5), (0, 5), (0, 5), (0, 5), (0, 5)),  # AddPartitionsToTxn
    25: ((0, 4), (0, 4), (0, 4), (0, 4), (0, 4)),  # AddOffsetsToTxn
    26: ((0, 4), (0, 5), (0, 5), (0, 5), (0, 5)),  # EndTxn
    27: ((0, 1), (1, 1), (1, 1), (1, 2), (1, 2)),  # WriteTxnMarkers
    28: ((0, 4), (0, 5), (0, 5), (0, 5), (0, 5)),  # TxnOffsetCommit
    29: ((0, 3), (1, 3), (1, 3), (1, 3), (1, 3)),  # DescribeAcls
    30: ((0, 3), (1, 3), (1, 3), (1, 3), (1, 3)),  # CreateAcls
    31: ((0, 3), (1, 3), (1, 3), (1, 3), (1, 3)),  # DeleteAcls
    32: ((0, 4), (1, 4), (1, 4), (1, 4), (1, 4)),  # DescribeConfigs
    33: ((0, 2), (0, 2), (0, 2), (0, 2), (0, 2)),  # AlterConfigs
    34: ((0, 2), (1, 2), (1, 2), (1, 2), (1, 2)),  # AlterReplicaLogDirs
    35: ((0, 4), (1, 4), (1, 4), (1, 4), (1, 5)),  # DescribeLogDirs
    36: ((0, 2), (0, 2), (0, 2), (0, 2), (0, 2)),  # SaslAuthenticate
    37: ((0, 3), (0, 3), (0, 3), (0, 3), (0, 3)),  # CreatePartitions
    38: ((0, 3), (1, 3), (1, 3), (1, 3), (1, 3)),  # CreateDelegationToken
    39: ((0, 2), (1, 2), (1, 2), (1, 2), (1, 2)),  # RenewDelegationToken
    40: ((0, 2), (1, 2), (1, 2), (1, 2), (1, 2)),  # ExpireDelegationToken
    41: ((0, 3), (1, 3), (1, 3), (1, 3), (1, 3)),  # DescribeDelegationToken
    42: ((0, 2), (0, 2), (0, 2), (0, 2), (0, 2)),  # DeleteGroups
    43: ((0, 2), (0, 2), (0, 2), (0, 2), (0, 2)),  # ElectLeaders
    44: ((0, 1), (0, 1), (0, 1), (0, 1), (0, 1)),  # IncrementalAlterConfigs
    45: ((0, 0), (0, 0), (0, 1), (0, 1), (0, 1)),  # AlterPartitionReassignments
    46: ((0, 0), (0, 0), (0, 0), (0, 0), (0, 0)),  # ListPartitionReassignments
    47: ((0, 0), (0, 0), (0, 0), (0, 0), (0, 0)),  # OffsetDelete
    48: ((0, 1), (0, 1), (0, 1), (0, 1), (0, 1)),  # DescribeClientQuotas
    49: ((0, 1), (0, 1), (0, 1), (0, 1), (0, 1)),  # AlterClientQuotas
    50: ((0, 0), (0, 0), (0, 0), (0, 0), (0, 0)),  # DescribeUserScramCredentials
    51: ((0, 0), (0, 0), (0, 0), (0, 0), (0, 0)),  # AlterUserScramCredentials
    55: ((0, 2), (0, 2), (0, 2), (0, 2), (0, 2)),  # DescribeQuorum
    57: ((0, 1), (0, 2), (0, 2), (0, 2), (0, 2)),  # UpdateFeatures
    60: ((0, 1), (0, 2), (0, 2), (0, 2), (0, 2)),  # DescribeCluster
    61: ((0, 0), (0, 0), (0, 0), (0, 0), (0, 0)),  # DescribeProducers
    64: ((0, 0), (0, 0), (0, 0), (0, 0), (0, 0)),  # UnregisterBroker
    65: ((0, 0), (0, 0), (0, 0), (0, 0), (0, 0)),  # DescribeTransactions
    66: ((0, 1), (0, 1), (0, 2), (0, 2), (0, 2)),  # ListTransactions
    68: ((0, 0), (0, 1), (0, 1), (0, 1), (0, 1)),  # ConsumerGroupHeartbeat
    69: ((0, 0), (0, 1), (0, 1), (0, 1), (0, 1)),  # ConsumerGroupDescribe
    74: ((0, 0), (0, 0), (0, 1), (0, 1), (0, 1)),  # ListConfigResources
    75: ((0, 0), (0, 0), (0, 0), (0, 0), (0, 0)),  # DescribeTopicPartitions
    76: (None, None, (1, 1), (1, 1), (1, 1)),  # ShareGroupHeartbeat
    77: (None, None, (1, 1), (1, 1), (1, 1)),  # ShareGroupDescribe
    78: (None, None, (1, 1), (1, 2), (1, 2)),  # ShareFetch
    79: (None, None, (1, 1), (1, 2), (1, 2)),  # ShareAcknowledge
    80: ((0, 0), (0, 0), (0, 0), (0, 1), (0, 1)),  # AddRaftVoter
    81: ((0, 0), (0, 0), (0, 0), (0, 0), (0, 0)),  # RemoveRaftVoter
    83: (None, None, (0, 0), (0, 0), (0, 0)),  # InitializeShareGroupState
    84: (None, None, (0, 0), (0, 0), (0, 0)),  # ReadShareGroupState
    85: (None, None, (0, 0), (0, 1), (0, 1)),  # WriteShareGroupState
    86: (None, None, (0, 0), (0, 0), (0, 0)),  # DeleteShareGroupState
    87: (None, None, (0, 0), (0, 1), (0, 1)),  # ReadShareGroupStateSummary
    88: (None, None, None, (0, 0), (0, 0)),  # StreamsGroupHeartbeat
    89: (None, None, None, (0, 0), (0, 0)),  # StreamsGroupDescribe
    90: (None, None, (0, 0), (0, 1), (0, 1)),  # DescribeShareGroupOffsets
    91: (None, None, (0, 0), (0, 0), (0, 0)),  # AlterShareGroupOffsets
    92: (None, None, (0, 0), (0, 0), (0, 0)),  # DeleteShareGroupOffsets
}
"""The lowest and the highest version of each API, for each of `RELEASES`; None where the release does not have it."""

METADATA_VERSIONS = {"3.9": 21, "4.0": 25, "4.1": 27, "4.2": 29, "4.3": 30}
"""The level of ``metadata.version`` that is finalized."""

FINALIZED_FEATURES: dict[str, dict[str, int]] = {
    "3.9": {},
    "4.0": {"group.version": 1, "transaction.version": 2},
    "4.1": {"group.version": 1, "transaction.version": 2, "eligible.leader.replicas.version": 1},
    "4.2": {
        "group.version": 1,
        "transaction.version": 2,
        "eligible.leader.replicas.version": 1,
        "share.version": 1,
        "streams.version": 1,
    },
}
FINALIZED_FEATURES["4.3"] = FINALIZED_FEATURES["4.2"]
"""The levels of the other features that are finalized."""

SUPPORTED_FEATURES: dict[str, dict[str, tuple[int, int]]] = {
    "3.9": {},
    "4.0": {
        "group.version": (0, 1),
        "transaction.version": (0, 2),
        "eligible.leader.replicas.version": (0, 1),
    },
    "4.1": {
        "group.version": (0, 1),
        "transaction.version": (0, 2),
        "eligible.leader.replicas.version": (0, 1),
        "share.version": (0, 1),
    },
    "4.2": {
        "group.version": (0, 1),
        "transaction.version": (0, 2),
        "eligible.leader.replicas.version": (0, 1),
        "share.version": (0, 1),
        "streams.version": (0, 1),
    },
}
SUPPORTED_FEATURES["4.3"] = SUPPORTED_FEATURES["4.2"]
"""The lowest and the highest level that each of them may have, without ``kraft.version``."""
