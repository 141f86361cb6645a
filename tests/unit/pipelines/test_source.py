"""What Spark's Python processes load to be asked about the source: each of them keeps it as long as it lives."""

from __future__ import annotations

import subprocess
import sys

import pytest

SCHEMA = "import barnabas.pipelines.source"
TASK = "import barnabas.pipelines.source, barnabas.pipelines.batch"


@pytest.mark.parametrize(
    ("question", "unneeded"),
    [
        (SCHEMA, ["kio", "hypothesis", "pandas", "pyarrow", "confluent_kafka", "asyncio"]),
        (TASK, ["kio", "hypothesis", "pandas", "pyarrow.compute", "asyncio"]),
    ],
    ids=["schema", "task"],
)
def test_a_question_loads_only_what_it_needs(question: str, unneeded: list[str]) -> None:
    told = f"import sys; {question}; print(sorted({set(unneeded)!r} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
