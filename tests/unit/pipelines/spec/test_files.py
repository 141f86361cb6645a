"""TOML and Python files become the same pipelines, or errors that name the line."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

from barnabas.pipelines.spec import (
    FileSource,
    FunctionStep,
    Pipeline,
    SpecError,
    SqlStep,
    TableSink,
    TopicSink,
    TopicSource,
    Watermark,
    load_pipelines,
)
from barnabas.pipelines.spec.durations import milliseconds
from barnabas.pipelines.spec.toml_lines import lines_of

WHOLE = '''\
name = "orders"
trigger = "5s"
checkpoints = "checkpoints"
metrics = "pipeline-metrics"

[kafka]
"bootstrap.servers" = "localhost:9092"

[sources.orders]
topic = "orders"
decode = "json"
schema = "id BIGINT, customer INT, amount DOUBLE, at TIMESTAMP"
watermark = { column = "at", delay = "1 minute" }
options = { maxOffsetsPerTrigger = 1000, failOnDataLoss = false }

[sources.customers]
path = "customers.csv"
format = "csv"
options = { header = true }

[steps.enriched]
sql = """
SELECT orders.*, customers.country
FROM orders JOIN customers ON orders.customer = customers.id
"""

[steps.cleaned]
python = "cleaning.py:clean"
reads = "enriched"
stateless = true

[steps.revenue]
sql = "SELECT window.start AS at, country, sum(amount) AS sum FROM cleaned GROUP BY window(at, '1 minute'), country"

[sinks.revenue]
from = "revenue"
table = "tables/revenue"
format = "delta"

[sinks.alerts]
from = "cleaned"
topic = "alerts"
key = "country"

[sinks.bad]
from = "orders_bad"
table = "tables/bad"
'''


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "customers.csv").write_text("id,country\n1,pt\n")
    (tmp_path / "cleaning.py").write_text("def clean(orders):\n    return orders\n")
    return tmp_path


def write(folder: Path, text: str, name: str = "pipeline.toml") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def problems(path: Path) -> list[str]:
    with pytest.raises(SpecError) as caught:
        load_pipelines([path])
    return [str(problem).removeprefix(f"{path}:") for problem in caught.value.problems]


def test_a_toml_file_gives_the_objects_that_python_would_make(folder: Path) -> None:
    [found] = load_pipelines([write(folder, WHOLE)])
    assert found == Pipeline(
        name="orders",
        trigger="5s",
        checkpoints="checkpoints",
        metrics="pipeline-metrics",
        kafka={"bootstrap.servers": "localhost:9092"},
        sources=(
            TopicSource(
                name="orders",
                topics=("orders",),
                decode="json",
                schema="id BIGINT, customer INT, amount DOUBLE, at TIMESTAMP",
                watermark=Watermark(column="at", delay="1 minute"),
                options={"maxOffsetsPerTrigger": "1000", "failOnDataLoss": "false"},
            ),
            FileSource(name="customers", path="customers.csv", format="csv", options={"header": "true"}),
        ),
        steps=(
            SqlStep(
                name="enriched",
                sql="SELECT orders.*, customers.country\n"
                "FROM orders JOIN customers ON orders.customer = customers.id\n",
            ),
            FunctionStep(name="cleaned", function="cleaning.py:clean", reads=("enriched",), stateless=True),
            SqlStep(
                name="revenue",
                sql="SELECT window.start AS at, country, sum(amount) AS sum FROM cleaned "
                "GROUP BY window(at, '1 minute'), country",
            ),
        ),
        sinks=(
            TableSink(name="revenue", reads="revenue", table="tables/revenue", format="delta"),
            TopicSink(name="alerts", reads="cleaned", topic="alerts", key="country"),
            TableSink(name="bad", reads="orders_bad", table="tables/bad"),
        ),
    )


def test_paths_are_those_of_the_file(folder: Path) -> None:
    [found] = load_pipelines([write(folder, WHOLE)])
    assert found.located("tables/revenue") == str(folder / "tables/revenue")
    assert found.located("s3://bucket/revenue") == "s3://bucket/revenue"
    assert found.checkpoint(found.sinks[0]) == str(folder / "checkpoints/revenue")
    assert found.query(found.sinks[0]) == "orders.revenue"


def test_a_python_file_gives_all_pipelines_of_its_top_level(folder: Path) -> None:
    path = write(
        folder,
        dedent("""\
            from barnabas.pipelines.spec import Pipeline, TableSink, TopicSource

            def load(topic):
                return Pipeline(
                    name=topic,
                    kafka={"bootstrap.servers": "localhost:9092"},
                    sources=[TopicSource(name="records", topics=[topic])],
                    sinks=[TableSink(name="all", reads="records", table=f"tables/{topic}")],
                )

            orders, payments = load("orders"), load("payments")
            """),
        "pipelines.py",
    )
    found = load_pipelines([path])
    assert [each.name for each in found] == ["orders", "payments"]
    assert found[0].sources[0].place.line == 7
    assert found[0].folder == folder


def test_what_is_wrong_in_a_python_file_has_the_line_of_its_element(folder: Path) -> None:
    path = write(
        folder,
        dedent("""\
            from barnabas.pipelines.spec import Pipeline, TableSink, TopicSource

            pipeline = Pipeline(
                name="orders",
                kafka={"bootstrap.servers": "localhost:9092"},
                sources=[TopicSource(name="orders", topics=["orders"])],
                sinks=[
                    TableSink(name="all", reads="ordes", table="tables/orders"),
                ],
            )
            """),
        "pipelines.py",
    )
    assert problems(path) == ['8: sink "all" writes "ordes", which nobody makes. Did you mean "orders"?']


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x = (", "1: this is no Python: '(' was never closed"),
        ("\nx = 1 / 0", "2: ZeroDivisionError: division by zero"),
        ("import sys\nsys.exit()", "2: SystemExit: "),
        ("x = 1", "1: no pipeline is made here; assign one, as `pipeline = Pipeline(...)`"),
    ],
)
def test_a_python_file_that_gives_nothing_says_why(folder: Path, text: str, expected: str) -> None:
    assert problems(write(folder, text, "pipelines.py")) == [expected]


def test_a_line_is_known_wherever_one_is(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(folder, "\n\nx = 1 / 0", "pipelines.py")
    monkeypatch.chdir(folder)
    assert problems(Path("pipelines.py")) == ["3: ZeroDivisionError: division by zero"]


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ('topics=["orders"]', 'topics="orders"', "10: topics of \"orders\" takes a list of texts, not 'orders'"),
        ('reads=["orders"]', 'reads="orders"', "11: reads of \"made\" takes a list of texts, not 'orders'"),
        ("stateless=True", "stateless=1", '11: stateless of "made" takes True or False, not 1'),
        ('table="t"', "table=Path('t')", "12: table of \"all\" takes text, not PosixPath('t')"),
        ('table="t"', 'table="t", partition_by="id"', "12: partition_by of \"all\" takes a list of texts, not 'id'"),
        ('name="p"', 'name="p", trigger=10', "6: trigger of the pipeline takes text, not 10"),
        ('"localhost:9092"', '"localhost:9092", "sasl.password": b"secret"', "6: kafka of the pipeline takes a dict of"
         " texts"),
        ("steps=[", "steps=1, unused=[", "6: TypeError: Pipeline.__init__() got an unexpected keyword argument 'unus"),
        ("SINKS", "SINKS[0]", "6: sinks of the pipeline takes a list of sinks, not TableSink("),
        ("double, reads", "lambda: None, reads", '11: step "made": its function does not take 1 views: too many'),
    ],
)  # fmt: skip
def test_what_does_not_fit_in_a_python_file_is_told(folder: Path, old: str, new: str, expected: str) -> None:
    text = dedent("""\
        from pathlib import Path
        from barnabas.pipelines.spec import FunctionStep, Pipeline, TableSink, TopicSource
        def double(orders):
            return orders
        def whole(sources, steps, sinks):
            return Pipeline(
                name="p", kafka={"bootstrap.servers": "localhost:9092"}, sources=sources, steps=[*steps], sinks=sinks
            )
        SOURCES, STEPS, SINKS = (
            [TopicSource(name="orders", topics=["orders"])],
            [FunctionStep(name="made", function=double, reads=["orders"], stateless=True)],
            [TableSink(name="all", reads="made", table="t")],
        )
        pipeline = whole(SOURCES, STEPS, SINKS)
        """)
    assert load_pipelines([write(folder, text, "right.py")])
    assert old in text
    [found] = problems(write(folder, new.join(text.rsplit(old, 1)), "wrong.py"))
    assert found.startswith(expected), found
    assert "secret" not in found


def test_a_file_that_is_no_text_is_told(folder: Path) -> None:
    (folder / "pipeline.toml").write_bytes(b'name = "\xff"')
    assert problems(folder / "pipeline.toml") == [
        "1: this is no TOML: 'utf-8' codec can't decode byte 0xff in position 8: invalid start byte"
    ]


def test_properties_whose_names_lack_quotes_are_told_without_what_they_say(folder: Path) -> None:
    given = WHOLE.replace('"bootstrap.servers" =', 'sasl.password = "secret"\n"bootstrap.servers" =')
    assert problems(write(folder, given)) == [
        "6: kafka of a pipeline takes a table of options; a name with dots needs quotes, not "
        "['bootstrap.servers', 'sasl']"
    ]


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ('trigger = "5s"', "trigger = 5", "2: trigger of a pipeline takes text, not 5"),
        ('trigger = "5s"', 'triger = "5s"', '2: a pipeline has no "triger". Did you mean "trigger"?'),
        ('name = "orders"', "", '1: the pipeline has no name; add `name = "..."` at the top'),
        ("[kafka]", "[kafka", "6: this is no TOML: "),
        ("orders.customer = customers.id", "f(customer", '24: step "enriched": a ( is opened here and never closed'),
        ("[sinks.alerts]", "[sink.alerts]", '40: a pipeline has no "sink". Did you mean "sinks"?'),
        ('topic = "orders"', 'topics = "orders"', '9: source "orders" needs exactly one of topic, pattern, path. '
         '"topics" is not known. Did you mean "topic"?'),
        ('decode = "json"', 'dekode = "json"', '11: source "orders" has no "dekode". Did you mean "decode"?'),
        ('delay = "1 minute"', 'late = "1 minute"', '13: watermark of source "orders" takes { column = "at", delay = '
         "\"1 minute\" }, not {'column': 'at', 'late': '1 minute'}"),
        ("options = { header = true }", "options = { header = [] }",
         '19: options of source "customers" takes a table of options; a name with dots needs quotes, not '),
        ('reads = "enriched"', "", '27: step "cleaned" needs `reads`'),
        ("stateless = true", "stateless = 1", '30: stateless of step "cleaned" takes true or false, not 1'),
        ('from = "revenue"', "", '35: sink "revenue" needs `from`'),
        ('key = "country"', 'table = "tables/alerts"', '40: sink "alerts" needs exactly one of topic, table.'),
        ("[sinks.alerts]", "[sinks]", "40: [sinks] is made of tables with names, as [sinks.orders]"),
    ],
)  # fmt: skip
def test_what_is_wrong_in_a_toml_file_has_its_line(folder: Path, old: str, new: str, expected: str) -> None:
    assert old in WHOLE
    found = problems(write(folder, WHOLE.replace(old, new, 1)))
    assert any(problem.startswith(expected) for problem in found), found


def test_other_files_are_refused(folder: Path) -> None:
    assert problems(write(folder, "", "pipeline.yaml")) == ["1: a pipeline is a .toml or a .py file"]


def test_lines_are_those_of_tables_and_keys_and_not_of_text_in_strings() -> None:
    text = 'a = 1\n[t."x.y"]\nsql = """\nkey = 2\n"""\nb.c = 3\n[[u]]\n'
    assert lines_of(text) == {
        ("a",): 1,
        ("t",): 2,
        ("t", "x.y"): 2,
        ("t", "x.y", "sql"): 4,
        ("t", "x.y", "b", "c"): 6,
        ("t", "x.y", "b"): 6,
        ("u",): 7,
    }


@pytest.mark.parametrize(
    ("text", "expected"),
    [("500ms", 500), ("10s", 10_000), ("5 minutes", 300_000), ("1 hour 30 min", 5_400_000), ("2d", 172_800_000)],
)
def test_lengths_of_time(text: str, expected: int) -> None:
    assert milliseconds(text) == expected


@pytest.mark.parametrize("text", ["", "10", "ten seconds", "10 parsecs", "10s later"])
def test_what_is_no_length_of_time(text: str) -> None:
    with pytest.raises(ValueError, match="is no length of time"):
        milliseconds(text)
