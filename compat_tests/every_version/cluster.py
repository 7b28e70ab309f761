"""The cluster, configurations and quotas."""

from __future__ import annotations

from compat_tests.every_version.turn import Cases, Turn
from tests.common.batches import WAIT_MS, now_ms
from tests.common.definitions import Fields

TOPIC, BROKER, GROUP = 2, 4, 32
SOFTWARE = {"client_software_name": "frames", "client_software_version": "1.0"}


def api_versions(turn: Turn) -> None:
    """The targets have different APIs and features; test_diff_api_versions.py compares those."""
    for asked in (SOFTWARE, {**SOFTWARE, "client_software_name": "-"}):
        response = turn.ask_unobserved(asked)
        several = ("api_keys", "supported_features", "finalized_features")
        response |= {key: bool(response[key]) for key in several if key in response}
        if "finalized_features_epoch" in response:
            response["finalized_features_epoch"] = response["finalized_features_epoch"] >= 0
        turn.observe(response)


def describe_cluster(turn: Turn) -> None:
    for kind in (1, 2, 9):
        turn.ask({"include_cluster_authorized_operations": True, "endpoint_type": kind})


def describe_quorum(turn: Turn) -> None:
    """How long the metadata log is, and where controllers listen, belongs to the target."""
    response = turn.ask_unobserved(_metadata_log("__cluster_metadata"))
    row = response["topics"][0]["partitions"][0]
    row |= {"leader_epoch": row["leader_epoch"] > 0, "high_watermark": row["high_watermark"] > 0}
    for voter in row["current_voters"]:
        voter["log_end_offset"] = voter["log_end_offset"] > 0
    response.pop("nodes", None)
    turn.observe(response)
    turn.ask(_metadata_log(turn.missing))


def _metadata_log(name: str) -> Fields:
    return {"topics": [{"topic_name": name, "partitions": [{"partition_index": 0}]}]}


def unregister_broker(turn: Turn) -> None:
    turn.ask({"broker_id": 77})


def unregister_controller(turn: Turn) -> None:
    for controller_id in (77, 1, -1):
        turn.ask({"controller_id": controller_id})


def add_raft_voter(turn: Turn) -> None:
    turn.ask({"voter_id": -1})
    turn.ask({"cluster_id": "x"})


def remove_raft_voter(turn: Turn) -> None:
    turn.ask({"voter_id": -1})
    turn.ask({"cluster_id": "x"})


def update_features(turn: Turn) -> None:
    same = {"feature": "group.version", "max_version_level": 1}
    for update in (same, {**same, "feature": "nonsense"}, {**same, "max_version_level": 9}):
        turn.ask({"feature_updates": [update], "validate_only": True})
    turn.ask({"feature_updates": [], "validate_only": True})


def _resources(turn: Turn) -> list[Fields]:
    rows = ((TOPIC, turn.name), (TOPIC, turn.missing), (TOPIC, "a b"), (BROKER, "77"), (GROUP, turn.name))
    return [{"resource_type": kind, "resource_name": name} for kind, name in (*rows, (9, "x"))]


def describe_configs(turn: Turn) -> None:
    turn.topic(retention_ms="5000")
    keys = ["retention.ms", "cleanup.policy", "consumer.session.timeout.ms", "nonsense"]
    for resource in _resources(turn):
        asked = {"resources": [{**resource, "configuration_keys": keys}], "include_synonyms": True}
        turn.ask(asked)


def alter_configs(turn: Turn) -> None:
    turn.topic()
    for name, value in (("retention.ms", "5000"), ("retention.ms", "soon"), ("retention.ms", None)):
        for resource in _resources(turn):
            row = {"name": name, "value": value}
            turn.ask({"resources": [{**resource, "configs": [row]}], "validate_only": True})


def incremental_alter_configs(turn: Turn) -> None:
    turn.topic()
    for operation, value in ((0, "5000"), (0, "soon"), (1, None), (2, "5")):
        for resource in _resources(turn):
            row = {"name": "retention.ms", "config_operation": operation, "value": value}
            turn.ask({"resources": [{**resource, "configs": [row]}], "validate_only": True})


def list_config_resources(turn: Turn) -> None:
    """Other turns have topics, too."""
    turn.topic()
    for kinds in ([], [TOPIC], [9]):
        response = turn.ask_unobserved({"resource_types": kinds})
        rows = [row for row in response["config_resources"] if row["resource_name"] == turn.name]
        turn.observe({**response, "config_resources": rows})


def describe_client_quotas(turn: Turn) -> None:
    _set_quota(turn, "AlterClientQuotas", 1)
    for kind, match, name in (("user", 0, turn.name), ("user", 0, turn.missing), ("nonsense", 0, "x")):
        component = {"entity_type": kind, "match_type": match, "match": name}
        deadline = now_ms() + WAIT_MS
        while True:  # Kafka's broker learns of the quota after the response
            response = turn.session.call_unobserved(
                turn.api, turn.version, {"components": [component], "strict": True}
            )
            if response["entries"] or name != turn.name:
                break
            assert now_ms() < deadline
        turn.ask({"components": [component], "strict": True})


def _set_quota(turn: Turn, api: str, version: int) -> None:
    turn.prepare(api, version, _quota(turn.name))


def _quota(name: str | None, key: str = "producer_byte_rate", value: float = 1e9) -> Fields:
    entity = [{"entity_type": "user", "entity_name": name}]
    return {"entries": [{"entity": entity, "ops": [{"key": key, "value": value}]}], "validate_only": False}


def alter_client_quotas(turn: Turn) -> None:
    turn.ask({**_quota(turn.name), "validate_only": True})
    turn.ask(_quota(turn.name))
    turn.ask(_quota(turn.name, "nonsense"))
    turn.ask(_quota(turn.name, value=-1))
    turn.ask(_quota(""))


def describe_user_scram_credentials(turn: Turn) -> None:
    turn.prepare("AlterUserScramCredentials", 0, _credential(turn.name))
    deadline = now_ms() + WAIT_MS
    while turn.session.call_unobserved(turn.api, turn.version, {"users": [{"name": turn.name}]})["results"][
        0
    ]["error_code"]:
        assert now_ms() < deadline
    for users in ([turn.name], [turn.missing], [turn.name, turn.name]):
        turn.ask({"users": [{"name": user} for user in users]})


def _credential(user: str, **fields: object) -> Fields:
    row = {"name": user, "mechanism": 1, "iterations": 4096, "salt": b"salt", "salted_password": bytes(32)}
    return {"deletions": [], "upsertions": [{**row, **fields}]}


def alter_user_scram_credentials(turn: Turn) -> None:
    turn.ask(_credential(turn.name))
    turn.ask(_credential(turn.name, mechanism=9))
    turn.ask(_credential(turn.name, iterations=1))
    turn.ask(_credential(""))
    turn.ask({"deletions": [{"name": turn.missing, "mechanism": 1}], "upsertions": []})


CLUSTER_CASES: Cases = {
    "ApiVersions": api_versions,
    "DescribeCluster": describe_cluster,
    "DescribeQuorum": describe_quorum,
    "UnregisterBroker": unregister_broker,
    "UnregisterController": unregister_controller,
    "AddRaftVoter": add_raft_voter,
    "RemoveRaftVoter": remove_raft_voter,
    "UpdateFeatures": update_features,
    "DescribeConfigs": describe_configs,
    "AlterConfigs": alter_configs,
    "IncrementalAlterConfigs": incremental_alter_configs,
    "ListConfigResources": list_config_resources,
    "DescribeClientQuotas": describe_client_quotas,
    "AlterClientQuotas": alter_client_quotas,
    "DescribeUserScramCredentials": describe_user_scram_credentials,
    "AlterUserScramCredentials": alter_user_scram_credentials,
}
