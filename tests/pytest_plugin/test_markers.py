"""Markers: which fixtures read them, and the error for one that no fixture of the test reads."""

from __future__ import annotations

import pytest

import oncelog
from tests.pytest_plugin.projects import run

pytest_plugins = ["pytester"]


def test_of_a_test_for_a_broker_of_the_session(pytester: pytest.Pytester) -> None:
    tests = """
        import pytest

        @pytest.mark.kafka(topics=["orders"])
        def test_it(kafka_proc):
            pass

        @pytest.mark.kafka(owner="somebody else's marker")
        def test_without_a_broker():
            pass
    """
    result = run(pytester, tests, errors=1, passed=1)
    result.stdout.fnmatch_lines(
        "@pytest.mark.kafka has no effect: kafka_proc is shared by the session: give the settings to its factory, or *"
    )


@pytest.mark.parametrize("scope", ["class", "module"])
@pytest.mark.parametrize(("marker", "factory"), [("kafka", "kafka"), ("kafka_proxy", "kafka_proxy")])
def test_of_a_test_for_a_fixture_of_a_wider_scope(
    pytester: pytest.Pytester, scope: str, marker: str, factory: str
) -> None:
    pytester.makeconftest(f"""
        from oncelog.pytest_plugin import factories

        kafka = factories.kafka(scope="package", topics=["audit"])
        shared = factories.{factory}(scope="{scope}")
    """)
    tests = f"""
        import pytest

        class TestOrders:
            @pytest.mark.{marker}(seed=5)
            def test_marked(self, shared):
                pass

            def test_other(self, shared):
                assert shared.seed != 5

            @pytest.mark.{marker}()
            def test_marked_with_nothing(self, shared):
                pass
    """
    pytester.mkpydir("orders")
    result = run(pytester, tests, errors=1, passed=2)
    result.stdout.fnmatch_lines(
        f"@pytest.mark.{marker} has no effect: shared has scope {scope}, and reads no markers of what is inside: "
        f"mark the {scope}, or use a fixture with scope function"
    )


def test_of_a_test_for_a_fixture_of_a_package(pytester: pytest.Pytester) -> None:
    package = pytester.mkpydir("orders")
    (package / "conftest.py").write_text(
        'from oncelog.pytest_plugin import factories\n\nkafka = factories.kafka(scope="package")\n'
    )
    (package / "test_in_package.py").write_text(
        "import pytest\n\npytestmark = pytest.mark.kafka(seed=5)\n\ndef test_it(kafka): pass\n"
    )
    result = run(pytester, "", errors=1)
    result.stdout.fnmatch_lines("*kafka is shared by the package: give the settings to its factory, or *")


@pytest.mark.parametrize(("marker", "factory"), [("kafka", "kafka"), ("kafka_proxy", "kafka_proxy")])
def test_of_the_fixtures_own_level_or_above(pytester: pytest.Pytester, marker: str, factory: str) -> None:
    pytester.makeconftest(f"""
        from oncelog.pytest_plugin import factories

        kafka = factories.kafka(scope="package")
        of_module = factories.{factory}(scope="module")
        of_class = factories.{factory}(scope="class")
        of_test = factories.{factory}()
    """)
    tests = f"""
        import pytest

        pytestmark = pytest.mark.{marker}(seed=5, requests_kept=0)

        def test_module(of_module):
            assert of_module.seed == 5

        @pytest.mark.{marker}(seed=6)
        class TestClass:
            def test_of_class(self, of_class):
                assert of_class.seed == 6

            @pytest.mark.{marker}(seed=7)
            def test_of_test(self, of_test, of_class, of_module):
                assert (of_test.seed, of_class.seed, of_module.seed) == (7, 6, 5)

            def test_not_of_the_module(self, of_module):
                pass

        @pytest.mark.{marker}(seed=8)
        def test_without_a_class(of_class):
            assert of_class.seed == 8
    """
    result = run(pytester, tests, passed=4, errors=1)
    result.stdout.fnmatch_lines(
        ["*ERROR at setup of TestClass.test_not_of_the_module*", "*of_module has scope module*"]
    )


def test_for_a_proxy_before_a_cluster_that_runs(pytester: pytest.Pytester) -> None:
    with oncelog.Broker(topics=["theirs"]) as broker:
        pytester.makeconftest(f"""
            from oncelog.pytest_plugin import factories

            kafka = factories.kafka_proxy("{broker.bootstrap_servers}")
        """)
        tests = """
            import pytest

            @pytest.mark.kafka(topics=["orders"])
            def test_marked(kafka):
                pass

            def test_it(kafka):
                assert kafka.topics == ["theirs"]
        """
        result = run(pytester, tests, errors=1, passed=1)
        result.stdout.fnmatch_lines(
            "@pytest.mark.kafka has no effect: kafka is a proxy, and starts no broker: create topics with "
            "kafka.create_topics(), and give settings of the proxy to @pytest.mark.kafka_proxy"
        )
        assert broker.topics == ["theirs"]


def test_for_a_broker_behind_the_tests_proxy(pytester: pytest.Pytester) -> None:
    """The test names the proxy only; the marker of the module is the broker's."""
    pytester.makeconftest("""
        from oncelog.pytest_plugin import factories

        kafka = factories.kafka(scope="module")
        kafka_proxy = factories.kafka_proxy(scope="module")
    """)
    tests = """
        import pytest

        pytestmark = pytest.mark.kafka(topics=["orders"])

        def test_it(kafka_proxy):
            assert kafka_proxy.topics == ["orders"]

        @pytest.mark.kafka_proxy(seed=5)
        def test_marked(kafka_proxy):
            pass
    """
    result = run(pytester, tests, passed=1, errors=1)
    result.stdout.fnmatch_lines("@pytest.mark.kafka_proxy has no effect: kafka_proxy has scope module*")
