"""Values by their schemas: of a registry with references, and of files; and what is shown where those are of no use."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from barnabas.console.messages.decoding import ContentDecoder
from barnabas.console.messages.masking import parse_rule
from barnabas.console.messages.protobuf_schemas import UnusableSchema, compile_sources, read_indexes
from barnabas.console.messages.raw_protobuf import NotProtobuf
from barnabas.console.messages.registry import Registry
from barnabas.console.messages.schemas import Schemas
from tests.support.registry import FakeRegistry, descriptor_set, framed, order, running_registry

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ORDER = {"customer": "eu-1", "total": {"cents": 250}}
SECOND = b"\x02\x02"
"""Of the messages of a schema, the second one: a list of one index, as zigzag."""


@pytest.fixture
def registry() -> Iterator[FakeRegistry]:
    with running_registry() as registry:
        yield registry


def decoder(schemas: Schemas, *rules: str, value: str = "auto") -> ContentDecoder:
    return ContentDecoder(schemas, "orders", [parse_rule(each) for each in rules], value=value)


def test_protobuf_has_the_names_of_its_schema_and_of_what_that_imports(registry: FakeRegistry) -> None:
    schemas = Schemas(Registry(registry.with_password), None)
    for _ in range(2):
        shown = decoder(schemas).value(framed(2, SECOND + order("eu-1", 250)), 1000)
        assert (shown.format, shown.value, shown.note) == ("protobuf", ORDER, "schema 2")
    assert len([each for each in registry.asked if "/ids/2" in each]) == 2, "it is asked for once, in two forms"
    wrong = decoder(schemas).value(framed(2, b"\x02\x08" + order("eu-1", 250)), 1000)
    assert (wrong.format, wrong.note) == ("hex", "schema 2 does not fit: the schema has no such message")


def test_fields_of_protobuf_are_masked_by_their_names(registry: FakeRegistry) -> None:
    schemas = Schemas(Registry(registry.with_password), None)
    data = framed(2, SECOND + order("secret", 250))
    shown = decoder(schemas, "orders:value.customer").value(data, 1000)
    assert "secret" not in shown.text
    assert '"cents": 250' in shown.text
    without = decoder(Schemas(None, None), "orders:value.customer", value="protobuf").value(data, 1000)
    assert without.format == "masked", "numbers of fields have no names that a rule could mean"


def test_protobuf_that_nobody_compiles_has_the_numbers_of_its_fields(
    registry: FakeRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry.compiles = False
    monkeypatch.setenv("PATH", "")
    shown = decoder(Schemas(Registry(registry.with_password), None)).value(framed(2, SECOND + order("eu-1", 5)), 1000)
    assert (shown.format, shown.value["1"], shown.note) == ("protobuf", "eu-1", "schema 2")


def test_avro_and_json_of_a_registry(registry: FakeRegistry) -> None:
    schemas = Schemas(Registry(registry.with_password), None)
    assert decoder(schemas).value(framed(1, b"\x04"), 100).value == {"a": 2}
    assert decoder(schemas).value(framed(3, b'{"b": 1}'), 100).value == {"b": 1}
    assert decoder(schemas).value(framed(9, b"text"), 100).format == "hex"
    missing = [each for each in registry.asked if "/ids/9" in each]
    assert decoder(schemas).value(framed(9, b"text"), 100).format == "hex"
    assert [each for each in registry.asked if "/ids/9" in each] == missing, "it is not asked for again at once"


def test_a_registry_that_asks_for_a_password_gets_it_and_nothing_shows_it(registry: FakeRegistry) -> None:
    assert "secret" not in Registry(registry.with_password).address
    assert decoder(Schemas(Registry(registry.address), None)).value(framed(1, b"\x04"), 100).format != "avro"


def test_protobuf_by_a_file_is_of_its_first_message(tmp_path: Path) -> None:
    (tmp_path / "orders-value.desc").write_bytes(descriptor_set())
    shown = decoder(Schemas(None, tmp_path)).value(b"\x0a\x03one", 100)
    assert (shown.format, shown.value) == ("protobuf", {"only": "one"})
    (tmp_path / "orders-key.desc").write_bytes(b"no descriptors")
    assert decoder(Schemas(None, tmp_path)).key(b"\x0a\x03one", 100).format in ("text", "hex")


@pytest.mark.parametrize("data", [b"", b"\x01", b"\x80", b"\x02\x01", b"\x82\x01", b"\xff" * 12])
def test_indexes_that_mean_nothing_are_refused(data: bytes) -> None:
    with pytest.raises(NotProtobuf):
        read_indexes(data)


@pytest.mark.parametrize("name", ["../x.proto", "/etc/x.proto", "a/../../x.proto", "x" * 300, "", "\0"])
def test_what_a_schema_imports_stays_in_its_folder(name: str) -> None:
    with pytest.raises(UnusableSchema, match="imports a file"):
        compile_sources({name: "x"}, "x.proto")
