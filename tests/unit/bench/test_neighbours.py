"""Windows with and without a neighbour take turns, and their medians count; logins prove what they must."""

from __future__ import annotations

import base64
import os
import socket
import time
from typing import TYPE_CHECKING, Any

from bench.clients import logins, neighbours, wire
from kio.schema.sasl_authenticate.v2.request import SaslAuthenticateRequest

from barnabas.machines.security.scram import BY_TITLE, ScramCredential
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    import pytest


class Told:
    """A client and its neighbour that say what was asked of them."""

    def __init__(self, alone: list[float], beside: list[float]) -> None:
        self.said: list[str] = []
        self._windows = {"hold": iter(alone), "go on": iter(beside)}

    done = 0

    def hold(self) -> None:
        self.said.append("hold")

    def go_on(self) -> None:
        self.said.append("go on")

    def latencies(self, count: int) -> list[float]:
        settling = count < neighbours.SAMPLES
        return [100.0] if settling else [next(self._windows[self.said[-1]])] * count


def test_windows_take_turns_and_medians_count() -> None:
    told: Any = Told([1.0, 9.0, 2.0], [3.0, 4.0, 50.0])
    found = neighbours.compare(told, told)
    assert (found.alone, found.beside) == (2.0, 4.0)
    assert told.said == ["hold", "go on"] * neighbours.PAIRS


def test_what_a_neighbour_does_in_its_windows_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])

    class Busy(Told):
        done = 0

        def latencies(self, count: int) -> list[float]:
            settling, works = count < neighbours.SAMPLES, self.said[-1] == "go on"
            now[0] += 1.0 if settling else 2.0
            self.done += (1000 if settling else 30) if works else 0
            return super().latencies(count)

    told: Any = Busy([1.0] * 3, [1.0] * 3)
    assert neighbours.compare(told, told).rate == 15.0


def test_a_neighbours_count_is_read_while_it_runs_and_while_it_is_held() -> None:
    with neighbours.running("tests.support.counting_neighbour") as neighbour:
        wait_until(lambda: neighbour.done > 0, "the neighbour to count")
        neighbour.hold()
        held = neighbour.done
        neighbour.go_on()
        wait_until(lambda: neighbour.done > held, "the neighbour to go on")


def test_a_neighbour_gives_way_to_everybody_else() -> None:
    with neighbours.running("tests.support.idle_neighbour") as neighbour:
        assert neighbour.result() == f"{os.SCHED_IDLE}\n"


def test_a_login_proves_that_it_knows_the_password_and_checks_the_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    mechanism = BY_TITLE[logins.MECHANISM]
    credential = ScramCredential.of_password(mechanism, logins._PASSWORD, b"salt", 4096)
    ours, theirs = socket.socketpair()
    monkeypatch.setattr(wire, "connect", lambda port: ours)
    with ours, theirs:
        login = logins.Login(0)
        first = login._first
        nonce = dict(field.split("=", 1) for field in first.split(","))["r"]
        challenge = f"r={nonce}more,s={base64.b64encode(b'salt').decode()},i=4096"
        proof_message = login._prove(challenge)
        without_proof, _, proof = proof_message.partition(b",p=")
        signed = b",".join((first.encode(), challenge.encode(), without_proof))
        signature = mechanism.sign(credential.stored_key, signed)
        key = bytes(one ^ other for one, other in zip(base64.b64decode(proof), signature, strict=True))
        assert mechanism.digest(key) == credential.stored_key
        assert login._signature == mechanism.sign(credential.server_key, signed)
        login._send(proof_message)
        assert theirs.recv(1 << 16).endswith(wire.frame(SaslAuthenticateRequest(auth_bytes=proof_message)))
