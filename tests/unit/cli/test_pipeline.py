"""`barnabas pipeline`, without Spark and without a broker."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from barnabas.cli.pipeline.init import EXAMPLE_FILES
from barnabas.pipelines.errors import PipelineError
from barnabas.pipelines.runner import running, status
from barnabas.pipelines.runner.status import QueryStatus
from tests.unit.pipelines.runner.test_metrics import METRICS

if TYPE_CHECKING:
    from pathlib import Path

    from barnabas.pipelines.spec import Pipeline
    from tests.unit.cli.conftest import Run


@pytest.fixture
def example(run: Run, tmp_path: Path) -> Path:
    assert run("pipeline", "init", tmp_path).exit_code == 0
    return tmp_path / "pipeline.toml"


def test_init_writes_an_example_and_overwrites_nothing(run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "new"
    result = run("pipeline", "init", folder)
    assert result.exit_code == 0
    assert result.stdout.split() == [str(folder / name) for name in EXAMPLE_FILES]
    (folder / "pipeline.toml").unlink()
    again = run("pipeline", "init", folder)
    assert again.exit_code == 1
    assert f"{folder / 'customers.csv'} is there already" in again.stderr
    assert not (folder / "pipeline.toml").exists()


def test_the_example_is_sound_and_check_says_what_would_run(run: Run, example: Path) -> None:
    result = run("pipeline", "check", example)
    assert result.exit_code == 0, result.output
    tables = example.parent / "tables"
    assert result.stdout.splitlines() == [
        f"orders.orders\torders, customers\tdelta {tables}/orders\tby offsets",
        f'orders.revenue\torders, customers\tdelta {tables}/revenue\tby batches, because step "revenue" has GROUP BY',
        f"orders.bad_orders\torders\tdelta {tables}/bad_orders\tby offsets",
    ]
    assert not result.stderr


def test_check_shows_a_table_to_a_person(run: Run, example: Path, terminal: None) -> None:
    result = run("pipeline", "check", example)
    assert "QUERY" in result.stdout and "orders.revenue" in result.stdout


def test_check_tells_everything_that_is_wrong_with_its_line(run: Run, example: Path) -> None:
    text = example.read_text()
    lines = text.replace('trigger = "10s"', 'trigger = "soon"').replace('from = "revenue"', 'from = "revenues"')
    example.write_text(lines)
    trigger = next(number for number, line in enumerate(lines.splitlines(), 1) if line.startswith("trigger"))
    sink = next(number for number, line in enumerate(lines.splitlines(), 1) if line == 'from = "revenues"')
    result = run("pipeline", "check", example)
    assert result.exit_code == 1
    first, second = result.stdout.splitlines()
    assert first.startswith(f"{example}:{trigger}: the trigger is a length of time")
    assert second == (
        f'{example}:{sink}: sink "revenue" writes "revenues", which nobody makes. Did you mean "revenue"?'
    )
    as_json = json.loads(run("pipeline", "check", "--json", example).stdout)
    assert [problem["line"] for problem in as_json["problems"]] == [trigger, sink]


def test_bad_records_that_nobody_keeps_are_a_problem(run: Run, example: Path) -> None:
    whole = example.read_text()
    example.write_text(whole[: whole.index("[sinks.bad_orders]")])
    result = run("pipeline", "check", example)
    assert result.exit_code == 1
    assert 'would vanish: add a sink with from = "orders_bad", or say bad = "drop"' in result.stdout


def test_what_is_wrong_with_a_file_is_told_before_spark_starts(run: Run, example: Path) -> None:
    example.write_text("name = ")
    result = run("pipeline", "run", example)
    assert result.exit_code == 1
    assert f"{example}:1: this is no TOML" in result.stderr


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--available-now", "--every", "5s"], "Give --available-now or --every, not both"),
        (["--conf", "spark.executor.memory"], "--conf spark.executor.memory is not of the form KEY=VALUE"),
        (["--every", "often"], '"often" is no length of time'),
    ],
)
def test_run_understands_its_options_before_it_starts(run: Run, example: Path, words: list[str], text: str) -> None:
    result = run("pipeline", "run", example, *words)
    assert result.exit_code == 2
    assert text in result.stderr


@pytest.mark.parametrize(
    ("module", "text", "told"),
    [
        ("py4j.protocol", "An error occurred while calling None.Context.\n: o.SparkException: No such Master\n\tat",
         "Spark: o.SparkException: No such Master. Every sink is as its last batch left it"),
        ("pyspark.errors", "[JAVA_GATEWAY_EXITED] Java gateway process exited", "Is Java 17 or newer on the PATH"),
        ("pyspark.errors", "[SOMETHING] is not so.\n\nJVM stacktrace:", "Spark: [SOMETHING] is not so. Every sink is"),
        (
            "pyspark.errors.exceptions.captured",
            "An exception was thrown from the Python worker:\n  Traceback (most recent call last):\n"
            '  File "task.py", line 90, in run_task\nOSError: [Errno 28] No space left on device\n\tat o.Spark',
            "Error: OSError: [Errno 28] No space left on device. ",
        ),
    ],
)  # fmt: skip
def test_what_spark_says_in_pages_is_told_in_one_line(
    run: Run, example: Path, monkeypatch: pytest.MonkeyPatch, module: str, text: str, told: str
) -> None:
    def condition(_: object) -> str | None:
        return text[1:].partition("]")[0] if text.startswith("[") else None

    of_spark = type("OfSpark", (Exception,), {"__module__": module, "getCondition": condition})

    def fails(*_: object, **__: object) -> None:
        raise of_spark(text)

    monkeypatch.setattr(running, "run_pipelines", fails)
    result = run("pipeline", "run", example)
    assert result.exit_code == 1
    assert told in result.stderr and "Traceback" not in result.stderr and len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize(("error", "of_spark"), [(ConnectionRefusedError, True), (BrokenPipeError, False)])
def test_a_java_process_that_is_gone_is_told_in_one_line(
    run: Run, example: Path, monkeypatch: pytest.MonkeyPatch, error: type[OSError], of_spark: bool
) -> None:
    """A pipe that is broken is the one to who reads our output."""

    def fails(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(running, "run_pipelines", fails)
    result = run("pipeline", "run", example)
    assert result.exit_code == 1 and ("Spark's Java process has ended" in result.stderr) is of_spark


def test_an_error_of_our_own_is_told_as_it_is(run: Run, example: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failure = PipelineError("the cluster is on holiday")

    def fails(*_: object, **__: object) -> None:
        raise failure

    monkeypatch.setattr(running, "run_pipelines", fails)
    assert "the cluster is on holiday" in run("pipeline", "run", example).stderr
    assert failure.__cause__ is None


def test_status_shows_lag_and_the_last_batch(
    run: Run, example: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[dict[str, str]] = []
    login = tmp_path / "client.properties"
    login.write_text("security.protocol=SSL\nbootstrap.servers=from-the-file:9092\n")

    def found(pipeline: Pipeline) -> list[QueryStatus]:
        asked.append(dict(pipeline.kafka))
        return [QueryStatus("orders.orders", None, None), QueryStatus("orders.revenue", 7, METRICS)]

    monkeypatch.setattr(status, "statuses", found)
    result = run("pipeline", "status", example, "--bootstrap-server", "elsewhere:9092", "--command-config", login)
    assert asked == [{"bootstrap.servers": "elsewhere:9092", "security.protocol": "SSL"}]
    assert result.stdout.splitlines() == [
        "orders.orders\t-\t-\t-\t-\t-\t-\t-\t-",
        "orders.revenue\t7\t3\t2026-01-31T10:00:00.000Z\t2.0\t500\t250.0\t10\t150",
    ]
    as_json = json.loads(run("pipeline", "status", example, "--json").stdout)
    assert as_json[1]["lag"] == 7 and as_json[1]["last"]["state_rows"] == 10
