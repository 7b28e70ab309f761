"""Bodies of control records: quorum changes and snapshot ends in the metadata log, and transaction markers.

The type of a control record is in its key (``wire.batch``). ``version`` in the fields repeats the version
that the message is written in.

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
    """First batch of a leader epoch: who leads, and which voters made it so."""

    version: int = int16()
    leader_id: int = int32()
    voters: list[Voter] = array(Voter)
    granting_voters: list[Voter] = array(Voter)


class SnapshotHeaderRecord(Message, kind="data", versions="0", flexible="0+"):
    """First record of a snapshot; the timestamp is in milliseconds."""

    version: int = int16()
    last_contained_log_timestamp: int = int64()


class SnapshotFooterRecord(Message, kind="data", versions="0", flexible="0+"):
    """Last record of a snapshot: without it the snapshot is not whole."""

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
    """The quorum's voters, where they are kept in the log (``kraft.version`` 1)."""

    version: int = int16()
    voters: list[VotersRecordVoter] = array(VotersRecordVoter)


class EndTxnMarker(Message, kind="data", versions="0", flexible="none"):
    """Body of a COMMIT or ABORT marker; its version (int16) comes first (``EndTransactionMarker``)."""

    coordinator_epoch: int = int32()
