"""franz-go's share consumer on a queue: it accepts, releases and rejects, and all of it is stored.

`python -m tests.matrix.shares`; needs Go and its module proxy, as the matrix does, so `make matrix` runs it.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from confluent_kafka import Producer

from barnabas.clients.admin.cluster_admin import ClusterAdmin
from barnabas.clients.admin.configs import EntityType
from tests.matrix.clients import HERE
from tests.support import jars
from tests.support.brokers import Barnabas
from tests.support.groups import QUICK

TOPIC: Final = "jobs"
GROUP: Final = "workers"
MESSAGES: Final = ("good", "retry", "bad", "good")
EXPECTED: Final = ["0 1 good", "1 1 retry", "1 2 retry", "2 1 bad", "3 1 good"]
SECONDS: Final = 120.0


def main() -> int:
    """Run it; 1 if it did not end as it must."""
    binary = jars.CACHE / "matrix-franz-go-shares"
    build = [jars.program("go"), "build", "-o", str(binary), "./shares"]
    subprocess.run(build, cwd=HERE / "go", check=True, timeout=1200)
    with tempfile.TemporaryDirectory() as folder, Barnabas(Path(folder), QUICK) as broker:
        complaint = _complaint(binary, broker.bootstrap)
    print(f"{'franz-go':14} shares a queue: {complaint or 'as it must'}")
    return int(bool(complaint))


def _complaint(binary: Path, bootstrap: str) -> str:
    """What is wrong with what the worker did."""
    producer = Producer({"bootstrap.servers": bootstrap})
    for value in MESSAGES:
        producer.produce(TOPIC, value, partition=0)
    assert producer.flush(30) == 0
    with ClusterAdmin(bootstrap) as admin:
        admin.configs.alter(EntityType.GROUPS, GROUP, add={"share.auto.offset.reset": "earliest"}, delete=())
    words = [str(binary), bootstrap, TOPIC, GROUP, str(len(MESSAGES))]
    done = subprocess.run(words, capture_output=True, text=True, timeout=SECONDS)
    if done.returncode != 0 or sorted(done.stdout.splitlines()) != EXPECTED:
        return f"it ended with {done.returncode}:\n{done.stdout}{done.stderr}"
    with ClusterAdmin(bootstrap) as admin:
        (offsets,) = admin.share_groups.offsets([GROUP])[GROUP].values()
    return "" if offsets is not None and offsets.lag == 0 else f"not everything is done: {offsets}"


if __name__ == "__main__":
    sys.exit(main())
