"""What the shell completes, asked as bash asks it."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

from barnabas import Consumer, Producer
from tests.support.processes import free_port
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from tests.compat.conftest import TopicMaker


def completed(*words: str) -> list[str]:
    """What may stand in the place of the last word."""
    line = ["barnabas", *words]
    asked = {
        "_BARNABAS_COMPLETE": "bash_complete",
        "COMP_WORDS": " ".join(line),
        "COMP_CWORD": str(len(line) - 1),
    }
    done = subprocess.run(
        [sys.executable, "-m", "barnabas.cli.main"], env=os.environ | asked, capture_output=True, text=True, timeout=60
    )
    assert done.stderr == ""
    return [line.partition(",")[2] for line in done.stdout.split()]


def found(*words: str) -> list[str]:
    """What is completed by whoever tries again: on a busy machine a broker may not answer at once."""
    return wait_until(lambda: completed(*words), f"names for {words}")


def test_commands_options_and_words() -> None:
    assert completed("top") == ["top", "topics"]
    assert completed("topics", "--cre") == ["--create"]
    assert completed("consume", "--value-format", "pro") == ["protobuf"]


def test_names_of_topics_and_groups(bootstrap: str, new_topic: TopicMaker) -> None:
    topic = new_topic()
    with Producer(bootstrap) as producer:
        producer.send(topic, "x")
    with Consumer(bootstrap, topic, group_id=f"{topic}-readers", auto_offset_reset="earliest") as consumer:
        assert [record.value for record in consumer.until_end()] == [b"x"]
    at = ("--bootstrap-server", bootstrap)
    for command in ("topics", "consume", "produce", "get-offsets", "configs", "producer-perf"):
        assert found(command, *at, "--topic", topic[:-1]) == [topic]
    assert found("groups", *at, "--group", topic[:-1]) == [f"{topic}-readers"]
    for line in (("transactions", *at, "abort"), ("transactions", "abort", *at)):
        assert found(*line, "--topic", topic[:-1]) == [topic]


def test_without_a_broker_nothing_is_completed_and_nothing_is_said() -> None:
    at = ("--bootstrap-server", f"localhost:{free_port()}")
    assert completed("topics", *at, "--topic", "o") == []
    assert completed("groups", *at, "--group", "o") == []
