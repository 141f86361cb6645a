"""What Spark's Python processes load for the source and for loads: each of them keeps it as long as it lives."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow

SCHEMA = "import barnabas.pipelines.spark.source"
TASK = "import barnabas.pipelines.spark.source, barnabas.pipelines.spark.read.batch"
LOAD = "import barnabas.pipelines.loading.tasks.task, barnabas.pipelines.decode.choosing"


@pytest.mark.parametrize(
    ("work", "unneeded"),
    [
        (SCHEMA, ["kio", "hypothesis", "pandas", "pyarrow", "confluent_kafka", "asyncio"]),
        (TASK, ["kio", "hypothesis", "pandas", "pyarrow.compute", "asyncio"]),
        (LOAD, ["kio", "hypothesis", "pandas", "deltalake", "pyiceberg", "asyncio"]),
    ],
    ids=["schema", "task", "load"],
)
def test_a_process_loads_only_what_it_needs(work: str, unneeded: list[str]) -> None:
    told = f"import sys; {work}; print(sorted({set(unneeded)!r} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
