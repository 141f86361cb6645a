"""The pytest plugin, as pytest runs it; and the examples of its guide."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pytest

pytest_plugins = ["pytester"]

GUIDE: Final = Path(__file__).parents[3] / "docs" / "testing.md"
STRICT: Final = ("-p", "no:cacheprovider", "-W", "error")


def examples() -> Iterator[tuple[str, str]]:
    """The guide's Python examples: the name in each one's first line, and all of it."""
    for code in re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL):
        name = re.match(r"# (\w+\.py)\n", code)
        assert name is not None, f"an example without a name:\n{code}"
        yield name[1], code


def test_the_examples_of_the_guide_work(pytester: pytest.Pytester) -> None:
    for name, code in examples():
        pytester.path.joinpath(name).write_text(code)
    result = pytester.runpytest_subprocess(*STRICT)
    result.assert_outcomes(passed=sum(name.startswith("test_") for name, _ in examples()))
    subprocess.run([sys.executable, pytester.path / "without_pytest.py"], check=True, timeout=60)


def test_every_test_has_its_own_topics_and_leaves_none(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        import pytest

        names = set()

        @pytest.mark.parametrize("turn", range(3))
        def test_topics(kafka, kafka_topic, turn):
            def topics():
                return {topic.name for topic in kafka.admin.topics() if not topic.internal}

            assert topics() == {kafka_topic}, "what earlier tests made is gone"
            made = kafka.topic("orders", partitions=2)
            assert made == kafka.name("orders")
            kafka.send(kafka.name("made-by-sending"), {"a": 1}, "text", b"bytes")
            assert kafka.values(kafka.name("made-by-sending"), 3) == ['{"a": 1}', "text", "bytes"]
            found = topics()
            assert len(found) == 3
            assert not names & found
            names.update(found)
        """)
    pytester.runpytest_subprocess(*STRICT).assert_outcomes(passed=3)


def test_faults_end_with_their_test(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        def test_sets_faults(kafka):
            kafka.faults.fail("PRODUCE", "TOPIC_AUTHORIZATION_FAILED")

        def test_sets_one_with_the_broker_alone(kafka_broker):
            kafka_broker.faults.drop("PRODUCE")

        def test_finds_none(kafka, kafka_topic):
            kafka.send(kafka_topic, "x")
        """)
    pytester.runpytest_subprocess(*STRICT).assert_outcomes(passed=3)


def test_the_broker_is_one_for_all_tests_and_comes_back(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        brokers = []

        def test_first(kafka_broker):
            brokers.append((kafka_broker.port, kafka_broker.pid))

        def test_second(kafka):
            assert [(kafka.broker.port, kafka.broker.pid)] == brokers
            kafka.topic()
            kafka.broker.kill()

        def test_third(kafka, kafka_topic):
            assert kafka.broker.port == brokers[0][0]
            assert kafka.broker.pid != brokers[0][1]
            kafka.send(kafka_topic, "x")
        """)
    pytester.runpytest_subprocess(*STRICT).assert_outcomes(passed=3)


def test_no_broker_starts_for_tests_that_want_none(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        import sys

        def test_nothing():
            assert "barnabas.testing.broker" not in sys.modules
            assert "confluent_kafka" not in sys.modules
        """)
    pytester.runpytest_subprocess(*STRICT).assert_outcomes(passed=1)


def test_a_failed_test_shows_what_the_broker_said(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        def test_before(kafka):
            kafka.topic("unseen")

        def test_fails(kafka):
            kafka.topic("seen")
            assert False
        """)
    result = pytester.runpytest_subprocess(*STRICT)
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*Kafka broker log*", "*Created topic test_fails.*.seen*"])
    result.stdout.no_fnmatch_line("*Created topic*unseen*")  # its end may be told later


def test_settings_come_from_conftest(pytester: pytest.Pytester) -> None:
    pytester.makeconftest("""
        import pytest

        @pytest.fixture(scope="session")
        def kafka_config():
            return {"num.partitions": 3}
        """)
    pytester.makepyfile("""
        def test_partitions(kafka):
            kafka.send(kafka.name("made-by-sending"), "x")
            assert len(kafka.admin.partitions(kafka.name("made-by-sending"))) == 3
        """)
    pytester.runpytest_subprocess(*STRICT).assert_outcomes(passed=1)


def test_settings_that_cannot_be_fail_the_tests_and_are_named(pytester: pytest.Pytester) -> None:
    pytester.makeconftest("""
        import pytest

        @pytest.fixture(scope="session")
        def kafka_config():
            return {"num.partitions": "many"}
        """)
    pytester.makepyfile("def test_anything(kafka): pass")
    result = pytester.runpytest_subprocess(*STRICT)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*BrokerFailed*num.partitions*"])


def test_clients_that_a_test_left_open_are_closed(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        import pytest

        from barnabas.clients.errors import ClientClosed

        left = []

        def test_leaves_clients(kafka, kafka_topic):
            producer = kafka.producer()
            producer.send(kafka_topic, b"x")
            consumer = kafka.consumer(kafka_topic, group_id=kafka.name("group"))
            assert consumer.poll(30)
            left.extend([producer, consumer])

        def test_finds_them_closed():
            producer, consumer = left
            with pytest.raises(ClientClosed):
                producer.send("t", b"x")
            with pytest.raises(ClientClosed):
                consumer.poll(0)
        """)
    pytester.runpytest_subprocess(*STRICT).assert_outcomes(passed=2)


def test_each_worker_of_xdist_has_its_own_broker(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        import os
        import pathlib

        import pytest

        @pytest.mark.parametrize("number", range(6))
        def test_sends(kafka, kafka_topic, number):
            kafka.send(kafka_topic, str(number))
            assert kafka.values(kafka_topic) == [str(number)]
            pathlib.Path(f"{os.environ['PYTEST_XDIST_WORKER']}-{kafka.broker.port}").touch()
        """)
    result = pytester.runpytest_subprocess(*STRICT, "-n", "2")
    result.assert_outcomes(passed=6)
    ran = sorted(path.name.split("-") for path in pytester.path.glob("gw*"))
    assert [worker for worker, _ in ran] == ["gw0", "gw1"]
    assert len({port for _, port in ran}) == 2
