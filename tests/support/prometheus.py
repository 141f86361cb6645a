"""A real Prometheus that scrapes brokers, and what it answers."""

from __future__ import annotations

import json
import shutil
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from typing import TYPE_CHECKING, Any, Self

from barnabas.testing.broker import find_free_port
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

MISSING = "Prometheus is not installed: make test installs it, or apt-get install prometheus"


def promtool(*words: object, stdin: str | None = None) -> str:
    """What promtool says; fails if it refuses."""
    found = shutil.which("promtool")
    assert found is not None, MISSING
    done = subprocess.run([found, *map(str, words)], input=stdin, capture_output=True, text=True, timeout=60)
    said = done.stdout + done.stderr
    assert done.returncode in (0, 3), said  # 3: names that it would have chosen otherwise, which are Kafka's
    return said


class Prometheus:
    """A Prometheus of one's own, which scrapes each second."""

    def __init__(self, folder: Path, targets: Mapping[str, Mapping[str, str]], rules: Sequence[Path] = ()) -> None:
        """`targets` are addresses, each with the labels that it is given."""
        self._folder = folder
        self._port = find_free_port()
        self._process: subprocess.Popen[bytes] | None = None
        config = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": [str(path) for path in rules],
            "scrape_configs": [
                {
                    "job_name": "barnabas",
                    "static_configs": [{"targets": [each], "labels": dict(labels)} for each, labels in targets.items()],
                }
            ],
        }
        (folder / "prometheus.yml").write_text(json.dumps(config))  # which is YAML, too

    def __enter__(self) -> Self:
        found = shutil.which("prometheus")
        assert found is not None, MISSING
        with (self._folder / "prometheus.log").open("wb") as log:
            self._process = subprocess.Popen(
                [
                    found,
                    f"--config.file={self._folder / 'prometheus.yml'}",
                    f"--storage.tsdb.path={self._folder / 'tsdb'}",
                    f"--web.listen-address=127.0.0.1:{self._port}",
                ],
                stdout=log,
                stderr=log,
            )
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait(30)

    def log(self) -> str:
        """What it has logged."""
        return (self._folder / "prometheus.log").read_text()

    def query(self, expression: str) -> list[dict[str, Any]]:
        """What an expression finds now; nothing while Prometheus starts."""
        words = urllib.parse.urlencode({"query": expression})
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/api/v1/query?{words}", timeout=30) as answer:
                found: list[dict[str, Any]] = json.load(answer)["data"]["result"]
                return found
        except urllib.error.HTTPError as error:
            if error.code == 503:
                return []
            raise AssertionError(f"{expression}: {error.read().decode()}") from None
        except urllib.error.URLError:
            return []

    def value(self, expression: str) -> float | None:
        """The one value of an expression; None if there is none."""
        found = self.query(expression)
        return float(found[0]["value"][1]) if len(found) == 1 else None

    def wait_for(self, expression: str, value: float, seconds: float = 60) -> None:
        """Until an expression has a value."""
        wait_until(
            lambda: True if self.value(expression) == value else None,
            f"{expression} to be {value}; it is {self.query(expression)}",
            seconds,
            every=0.1,
        )
