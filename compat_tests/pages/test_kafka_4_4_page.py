"""docs/how-to/kafka-4.4.md: its commands run in the page's order, and what it says is refused is refused in its
words."""

import pathlib
import re

import pytest

from compat_tests.oncelog_server import ROOT, Oncelog
from tests.common import exchanges, facts
from tests.common.jars import RealPartMissing, require, run_tool
from tests.common.real_kafka import RealKafka

pytestmark = [pytest.mark.slow, facts.needs(facts.IS_4_4, "such levels")]

TEXT = (ROOT / "docs" / "how-to" / "kafka-4.4.md").read_text()
COMMANDS = re.findall(r"(?m)^ +kafka-features\.sh --bootstrap-server 127\.0\.0\.1:9092 (.*)$", TEXT)
REFUSED = re.sub(r"\s+", " ", re.findall(r"\(`(Refusing.*?)`\)", TEXT, re.DOTALL)[0])
CANNOT_READ = re.sub(r"\s+", " ", re.findall(r"\(`(this controller.*?)`\)", TEXT, re.DOTALL)[0])
DOES_NOT_START = re.findall(r"\(`(No MetadataVersion.*?)`\)", TEXT)[0]


def features(bootstrap: str, *arguments: str, check: bool = True) -> str:
    run = run_tool(
        "org.apache.kafka.tools.FeatureCommand", "--bootstrap-server", bootstrap, *arguments, check=check
    )
    return run.stdout


@exchanges.METADATA
@pytest.mark.parametrize("target", ["oncelog", "kafka"])
def test_the_order_and_the_way_back(target: str, tmp_path: pathlib.Path) -> None:
    """On a directory of 4.3.1, which starts on it again until `metadata.version` is raised."""
    assert len(COMMANDS) == 4
    raise_metadata, raise_share, describe, lower_share = (command.split() for command in COMMANDS)
    older = RealKafka(data_dir=tmp_path, version=facts.OLDER)
    newer = Oncelog(data_dir=tmp_path) if target == "oncelog" else RealKafka(data_dir=tmp_path)
    try:
        with older:
            pass
    except RealPartMissing as missing:
        require(str(missing))
    with newer:
        assert "FinalizedVersionLevel: 4.3-IV0" in features(newer.bootstrap, *describe)
        features(newer.bootstrap, *raise_share)
        features(newer.bootstrap, *lower_share)
    if target == "oncelog":
        with older:
            pass
    else:  # the record that raised it is still in the log
        with pytest.raises(AssertionError, match=CANNOT_READ), older:
            pass
    with newer:
        features(newer.bootstrap, *raise_metadata)
        features(newer.bootstrap, *raise_share)
        shown = features(newer.bootstrap, *describe)
        assert "FinalizedVersionLevel: 4.4-IV2" in shown
        assert re.search(r"share\.version\s.*FinalizedVersionLevel: 2\s", shown), shown
        lowered = features(newer.bootstrap, "downgrade", "--feature", "metadata.version=30", check=False)
        assert REFUSED in lowered
    with (
        pytest.raises(AssertionError, match=f"{DOES_NOT_START}|this controller only supports versions"),
        older,
    ):
        pass
