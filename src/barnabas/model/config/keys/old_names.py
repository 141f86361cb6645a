"""Keys that Kafka gave up before 3.0, as keys of today: a server.properties of 2013 says `port=9093`.

A file that has the key of today as well is right with that one, as it was then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

DEFAULT_PORT: Final = "9092"
_OLD: Final = {
    "listeners": ("host.name", "port"),
    "advertised.listeners": ("advertised.host.name", "advertised.port"),
}


def of_today(properties: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """The properties without the old keys, and a warning about each of those."""
    found, warnings = dict(properties), []
    port = properties.get("port", DEFAULT_PORT).strip()
    for today, (host_key, port_key) in _OLD.items():
        old = {name: found.pop(name).strip() for name in (host_key, port_key) if name in found}
        if not old:
            continue
        meant = f"PLAINTEXT://{old.get(host_key, '')}:{old.get(port_key, port)}"
        names = " and ".join(old)
        if today in properties:
            warnings.append(f"{names} is ignored, because {today} is set; if you want it to be {meant}, change {today}")
        else:
            found[today] = meant
            warnings.append(f"{names} is from before Kafka 3.0 and is read as {today}={meant}")
    return found, warnings
