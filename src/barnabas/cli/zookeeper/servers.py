"""Where a ZooKeeper server comes from: ZOOKEEPER_HOME, the system's package, or the jars inside of pyspark.

ZooKeeper is a Java program that people have already more often than they know. What is found is only a class path; the
server's main class is the same in all versions.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.cli.common.failures import Failed

if TYPE_CHECKING:
    from collections.abc import Sequence

MAIN_CLASS: Final = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
SHELL_CLASS: Final = "org.apache.zookeeper.ZooKeeperMain"
DEBIAN_JARS: Final = Path("/usr/share/java")
HOMEBREW_HOMES: Final = (Path("/opt/homebrew/opt/zookeeper/libexec"), Path("/usr/local/opt/zookeeper/libexec"))
JAVA_FOR_PYSPARK: Final = 17
INSTALL_JAVA: Final = (
    "`apt-get install default-jre-headless` (Debian, Ubuntu), `brew install openjdk` (macOS), or set JAVA_HOME"
)


class ZooKeeperServer(NamedTuple):
    """A server's class path, who brought it, and JVM flags that it needs to say something."""

    origin: str
    class_path: str
    flags: tuple[str, ...] = ()
    java: int = 8
    """The oldest Java that runs it."""

    def command(self, config: Path) -> list[str]:
        """The words that start it; raises Failed without a Java that can."""
        return [find_java(self.java), "-Xmx512m", *self.flags, "-cp", self.class_path, MAIN_CLASS, str(config)]

    def shell(self, given: Sequence[str]) -> list[str]:
        """The words that start ZooKeeper's shell: an address, then perhaps a command. Raises Failed like `command`."""
        address, *words = given
        return [find_java(self.java), "-Xmx64m", "-cp", self.class_path, SHELL_CLASS, "-server", address, *words]


def find_server() -> ZooKeeperServer:
    """The first server in the order of this module's docstring; raises Failed with what to install."""
    home = os.environ.get("ZOOKEEPER_HOME")
    if home:
        found = _in_home(Path(home))
        if found is None:
            raise Failed(f"ZOOKEEPER_HOME={home} holds no zookeeper-*.jar, neither there nor in lib or libs.")
        return found
    for server in (_of_debian(), *map(_in_home, HOMEBREW_HOMES), _in_pyspark()):
        if server is not None:
            return server
    raise Failed(
        "No ZooKeeper was found. Any of these brings one: `apt-get install zookeeper` (Debian, Ubuntu); "
        "`brew install zookeeper` (macOS); ZOOKEEPER_HOME=DIR, with a release of zookeeper.apache.org unpacked in DIR; "
        "`pip install pyspark`, which has one inside. (A single broker needs none: `barnabas start`.)"
    )


def _in_home(home: Path) -> ZooKeeperServer | None:
    """An unpacked release: jars lie in lib, in older ones beside it, in Kafka's libs."""
    folders = [folder for folder in (home / "lib", home / "libs", home) if any(folder.glob("*.jar"))]
    if not any(any(folder.glob("zookeeper-*.jar")) for folder in folders):
        return None
    return ZooKeeperServer(str(home), os.pathsep.join([str(home / "conf"), *(f"{folder}/*" for folder in folders)]))


def _of_debian() -> ZooKeeperServer | None:
    """The package's jar names those that it needs itself; only a logger has to be chosen."""
    jar = DEBIAN_JARS / "zookeeper.jar"
    if not jar.exists():
        return None
    return ZooKeeperServer("the system's package", f"{jar}{os.pathsep}{DEBIAN_JARS / 'slf4j-simple.jar'}")


def _in_pyspark() -> ZooKeeperServer | None:
    spec = find_spec("pyspark")
    for folder in () if spec is None else spec.submodule_search_locations or ():
        jars = Path(folder, "jars")
        if any(jars.glob("zookeeper-*.jar")):
            return ZooKeeperServer("pyspark", f"{jars}/*", ("-Dlog4j2.level=INFO",), JAVA_FOR_PYSPARK)
    return None


def find_java(oldest: int) -> str:
    """The program java of JAVA_HOME or the path; raises Failed when it is missing or too old."""
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=str(Path(home, "bin"))) if home else shutil.which("java")
    if java is None:
        where = f"JAVA_HOME={home} has no bin/java" if home else "Java is not installed"
        raise Failed(f"{where}, and ZooKeeper needs it: {INSTALL_JAVA}.")
    if oldest > 8:
        found = java_release(subprocess.run([java, "-version"], capture_output=True, text=True).stderr)
        if found is not None and found < oldest:
            raise Failed(f"{java} is Java {found}; this ZooKeeper needs Java {oldest} or newer: {INSTALL_JAVA}.")
    return java


def java_release(version_text: str) -> int | None:
    """The release that `java -version` tells: 8 for "1.8.0_412", 17 for "17.0.15"."""
    match = re.search(r'version "(?:1\.)?(\d+)', version_text)
    return None if match is None else int(match[1])
