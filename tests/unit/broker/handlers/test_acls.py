"""ACLs over the wire: what is stored, what is refused, and what a broker without an authorizer answers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from barnabas.broker.serving.caller import Caller, Session
from barnabas.broker.serving.dispatch import Dispatcher
from barnabas.broker.serving.known_clients import KnownClient
from barnabas.model.errors import ErrorCode
from barnabas.protocol.wire import framing
from tests.support.parts import answer_of, running_parts
from tests.support.wire import read_response, request

if TYPE_CHECKING:
    from pathlib import Path

    from barnabas.broker.context import BrokerContext

DESCRIBE, CREATE, DELETE = 29, 30, 31
ROOT = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:root",
}
ACL = {
    "resource_type": 2,
    "resource_name": "orders",
    "resource_pattern_type": 3,
    "principal": "User:alice",
    "host": "*",
    "operation": 3,
    "permission_type": 3,
}
ANYTHING = {"resource_type_filter": 1, "pattern_type_filter": 1, "operation": 1, "permission_type": 1}


async def ask(broker: BrokerContext, key: int, values: dict[str, Any], version: int = 3) -> Any:
    caller = Caller(
        listener="PLAINTEXT", address=("10.0.0.1", 1), client_id="wire", session=Session(principal="User:root")
    )
    state = KnownClient(b"\0\4wire", framing.HEADER.size + 4, caller)
    connection: Any = SimpleNamespace(listener="PLAINTEXT", address=caller.address, state=state)
    answer = await answer_of(Dispatcher(broker).serve(connection, memoryview(request(key, version, 1, values))))
    assert isinstance(answer, bytes)
    return read_response(key, version, answer[4:], 1)


async def described(broker: BrokerContext, **wanted: Any) -> list[tuple[str, str, int]]:
    answer = await ask(broker, DESCRIBE, {**ANYTHING, **wanted})
    assert answer.error_code is ErrorCode.none
    return [(each.resource_name, acl.principal, acl.operation) for each in answer.resources for acl in each.acls]


async def test_an_acl_is_in_force_when_its_creation_is_answered(tmp_path: Path) -> None:
    async with running_parts(tmp_path, ROOT) as broker:
        more = [ACL, {**ACL, "operation": 4}, {**ACL, "resource_name": "ord", "resource_pattern_type": 4}]
        answer = await ask(broker, CREATE, {"creations": more})
        assert [each.error_code for each in answer.results] == [ErrorCode.none] * 3
        assert broker.permissions is not None
        assert len(broker.permissions.rules) == 3
        assert await described(broker, resource_name_filter="orders", pattern_type_filter=3) == [
            ("orders", "User:alice", 3),
            ("orders", "User:alice", 4),
        ]
        assert len(await described(broker, resource_type_filter=2, resource_name_filter="orders")) == 2
        match = {"resource_type_filter": 2, "resource_name_filter": "orders", "pattern_type_filter": 2}
        assert len(await described(broker, **match)) == 3


async def test_a_filter_removes_what_it_matches_and_gives_it_back(tmp_path: Path) -> None:
    async with running_parts(tmp_path, ROOT) as broker:
        await ask(broker, CREATE, {"creations": [ACL, {**ACL, "operation": 4}, {**ACL, "principal": "User:bob"}]})
        filters = [
            {**ANYTHING, "principal_filter": "User:bob"},
            {**ANYTHING, "operation": 4},
            {**ANYTHING, "operation": 99},
        ]
        answer = await ask(broker, DELETE, {"filters": filters})
        first, second, third = answer.filter_results
        assert [acl.principal for acl in first.matching_acls] == ["User:bob"]
        assert [acl.operation for acl in second.matching_acls] == [4]
        assert third.error_code is ErrorCode.invalid_request
        assert await described(broker) == [("orders", "User:alice", 3)]


async def test_what_cannot_be_read_keeps_no_other_acl_from_being_removed(tmp_path: Path) -> None:
    async with running_parts(tmp_path, ROOT) as broker:
        await ask(broker, CREATE, {"creations": [ACL, {**ACL, "resource_name": "bills"}]})
        await broker.membership.store.set("/kafka-acl/Topic/bills", b"?")
        filters = [{**ANYTHING, "resource_name_filter": "orders"}, {**ANYTHING, "principal_filter": "User:alice"}]
        answer = await ask(broker, DELETE, {"filters": filters})
        first, second = answer.filter_results
        assert [acl.resource_name for acl in first.matching_acls] == ["orders"]
        assert second.error_code is ErrorCode.unknown_server_error
        assert "/kafka-acl/Topic/bills" in second.error_message
        assert await described(broker, resource_name_filter="orders") == []


@pytest.mark.parametrize(
    "change",
    [
        {"resource_type": 1},
        {"resource_type": 99},
        {"resource_pattern_type": 1},
        {"resource_pattern_type": 2},
        {"operation": 1},
        {"operation": 0},
        {"permission_type": 1},
        {"resource_name": ""},
        {"resource_type": 4},
        {"principal": "alice"},
        {"principal": "User:"},
        {"host": ""},
    ],
    ids=str,
)
async def test_what_is_no_acl_is_refused_and_the_others_are_stored(tmp_path: Path, change: dict[str, Any]) -> None:
    async with running_parts(tmp_path, ROOT) as broker:
        answer = await ask(broker, CREATE, {"creations": [{**ACL, **change}, ACL]})
        assert [each.error_code for each in answer.results] == [ErrorCode.invalid_request, ErrorCode.none]
        assert await described(broker) == [("orders", "User:alice", 3)]


@pytest.mark.parametrize("version", [1, 2, 3])
async def test_a_broker_without_an_authorizer_has_no_acls(tmp_path: Path, version: int) -> None:
    async with running_parts(tmp_path) as broker:
        disabled = ErrorCode.security_disabled
        assert (await ask(broker, DESCRIBE, ANYTHING, version)).error_code is disabled
        assert (await ask(broker, CREATE, {"creations": [ACL]}, version)).results[0].error_code is disabled
        assert (await ask(broker, DELETE, {"filters": [ANYTHING]}, version)).filter_results[0].error_code is disabled
