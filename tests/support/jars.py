"""Apache Kafka from Maven Central: the broker, its tools and a logging binding, as a folder of jars; Streams likewise.

`python -m tests.support.jars` fetches all versions ahead of the tests, whose time limits are not made for downloads.

Maven resolves and copies them once into `.cache/`; the folder is put in its place by one rename under a lock, so any
number of test processes may ask at once and none sees half a folder. A folder's name carries a hash of its pom: when
the pom changes, the jars are fetched anew.
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final

CACHE: Final = Path(__file__).parents[2] / ".cache"
ATTEMPTS: Final = 3
"""Maven Central is far away: a download that broke off is tried again."""

_LOGGING: Final = {
    "3.9.1": ("org.slf4j", "slf4j-reload4j", "1.7.36"),
    "4.3.0": ("org.apache.logging.log4j", "log4j-slf4j-impl", "2.25.4"),
}
_POM: Final = """\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>barnabas</groupId>
  <artifactId>{name}</artifactId>
  <version>{version}</version>
  <packaging>pom</packaging>
  <dependencies>
{dependencies}
  </dependencies>
</project>
"""
_DEPENDENCY: Final = """\
    <dependency>
      <groupId>{0}</groupId>
      <artifactId>{1}</artifactId>
      <version>{2}</version>{exclusions}
    </dependency>"""
_EXCLUSION: Final = "        <exclusion><groupId>{0}</groupId><artifactId>{1}</artifactId></exclusion>"
CLIENTS: Final = ("4.2.2", "4.4.0")
"""Java clients that are older, and newer, than the Kafka whose protocol is spoken here."""
STREAMS: Final = "4.3.0"
NEWEST_CONNECTOR: Final = "4.2.0"
"""The newest release on Maven Central; it runs in Spark 4.3 as well."""
_NEWEST_CONNECTOR_PARTS: Final = (
    ("org.apache.spark", "spark-sql-kafka-0-10_2.13", NEWEST_CONNECTOR),
    ("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.0.0"),
    ("org.apache.kafka", "kafka-clients", "3.9.2"),
    ("org.apache.commons", "commons-pool2", "2.13.1"),
)
"""What it needs beside the jars of Spark itself, by name: its own pom leads to a second repository."""


class MissingProgram(Exception):
    """A program that the tests need is not installed; the message says how to get it."""


def program(name: str) -> str:
    """The path of an installed program."""
    found = shutil.which(name)
    if found is None:
        raise MissingProgram(f"{name} is not installed: run `sh scripts/prerequisites.sh`, which installs or names it")
    return found


@functools.cache
def kafka(version: str) -> Path:
    """The folder with the jars of this version of Apache Kafka, fetched if need be."""
    return _folder(
        "kafka",
        version,
        _dependency("org.apache.kafka", "kafka_2.13", version),
        _dependency("org.apache.kafka", "kafka-tools", version, ("org.apache.kafka", "connect-runtime")),
        _dependency(*_LOGGING[version]),
    )


@functools.cache
def clients(version: str) -> Path:
    """The folder with the jars of this version of Kafka's Java clients, fetched if need be."""
    return _folder("clients", version, _dependency("org.apache.kafka", "kafka-clients", version))


@functools.cache
def streams() -> Path:
    """The folder with the jars of Kafka Streams and its examples, fetched if need be."""
    examples = _dependency("org.apache.kafka", "kafka-streams-examples", STREAMS)
    return _folder("streams", STREAMS, examples, _dependency(*_LOGGING[STREAMS]))


@functools.cache
def newest_spark_connector() -> Path:
    """The folder with the jars of Spark's own Kafka connector, as it runs in the newest Spark, fetched if need be."""
    alone = (_dependency(*part, ("*", "*")) for part in _NEWEST_CONNECTOR_PARTS)
    return _folder("connector", NEWEST_CONNECTOR, *alone)


def _dependency(group: str, artifact: str, version: str, *without: tuple[str, str]) -> str:
    """A jar with all that it needs, but for what is left out."""
    lines = ["", "      <exclusions>", *(_EXCLUSION.format(*each) for each in without), "      </exclusions>"]
    return _DEPENDENCY.format(group, artifact, version, exclusions="\n".join(lines) if without else "")


def _folder(name: str, version: str, *dependencies: str) -> Path:
    pom = _POM.format(name=name, version=version, dependencies="\n".join(dependencies))
    folder = CACHE / f"{name}-{version}-{hashlib.sha256(pom.encode()).hexdigest()[:8]}"
    if folder.exists():
        return folder
    CACHE.mkdir(exist_ok=True)
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            _fetch(pom, folder)
    return folder


def classpath(version: str) -> str:
    """What `java -cp` takes for this version."""
    return f"{kafka(version)}/*"


def _fetch(pom: str, folder: Path) -> None:
    maven = program("mvn")
    program("java")
    with tempfile.TemporaryDirectory(dir=CACHE) as scratch:
        project = Path(scratch, "pom.xml")
        project.write_text(pom)
        jars = Path(scratch, "jars")
        command = [
            maven,
            "-q",
            "-B",
            "-U",
            "-f",
            str(project),
            "dependency:copy-dependencies",
            f"-DoutputDirectory={jars}",
        ]
        download(command, folder.name)
        jars.rename(folder)


def download(command: list[str], what: str) -> None:
    """Run a program that fetches something from Maven Central, again if it has to be. Raises RuntimeError."""
    for _ in range(ATTEMPTS):
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode == 0:
            return
    raise RuntimeError(f"{what} could not be fetched: is repo.maven.apache.org reachable?\n{done.stdout}{done.stderr}")


if __name__ == "__main__":
    for wanted in _LOGGING:
        print(kafka(wanted))
    for wanted in CLIENTS:
        print(clients(wanted))
    print(streams())
    print(newest_spark_connector())
