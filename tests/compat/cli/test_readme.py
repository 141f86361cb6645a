"""What the README tells newcomers to type is typed here, against a broker of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.support import jars
from tests.support.brokers import Barnabas

README = Path(__file__).parents[3] / "README.md"


def block(section: str, language: str) -> str:
    """The first code block in `language` below the heading `section`."""
    found = re.search(rf"^## {section}$.*?^```{language}\n(.*?)^```$", README.read_text(), re.MULTILINE | re.DOTALL)
    assert found, f"no {language} block below {section!r}"
    return found[1]


def test_first_steps_in_a_shell(tmp_path: Path) -> None:
    kcat = jars.program("kcat")
    path = os.pathsep.join([str(Path(sys.executable).parent), str(Path(kcat).parent), os.environ["PATH"]])
    with Barnabas(tmp_path) as broker:
        script = block("First steps", "sh").replace("localhost:9092", broker.bootstrap)
        script = script.replace("barnabas topics", f"barnabas topics --bootstrap-server {broker.bootstrap}")
        done = subprocess.run(
            ["sh", "-e", "-c", script], capture_output=True, text=True, timeout=60, env={**os.environ, "PATH": path}
        )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "Created topic greetings.\nhello\n"


def test_first_steps_in_python(tmp_path: Path) -> None:
    with Barnabas(tmp_path) as broker:
        program = block("First steps", "python").replace("localhost:9092", broker.bootstrap)
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "0 b'0'\n1 b'1'\n2 b'2'\n"


def test_the_ready_line_is_as_shown(tmp_path: Path) -> None:
    shown = re.search(r"^Barnabas 0\.1\.0 is ready on .*$", README.read_text(), re.MULTILINE)
    assert shown
    with Barnabas(tmp_path) as broker:
        assert _shape(broker.ready[0]) == _shape(shown[0])


def _shape(line: str) -> str:
    return re.sub(r"\d+", "N", re.sub(r"data in \S+", "data in DIR", re.sub(r"ready on \S+;", "ready on HERE;", line)))
