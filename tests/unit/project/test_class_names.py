"""A class name stands for one thing: two modules define the same name only where both mean the same."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

SOURCE = Path(__file__).parents[3] / "src" / "barnabas"
SAME_THING = {
    "DescribeOptions": "the options of a command that describes",
    "OffsetIndex": "the checker shares no code with what it checks",
    "OffsetOutOfRange": "Kafka's error, and a public name of pipelines",
    "Options": "the options of a command",
    "ProducerFenced": "Kafka's error, and a public name of clients",
    "TimeIndex": "the checker shares no code with what it checks",
}


def test_a_class_name_stands_for_one_thing() -> None:
    names = Counter(
        name
        for path in SOURCE.rglob("*.py")
        for name in re.findall(r"^class ([A-Z]\w*)", path.read_text(), re.MULTILINE)
    )
    assert names.total() > 500
    assert {name for name, times in names.items() if times > 1} == set(SAME_THING)
