"""Values that stand in other files, in folders and in the environment, and not in server.properties."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from barnabas.cli.common.broker_options import load_config
from barnabas.model.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

CLASSES = "org.apache.kafka.common.config.provider."


def load(folder: Path, *lines: str) -> str | None:
    """The value of broker.rack in a server.properties with these lines."""
    file = folder / "server.properties"
    providers = {"file": "FileConfigProvider", "dir": "DirectoryConfigProvider", "env": "EnvVarConfigProvider"}
    known = [f"config.providers.{name}.class={CLASSES}{kind}" for name, kind in providers.items()]
    file.write_text("\n".join(["config.providers=file,dir,env", *known, f"log.dirs={folder}/data", *lines]))
    return load_config(file).text_or_none("broker.rack")


def test_values_come_from_where_the_placeholder_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "secrets.properties").write_text("rack=a=b\n")
    (tmp_path / "rack.txt").write_text("c")
    monkeypatch.setenv("RACK", "d")
    assert load(tmp_path, f"broker.rack=${{file:{tmp_path}/secrets.properties:rack}}") == "a=b"
    assert load(tmp_path, f"broker.rack=${{dir:{tmp_path}:rack.txt}}") == "c"
    assert load(tmp_path, f"broker.rack=x-${{env:RACK}}-${{dir:{tmp_path}:rack.txt}}") == "x-d-c"
    assert load(tmp_path, "broker.rack=${other:RACK}") == "${other:RACK}"


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("broker.rack=${file:/no/such/file:rack}", "No such file"),
        ("broker.rack=${env:NOT_SET_ANYWHERE}", "no such value"),
        ("broker.rack=${dir:/etc/../etc:../no-such-file}", "No such file"),
        ("config.providers.file.class=com.example.Vault", "it takes FileConfigProvider"),
    ],
)
def test_what_is_not_there_stops_the_start(tmp_path: Path, line: str, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        load(tmp_path, line)


def test_only_allowed_files_and_variables_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "rack").write_text("a")
    (tmp_path / "out").write_text("b")
    (tmp_path / "in" / "link").symlink_to(tmp_path / "out")
    allowed = f"config.providers.dir.param.allowed.paths={tmp_path}/in"
    assert load(tmp_path, allowed, f"broker.rack=${{dir:{tmp_path}/in:rack}}") == "a"
    for name in (f"{tmp_path}:out", f"{tmp_path}/in/..:out", f"{tmp_path}/in:link"):
        with pytest.raises(ConfigError, match=r"allowed\.paths"):
            load(tmp_path, allowed, f"broker.rack=${{dir:{name}}}")
    monkeypatch.setenv("SECRET", "x")
    with pytest.raises(ConfigError, match="no such value"):
        load(tmp_path, "config.providers.env.param.allowlist.pattern=RACK.*", "broker.rack=${env:SECRET}")
