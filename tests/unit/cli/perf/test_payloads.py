from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

import click
import pytest

from barnabas.cli.perf.payloads import POOL, make_payloads

if TYPE_CHECKING:
    from pathlib import Path


def test_random_payloads_are_letters_and_do_not_repeat() -> None:
    payloads = make_payloads(1024, None, "\\n", False)
    batch = [payloads(number) for number in range(1000)]
    assert {len(payload) for payload in batch} == {1024}
    assert set().union(*batch) == set(range(ord("A"), ord("Z") + 1))
    assert len(set(batch)) == len(batch)
    packed = len(zlib.compress(b"".join(batch)))
    assert packed > 0.5 * 1024 * 1000, "26 letters at random take more than half a byte each"


@pytest.mark.parametrize("size", [1, 7, POOL - 1, POOL + 5])
def test_any_size(size: int) -> None:
    payloads = make_payloads(size, None, "\\n", False)
    assert {len(payloads(number)) for number in (0, 1, 2, 5_000_000)} == {size}


def test_numbers() -> None:
    payloads = make_payloads(None, None, "\\n", True)
    assert [payloads(number) for number in (0, 1, 12)] == [b"0", b"1", b"12"]


@pytest.mark.parametrize(("delimiter", "text"), [("\\n", "one\ntwo\n"), (";;", "one;;two"), ("\n", "one\ntwo")])
def test_from_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str], delimiter: str, text: str) -> None:
    file = tmp_path / "payloads"
    file.write_text(text)
    payloads = make_payloads(None, file, delimiter, False)
    assert {payloads(number) for number in range(100)} == {b"one", b"two"}
    assert capsys.readouterr().out == f"Reading payloads from: {file}\nNumber of records read: 2\n"


def test_an_empty_file_is_wrong_usage(tmp_path: Path) -> None:
    file = tmp_path / "payloads"
    file.write_text("\n")
    with pytest.raises(click.UsageError, match="holds no payloads"):
        make_payloads(None, file, "\\n", False)
