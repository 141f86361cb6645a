"""`python scripts/release.py [VERSION]`: a release, built and tried as a user would get it.

With a version, that version is written down and the changelog's newest section gets it and today's date. Then sdist and
wheel are built, the wheel is made from the sdist, installed into an environment of its own, and used: a broker is
started, a record goes through it, the broker is stopped and its data checked. Nothing is published: the last lines say
what to type.
"""

from __future__ import annotations

import datetime
import os
import re
import socket
import subprocess
import sys
import tempfile
import venv
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
PACKAGE: Final = ROOT / "src" / "barnabas" / "__init__.py"
CHANGELOG: Final = ROOT / "CHANGELOG.md"
DIST: Final = ROOT / "dist"
VERSION: Final = re.compile(r'^__version__ = "(.*)"$', re.MULTILINE)
SECTION: Final = re.compile(r"^## (\S+) \((.*)\)$", re.MULTILINE)
SMOKE: Final = """
import sys
from barnabas import Consumer, Producer
with Producer(sys.argv[1]) as producer:
    producer.send("smoke", "hello")
with Consumer(sys.argv[1], "smoke", group_id="smoke", auto_offset_reset="earliest") as consumer:
    assert [record.value for record in consumer.until_end()] == [b"hello"], "the record did not come back"
"""


def main(version: str | None) -> None:
    """Build and try a release."""
    if version:
        _write_down(version)
    version = _version()
    found = SECTION.search(CHANGELOG.read_text("utf-8"))
    if found is None or found[1] != version:
        raise SystemExit(f"CHANGELOG.md has to begin with a section on {version}.")
    wheel = _build(version)
    with tempfile.TemporaryDirectory(prefix="barnabas-release-") as folder:
        _try_out(wheel, Path(folder), version)
    print(f"Barnabas {version} is built and works: {', '.join(sorted(path.name for path in DIST.iterdir()))}")
    print(f"Next: git commit -am 'Release {version}' && git tag v{version}, then twine upload dist/*")


def _version() -> str:
    found = VERSION.search(PACKAGE.read_text("utf-8"))
    if found is None:
        raise SystemExit(f"{PACKAGE} says no version.")
    return found[1]


def _write_down(version: str) -> None:
    if not re.fullmatch(r"\d+\.\d+\.\d+((a|b|rc)\d+)?", version):
        raise SystemExit(f"{version!r} is no version: 1.2.3, or 1.2.3rc1.")
    text = CHANGELOG.read_text("utf-8")
    newest = SECTION.search(text)
    if newest is None or newest[2] != "unreleased":
        raise SystemExit("CHANGELOG.md has no section that is (unreleased): there is nothing new to release.")
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    CHANGELOG.write_text(f"{text[: newest.start()]}## {version} ({today}){text[newest.end() :]}", "utf-8")
    PACKAGE.write_text(VERSION.sub(f'__version__ = "{version}"', PACKAGE.read_text("utf-8")), "utf-8")


def _build(version: str) -> Path:
    for old in DIST.glob("*"):
        old.unlink()
    _run(sys.executable, "-m", "build", "--outdir", str(DIST), str(ROOT))
    [wheel] = DIST.glob(f"barnabas-{version}-*.whl")
    return wheel


def _try_out(wheel: Path, folder: Path, version: str) -> None:
    venv.create(folder / "env", with_pip=True)
    programs = folder / "env" / "bin"
    _run(str(programs / "python"), "-m", "pip", "install", "--quiet", f"{wheel}[clients]")
    barnabas = str(programs / "barnabas")
    said = subprocess.run([barnabas, "--version"], check=True, capture_output=True, text=True, cwd=folder).stdout
    if version not in said:
        raise SystemExit(f"barnabas --version says {said!r}.")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
    _run(barnabas, "start", "--daemon", "--listen", address, "--data", "data", cwd=folder)
    try:
        _run(str(programs / "python"), "-c", SMOKE, address, cwd=folder)
        _run(barnabas, "topics", "--list", "--bootstrap-server", address, cwd=folder)
    finally:
        _run(barnabas, "stop", "--data", "data", cwd=folder)
    _run(barnabas, "log", "check", "data", cwd=folder)


def _run(*words: str, cwd: Path | None = None) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(words, cwd=cwd, env=environment)
    if done.returncode:
        raise SystemExit(f"{' '.join(words)} ended with {done.returncode}.")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else None)
