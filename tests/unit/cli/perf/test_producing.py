"""What is said of a producer that has failed for good."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.cli.perf import producing
from barnabas.clients.producer.serving import UNNAMED


@pytest.mark.parametrize("is_logged", [False, True])
def test_a_fatal_error_without_its_name_is_told_in_librdkafkas_words(
    monkeypatch: pytest.MonkeyPatch, *, is_logged: bool
) -> None:
    opened: list[dict[str, Any]] = []
    monkeypatch.setattr(producing, "open_perf_client", lambda _, properties: opened.append(properties))
    measured = producing.ProducerRun("t", {}, 1000, 0, metrics=False, as_json=False)
    if is_logged:
        line = "[thrd:main]: Fatal error: fenced by another"
        opened[0]["logger"].log(50, "%s [%s] %s", "FATAL", "perf#producer-1", line)
    assert str(measured._reason(None)) == ("Fatal error: fenced by another" if is_logged else UNNAMED)
