"""The fixture with several nodes: by a marker and by the ini file; on somebody's cluster such tests are skipped."""

from __future__ import annotations

import pytest

import oncelog

pytest_plugins = ["pytester"]

MARKED = """
    import pytest

    @pytest.mark.kafka(nodes=3, topics=["t"])
    def test_three(kafka):
        kafka.nodes[1].kill()
        assert len(kafka.nodes) == 3

    def test_by_the_ini_file(kafka):
        assert len(kafka.nodes) == 2
        kafka.network.cut(1, 2)
"""


def test_by_a_marker_and_the_ini_file(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\nkafka_nodes = 2\n")
    pytester.makepyfile(MARKED)
    pytester.runpytest_inprocess().assert_outcomes(passed=2)


def test_on_somebodys_cluster_they_are_skipped(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(MARKED)
    with oncelog.Broker() as elsewhere:
        result = pytester.runpytest_inprocess(
            "-rs", f"--kafka-bootstrap-servers={elsewhere.bootstrap_servers}"
        )
    result.assert_outcomes(skipped=2)
    result.stdout.fnmatch_lines_random(
        [
            "*needs a broker of oncelog, for nodes=: not the cluster at *",
            "*kafka.nodes, kafka.network and who leads need a broker of oncelog*",
        ]
    )


FAILING = """
    import pytest

    @pytest.mark.kafka(nodes=3, topics=["t"])
    def test_three(kafka):
        leader = kafka.topic("t").wait_for_partition(0, isr=[1, 2, 3]).leader
        other = leader % 3 + 1
        kafka.nodes[other].kill()
        kafka.nodes[other].expire()
        print("down", other, "leader", leader)
        assert False
"""


def test_the_report_of_a_failure_says_which_nodes_are_missing(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(FAILING)
    result = pytester.runpytest_inprocess()
    result.assert_outcomes(failed=1)
    result.stdout.re_match_lines_random(
        [
            r"node [123] does not run",
            r"partitions that are not whole:",
            r"    t-0: leader [123], epoch \d+, in sync \[[123], [123]\] of \[[123], [123], [123]\]",
        ]
    )
