from __future__ import annotations

import socket
import struct
from typing import TYPE_CHECKING, Any

import pytest
from kio.schema.list_groups.v5.request import ListGroupsRequest

from barnabas.clients.errors import BrokerSilent, BrokerUnreachable, InvalidClientConfig, LoginFailed, RequestRefused
from barnabas.clients.wire import connection
from barnabas.clients.wire.connection import Node, WireClient
from barnabas.model.errors import ErrorCode
from tests.support.processes import free_port
from tests.unit.clients.scripted_broker import Answer, ScriptedBroker

if TYPE_CHECKING:
    from kio.schema.find_coordinator.v6.request import FindCoordinatorRequest

FIND_COORDINATOR, LIST_GROUPS, SASL_HANDSHAKE, SASL_AUTHENTICATE, DELETE_GROUPS = 10, 16, 17, 36, 42


def listed(_: Any) -> dict[str, Any]:
    return {"groups": [{"group_id": "g", "protocol_type": "consumer"}]}


def test_an_older_broker_is_asked_in_its_own_version() -> None:
    with (
        ScriptedBroker({LIST_GROUPS: (0, 3)}, {LIST_GROUPS: listed}) as broker,
        WireClient(broker.bootstrap) as cluster,
    ):
        answer = cluster.ask(ListGroupsRequest())
    assert broker.requests[-1].__version__ == 3
    assert [(group.group_id, group.group_state, group.group_type) for group in answer.groups] == [("g", "", "")]


@pytest.mark.parametrize("versions", [{LIST_GROUPS: (0, 3)}, {LIST_GROUPS: (6, 7)}, {}])
def test_a_broker_without_the_version_that_is_needed(versions: dict[int, tuple[int, int]]) -> None:
    with (
        ScriptedBroker(versions, {}) as broker,
        WireClient(broker.bootstrap) as cluster,
        pytest.raises(RequestRefused) as caught,
    ):
        cluster.ask(ListGroupsRequest(types_filter=("classic",)), at_least=5)
    assert caught.value.code == ErrorCode.unsupported_version


def test_nobody_there() -> None:
    port = free_port()
    with pytest.raises(BrokerUnreachable, match=rf"no broker answers at 127.0.0.1:{port} \(connection refused\)"):
        WireClient(f"127.0.0.1:{port}")


def test_a_peer_that_says_nothing_is_given_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        port = mute.getsockname()[1]
        mute.settimeout(0)
        with pytest.raises(BrokerSilent) as caught:
            WireClient(f"127.0.0.1:{port}", timeout=0.2)
        mute.accept()[0].close()
        with pytest.raises(BlockingIOError):  # nobody came again to find out what it speaks: that takes seconds
            mute.accept()
    assert str(caught.value) == f"127.0.0.1:{port} takes connections but gave no answer within 0.2 s"


@pytest.mark.parametrize(
    ("answer", "complaint"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "a response of 1213486160 bytes: that is not a Kafka broker"),
        (struct.pack(">iib", 5, 99, 0), "a response to something that was not asked"),
        (struct.pack(">iib", 5, 2, 0), "a response that cannot be read"),
        (struct.pack(">iibbb", 7, 2, 1, 9, 0), "a response that cannot be read"),  # a tagged field in its header
    ],
)
def test_answers_that_are_none(answer: bytes, complaint: str) -> None:
    with (
        ScriptedBroker({LIST_GROUPS: (0, 5)}, {LIST_GROUPS: lambda _: answer}) as broker,
        WireClient(broker.bootstrap) as cluster,
        pytest.raises(BrokerUnreachable, match=complaint),
    ):
        cluster.ask(ListGroupsRequest())


def test_versions_are_asked_for_again_after_a_connection_has_ended() -> None:
    """Whoever went on after a failed question got a KeyError for the next one, in a client that is used again."""
    gone = struct.pack(">ii", 4, 99)  # a response to something else, with which the connection ends
    with (
        ScriptedBroker({LIST_GROUPS: (0, 3)}, {LIST_GROUPS: lambda _: gone}) as broker,
        WireClient(broker.bootstrap) as cluster,
    ):
        with pytest.raises(BrokerUnreachable):
            cluster.ask(ListGroupsRequest())
        assert cluster.highest_version(LIST_GROUPS) == 3
        assert cluster.highest_version(DELETE_GROUPS) == -1


def test_a_broken_connection_is_made_anew() -> None:
    answers = [struct.pack(">ii", 4, 99), None]

    def answer(request: Any) -> Any:
        return answers.pop(0) or listed(request)

    with (
        ScriptedBroker({LIST_GROUPS: (0, 5)}, {LIST_GROUPS: answer}) as broker,
        WireClient(broker.bootstrap) as cluster,
    ):
        with pytest.raises(BrokerUnreachable):
            cluster.ask(ListGroupsRequest())
        assert cluster.ask(ListGroupsRequest()).groups[0].group_id == "g"


class TestCoordinators:
    @pytest.fixture(autouse=True)
    def quick(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(connection, "RETRY_SECONDS", 0.0)

    def test_are_waited_for(self) -> None:
        asked: list[tuple[str, ...]] = []

        def find(request: FindCoordinatorRequest) -> dict[str, Any]:
            asked.append(request.coordinator_keys)
            ready = {"a"} if len(asked) == 1 else {"a", "b"}
            return {
                "coordinators": [
                    {"key": key, **broker.node()}
                    if key in ready
                    else {"key": key, "error_code": ErrorCode.coordinator_not_available}
                    for key in request.coordinator_keys
                ]
            }

        with (
            ScriptedBroker({FIND_COORDINATOR: (0, 6)}, {FIND_COORDINATOR: find}) as broker,
            WireClient(broker.bootstrap) as cluster,
        ):
            found = cluster.coordinators(["a", "b"], cluster.deadline())
        assert found == {Node(1, "127.0.0.1", broker.port): ["a", "b"]}
        assert asked == [("a", "b"), ("b",)]

    def test_are_looked_for_until_the_deadline(self) -> None:
        def find(request: FindCoordinatorRequest) -> dict[str, Any]:
            refused = {"error_code": ErrorCode.coordinator_not_available, "error_message": "not yet"}
            return {"coordinators": [{"key": key, **refused} for key in request.coordinator_keys]}

        with (
            ScriptedBroker({FIND_COORDINATOR: (0, 6)}, {FIND_COORDINATOR: find}) as broker,
            WireClient(broker.bootstrap, timeout=1) as cluster,
            pytest.raises(RequestRefused, match="not yet"),
        ):
            cluster.coordinators(["a"], cluster.deadline())
        assert len(broker.requests) > 2

    def test_that_moved_or_are_loading_are_asked_again(self) -> None:
        from kio.schema.delete_groups.v2.request import DeleteGroupsRequest

        codes = [ErrorCode.coordinator_load_in_progress, ErrorCode.not_coordinator, ErrorCode.non_empty_group]

        def find(request: FindCoordinatorRequest) -> dict[str, Any]:
            return {"coordinators": [{"key": key, **broker.node()} for key in request.coordinator_keys]}

        def delete(request: Any) -> dict[str, Any]:
            return {"results": [{"group_id": request.groups_names[0], "error_code": codes.pop(0)}]}

        served = {FIND_COORDINATOR: (0, 6), DELETE_GROUPS: (0, 2)}
        with (
            ScriptedBroker(served, {FIND_COORDINATOR: find, DELETE_GROUPS: delete}) as broker,
            WireClient(broker.bootstrap) as cluster,
        ):
            answers = cluster.ask_coordinators(
                ["g", "g"],
                lambda ids: DeleteGroupsRequest(groups_names=tuple(ids)),  # type: ignore[arg-type]  # ids are strings
                lambda response: ((one.group_id, one.error_code, None) for one in response.results),
            )
        assert answers == {"g": (Node(1, "127.0.0.1", broker.port), ErrorCode.non_empty_group, None)}


class TestSasl:
    PROPERTIES = {  # noqa: RUF012  (never changed)
        "security.protocol": "sasl_plaintext",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "ann",
        "sasl.password": "secret",
    }
    SERVED = {SASL_HANDSHAKE: (0, 1), SASL_AUTHENTICATE: (0, 2), LIST_GROUPS: (0, 5)}  # noqa: RUF012  (likewise)

    def test_comes_before_the_first_request(self) -> None:
        answers: dict[int, Answer] = {
            SASL_HANDSHAKE: lambda _: {},
            SASL_AUTHENTICATE: lambda _: {"auth_bytes": b""},
            LIST_GROUPS: listed,
        }
        with (
            ScriptedBroker(self.SERVED, answers) as broker,
            WireClient(broker.bootstrap, properties=self.PROPERTIES) as cluster,
        ):
            cluster.ask(ListGroupsRequest())
        _, handshake, authentication, _ = broker.requests
        assert handshake.mechanism == "PLAIN"
        assert authentication.auth_bytes == b"\0ann\0secret"

    def test_a_wrong_password_is_said_with_the_users_name(self) -> None:
        refused = {
            "error_code": ErrorCode.sasl_authentication_failed,
            "error_message": "Invalid username or password",
            "auth_bytes": b"",
        }
        answers = {SASL_HANDSHAKE: lambda _: {}, SASL_AUTHENTICATE: lambda _: refused}
        with (
            ScriptedBroker(self.SERVED, answers) as broker,
            pytest.raises(LoginFailed, match="does not let user ann in by PLAIN: the password is wrong"),
        ):
            WireClient(broker.bootstrap, properties=self.PROPERTIES)

    def test_properties_that_cannot_be_used_are_refused_before_connecting(self) -> None:
        with pytest.raises(InvalidClientConfig):
            WireClient("127.0.0.1:1", properties={"security.protocol": "sasl_ssl"})


def test_of_several_addresses_one_that_hangs_does_not_keep_us_from_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was asked until the time was up: a stopped broker that is named first made a cluster unreachable."""
    monkeypatch.setattr(connection, "CONNECT_SECONDS", 0.2)
    with (
        socket.create_server(("127.0.0.1", 0)) as mute,
        ScriptedBroker({LIST_GROUPS: (0, 5)}, {LIST_GROUPS: listed}) as broker,
        WireClient(f"127.0.0.1:{mute.getsockname()[1]},{broker.bootstrap}", timeout=20) as cluster,
    ):
        assert cluster.ask(ListGroupsRequest()).groups


def test_if_none_of_several_answers_the_first_is_told_of() -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        port = mute.getsockname()[1]
        addresses = f"127.0.0.1:{port},127.0.0.1:{free_port()}"
        with pytest.raises(BrokerSilent, match="gave no answer"):
            WireClient(addresses, timeout=0.3)


def test_the_only_broker_that_was_given_is_asked_over_one_connection() -> None:
    with ScriptedBroker({LIST_GROUPS: (0, 5)}, {LIST_GROUPS: listed}) as broker, WireClient(broker.bootstrap) as wire:
        wire.ask(ListGroupsRequest(), at=Node(1, "127.0.0.1", broker.port))
        wire.ask(ListGroupsRequest(), at=Node(1, "127.0.0.1", broker.port))
        assert len(broker._connections) == 1
