"""What is told of our series to people and to Grafana is what brokers print."""

from __future__ import annotations

import ast
import json
import re
from itertools import combinations
from pathlib import Path
from typing import Any, Final

from barnabas.broker.metrics.series.coordinators import DEAD_LETTERS
from tests.support.documented_series import documented_series

ROOT: Final = Path(__file__).parents[4]
DASHBOARD: Final[dict[str, Any]] = json.loads((ROOT / "contrib" / "grafana" / "barnabas.json").read_text())
WIDTH: Final = 24
BUILT_IN: Final = {"__rate_interval"}


def printed() -> dict[str, str]:
    """The types of all series of our own that the code makes, by the names of their samples."""
    found = {f"barnabas_sharegroup_dead_letter{name}_total": "counter" for name, _ in DEAD_LETTERS}
    for path in (ROOT / "src" / "barnabas" / "broker" / "metrics").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.Call(func=ast.Name("Family"), args=[ast.Constant(str(name)), ast.Name(kind), *_]):
                    pass
                case ast.Call(func=ast.Name("gauge" | "counter" as kind), args=[ast.Constant(str(name)), *_]):
                    pass
                case _:
                    continue
            if name.startswith("barnabas_"):
                found[f"{name}_total" if kind.lower() == "counter" else name] = kind.lower()
    return found


def test_every_series_of_our_own_is_documented_with_its_type() -> None:
    """That the event loop's lag is a histogram stood nowhere, and a third of the series was missing."""
    assert {name: each.kind for name, each in documented_series().items()} == printed()


def test_units_are_in_the_names() -> None:
    for name, series in documented_series().items():
        assert name.endswith("_total") == (series.kind == "counter"), name
        assert not re.search(r"_(ms|millis|kb|mb|minutes)(_|$)", name), name


def test_panels_take_the_chosen_prometheus_and_variables_that_there_are() -> None:
    variables = {each["name"]: each for each in DASHBOARD["templating"]["list"]}
    assert variables["datasource"]["type"] == "datasource"
    assert variables["datasource"]["query"] == "prometheus"
    chosen = {"type": "prometheus", "uid": "$datasource"}
    known = variables.keys() | BUILT_IN
    for each in variables.values():
        if each["type"] == "query":
            assert each["datasource"] == chosen
            assert set(re.findall(r"\$(\w+)", each["query"])) <= known
    for panel in DASHBOARD["panels"]:
        assert panel["datasource"] == chosen, panel["title"]
        for target in panel["targets"]:
            assert target.get("datasource", chosen) == chosen, panel["title"]
            assert set(re.findall(r"\$(\w+)", target["expr"])) <= known, panel["title"]
            several = re.findall(r'(\w+)="\$(\w+)"', target["expr"])
            assert not [name for name, of in several if variables[of].get("multi")], "several values are a pattern: =~"


def test_panels_have_room_and_ids_of_their_own() -> None:
    panels = DASHBOARD["panels"]
    assert len({each["id"] for each in panels}) == len({each["title"] for each in panels}) == len(panels)
    places = [each["gridPos"] for each in panels]
    assert all(place["x"] + place["w"] <= WIDTH for place in places)
    for one, other in combinations(places, 2):
        apart = [one[at] + one[size] <= other[at] or other[at] + other[size] <= one[at] for at, size in ("xw", "yh")]
        assert any(apart), (one, other)


def unit_of(expression: str) -> str:
    """The unit that Grafana has for what an expression gives, by the name of its series."""
    name = next(each for each in re.findall(r"[a-z_]{12,}", expression) if each not in BUILT_IN)
    is_rate = "rate(" in expression
    if re.search(r"bytes(in|out)?(_total)?$", name):
        return "Bps" if is_rate else "bytes"
    if re.search(r"_seconds(_total)?$", name):
        return "percentunit" if is_rate else "s"
    if name.endswith("timems"):
        return "ms"
    if name.endswith(("_ratio", "_percent")):
        return "percentunit"
    if is_rate:
        return "reqps" if "request" in name else "cps"
    return "short"


def test_units_of_panels_are_those_of_their_series() -> None:
    wrong = {}
    for panel in DASHBOARD["panels"]:
        for target in panel["targets"]:
            if "up{" not in target["expr"]:
                unit = panel["fieldConfig"]["defaults"]["unit"]
                if unit != unit_of(target["expr"]):
                    wrong[panel["title"]] = unit, unit_of(target["expr"])
    assert wrong == {}


def test_legends_name_labels_that_are_left() -> None:
    documented = documented_series()
    for panel in DASHBOARD["panels"]:
        for target in panel["targets"]:
            named = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
            grouping = re.search(r"\bby \(([^)]*)\)", target["expr"])
            own = re.match(r"(barnabas_\w+)\{", target["expr"])
            if grouping is not None:
                assert named == set(grouping[1].split(", ")), panel["title"]
            elif own is not None:
                assert named <= documented[own[1]].labels | {"instance"}, panel["title"]
