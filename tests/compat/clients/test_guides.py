"""What the guides tell people to type is typed here: the code of each page, in its order, as one program."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from barnabas.clients.producer.producer import Producer

DOCS = Path(__file__).parents[3] / "docs"


def load_coordinators(bootstrap: str, program: str) -> None:
    """Let brokers load the coordinators of a program's transactional ids, of which librdkafka logs that it waits."""
    for transactional_id in re.findall(r'transactional_id="([^"]+)"', program):
        with Producer(bootstrap, transactional_id=transactional_id) as producer, producer.transaction():
            pass


@pytest.mark.parametrize("page", ["produce.md", "consume.md", "delivery-semantics.md"])
def test_the_code_of_a_guide_works_when_pasted(bootstrap: str, page: str) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```$", (DOCS / page).read_text(), re.MULTILINE | re.DOTALL)
    program = "\n".join(blocks).replace("localhost:9092", bootstrap)
    load_coordinators(bootstrap, program)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=100)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_first_example_fits_in_ten_lines(bootstrap: str, unused_topic: str) -> None:
    found = re.search(r"^```python\n(.*?)^```$", (DOCS / "consume.md").read_text(), re.MULTILINE | re.DOTALL)
    assert found
    example = found[1]
    assert len(example.splitlines()) <= 10
    program = example.replace("localhost:9092", bootstrap).replace('"numbers"', f'"{unused_topic}"')
    program = program.replace('"quickstart"', f'"{unused_topic}"')
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "0 b'number 0'\n1 b'number 1'\n2 b'number 2'\n"
