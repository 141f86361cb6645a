"""A table keeps to the decoder that made it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pyarrow as pa
import pytest

from barnabas.model.remedies import Remedy, RemedyKind
from barnabas.pipelines.decode.choosing import choose_decoder
from barnabas.pipelines.errors import InvalidOption
from barnabas.pipelines.loading.same_decoder import check_decoder
from barnabas.pipelines.tables.errors import SchemaConflict
from barnabas.pipelines.tables.formats import FORMATS
from barnabas.pipelines.tables.opening import open_table
from tests.support.load_jobs import MemoryTopic, load_from
from tests.support.tables import NO_TIME

if TYPE_CHECKING:
    from pathlib import Path

    from barnabas.pipelines.decode.contract import Decoder


@pytest.mark.parametrize("kind", FORMATS)
def test_a_forgotten_decoder_is_told_before_anything_is_written(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, place = MemoryTopic(), str(tmp_path / "lake" / "t")
    topic.send(b'{"n": 1}')
    load_from(topic, place, monkeypatch, format=kind)
    topic.send(b'{"n": 2}')
    with open_table(place, kind) as table:
        before = table.schema()
        table.compact(1 << 20)
        table.expire(NO_TIME)
    with pytest.raises(
        SchemaConflict, match="was loaded with the decoder json, and this load has the decoder bytes"
    ) as caught:
        load_from(topic, place, monkeypatch, format=kind, decoder=choose_decoder("bytes"))
    assert caught.value.remedy == Remedy(RemedyKind.USE_DECODER, "json")
    with open_table(place, kind) as table:
        assert table.schema() == before
    assert load_from(topic, place, monkeypatch, format=kind, decoder=choose_decoder("json", "n BIGINT")).records == 1


def test_a_decoder_without_a_name_is_told_before_anything_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nameless = cast("Decoder", SimpleNamespace(evolves=True))
    with pytest.raises(InvalidOption, match="SimpleNamespace has no `kind`"):
        load_from(MemoryTopic(), str(tmp_path / "t"), monkeypatch, decoder=nameless)


@pytest.mark.parametrize(
    ("columns", "decoder", "fits"),
    [
        (pa.schema([("n", pa.int64())]), "bytes", False),
        (pa.schema([("n", pa.int64())]), "json", True),
        (pa.schema([("value", pa.binary())]), "json", False),
        (pa.schema([("value", pa.binary()), ("n", pa.int64())]), "bytes", True),
        (pa.schema([("_offset", pa.int64())]), "string", True),
    ],
)
def test_a_note_that_does_not_say_goes_by_columns(columns: pa.Schema, decoder: str, fits: bool) -> None:
    if fits:
        check_decoder(None, columns, choose_decoder(decoder), "t")
        return
    with pytest.raises(SchemaConflict, match=f"has the columns .*, and this load has the decoder {decoder}"):
        check_decoder(None, columns, choose_decoder(decoder), "t")
