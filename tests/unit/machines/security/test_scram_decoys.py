"""An unknown name cannot be told from a user by the shape of its challenge."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from barnabas.machines.security.scram import LEAST_ITERATIONS, InvalidCredential, ScramCredential, ScramMechanism
from barnabas.machines.security.scram_decoys import ScramDecoys
from barnabas.machines.security.scram_salts import DIGITS, salt_of

SHA_256, SHA_512 = ScramMechanism
SECRET = b"of the cluster"
OF_KAFKA = salt_of(2**129 + 7)
OF_LIBRDKAFKA = bytes(range(128, 192))


class Users:
    """Users of one mechanism with their credentials, of which only the shape counts."""

    def __init__(self) -> None:
        self.decoys = ScramDecoys()
        self.texts: dict[str, str] = {}

    def put(self, name: str, iterations: int, salt: bytes, mechanism: ScramMechanism = SHA_256) -> None:
        key = bytes(mechanism.key_bytes)
        self.texts[name] = ScramCredential(salt, key, key, iterations).encode()
        self.decoys.note(name, {mechanism.title: self.texts[name]})

    def remove(self, name: str) -> None:
        del self.texts[name]
        self.decoys.note(name, {})

    def make(self, name: str, mechanism: ScramMechanism = SHA_256, secret: bytes = SECRET) -> ScramCredential:
        return self.decoys.make(mechanism, name, secret)


def shape(credential: ScramCredential) -> tuple[int, int, bool]:
    """Iterations, and of the salt its length, or the longest of Kafka's, and whether it has digits and letters only."""
    length = len(credential.salt)
    return credential.iterations, 26 if 20 <= length <= 26 else length, set(credential.salt) <= set(DIGITS)


def test_decoys_have_the_shapes_of_users_as_often_as_users_have_them() -> None:
    users = Users()
    for number in range(300):
        users.put(f"user-{number}", *((8192, OF_KAFKA) if number % 3 else (10_000, OF_LIBRDKAFKA)))
    shapes = Counter(shape(users.make(f"unknown-{number}")) for number in range(2000))
    assert shapes.keys() == {(8192, 26, True), (10_000, 64, False)}
    assert 0.6 < shapes[8192, 26, True] / 2000 < 0.73


def test_a_user_has_a_decoy_of_its_own_shape_and_so_the_work_that_its_challenge_shows() -> None:
    """Salts of other lengths take other times to draw: a neighbour's would tell users from unknown names."""
    users = Users()
    for number in range(100):
        users.put(f"user-{number}", 4096 + number, OF_KAFKA if number % 2 else OF_LIBRDKAFKA)
    for name, text in users.texts.items():
        assert shape(users.make(name)) == shape(ScramCredential.decode(text, SHA_256)), name


def test_without_users_a_decoy_is_as_kafkas_tools_make_it() -> None:
    users = Users()
    assert users.make("x") == ScramCredential.decoy(SHA_256, "x", SECRET)
    users.put("alice", 8192, OF_KAFKA, SHA_512)
    assert users.make("x").iterations == LEAST_ITERATIONS
    assert users.make("x", SHA_512).iterations == 8192
    users.remove("alice")
    assert users.make("x", SHA_512).iterations == LEAST_ITERATIONS


def test_a_decoy_stays_while_users_come_and_go_elsewhere() -> None:
    users, names = Users(), [f"unknown-{number}" for number in range(200)]
    for number in range(100):
        users.put(f"user-{number}", 4096 + number, OF_KAFKA)
    before = {name: users.make(name) for name in names}
    assert before == {name: users.make(name) for name in names}
    assert len({each.salt for each in before.values()}) == len(names)
    users.put("late", 9999, OF_LIBRDKAFKA)
    changed = [name for name in names if users.make(name) != before[name]]
    assert len(changed) < 20
    users.remove("late")
    assert before == {name: users.make(name) for name in names}


def test_salts_of_any_length_are_imitated_and_differ_by_name_and_by_cluster() -> None:
    for salt in (b"", b"s", OF_KAFKA, OF_LIBRDKAFKA, bytes(1024), b"z" * 1024):
        users = Users()
        users.put("alice", 4096, salt)
        decoy = users.make("x")
        assert shape(decoy) == shape(ScramCredential(salt, b"", b"", 4096))
        if len(salt) > 1:
            assert len({decoy.salt, users.make("y").salt, users.make("x", secret=b"of another").salt}) == 3


def test_a_credential_that_cannot_be_read_is_no_model() -> None:
    users = Users()
    users.put("alice", 8192, OF_KAFKA)
    users.decoys.note("alice", {SHA_256.title: "salt=?"})
    assert users.make("x") == ScramCredential.decoy(SHA_256, "x", SECRET)
    with pytest.raises(InvalidCredential):
        users.decoys.read(SHA_256, "alice", "salt=?")


def iterations(users: Users, text: str) -> int:
    """Of the credential that is read where this text is stored of alice."""
    credential = users.decoys.read(SHA_256, "alice", text)
    assert credential is not None
    return credential.iterations


def test_what_is_stored_of_a_user_is_read_once_and_again_when_it_is_another(monkeypatch: pytest.MonkeyPatch) -> None:
    texts: list[str] = []
    real = ScramCredential.decode

    def spy(text: str, mechanism: ScramMechanism) -> ScramCredential:
        texts.append(text)
        return real(text, mechanism)

    monkeypatch.setattr(ScramCredential, "decode", staticmethod(spy))
    users = Users()
    users.put("alice", 8192, OF_KAFKA)
    first = users.texts["alice"]
    users.put("alice", 8192, OF_KAFKA)
    assert iterations(users, first) == 8192
    users.make("x")
    assert texts == [first]
    users.put("alice", 4096, OF_LIBRDKAFKA)
    assert iterations(users, users.texts["alice"]) == 4096
    assert len(users.make("x").salt) == len(OF_LIBRDKAFKA)
    assert len(texts) == 2
    assert iterations(users, first) == 8192, "what is asked for counts"
    users.remove("alice")
    assert users.decoys.read(SHA_256, "alice", None) is None
    assert iterations(users, first) == 8192
    assert len(texts) == 4


def test_salts_of_kafkas_tools_are_imitated_with_their_lengths_and_first_digits() -> None:
    users = Users()
    for number in range(50):
        users.put(f"user-{number}", 4096, salt_of(2**125 * number + 2**110))
    drawn, chance = Counter[tuple[object, ...]](), random.Random(1)
    for number in range(3000):
        drawn["real", *_lengths_and_first(salt_of(chance.getrandbits(130)))] += 1
        drawn["decoy", *_lengths_and_first(users.make(f"unknown-{number}").salt)] += 1
    for kind in {key[1:] for key in drawn}:
        assert abs(drawn["real", *kind] - drawn["decoy", *kind]) < 150, kind


def _lengths_and_first(salt: bytes) -> tuple[int, bool]:
    return len(salt), salt.startswith(b"1")
