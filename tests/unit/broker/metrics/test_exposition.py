"""Pages in both formats, as prometheus_client's parsers read them, whatever groups and topics are called."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_prometheus

from barnabas.broker.metrics.exposition import (
    COUNTER,
    GAUGE,
    LONGEST_VALUE,
    PART_LINES,
    SUMMARY,
    Family,
    PageFormat,
    accepted,
    escape,
    gauge,
    labels,
    number,
    render,
)


def page(format: PageFormat, *families: Family) -> str:
    return b"".join(render(families, format)).decode()


def counted() -> Family:
    family = Family("requests", COUNTER, "Requests that came.")
    family.add(3, labels(request="Produce"))
    return family


def test_a_counter_is_named_with_its_suffix_where_the_format_wants_it() -> None:
    assert page(PageFormat.PROMETHEUS, counted()) == (
        "# HELP requests_total Requests that came.\n"
        "# TYPE requests_total counter\n"
        'requests_total{request="Produce"} 3\n'
    )
    assert page(PageFormat.OPENMETRICS, counted()) == (
        '# HELP requests Requests that came.\n# TYPE requests counter\nrequests_total{request="Produce"} 3\n# EOF\n'
    )


def test_a_family_without_series_is_left_out() -> None:
    assert page(PageFormat.PROMETHEUS, Family("nothing", GAUGE, "Nothing.")) == ""


def test_a_summary_has_quantiles_a_sum_and_a_count() -> None:
    family = Family("time", SUMMARY, "Time.")
    family.add(0.5, labels(quantile="0.99"))
    family.add(7.0, "", "_sum")
    family.add(2, "", "_count")
    for parse, format in ((parse_prometheus, PageFormat.PROMETHEUS), (parse_openmetrics, PageFormat.OPENMETRICS)):
        (found,) = parse(page(format, family))
        assert {(sample.name, sample.value) for sample in found.samples} == {
            ("time", 0.5),
            ("time_sum", 7.0),
            ("time_count", 2.0),
        }


@given(st.text(st.characters(), max_size=40))
def test_any_name_comes_back_as_it_was_or_in_a_form_that_can_be_written(name: str) -> None:
    family = Family("members", GAUGE, "Members.")
    family.add(1, labels(group=name))
    expected = "".join(
        f"\\u{ord(each):04x}" if each in "\r\0" or "\ud800" <= each <= "\udfff" else each for each in name
    )
    for parse, format in ((parse_prometheus, PageFormat.PROMETHEUS), (parse_openmetrics, PageFormat.OPENMETRICS)):
        (found,) = parse(page(format, family))
        assert found.samples[0].labels == {"group": expected}


def _cannot_stand(character: str) -> bool:
    return character in "\r\0" or "\ud800" <= character <= "\udfff"


def test_long_names_are_cut_and_stay_apart() -> None:
    first, second = escape("x" * 30_000 + "1"), escape("x" * 30_000 + "2")
    assert len(first) == len(second) == LONGEST_VALUE
    assert first != second


@pytest.mark.parametrize(
    ("value", "text"),
    [(3, "3"), (True, "1"), (0.25, "0.25"), (math.inf, "+Inf"), (-math.inf, "-Inf"), (math.nan, "NaN")],
)
def test_values_are_written_as_both_formats_have_them(value: float, text: str) -> None:
    assert number(value) == text


def test_labels_without_a_value_are_left_out() -> None:
    assert labels(topic="a", partition=None) == '{topic="a"}'
    assert labels() == ""
    assert gauge("up", "Up.", 1).lines == ["up 1\n"]


def test_the_client_chooses_the_format() -> None:
    prometheus = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
    assert accepted(prometheus) is PageFormat.OPENMETRICS
    assert accepted("text/plain") is accepted("") is PageFormat.PROMETHEUS


def test_a_page_of_many_series_is_written_in_small_parts() -> None:
    """A family of ten thousand lines would hold the event loop for milliseconds."""
    family = Family("many", GAUGE, "Many.")
    for value in range(2 * PART_LINES + 1):
        family.add(value)
    parts = list(render([family, gauge("one", "One.", 1)], PageFormat.PROMETHEUS))
    assert [part.count(b"\n") for part in parts] == [PART_LINES + 2, PART_LINES, 1, 3]
    assert b"".join(parts).count(b"# TYPE") == 2
