"""Classes of Apache Kafka as a JVM has them in memory, for its tools and brokers (class data sharing).

Half of the processor time of a tool that lives for a second goes into reading and checking classes. An archive of them
is mapped instead. `python -m tests.support.class_archives` makes it ahead of the tests: it starts a broker and some
tools to see which classes they load. Without an archive, everything works as with one, but slower.
"""

from __future__ import annotations

import functools
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Final

from tests.support import jars

VERSION: Final = "4.3.0"
"""Nearly all tools and brokers of the tests are of this version."""


@functools.cache
def flags(version: str) -> tuple[str, ...]:
    """What `java` is told to use the archive of this version; nothing if there is none."""
    archive = _archive(version)
    return (f"-XX:SharedArchiveFile={archive}", "-Xlog:disable", "-Xlog:all=error:stderr") if archive.exists() else ()


def _archive(version: str) -> Path:
    """Named by the jars and the Java that it is made of."""
    java = Path(jars.program("java")).resolve().stat()
    folder = jars.kafka(version)
    return folder.with_name(f"{folder.name}-{java.st_mtime_ns:x}.jsa")


def make(version: str) -> Path:
    """Make the archive of this version, unless there is one."""
    archive = _archive(version)
    if not archive.exists():
        with tempfile.TemporaryDirectory(dir=jars.CACHE) as scratch:
            lists = Path(scratch, "lists")
            lists.mkdir()
            _load_classes(version, Path(scratch), lists)
            _dump(version, lists, Path(scratch, "archive")).rename(archive)
    return archive


def _load_classes(version: str, folder: Path, lists: Path) -> None:
    """Start a broker and tools, each of which writes a list of the classes that it has loaded."""
    os.environ["JAVA_TOOL_OPTIONS"] = f"-XX:DumpLoadedClassList={lists}/%p"  # before they are imported and started
    from tests.support import java
    from tests.support.brokers import KafkaKRaft

    try:
        with KafkaKRaft(folder) as broker:
            where = ("--bootstrap-server", broker.bootstrap)
            java.tool(version, "topics", *where, "--create", "--topic", "t")
            java.tool(version, "configs", *where, "--describe", "--entity-type", "topics")
            java.tool(version, "console-producer", *where, "--topic", "t", stdin="value\n")
            java.tool(version, "console-consumer", *where, "--topic", "t", "--from-beginning", "--max-messages", "1")
            java.tool(version, "consumer-groups", *where, "--list")
            java.tool(version, "dump-log", "--files", str(broker.data / "t-0" / "00000000000000000000.log"))
            broker.stop()  # which has it write its list
    finally:
        del os.environ["JAVA_TOOL_OPTIONS"]


def _dump(version: str, lists: Path, archive: Path) -> Path:
    classes = dict.fromkeys(line for each in sorted(lists.iterdir()) for line in each.read_text().splitlines())
    listed = lists / "all"
    listed.write_text("\n".join(classes))
    words = ["-Xshare:dump", f"-XX:SharedClassListFile={listed}", f"-XX:SharedArchiveFile={archive}"]
    words += ["-XX:+UseSerialGC", "-Xlog:disable", "-cp", jars.classpath(version)]
    subprocess.run([jars.program("java"), *words], check=True, capture_output=True)
    return archive


if __name__ == "__main__":
    print(make(VERSION))
