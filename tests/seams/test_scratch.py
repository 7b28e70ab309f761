"""Directories that end with their process: who may remove which."""

from __future__ import annotations

import gc
import os
import pathlib
import signal
import subprocess
import sys

import pytest

from oncelog.broker.seams.scratch import SCRATCH_MARK, ScratchDirectory, sweep
from tests.common.oncelog_process import DEADLINE_S

NAME = "oncelog-0123456789abcdef"


def filled(path: pathlib.Path) -> None:
    (path / "t-0").mkdir(parents=True)
    (path / "t-0" / "0.log").write_bytes(b"x")
    (path / "meta.properties").write_bytes(b"x")


def test_it_is_its_user_s_alone_and_goes_with_all_that_is_in_it(tmp_path: pathlib.Path) -> None:
    scratch = ScratchDirectory(f"{tmp_path}/{NAME}")
    filled(tmp_path / NAME)
    assert (tmp_path / NAME).stat().st_mode & 0o777 == 0o700
    scratch.remove()
    assert not list(tmp_path.iterdir())


def test_one_that_cannot_be_made_leaves_nothing(tmp_path: pathlib.Path) -> None:
    filled(tmp_path / NAME)
    gc.collect()  # what other tests left
    open_before = os.listdir("/dev/fd")
    with pytest.raises(OSError, match="not empty"):
        ScratchDirectory(f"{tmp_path}/{NAME}")
    assert len(os.listdir("/dev/fd")) == len(open_before)
    assert [path.name for path in tmp_path.iterdir()] == [NAME]
    assert (tmp_path / NAME / "t-0" / "0.log").exists()


def test_one_that_is_in_use_stays(tmp_path: pathlib.Path) -> None:
    scratch = ScratchDirectory(f"{tmp_path}/{NAME}")
    filled(tmp_path / NAME)
    assert sweep(str(tmp_path)) == []
    assert (tmp_path / NAME / "t-0" / "0.log").exists()
    scratch.remove()


def test_that_of_a_killed_process_goes(tmp_path: pathlib.Path) -> None:
    program = f"""
import sys
from oncelog.broker.seams.scratch import ScratchDirectory
scratch = ScratchDirectory({f"{tmp_path}/{NAME}"!r})
print("made", flush=True)
sys.stdin.read()
"""
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == b"made\n"
        filled(tmp_path / NAME)
        assert sweep(str(tmp_path)) == []
        owner.send_signal(signal.SIGKILL)
        owner.wait(DEADLINE_S)
    assert sweep(str(tmp_path)) == [f"{tmp_path}/{NAME}"]
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "name", ["oncelog", "oncelog-1", NAME + "0", NAME + ".new", NAME.upper(), "x" + NAME]
)
def test_one_of_another_name_stays(tmp_path: pathlib.Path, name: str) -> None:
    filled(tmp_path / name)
    (tmp_path / name / SCRATCH_MARK).touch()
    assert sweep(str(tmp_path)) == []
    assert (tmp_path / name / "t-0" / "0.log").exists()


def test_one_without_the_mark_stays(tmp_path: pathlib.Path) -> None:
    filled(tmp_path / NAME)
    assert sweep(str(tmp_path)) == []
    assert (tmp_path / NAME / "t-0" / "0.log").exists()


def test_what_links_lead_to_stays(tmp_path: pathlib.Path) -> None:
    elsewhere, parent = tmp_path / "elsewhere", tmp_path / "parent"
    filled(elsewhere)
    (elsewhere / SCRATCH_MARK).touch()
    parent.mkdir()
    (parent / NAME).symlink_to(elsewhere)
    second = parent / NAME.replace("0", "1")
    filled(second)
    (second / SCRATCH_MARK).symlink_to(elsewhere / SCRATCH_MARK)
    third = parent / NAME.replace("0", "2")
    filled(third)
    (third / SCRATCH_MARK).touch()
    (third / "link").symlink_to(elsewhere)
    assert sweep(str(parent)) == [str(third)]
    assert not third.exists()
    assert (second / "t-0" / "0.log").exists()
    assert (elsewhere / "t-0" / "0.log").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make another user's directory")
def test_that_of_another_user_stays(tmp_path: pathlib.Path) -> None:
    filled(tmp_path / NAME)
    (tmp_path / NAME / SCRATCH_MARK).touch()
    os.chown(tmp_path / NAME, 12345, 12345)
    assert sweep(str(tmp_path)) == []
    assert (tmp_path / NAME / "t-0" / "0.log").exists()


def test_no_such_parent() -> None:
    assert sweep("/nowhere/at/all") == []
    with pytest.raises(FileNotFoundError):
        ScratchDirectory(f"/nowhere/at/all/{NAME}")
