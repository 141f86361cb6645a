"""Every kind of fuzzing, with as many cases as a run of all tests has time for; `make fuzz` does more.

100,000 frames in process take about 25 s of processor time. A seed that failed once, and was mended, stays here.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from contextlib import suppress
from itertools import islice
from random import Random
from typing import TYPE_CHECKING

import pytest

from barnabas.model.errors import InvalidFrame
from barnabas.protocol.wire import bounds
from barnabas.protocol.wire.codec import decode
from barnabas.storage.recovery.scan import CheckedBatch, Scan
from tests.fuzz import batches, bugs, files, queues, sockets, tree
from tests.fuzz.losses import Damage
from tests.fuzz.mutations import mutated
from tests.fuzz.requests import requests
from tests.fuzz.rules import BrokenRule
from tests.fuzz.schemas import Encoder, Target, targets
from tests.fuzz.stopped_data import build

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def test_frames() -> None:
    """In a process of its own, whose memory is what the frames make of it."""
    words = [sys.executable, "-m", "tests.fuzz", "frames", "--count", "100000", "--seed", "1"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    for outcome in ("answered", "refused"):
        found = re.search(rf"(\d+) {outcome}", done.stdout)
        assert found is not None, done.stdout
        assert int(found[1]) > 20_000


@pytest.mark.parametrize("name", ["unread-records", "unbounded-records", "anybody-changes-states"])
def test_a_defect_is_found(name: str) -> None:
    """The cheap ones; `--trial` tries all."""
    assert bugs.find(name, 60) is not None


def test_a_run_that_broke_a_rule_is_noted(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "tests.fuzz", "batches", "--bug", "unread-records", "--count", "100", "--note"]
    environment = os.environ | {"BARNABAS_NOTED_RUNS": str(tmp_path), "BARNABAS_COMMIT": "none"}
    done = subprocess.run(words, capture_output=True, timeout=100, check=False, env=environment)
    assert done.returncode == 1
    [row] = map(json.loads, (tmp_path / "fuzz.jsonl").read_text().splitlines())
    assert row["broken"]
    assert (row["kind"], row["seed"], row["asked"], row["outcomes"]) == ("batches", 1, 100, {})


def test_sockets(tmp_path: Path) -> None:
    figures = sockets.run(tmp_path, 3_000, seed=1)
    assert figures.outcomes["answered"] > 200
    assert figures.outcomes["connections closed by the broker"] > 5


def test_batches(tmp_path: Path) -> None:
    figures = batches.run(tmp_path, 1_000, seed=1)
    assert figures.outcomes["none"] > 100
    assert figures.outcomes["invalid_record"] > 100


def test_files(tmp_path: Path) -> None:
    figures = files.run(tmp_path, 200, seed=1)
    assert len(figures.outcomes) > 2


def test_queues(tmp_path: Path) -> None:
    figures = queues.run(tmp_path, 500, seed=1)
    for api in ("INITIALIZE", "READ", "WRITE", "DELETE"):
        assert figures.outcomes[f"{api}_SHARE_GROUP_STATE cluster_authorization_failed"] > 10


def test_a_loss_of_what_was_not_damaged_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As recovery did: it believed a batch whose offset was raised, and cut what lies behind it."""

    def in_order(self: Scan) -> Iterator[CheckedBatch]:
        offset = 0
        for batch in self:
            if batch.header.base_offset < offset:
                return
            yield batch
            offset = batch.header.last_offset + 1

    monkeypatch.setattr(Scan, "in_order", in_order)
    with pytest.raises(BrokenRule, match="were not damaged"):
        files.run(tmp_path, 200, seed=2)


def test_a_log_with_another_topic_id_is_kept(tmp_path: Path) -> None:
    data = build(tmp_path)
    original = files.Original.of(data)
    path = data / "plain-0" / "partition.metadata"
    old = path.read_bytes()
    path.write_bytes(old[:-22] + b"om2_OlAOSjy1zpOO6eubKA")
    damage = Damage(path, "another id", (range(len(old) - 22, len(old)),))
    outcome = files.try_damaged(data, "clean", damage, original, starts=True)
    assert outcome == "log kept aside for another topic id, and said"


def test_tree(tmp_path: Path) -> None:
    figures = tree.run(tmp_path, 60, seed=1)
    assert figures.outcomes["named by the start"] > 10
    assert figures.outcomes["started"] > 10


def test_a_seed_gives_the_same_frames_again() -> None:
    first, again, other = ([frame.data for frame in islice(requests(seed), 500)] for seed in (7, 7, 8))
    assert first == again
    assert first != other


@pytest.mark.parametrize("target", targets(), ids=lambda target: f"{target.api.key.name}-v{target.version}")
def test_what_the_encoder_writes_is_a_request_unless_it_lies(target: Target) -> None:
    random = Random(3)
    for _ in range(5):
        bounds.read(target.message, Encoder(random).encode(target.message), 0, bounds.MAX_ELEMENTS)


@pytest.mark.parametrize(
    "target", [each for each in targets() if each.api.is_internal], ids=lambda each: each.api.key.name
)
def test_what_brokers_tell_each_other_is_read_or_refused(target: Target) -> None:
    """A dispatcher refuses these unread where nobody proved to be a broker."""
    random = Random(4)
    for number in range(300):
        body = mutated(Encoder(random, (0.0, 0.05, 0.3)[number % 3]).encode(target.message), random)
        with suppress(InvalidFrame):
            decode(target.api.key, target.version, target.api.newest, memoryview(body), 0)
