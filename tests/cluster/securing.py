"""From plaintext to secured without downtime: three brokers over a ZooKeeper, under load, as docs/security.md says.

    python -m tests.cluster.securing

Four rolls, each of three brokers, one after the other. Two clients produce all the time, each until it moves to the
other listener. Printed is what each roll took, the longest pause of a producer, and whether records were lost or
repeated.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import ExitStack
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Consumer, Producer

from barnabas.model.config.properties import format_property, parse_properties
from tests.support.processes import Process, free_port
from tests.support.waiting import wait_until
from tests.support.zookeeper import ZooKeeper

BROKERS: Final = 3
TOPIC: Final = "orders"
TAKEN_OVER: Final = ("ssl.*", "sasl.*", "listener.name.*", "delegation.token.secret.key", "password.encoder.secret")
"""The settings of `barnabas security init` that the first step of the page names."""
BASE: Final = {
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.num.partitions": "3",
    "num.partitions": "6",
}


class Load:
    """A producer that sends numbered records until it is told to end."""

    def __init__(self, name: str, properties: dict[str, Any]) -> None:
        self.acknowledged: set[str] = set()
        self.failed: list[str] = []
        self.longest_pause = 0.0
        self._name = name
        self._last = time.monotonic()
        self._ending = threading.Event()
        self._producer = Producer({**properties, "enable.idempotence": True, "linger.ms": 5, "log_level": 0})
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        number = 0
        while not self._ending.is_set():
            number += 1
            text = f"{self._name}-{number}"
            self._producer.produce(TOPIC, text, key=str(number), on_delivery=self._delivered)
            self._producer.poll(0.005)
        assert self._producer.flush(120) == 0

    def _delivered(self, error: Any, message: Any) -> None:
        now = time.monotonic()
        if error is not None:
            self.failed.append(str(error))
            return
        self.longest_pause = max(self.longest_pause, now - self._last)
        self._last = now
        self.acknowledged.add(message.value().decode())

    def pause(self) -> float:
        """The longest time without an acknowledgement since the last call."""
        longest, self.longest_pause = self.longest_pause, 0.0
        return longest

    def end(self) -> None:
        """Send no more, and wait for what was sent."""
        self._ending.set()
        self._thread.join(180)


class Cluster:
    """Brokers with files of settings, which are changed and then rolled out."""

    def __init__(self, folder: Path, zookeeper: str) -> None:
        self.folder = folder
        self.plain = [free_port() for _ in range(BROKERS)]
        self.secure = [free_port() for _ in range(BROKERS)]
        self._zookeeper = zookeeper
        self._running: list[Process] = []

    def secured_settings(self, number: int) -> dict[str, str]:
        """What `barnabas security init` has written, without what each step says itself."""
        file = self.folder / "security" / f"server-{number}.properties"
        found = parse_properties(file.read_text())
        return {name: value for name, value in found.items() if any(fnmatchcase(name, each) for each in TAKEN_OVER)}

    def write(self, *, plain: bool, secure: bool, between: str, **more: str) -> None:
        """The settings of all brokers."""
        for number in range(BROKERS):
            listeners = [f"PLAINTEXT://127.0.0.1:{self.plain[number]}"] if plain else []
            listeners += [f"SASL_SSL://127.0.0.1:{self.secure[number]}"] if secure else []
            settings = {
                **BASE,
                "node.id": str(number),
                "listeners": ",".join(listeners),
                "security.inter.broker.protocol": between,
                "log.dirs": str(self.folder / f"data-{number}"),
                "zookeeper.connect": self._zookeeper,
                **(self.secured_settings(number) if secure else {}),
                **{name.replace("_", "."): value for name, value in more.items()},
            }
            text = "".join(f"{format_property(*each)}\n" for each in settings.items())
            (self.folder / f"server-{number}.properties").write_text(text)

    def start(self, number: int) -> Process:
        words = [sys.executable, "-m", "barnabas.cli.main", "start"]
        words += ["--config", str(self.folder / f"server-{number}.properties")]
        process = Process(f"broker {number}", words, self.folder / f"broker-{number}.log")
        process.wait_for_output(r"^.*\bready\b.*$", 120)
        return process

    def start_all(self, stack: ExitStack) -> None:
        self._running = [stack.enter_context(self.start(number)) for number in range(BROKERS)]

    def roll(self, stack: ExitStack, ask: tuple[str, ...]) -> float:
        """Restart one broker after the other, each when all replicas are in sync; gives how long that took."""
        began = time.monotonic()
        for number in range(BROKERS):
            assert self._running[number].stop(120) == 0
            self._running[number] = stack.enter_context(self.start(number))
            wait_until(lambda: self._in_sync(ask), f"replicas in sync after broker {number}", 120)
        return time.monotonic() - began

    def _in_sync(self, ask: tuple[str, ...]) -> bool:
        done = barnabas("topics", "--describe", "--topic", TOPIC, "--json", *ask, check=False)
        if done.returncode:
            return False
        partitions = json.loads(done.stdout)[0]["partitions"]
        return all(len(each["isr"]) == BROKERS for each in partitions)


def barnabas(*words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    """The command line."""
    command = [sys.executable, "-m", "barnabas.cli.main", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=check)


def main() -> None:
    """Go through all steps, and print the figures."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        zookeeper = stack.enter_context(ZooKeeper(folder))
        cluster = Cluster(folder, f"{zookeeper.connect}/secured")
        cluster.write(plain=True, secure=False, between="PLAINTEXT")
        cluster.start_all(stack)
        plain = ",".join(f"127.0.0.1:{port}" for port in cluster.plain)
        secure = ",".join(f"127.0.0.1:{port}" for port in cluster.secure)
        by_plain = ("--bootstrap-server", plain)
        barnabas("topics", "--create", "--topic", TOPIC, *by_plain)
        first = Load("plain", {"bootstrap.servers": plain})
        time.sleep(2)

        init = ("security", "init", "--brokers", "3", "--folder", str(folder / "security"))
        barnabas(*init, "--data", str(folder / "unused"), "--zookeeper", f"{zookeeper.connect}/secured")
        admin = ("--bootstrap-server", secure, "--command-config", str(folder / "security" / "admin.properties"))

        cluster.write(plain=True, secure=True, between="PLAINTEXT")
        tell("1. listeners SASL_SSL are added", cluster.roll(stack, by_plain), first)
        cluster.write(plain=True, secure=True, between="SASL_SSL")
        tell("2. brokers talk by SASL_SSL", cluster.roll(stack, by_plain), first)

        rules = {
            "authorizer_class_name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super_users": "User:admin;User:broker",
        }
        cluster.write(plain=True, secure=True, between="SASL_SSL", **rules, allow_everyone_if_no_acl_found="true")
        tell("3. an authorizer, open without rules", cluster.roll(stack, by_plain), first)

        properties = parse_properties((folder / "security" / "client.librdkafka.properties").read_text())
        second = Load("secure", {"bootstrap.servers": secure, **properties})
        time.sleep(3)
        first.end()
        rule = ("--add", "--allow-principal", "User:client", "--producer", "--consumer", "--topic", TOPIC)
        barnabas("acls", *rule, "--group", "*", *admin)
        second.pause()
        cluster.write(plain=False, secure=True, between="SASL_SSL", **rules)
        tell("4. no plaintext, only what rules allow", cluster.roll(stack, admin), second)
        barnabas("delegation-tokens", "--create", *admin)
        second.end()
        check({"bootstrap.servers": secure, **properties}, first, second)


def tell(step: str, seconds: float, load: Load) -> None:
    print(f"{step}: {seconds:.0f} s, longest pause of the producer {load.pause():.1f} s", flush=True)


def check(properties: dict[str, Any], *loads: Load) -> None:
    """Read everything, and compare with what was acknowledged."""
    wanted = set().union(*(load.acknowledged for load in loads))
    failed = [error for load in loads for error in load.failed]
    consumer = Consumer({**properties, "group.id": "check", "auto.offset.reset": "earliest"})
    consumer.subscribe([TOPIC])
    read: Counter[str] = Counter()
    quiet = 0
    while quiet < 10 and (wanted - read.keys() or quiet < 2):
        found = [message for message in consumer.consume(10_000, 1.0) if message.error() is None]
        quiet = 0 if found else quiet + 1
        read.update((message.value() or b"").decode() for message in found)
    consumer.close()
    lost, repeated = wanted - read.keys(), [text for text, count in read.items() if count > 1]
    print(f"{len(wanted)} records acknowledged, {len(failed)} refused, {len(lost)} lost, {len(repeated)} repeated")
    assert not lost
    assert not repeated
    assert not failed, failed[:3]


if __name__ == "__main__":
    main()
