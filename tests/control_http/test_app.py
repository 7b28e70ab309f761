"""Operations over HTTP: requests, responses, errors."""

import json
from collections.abc import Mapping
from typing import Any

import pytest
import trio
from jsonschema import Draft202012Validator

from oncelog.broker.control.controlled_broker import ControlledBroker
from oncelog.broker.control.errors import WaitTimeoutError
from oncelog.broker.control.operations import MODULES
from oncelog.broker.control.share_types import (
    DeadLetter,
    RecordsInFlight,
    ShareGroupInfo,
    ShareMember,
    SharePartitionInfo,
)
from oncelog.broker.control_http.annotations import to_json
from oncelog.broker.control_http.app import control_app
from oncelog.broker.control_http.routes import Route
from oncelog.broker.logging.logs import LogOutput, logging_to
from oncelog.wire.errors import ErrorCode, KafkaError
from tests.control_http.asking import Answer, answered, ask, controlled
from tests.harness.clocks import FixedClock
from tests.harness.log_lines import Lines


def test_the_life_of_a_broker() -> None:
    async def main() -> None:
        async with controlled(topics={"orders": 2}, seed=7) as (broker, app):
            first = (await ask(app, "GET", "/broker")).json
            assert (first["seed"], first["is_running"]) == (7, True)
            for end in ("stop", "kill", "lose_power"):
                assert (await ask(app, "POST", f"/broker/{end}")).status == 204
                assert not (await ask(app, "GET", "/broker")).json["is_running"]
                stopped = await ask(app, "GET", "/topics")
                assert (stopped.status, stopped.json["error"]) == (409, "NotRunningError")
                started = await ask(app, "POST", "/broker/start", {})
                assert started.json == first
                assert (await ask(app, "GET", "/topics")).json == ["orders"]
            assert (await ask(app, "POST", "/broker/reset")).json == {"connected_clients": []}
            assert broker.is_running

    trio.run(main)


def test_several_clients_start_and_reset_a_broker_at_the_same_time() -> None:
    async def main() -> None:
        async with controlled(topics={"orders": 2}) as (broker, app):
            answers: list[int] = []

            async def post(path: str) -> None:
                answers.append((await ask(app, "POST", path)).status)

            for several in (
                ("start",) * 3,
                ("reset", "start", "reset", "start"),
                ("stop", "start", "stop", "start"),
            ):
                await broker.stop()
                await broker.start()
                answers.clear()
                async with trio.open_nursery() as nursery:
                    for name in several:
                        nursery.start_soon(post, f"/broker/{name}")
                assert set(answers) <= {200, 204, 409}
                assert (await ask(app, "POST", "/broker/start")).json["is_running"]
            await broker.stop()
            async with trio.open_nursery() as nursery:
                for _ in range(3):
                    nursery.start_soon(post, "/broker/start")
            assert set(answers[-3:]) == {200}
            assert (await ask(app, "GET", "/topics")).json == ["orders"]

    trio.run(main)


def test_what_is_in_a_broker() -> None:
    async def main() -> None:
        async with controlled(topics={"orders": 2}) as (_, app):
            topic = (await ask(app, "GET", "/topics/orders")).json
            assert [row["high_watermark"] for row in topic["partitions"]] == [0, 0]
            assert (
                await ask(app, "GET", "/topics/orders/records?isolation=read_committed&limit=5")
            ).json == []
            assert "__consumer_offsets" not in (await ask(app, "GET", "/topics?internal=true")).json

    trio.run(main)


def test_results_are_as_they_are_described() -> None:
    def check(answer: Answer, method: str, path: str) -> Any:
        operation = described["paths"][path][method]
        expected = operation["responses"][str(answer.status)]["content"]["application/json"]["schema"]
        Draft202012Validator({**expected, "components": described["components"]}).validate(answer.json)
        return answer.json

    async def main() -> None:
        async with controlled(topics={"orders": 2}) as (_, app):
            described.update((await ask(app, "GET", "/openapi.json")).json)
            for path in described["paths"]:
                if "get" in described["paths"][path] and "{" not in path:
                    check(await ask(app, "GET", path), "get", path)
            check(await ask(app, "GET", "/topics/orders"), "get", "/topics/{name}")
            check(await ask(app, "GET", "/topics/none"), "get", "/topics/{name}")
            rule = {"on": "EndTxn", "nth": 2, "drop_response": "close"}
            assert check(await ask(app, "POST", "/faults", rule), "post", "/faults") == {"id": 1}
            assert len(check(await ask(app, "GET", "/faults"), "get", "/faults")) == 1

    described: dict[str, Any] = {}
    trio.run(main)


def test_share_groups() -> None:
    async def main() -> None:
        async with controlled(topics={"orders": 2}) as (_, app):
            assert (await ask(app, "GET", "/share-groups")).json == []
            missing = await ask(app, "GET", "/share-groups/jobs")
            assert (missing.status, missing.json["error"]) == (404, "NotFoundError")
            reset = {"share.auto.offset.reset": "earliest"}
            assert (await ask(app, "POST", "/groups/jobs/config", reset)).status == 204
            wrong = await ask(app, "POST", "/groups/jobs/config", {"share.auto.offset.reset": "never"})
            assert (wrong.status, wrong.json["error"]) == (400, "InvalidArgumentError")
            described = (await ask(app, "GET", "/openapi.json")).json
            response = described["paths"]["/share-groups/{group_id}"]["get"]["responses"]["200"]
            expected = response["content"]["application/json"]["schema"]
            held = RecordsInFlight(4, 5, "acquired", 2, "m", 1_900_000_000_000)
            partitions = {0: SharePartitionInfo(4, (held,), 2), 1: SharePartitionInfo(None)}
            member = ShareMember("m", "c", "/127.0.0.1", 3, ("orders",), {"orders": [0, 1]})
            shown = to_json(ShareGroupInfo("jobs", "Stable", 3, (member,), {"orders": partitions}))
            Draft202012Validator({**expected, "components": described["components"]}).validate(shown)
            assert shown["partitions"]["orders"]["0"]["in_flight"][0]["state"] == "acquired"

    trio.run(main)


def test_dead_letters() -> None:
    async def main() -> None:
        enabled = {"errors.deadletterqueue.group.enable": "true"}
        topics: dict[str, Any] = {"orders": 1, "dlq.jobs": {"config": enabled}}
        async with controlled(topics=topics) as (_, app):
            path = "/share-groups/jobs/dead-letters"
            missing = await ask(app, "GET", path)
            assert (missing.status, missing.json["error"]) == (404, "NotFoundError")
            assert "share group jobs has no dead-letter queue" in missing.json["message"]
            queue = {"errors.deadletterqueue.topic.name": "dlq.jobs"}
            assert (await ask(app, "POST", "/groups/jobs/config", queue)).status == 204
            assert (await ask(app, "GET", path)).json == []
            late = await ask(app, "POST", f"{path}/wait", {"count": 2, "timeout": 0.01})
            assert (late.status, late.json["error"]) == (504, "WaitTimeoutError")
            names = "topic", "partition", "offset", "group", "delivery.count", "message"
            texts = "orders", "0", "7", "jobs", "3", "Offset rejected by client."
            headers = {f"__dlq.errors.{name}": text for name, text in zip(names, texts, strict=True)}
            record = {"value": {"base64": "/w=="}, "headers": headers, "timestamp": 5}
            assert (await ask(app, "POST", "/topics/dlq.jobs/records", record)).status == 200
            found = await ask(app, "POST", f"{path}/wait", {})
            letter = DeadLetter(
                "orders", 0, 7, "jobs", 3, "Offset rejected by client.", "dlq.jobs", 0, 0, 5, None, b"\xff"
            )
            assert found.json == [to_json(letter)]
            assert found.json[0]["value"] == {"base64": "/w=="}
            described = (await ask(app, "GET", "/openapi.json")).json
            response = described["paths"]["/share-groups/{group_id}/dead-letters"]["get"]["responses"]["200"]
            expected = response["content"]["application/json"]["schema"]
            Draft202012Validator({**expected, "components": described["components"]}).validate(found.json)

    trio.run(main)


def test_faults() -> None:
    async def main() -> None:
        async with controlled(topics={"orders": 2}) as (_, app):
            wrong = await ask(app, "POST", "/faults", {"on": "EndTxm", "nth": 2, "drop_response": "close"})
            assert (wrong.status, wrong.json["error"]) == (400, "InvalidArgumentError")
            assert "EndTxn" in wrong.json["message"]
            text = '[[rules]]\non = "Produce"\nhold = true\n'
            loaded = await ask(app, "POST", "/faults/load", {"text": text, "name": "rules.toml"})
            (rule_id,) = loaded.json["ids"]
            late = await ask(app, "POST", f"/faults/{rule_id}/wait", {"timeout": 0.01})
            assert (late.status, late.json["error"]) == (504, "WaitTimeoutError")
            assert (await ask(app, "POST", f"/faults/{rule_id}/release")).status == 204
            assert (await ask(app, "DELETE", f"/faults/{rule_id}")).status == 204
            assert (await ask(app, "DELETE", f"/faults/{rule_id}")).status == 404
            assert (await ask(app, "DELETE", "/faults")).status == 204

    trio.run(main)


def test_the_clock() -> None:
    async def main() -> None:
        async with controlled() as (_, app):
            assert (await ask(app, "POST", "/clock/freeze")).status == 204
            before = (await ask(app, "GET", "/clock")).json
            moved = await ask(
                app, "POST", "/clock/advance", {"days": 7, "milliseconds": 1, "members": "expire"}
            )
            assert (moved.status, moved.json) == (200, [])
            assert (await ask(app, "GET", "/clock")).json["now_ms"] == before["now_ms"] + 7 * 86_400_000 + 1
            for time in ("2200-01-01T00:00:00Z", 7_258_118_400_001):
                assert (await ask(app, "POST", "/clock/set", {"time": time})).status == 200
            assert (await ask(app, "GET", "/clock")).json["now_ms"] == 7_258_118_400_001
            for body, message in (
                ({"time": "2200-01-01"}, "append Z for UTC"),
                ({"time": "tomorrow"}, "expected a time such as"),
                ({"time": 0}, "cannot be set back"),
                ({}, "time is missing"),
            ):
                refused = await ask(app, "POST", "/clock/set", body)
                assert refused.status == 400
                assert message in refused.json["message"]
            assert (await ask(app, "POST", "/clock/advance", {"days": 1e300})).status == 400
            assert (await ask(app, "POST", "/clock/resume")).status == 204

    trio.run(main)


def test_records_are_written_and_deleted() -> None:
    async def main() -> None:
        async with controlled(topics={"orders": 2}) as (_, app):
            path = "/topics/orders/records"
            for body in (
                {"value": "v", "key": "k", "headers": {"a": "1"}, "timestamp": 5, "partition": 1},
                [
                    {"value": {"base64": "/w=="}, "headers": [["a", "1"], ["a", None]], "partition": 1},
                    "plain",
                ],
            ):
                written = await ask(app, "POST", path, body)
                assert written.status == 200
            by_offset = (await ask(app, "GET", f"{path}?partition=1")).json
            assert [row["value"] for row in by_offset][:2] == ["v", {"base64": "/w=="}]
            assert by_offset[0]["headers"] == [["a", "1"]]
            assert by_offset[1]["headers"] == [["a", "1"], ["a", None]]
            assert by_offset[0]["timestamp"] == 5
            assert (await ask(app, "DELETE", path, {"before": {"1": 1}})).json == {"1": 1}
            assert (await ask(app, "POST", "/groups/g/offsets", {"orders": {"1": 2}})).status == 204
            assert (await ask(app, "GET", "/groups/g")).json["committed"] == {"orders": {"1": 2}}
            wrong = await ask(app, "POST", path, [{"valeu": "v"}])
            assert wrong.json["message"] == (
                'the body=[{\'valeu\': \'v\'}]: expected a record such as {"key": "k", "value": "v"} (its fields: '
                "value, key, headers, timestamp, partition), or a list of records and of mere values; bytes are "
                'text, or {"base64": "..."}'
            )
            assert (await ask(app, "DELETE", "/topics/orders")).status == 204
            assert (await ask(app, "POST", "/topics/orders", {"partitions": 5})).json["name"] == "orders"

    trio.run(main)


def test_errors_name_routes() -> None:
    async def main() -> None:
        async with controlled(config={"auto.create.topics.enable": False}) as (_, app):
            lost = await ask(app, "POST", "/topics/orders/records", ["v"])
            assert "POST /topics/{name} creates it" in lost.json["message"]
            await ask(app, "POST", "/broker/stop")
            stopped = await ask(app, "GET", "/topics")
            assert stopped.json["message"] == "the broker is stopped: POST /broker/start starts it again"
            assert (await ask(app, "POST", "/broker/start")).status < 300
            other = await ask(app, "POST", "/topics/orders", {"partitions": "nothing()"})
            assert "'nothing()'" in other.json["message"]

    trio.run(main)


def test_a_write_that_meets_a_crash_point() -> None:
    async def main() -> None:
        async with controlled() as (_, app):
            assert (await ask(app, "POST", "/topics", ["orders"])).status == 204
            rule = {"crash_at": "after append", "topic": "orders"}
            assert (await ask(app, "POST", "/faults", rule)).status < 300
            died = await ask(app, "POST", "/topics/orders/records", ["coffee"])
            assert (died.status, died.json["error"]) == (409, "NotRunningError")
            assert died.json["message"] == (
                "the broker died at rule 1 (crash_at: after append, topic: orders): POST /broker/start starts it again"
            )
            assert (await ask(app, "POST", "/broker/start")).status < 300
            assert len((await ask(app, "GET", "/topics/orders/records")).json) == 1

    trio.run(main)


def test_topics_and_a_snapshot() -> None:
    async def main() -> None:
        async with controlled() as (_, app):
            assert (await ask(app, "POST", "/topics", {"a": 3, "b": {"partitions": 1}})).status == 204
            assert (await ask(app, "POST", "/topics", ["c"])).status == 204
            assert (await ask(app, "GET", "/topics")).json == ["a", "b", "c"]
            missing = await ask(app, "POST", "/topics")
            assert missing.json["message"].startswith(
                "the body must be the topics, as JSON: a list of names, or"
            )
            taken = await ask(app, "POST", "/snapshot")
            assert taken.headers["content-type"] == "application/octet-stream"
        async with controlled(from_snapshot=taken.body) as (_, app):
            assert (await ask(app, "GET", "/topics")).json == ["a", "b", "c"]

    trio.run(main)


@pytest.mark.parametrize(
    ("method", "target", "body", "status", "error", "message"),
    [
        ("GET", "/topics/ordes", None, 404, "NotFoundError", "did you mean orders?"),
        (
            "GET",
            "/topics/orders/records?isolaton=x",
            None,
            400,
            "InvalidArgumentError",
            "did you mean isolation?",
        ),
        (
            "GET",
            "/topics/orders/records?limit=many",
            None,
            400,
            "InvalidArgumentError",
            "limit='many': expected",
        ),
        (
            "GET",
            "/topics/orders/records?topic=x",
            None,
            400,
            "InvalidArgumentError",
            "topic stands in the path",
        ),
        ("GET", "/topics", {"internal": True}, 400, "InvalidArgumentError", "in the query, not in a body"),
        ("POST", "/broker/kill?x=1", None, 400, "InvalidArgumentError", "in the body, not in the query"),
        ("POST", "/broker/kill", {"x": 1}, 400, "InvalidArgumentError", "unknown argument x; expected none"),
        ("POST", "/broker/kill", [1], 400, "InvalidArgumentError", "must be a JSON object"),
        ("POST", "/broker/kill", b"{", 400, "InvalidArgumentError", "the body is not JSON"),
        ("POST", "/broker/kill", b"\xff", 400, "InvalidArgumentError", "the body is not JSON"),
        ("POST", "/broker/kill", b"[" * 100_000, 400, "InvalidArgumentError", "the body is not JSON"),
        ("POST", "/broker/kill", b'"\\uD800"', 400, "InvalidArgumentError", "half a surrogate pair"),
        ("POST", "/faults/1/wait", {"timeout": -1}, 400, "InvalidArgumentError", "timeout=-1"),
        ("POST", "/topics", {"a": {"config": [1]}}, 400, "InvalidArgumentError", "expected a number of part"),
        ("GET", "/broker/kill", None, 405, "MethodError", "GET /broker/kill: expected POST"),
        ("GET", "/brokers", None, 404, "NoRouteError", "there is no /brokers; GET /openapi.json describes"),
        ("GET", "/topics/", None, 404, "NoRouteError", "there is no /topics/"),
    ],
)
def test_a_mistake(method: str, target: str, body: Any, status: int, error: str, message: str) -> None:
    async def main() -> None:
        async with controlled(topics={"orders": 2}) as (broker, app):
            answer = await ask(app, method, target, body)
            assert (answer.status, answer.json["error"]) == (status, error)
            assert message in answer.json["message"]
            assert broker.is_running

    trio.run(main)


def test_the_description_is_served() -> None:
    async def main() -> None:
        async with controlled() as (_, app):
            described = (await ask(app, "GET", "/openapi.json")).json
            assert described["openapi"] == "3.1.0"
            assert "/topics/{topic}/records" in described["paths"]

    trio.run(main)


def test_a_name_with_a_slash() -> None:
    _, calls = answered(None, "/groups/a%2Fb%20%25c?isolation=read_committed")
    assert calls == [{"operation": "group", "group_id": "a/b %c", "isolation": "read_committed"}]


def test_an_error_of_kafka() -> None:
    answer, _ = answered(KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, "no such group"))
    assert answer.status == 422
    assert answer.json == {
        "error": "KafkaError",
        "message": "GROUP_ID_NOT_FOUND: no such group",
        "code": 69,
        "name": "GROUP_ID_NOT_FOUND",
    }


def test_a_defect_is_an_answer_and_a_log_line() -> None:
    lines = Lines()
    with logging_to(LogOutput(lines, FixedClock())):
        answer, _ = answered(RuntimeError("broken"))
    assert (answer.status, answer.json["error"]) == (500, "InternalError")
    assert "Traceback" in lines.lines[0]


def test_bytes_are_sent_as_they_are() -> None:
    answer, _ = answered(b"\xff\x00")
    assert answer.body == b"\xff\x00"
    assert answer.headers["content-type"] == "application/octet-stream"


async def wait_for_nothing(broker: ControlledBroker, *, timeout: float = 1.0) -> dict[str, int]:
    """An operation that may take long."""
    raise NotImplementedError


@pytest.fixture
def wait(monkeypatch: pytest.MonkeyPatch) -> Route:
    """A route to an operation that waits."""
    monkeypatch.setitem(MODULES, "wait_for_nothing", __name__)
    return Route("POST", "/wait", "wait_for_nothing")


def test_a_client_that_goes_ends_its_wait(wait: Route) -> None:
    ended: list[str] = []

    async def main() -> None:
        is_gone = trio.Event()

        async def call(operation: str, arguments: Mapping[str, Any]) -> Any:
            try:
                is_gone.set()
                await trio.sleep_forever()
            finally:
                ended.append(operation)

        with trio.fail_after(60):
            await ask(control_app(call, version="0", routes=[wait]), "POST", "/wait", is_gone=is_gone)

    trio.run(main)
    assert ended == ["wait_for_nothing"]


def test_what_a_wait_returns_and_raises(wait: Route) -> None:
    async def call(operation: str, arguments: Mapping[str, Any]) -> Any:
        if results:
            return results.pop()
        raise WaitTimeoutError("nothing came")

    async def main() -> None:
        app = control_app(call, version="0", routes=[wait])
        assert (await ask(app, "POST", "/wait", {"timeout": 5})).json == {"a": 1}
        late = await ask(app, "POST", "/wait")
        assert (late.status, late.json) == (504, {"error": "WaitTimeoutError", "message": "nothing came"})

    results = [{"a": 1}]
    trio.run(main)


def test_a_body_that_is_too_large_or_does_not_arrive() -> None:
    async def call(operation: str, arguments: Mapping[str, Any]) -> Any:
        raise AssertionError

    async def main() -> None:
        app = control_app(call, version="0", body_max_bytes=100)
        large = await ask(app, "POST", "/broker/kill", json.dumps({"x": "y" * 100}).encode())
        assert (large.status, large.json["error"]) == (413, "BodyTooLargeError")
        app = control_app(call, version="0", body_seconds=0.01)
        stalled = await ask(app, "POST", "/broker/kill", b"{", stalls=True)
        assert (stalled.status, stalled.json["error"]) == (400, "IncompleteBodyError")

    trio.run(main)
