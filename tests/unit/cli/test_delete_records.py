from __future__ import annotations

import pytest

from barnabas.cli.common.failures import Failed
from barnabas.cli.delete_records import parse_offsets

FILE = "offsets.json"


def test_a_file() -> None:
    text = '{"partitions": [{"topic": "a", "partition": 1, "offset": 5}, {"topic": "b", "partition": 0, "offset": -1}]}'
    assert parse_offsets(text, FILE) == {("a", 1): 5, ("b", 0): -1}


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("{", "offsets.json is not JSON"),
        ("[]", 'offsets.json has no "partitions"'),
        ('{"partitions": [], "version": 2}', "is of version 2; only version 1 is known"),
        ('{"partitions": [{"topic": "a", "partition": 1}]}', "is not of the form"),
        (
            '{"partitions": [' + ", ".join(['{"topic": "a", "partition": 1, "offset": 5}'] * 2) + "]}",
            "offsets.json has a-1 twice",
        ),
    ],
)
def test_bad_files(text: str, complaint: str) -> None:
    with pytest.raises(Failed, match=complaint):
        parse_offsets(text, FILE)
