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
  <artifactId>kafka</artifactId>
  <version>{version}</version>
  <packaging>pom</packaging>
  <dependencies>
    <dependency>
      <groupId>org.apache.kafka</groupId>
      <artifactId>kafka_2.13</artifactId>
      <version>{version}</version>
    </dependency>
    <dependency>
      <groupId>org.apache.kafka</groupId>
      <artifactId>kafka-tools</artifactId>
      <version>{version}</version>
      <exclusions>
        <exclusion><groupId>org.apache.kafka</groupId><artifactId>connect-runtime</artifactId></exclusion>
      </exclusions>
    </dependency>
    <dependency>
      <groupId>{logging[0]}</groupId>
      <artifactId>{logging[1]}</artifactId>
      <version>{logging[2]}</version>
    </dependency>
  </dependencies>
</project>
"""
_STREAMS_POM: Final = """\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>barnabas</groupId>
  <artifactId>streams</artifactId>
  <version>{version}</version>
  <packaging>pom</packaging>
  <dependencies>
    <dependency>
      <groupId>org.apache.kafka</groupId>
      <artifactId>kafka-streams-examples</artifactId>
      <version>{version}</version>
    </dependency>
    <dependency>
      <groupId>{logging[0]}</groupId>
      <artifactId>{logging[1]}</artifactId>
      <version>{logging[2]}</version>
    </dependency>
  </dependencies>
</project>
"""
STREAMS: Final = "4.3.0"
_CONNECTOR_POM: Final = """\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>barnabas</groupId>
  <artifactId>connector</artifactId>
  <version>{version}</version>
  <packaging>pom</packaging>
  <dependencies>
    <dependency>
      <groupId>org.apache.spark</groupId>
      <artifactId>spark-sql-kafka-0-10_2.13</artifactId>
      <version>{version}</version>
      <exclusions>
        <exclusion><groupId>org.apache.hadoop</groupId><artifactId>*</artifactId></exclusion>
        <exclusion><groupId>org.slf4j</groupId><artifactId>*</artifactId></exclusion>
        <exclusion><groupId>org.scala-lang</groupId><artifactId>*</artifactId></exclusion>
      </exclusions>
    </dependency>
  </dependencies>
</project>
"""
CONNECTOR: Final = "4.0.0"
NEWEST_CONNECTOR: Final = "4.2.0"
"""The newest release on Maven Central; it runs in Spark 4.3 as well."""
_NEWEST_CONNECTOR_PARTS: Final = (
    ("org.apache.spark", "spark-sql-kafka-0-10_2.13", NEWEST_CONNECTOR),
    ("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.0.0"),
    ("org.apache.kafka", "kafka-clients", "3.9.2"),
    ("org.apache.commons", "commons-pool2", "2.13.1"),
)
"""What it needs beside the jars of Spark itself, by name: its own pom leads to a second repository."""
_NEWEST_CONNECTOR_POM: Final = """\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>barnabas</groupId>
  <artifactId>connector</artifactId>
  <version>{version}</version>
  <packaging>pom</packaging>
  <dependencies>
    {dependencies}
  </dependencies>
</project>
"""
_ALONE: Final = """\
<dependency>
      <groupId>{0}</groupId>
      <artifactId>{1}</artifactId>
      <version>{2}</version>
      <exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>
    </dependency>"""


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
    return _folder(f"kafka-{version}", _POM.format(version=version, logging=_LOGGING[version]))


@functools.cache
def streams() -> Path:
    """The folder with the jars of Kafka Streams and its examples, fetched if need be."""
    return _folder(f"streams-{STREAMS}", _STREAMS_POM.format(version=STREAMS, logging=_LOGGING[STREAMS]))


@functools.cache
def spark_connector() -> Path:
    """The folder with the jars of Spark's own Kafka connector, without what Spark itself has, fetched if need be."""
    return _folder(f"connector-{CONNECTOR}", _CONNECTOR_POM.format(version=CONNECTOR))


@functools.cache
def newest_spark_connector() -> Path:
    """The same of a version that runs in the newest Spark."""
    parts = "\n    ".join(_ALONE.format(*part) for part in _NEWEST_CONNECTOR_PARTS)
    pom = _NEWEST_CONNECTOR_POM.format(version=NEWEST_CONNECTOR, dependencies=parts)
    return _folder(f"connector-{NEWEST_CONNECTOR}", pom)


def _folder(name: str, pom: str) -> Path:
    folder = CACHE / f"{name}-{hashlib.sha256(pom.encode()).hexdigest()[:8]}"
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
        for attempt in range(1, ATTEMPTS + 1):
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode == 0:
                break
            if attempt == ATTEMPTS:
                raise RuntimeError(
                    f"Maven could not fetch {folder.name}: is repo.maven.apache.org reachable?\n{done.stdout}"
                )
        jars.rename(folder)


if __name__ == "__main__":
    for wanted in _LOGGING:
        print(kafka(wanted))
    print(streams())
    print(newest_spark_connector())
