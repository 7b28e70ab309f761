"""Who may read a data directory: its user alone, or whoever its operator has let in."""

from __future__ import annotations

import os
import pathlib
import stat
from collections.abc import Iterator

import pytest
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

import oncelog

USERS = {"app": "secret"}


@pytest.fixture(autouse=True)
def umask() -> Iterator[None]:
    """Whoever runs the tests may have another one."""
    before = os.umask(0o002)
    yield
    os.umask(before)


def modes(path: pathlib.Path) -> tuple[set[int], set[int]]:
    """The modes of the directories in the directory, and of the files."""
    found = list(path.rglob("*"))
    by_kind: dict[bool, set[int]] = {True: set(), False: set()}
    for one in found:
        by_kind[one.is_dir()].add(stat.S_IMODE(one.stat().st_mode))
    return by_kind[True], by_kind[False]


def use(data_dir: pathlib.Path) -> None:
    """Store records, offsets and a user's password, twice, with a stop in between."""
    for number in range(2):
        with oncelog.Broker(users=USERS, data_dir=data_dir) as kafka:
            kafka.create_topic(f"orders-{number}")
            kafka.produce(f"orders-{number}", b"coffee")
            kafka.group("shop").commit({f"orders-{number}": {0: 1}})
            admin = AdminClient(kafka.client_config(user="app"))
            info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
            change = UserScramCredentialUpsertion(f"user-{number}", info, b"other-secret")
            for result in admin.alter_user_scram_credentials([change]).values():
                result.result(60)


def test_a_new_directory_is_its_users_alone(tmp_path: pathlib.Path) -> None:
    use(tmp_path / "made" / "data")
    assert stat.S_IMODE((tmp_path / "made" / "data").stat().st_mode) == 0o700
    assert modes(tmp_path / "made" / "data") == ({0o700}, {0o600})
    assert stat.S_IMODE((tmp_path / "made").stat().st_mode) == 0o775  # as mkdir -p makes it


@pytest.mark.parametrize(
    ("mode", "inside", "files"),
    [(0o750, {0o750}, {0o640}), (0o2770, {0o2770}, {0o640, 0o660}), (0o755, {0o755}, {0o644})],
    ids=["a group reads", "a group writes", "everybody reads"],
)
def test_a_directory_that_is_there_keeps_what_its_operator_has_set(
    tmp_path: pathlib.Path, mode: int, inside: set[int], files: set[int]
) -> None:
    data_dir = tmp_path / "data"
    data_dir.mkdir()
    data_dir.chmod(mode)
    use(data_dir)
    assert stat.S_IMODE(data_dir.stat().st_mode) == mode
    assert modes(data_dir) == (inside, files)


def test_a_directory_of_a_snapshot_is_its_users_alone(tmp_path: pathlib.Path) -> None:
    with oncelog.Broker(users=USERS) as kafka:
        kafka.snapshot(tmp_path / "taken")
    with oncelog.Broker(users=USERS, from_snapshot=tmp_path / "taken", data_dir=tmp_path / "data"):
        pass
    assert stat.S_IMODE((tmp_path / "data").stat().st_mode) == 0o700
    assert modes(tmp_path / "data") == ({0o700}, {0o600})
