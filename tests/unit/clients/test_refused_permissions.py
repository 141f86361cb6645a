"""A refused permission is named after what was asked: the operation and the resource."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError

from barnabas.clients.errors import NotDelivered, RequestRefused, TransactionAborted, translated
from barnabas.model.errors import ErrorCode
from barnabas.model.permissions import (
    Action,
    begin_to_write,
    create_tokens_of,
    on_cluster,
    on_group,
    on_topic,
    on_transactional_id,
    read_from,
    write_to,
)
from barnabas.model.remedies import Remedy, RemedyKind

CLUSTER = ErrorCode.cluster_authorization_failed
TOPIC = ErrorCode.topic_authorization_failed
GROUP = ErrorCode.group_authorization_failed
IDS = ErrorCode.transactional_id_authorization_failed
TOKENS = ErrorCode.delegation_token_authorization_failed


@pytest.mark.parametrize(
    ("action", "code", "told", "subject"),
    [
        (on_cluster("list ACLs", "Describe"), CLUSTER, "list ACLs (Describe on the cluster)", "Describe cluster"),
        (on_topic("delete", "Delete", "t"), TOPIC, "delete topic t (Delete on topic t)", "Delete topic t"),
        (on_group("delete", "Delete", "a b"), GROUP, "delete group a b (Delete on group a b)", "Delete group a b"),
        (
            on_group("commit offsets of", "Read", "g", "t"),
            TOPIC,
            "commit offsets of group g (Read on topic t)",
            "Read topic t",
        ),
        (
            on_transactional_id("use", "Write", "x"),
            IDS,
            "use transactional id x (Write on transactional id x)",
            "Write transactional_id x",
        ),
        (
            create_tokens_of("User:bob"),
            TOKENS,
            "create delegation tokens of User:bob (CreateTokens on user User:bob)",
            "CreateTokens user User:bob",
        ),
        (read_from("t", "g"), TOPIC, "read topic t in group g (Read on topic t)", "Read topic t"),
        (read_from("t", "g"), GROUP, "read topic t in group g (Read on group g)", "Read group g"),
        (read_from("t", None), TOPIC, "read topic t (Read on topic t)", "Read topic t"),
        (read_from(None, "g"), GROUP, "read in group g (Read on group g)", "Read group g"),
        (
            begin_to_write("t"),
            CLUSTER,
            "write to topic t, nor to any other (Write on topic t)",
            "Write topic t",
        ),
        (begin_to_write(), CLUSTER, "write to any topic (Write on a topic)", "Write topic"),
    ],
)
def test_the_operation_and_the_resource_are_named(action: Action, code: ErrorCode, told: str, subject: str) -> None:
    error = RequestRefused(code, "Authorization failed.", action)
    assert str(error) == f"no permission to {told}"
    assert error.remedy == Remedy(RemedyKind.ASK_FOR_PERMISSION, subject)


@pytest.mark.parametrize(
    ("action", "code"),
    [
        (read_from("t", None), CLUSTER),
        (read_from(None, "g"), TOPIC),
        (on_transactional_id("use", "Write", "x"), GROUP),
        (None, CLUSTER),
    ],
)
def test_what_is_not_known_is_not_named(action: Action | None, code: ErrorCode) -> None:
    error = RequestRefused(code, "Authorization failed.", action)
    assert (str(error), error.remedy) == ("Authorization failed.", Remedy(RemedyKind.ASK_FOR_PERMISSION))


def test_other_refusals_are_told_as_the_broker_told_them() -> None:
    error = RequestRefused(ErrorCode.invalid_config, "No such config.", on_topic("alter", "AlterConfigs", "t"))
    assert (str(error), error.remedy) == ("No such config.", None)


def test_errors_of_librdkafka_are_named_as_well() -> None:
    error = translated(
        KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED, "FindCoordinator"), "read", read_from("t", "g")
    )
    assert str(error) == "no permission to read topic t in group g (Read on group g)"
    assert str(translated(KafkaError(KafkaError.INVALID_CONFIG, "no"), "read", read_from("t", "g"))) == "read: no"


def test_records_that_did_not_arrive_have_the_remedy_that_all_of_them_have() -> None:
    one, other = (RequestRefused(TOPIC, "", write_to(name)) for name in ("t", "u"))
    assert NotDelivered(2, [one, one]).remedy == Remedy(RemedyKind.ASK_FOR_PERMISSION, "Write topic t")
    assert NotDelivered(2, [one, other]).remedy is None
    assert NotDelivered(1, [TransactionAborted("?")]).remedy is None
