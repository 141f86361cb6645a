"""From the words after a script of Kafka's to the words after `barnabas`."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from barnabas.cli.common.failures import Failed
from barnabas.cli.shims.scripts import CLASSES, SCRIPTS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from barnabas.cli.shims.scripts import Script


class Translated(NamedTuple):
    """Words for the program, and warnings for whoever typed the old ones."""

    words: list[str]
    warnings: list[str]


def translate(name: str, given: Sequence[str], bootstrap_server: str | None = None) -> Translated:
    """The command line for a script; `bootstrap_server` is taken where the words name none. Raises Failed."""
    if name == "kafka-run-class":
        name, given = _script_of_class(given)
    if name == "kafka-e2e-latency":
        given = _add_flags(given)
    if name == "kafka-preferred-replica-election" and not _has(given, "--path-to-json-file"):
        given = (*given, "--all-topic-partitions")
    script = SCRIPTS[name]
    words, warnings = _without_old_flags(script, given)
    for flag, value in script.added.items():
        if not _has(words, flag):
            words += [flag, value]
    address = []
    if bootstrap_server and script.command[0] != "log" and not names_a_broker(words):
        address = ["--bootstrap-server", bootstrap_server]
    return Translated([*script.command, *address, *words], warnings)


def _without_old_flags(script: Script, given: Sequence[str]) -> Translated:
    words: list[str] = []
    warnings: list[str] = []
    rest = iter(given)
    for word in rest:
        flag, equals, value = word.partition("=")
        if flag in script.dropped:
            dropped = script.dropped[flag]
            warnings.append(f"{flag} is ignored: {dropped.why}.")
            if dropped.has_value and not equals:
                next(rest, None)
        elif flag in script.renamed:
            warnings.append(f"{flag} is {script.renamed[flag]} now.")
            words += [script.renamed[flag] + equals + value]
        else:
            words.append(word)
    return Translated(words, warnings)


def _has(words: Sequence[str], flag: str) -> bool:
    return any(word == flag or word.startswith(f"{flag}=") for word in words)


def names_a_broker(words: Sequence[str]) -> bool:
    """Whether the words say where the cluster is, or do not need one."""
    flags = ("--bootstrap-server", "--bootstrap-controller", "--help", "--version")
    return any(_has(words, flag) for flag in flags) or any(word.startswith("bootstrap.servers=") for word in words)


def _script_of_class(given: Sequence[str]) -> tuple[str, Sequence[str]]:
    name = given[0].rpartition(".")[2] if given else ""
    if name not in CLASSES:
        known = ", ".join(sorted(CLASSES))
        raise Failed(f"{name or 'nothing'} cannot be run, because there is no Java here. These classes work: {known}.")
    if name == "ProducerPerformance" and len(given) > 4 and not given[1].startswith("-"):
        topic, records, size, throughput, *properties = given[1:]
        numbers = ["--num-records", records, "--record-size", size, "--throughput", throughput]
        return CLASSES[name], ["--topic", topic, *numbers, *(["--command-property", *properties] if properties else [])]
    return CLASSES[name], given[1:]


def _add_flags(given: Sequence[str]) -> Sequence[str]:
    """Words without flags, as kafka-e2e-latency had them before 4.2, with their flags."""
    flags = ("--bootstrap-server", "--topic", "--num-records", "--producer-acks", "--record-size", "--command-config")
    if len(given) not in (5, 6) or any(word.startswith("--") for word in given):
        return given
    return [word for pair in zip(flags, given, strict=False) for word in pair]
