"""`ROUTES`: the method and path of each operation. A further operation needs one line here, and nothing else.

What a route takes and returns follows from the operation's signature. An argument in the path is named in braces. The
others are query parameters of a GET, and fields of a POST's, PUT's or DELETE's JSON body.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from oncelog.broker.control.operations import operation
from oncelog.broker.control_http import own_arguments
from oncelog.broker.faults.schema import rule_schema


@dataclass(frozen=True)
class Route:
    """One operation's method and path."""

    method: str
    path: str
    operation: str
    whole_body: str | None = None
    """The argument that the whole JSON body is; None if the body is an object of arguments."""
    body_words: str | None = None
    """What that argument may be, in an error's words, where its annotation would say it badly."""
    body_schema: Callable[[], dict[str, Any]] | None = None
    """The JSON Schema of that argument, where its annotation says less."""
    result_name: str | None = None
    """The result is wrapped in an object with this one field, such as ``{"id": 1}``."""
    arguments: Callable[..., dict[str, Any]] | None = None
    """Makes the operation's arguments of the route's, where those are others."""

    @property
    def path_arguments(self) -> tuple[str, ...]:
        """The arguments in the path."""
        return tuple(re.findall(r"{(\w+)}", self.path))

    @property
    def takes_query(self) -> bool:
        """Whether the arguments that are not in the path are query parameters."""
        return self.method == "GET"

    @property
    def documented(self) -> Callable[..., Any]:
        """What has the route's arguments and its description."""
        return self.arguments or self.function()

    def function(self) -> Callable[..., Coroutine[Any, Any, Any]]:
        """Return the operation. Its module is imported with the first call."""
        return operation(self.operation)


ROUTES = (
    # The broker
    Route("GET", "/broker", "info"),
    Route("POST", "/broker/start", "start"),
    Route("POST", "/broker/stop", "stop"),
    Route("POST", "/broker/kill", "kill"),
    Route("POST", "/broker/lose_power", "lose_power"),
    Route("POST", "/broker/reset", "reset", result_name="connected_clients"),
    Route("POST", "/snapshot", "snapshot"),
    Route("GET", "/log_lines", "log_lines"),
    # What is in it
    Route("GET", "/topics", "topics"),
    Route(
        "POST",
        "/topics",
        "create_topics",
        whole_body="topics",
        body_words='a list of names, or an object such as {"orders": 3} or {"orders": {"partitions": 3, "config": {}}}',
    ),
    Route("GET", "/topics/{name}", "topic"),
    Route("POST", "/topics/{name}", "create_topic"),
    Route("DELETE", "/topics/{name}", "delete_topic"),
    Route("GET", "/topics/{topic}/records", "records"),
    Route(
        "POST",
        "/topics/{topic}/records",
        "produce",
        whole_body="records",
        body_words='a record such as {"key": "k", "value": "v"} (its fields: value, key, headers, timestamp, '
        'partition), or a list of records and of mere values; bytes are text, or {"base64": "..."}',
        arguments=own_arguments.produce,
    ),
    Route("DELETE", "/topics/{topic}/records", "delete_records"),
    Route("POST", "/topics/{topic}/wait", "wait_for_records"),
    Route("GET", "/groups", "groups"),
    Route("GET", "/groups/{group_id}", "group"),
    Route(
        "POST",
        "/groups/{group_id}/offsets",
        "commit_offsets",
        whole_body="offsets",
        body_words='an object such as {"orders": {"0": 5}}: offsets by topic and partition',
    ),
    Route("POST", "/groups/{group_id}/wait", "wait_for_group"),
    Route("POST", "/groups/{group_id}/members/{member}/expire", "expire_member"),
    Route(
        "POST",
        "/groups/{group_id}/config",
        "configure_group",
        whole_body="config",
        body_words='an object such as {"share.auto.offset.reset": "earliest"}',
    ),
    Route("GET", "/share-groups", "share_groups"),
    Route("GET", "/share-groups/{group_id}", "share_group"),
    Route("POST", "/share-groups/{group_id}/wait", "wait_for_share_group"),
    Route("GET", "/share-groups/{group_id}/dead-letters", "dead_letters"),
    Route("POST", "/share-groups/{group_id}/dead-letters/wait", "wait_for_dead_letters"),
    Route("GET", "/transactions", "transactions"),
    Route("GET", "/transactions/{transactional_id}", "transaction"),
    Route("POST", "/transactions/{transactional_id}/wait", "wait_for_transaction"),
    Route("POST", "/transactions/{transactional_id}/expire", "expire_transaction"),
    Route("GET", "/producers", "producers"),
    # What clients do
    Route("POST", "/clients/wait", "connected_clients"),
    Route("GET", "/requests", "requests"),
    Route("POST", "/wait", "wait_for"),
    Route("GET", "/client-metrics", "client_metrics"),
    Route("POST", "/client-metrics/wait", "wait_for_client_metrics"),
    Route(
        "POST",
        "/client-metrics/subscriptions/{name}",
        "configure_client_metrics",
        whole_body="config",
        body_words='an object such as {"metrics": "org.apache.kafka.producer.", "interval.ms": 100}',
    ),
    Route("GET", "/failed-logins", "failed_logins"),
    Route("POST", "/failed-logins/wait", "wait_for_failed_login"),
    # Time
    Route("GET", "/clock", "clock"),
    Route("POST", "/clock/advance", "clock_advance", arguments=own_arguments.advance),
    Route("POST", "/clock/set", "clock_set", arguments=own_arguments.set_time),
    Route("POST", "/clock/freeze", "clock_freeze"),
    Route("POST", "/clock/resume", "clock_resume"),
    # Several nodes
    Route("GET", "/nodes", "nodes"),
    Route("POST", "/nodes/{node}/start", "start_node"),
    Route("POST", "/nodes/{node}/stop", "stop_node"),
    Route("POST", "/nodes/{node}/kill", "kill_node"),
    Route("POST", "/nodes/{node}/lose_power", "lose_power_of_node"),
    Route("POST", "/nodes/{node}/expire", "expire_node"),
    Route("GET", "/nodes/{node}/clock", "clock_of_node"),
    Route("POST", "/nodes/{node}/clock/skew", "skew_clock"),
    Route("GET", "/nodes/{node}/log_lines", "log_lines_of_node"),
    Route("GET", "/nodes/{node}/requests", "requests_of_node"),
    Route("GET", "/nodes/{node}/topics/{topic}/records", "records_of_node"),
    Route("POST", "/network/cut", "cut"),
    Route("POST", "/network/delay", "delay"),
    Route("POST", "/network/heal", "heal"),
    Route("GET", "/topics/{topic}/partitions", "partitions"),
    Route("POST", "/topics/{topic}/partitions/{partition}/wait", "wait_for_partition"),
    Route("POST", "/topics/{topic}/partitions/{partition}/leader", "move_leader"),
    Route("POST", "/topics/{topic}/elect_leaders", "elect_leaders"),
    # What goes wrong on purpose
    Route("GET", "/faults", "rules"),
    Route(
        "POST",
        "/faults",
        "add_rule",
        whole_body="rule",
        body_words='a rule, an object such as {"on": "Produce", "nth": 2, "drop_response": "close"}',
        body_schema=rule_schema,
        result_name="id",
    ),
    Route("POST", "/faults/load", "load_rules", result_name="ids"),
    Route("POST", "/faults/{rule_id}/wait", "wait_fired"),
    Route("POST", "/faults/{rule_id}/release", "release"),
    Route("DELETE", "/faults/{rule_id}", "remove_rule"),
    Route("DELETE", "/faults", "clear_rules"),
)
