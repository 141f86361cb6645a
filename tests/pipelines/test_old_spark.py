"""PySpark 4.0.0 in an environment of its own: our source and sink in batches, Spark's own connector in streams too."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from tests.support import old_spark

if TYPE_CHECKING:
    from barnabas.testing.kafka import Kafka

JOB = Path(__file__).with_name("old_spark_job.py")


def test_topics_are_read_and_written_by_us_and_by_the_connector(kafka: Kafka, tmp_path: Path) -> None:
    source = kafka.topic(partitions=2)
    values = [None if number % 7 == 0 else "ü" * number for number in range(50)]
    with kafka.producer() as producer:
        for number, value in enumerate(values):
            producer.send(source, value, f"k{number}" if number % 5 else None, headers=[("h", b"1"), ("h", None)])
    targets = [kafka.topic() for _ in range(3)]
    words = [str(JOB), kafka.bootstrap_servers, source, str(tmp_path), json.dumps(old_spark.connector()), *targets]
    done = subprocess.run([old_spark.python(), *words], env=old_spark.environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert "streams need pyspark 4.2 or newer, and this is 4.0.0" in found.pop("stream")
    assert found == {"version": "4.0.0", "rows": 50, "same schema": True, "same rows": True}
    for target in targets:
        assert sorted(kafka.values(target), key=str) == sorted(values, key=str)
