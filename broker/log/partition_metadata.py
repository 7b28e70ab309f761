"""``partition.metadata``: which topic id a partition directory belongs to (Kafka: ``PartitionMetadataFile``)."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode

from oncelog.broker.seams.files import FileSystem
from oncelog.wire.errors import DecodeError

PARTITION_METADATA = "partition.metadata"

_VERSION = 0
_UUID_BYTES = 16


class CorruptPartitionMetadata(DecodeError):  # noqa: N818  # what it is, not that it is an error
    """A file that is not in Kafka's format."""


def encode_partition_metadata(topic_id: bytes) -> bytes:
    """The file's text, two lines without a newline at the end: ``version: 0``, and ``topic_id:`` in base64
    without padding."""
    return b"version: %d\ntopic_id: %s" % (_VERSION, urlsafe_b64encode(topic_id).rstrip(b"="))


def read_partition_metadata(files: FileSystem, directory: str) -> bytes | None:
    """The topic id (16 bytes). None if there is no file, or an empty one, as after a power loss before its
    first sync. Raises CorruptPartitionMetadata."""
    path = f"{directory}/{PARTITION_METADATA}"
    if not files.exists(path):
        return None
    data = files.read_bytes(path)
    if not data.strip(b"\0"):
        return None
    try:
        fields = dict(line.split(": ", 1) for line in data.decode("ascii").splitlines())
        topic_id = urlsafe_b64decode(fields["topic_id"] + "==")
    except (ValueError, KeyError):
        raise CorruptPartitionMetadata(f"{path} is malformed") from None
    if fields.get("version") != str(_VERSION) or len(topic_id) != _UUID_BYTES:
        raise CorruptPartitionMetadata(f"{path}: version {fields.get('version')}")
    return topic_id
