"""Values of control records: leader changes, voters and snapshot bounds in the metadata log, and transaction markers.

The type of a control record is in its key (``wire.control``). The field ``version`` repeats the message's version.

Source: ``ControlRecordUtils``, ``EndTransactionMarker``, KIP-98, KIP-595, KIP-630, KIP-853.
"""

from __future__ import annotations

from oncelog.wire.schema import (
    Message,
    Struct,
    Uuid,
    array,
    int16,
    int32,
    int64,
    string,
    struct,
    uint16,
    uuid,
)


class Voter(Struct):
    voter_id: int = int32()
    voter_directory_id: Uuid = uuid("1+")


class LeaderChangeMessage(Message, kind="data", versions="0-1", flexible="0+"):
    """First record of a leader epoch: the leader, all voters, and those that voted for the leader."""

    version: int = int16()
    leader_id: int = int32()
    voters: list[Voter] = array(Voter)
    granting_voters: list[Voter] = array(Voter)


class SnapshotHeaderRecord(Message, kind="data", versions="0", flexible="0+"):
    """First record of a snapshot; the timestamp is in milliseconds."""

    version: int = int16()
    last_contained_log_timestamp: int = int64()


class SnapshotFooterRecord(Message, kind="data", versions="0", flexible="0+"):
    """Last record of a snapshot, without which the snapshot is incomplete."""

    version: int = int16()


class KRaftVersionRecord(Message, kind="data", versions="0", flexible="0+"):
    version: int = int16()
    kraft_version: int = int16()


class Endpoint(Struct):
    name: str = string()
    host: str = string()
    port: int = uint16()


class KRaftVersionFeature(Struct):
    min_supported_version: int = int16()
    max_supported_version: int = int16()


class VotersRecordVoter(Struct):
    voter_id: int = int32()
    voter_directory_id: Uuid = uuid()
    endpoints: list[Endpoint] = array(Endpoint)
    kraft_version_feature: KRaftVersionFeature = struct(KRaftVersionFeature)


class VotersRecord(Message, kind="data", versions="0", flexible="0+"):
    """The quorum's voters, which are in the log from ``kraft.version`` 1 on."""

    version: int = int16()
    voters: list[VotersRecordVoter] = array(VotersRecordVoter)


class EndTxnMarker(Message, kind="data", versions="0", flexible="none"):
    """Value of a COMMIT or ABORT marker, after an int16 version (``EndTransactionMarker``)."""

    coordinator_epoch: int = int32()
