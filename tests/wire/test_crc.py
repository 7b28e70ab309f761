"""CRC-32C against the published vectors (RFC 3720, B.4), kafka-python's table; and how it is imported."""

import subprocess
import sys
from importlib.machinery import PathFinder

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.wire import crc
from oncelog.wire.crc import crc32c
from tests.common.oncelog_process import DEADLINE_S
from tests.wire.batches import kafka_python_crc


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", 0),
        (b"123456789", 0xE3069283),
        (bytes(32), 0x8A9136AA),
        (b"\xff" * 32, 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
        (bytes(range(31, -1, -1)), 0x113FDB5C),
    ],
)
def test_published_vectors(data: bytes, expected: int) -> None:
    assert crc32c(data) == expected


@given(st.binary(max_size=200), st.integers(0, 200))
def test_is_kafka_pythons_and_goes_on_from_a_value(data: bytes, cut: int) -> None:
    whole = kafka_python_crc(data)
    assert crc32c(data) == whole
    assert crc32c(memoryview(bytearray(data))[cut:], crc32c(data[:cut])) == whole


def run(program: str) -> None:
    subprocess.run([sys.executable, "-c", program], check=True, timeout=DEADLINE_S)


def test_importing_it_runs_neither_the_packages_init_nor_importlib_metadata() -> None:
    run(
        "import sys; before = set(sys.modules); import oncelog.wire.crc; new = set(sys.modules) - before\n"
        "assert 'crc32c' not in new and 'importlib.metadata' not in new, new\n"
        "assert oncelog.wire.crc.crc32c(b'123456789') == 0xE3069283"
    )


def test_the_package_can_be_imported_before_or_after() -> None:
    check = "assert crc32c.crc32c(b'123456789') == oncelog.wire.crc.crc32c(b'123456789') == 0xE3069283"
    run(f"import crc32c, oncelog.wire.crc; {check}")
    run(f"import oncelog.wire.crc, crc32c; {check}")


def test_another_layout_falls_back_to_the_ordinary_import(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "crc32c._crc32c", raising=False)
    asked = []

    def find_nothing(name: str, path: object = None) -> None:
        asked.append(name)

    with monkeypatch.context() as patched:
        patched.setattr(PathFinder, "find_spec", find_nothing)
        assert crc._load_extension() is None
    assert asked == ["crc32c"]
    monkeypatch.setattr(crc, "_load_extension", lambda: None)
    assert crc._find()(b"123456789") == 0xE3069283
