"""Which options go together: the rules that Kafka's tools have, and the words for breaking them.

Options are named by their fields, and told by their flags, as the command line that is being read declares them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import click

from barnabas.cli.common.output import remark

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from barnabas.cli.common.options import Options


def flag(name: str) -> str:
    """The flag of a field, as `--json` for `as_json`."""
    context = click.get_current_context(silent=True)
    for parameter in () if context is None else context.command.params:
        if parameter.name == name and isinstance(parameter, click.Option):
            return parameter.opts[0]
    return "--" + name.replace("_", "-")


def listed(names: Iterable[str], conjunction: str = "or") -> str:
    """`--a, --b or --c`."""
    *first, last = map(flag, names)
    return f"{', '.join(first)} {conjunction} {last}" if first else last


def given(options: Options, name: str) -> bool:
    """Whether an option stands on the command line; an offset may well be 0."""
    value = getattr(options, name)
    return value is not None and value is not False and value != ()


def all_given(options: Options, names: Iterable[str]) -> list[str]:
    """Those of the options that stand on the command line."""
    return [name for name in names if given(options, name)]


def exactly_one(options: Options, *names: str, action: str | None = None) -> None:
    """Raise UsageError unless one of these options is given, to an action if that is why."""
    if len(all_given(options, names)) == 1:
        return
    if action is not None:
        raise click.UsageError(f"{flag(action)} needs exactly one of {listed(names, 'and')}.")
    raise click.UsageError(f"Give one of {listed(names, 'and')}.")


def at_most_one(options: Options, *names: str) -> None:
    """Raise UsageError if several of these options are given."""
    if len(all_given(options, names)) > 1:
        two = len(names) == 2
        raise click.UsageError(f"Give {listed(names)}, not both." if two else f"Give one of {listed(names, 'and')}.")


def needs(options: Options, name: str, *others: str) -> None:
    """Raise UsageError if an option is given without one of those that it needs."""
    if given(options, name) and not all_given(options, others):
        raise click.UsageError(f"{flag(name)} needs {listed(others)}.")


@dataclass(frozen=True, slots=True)
class Actions:
    """The actions of a command, such as --list and --describe: one of them is given, and the others fit it."""

    names: Sequence[str]
    goes_with: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Which actions an option goes with; an option that is not here goes with all of them."""
    needs: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Options that an action needs, each of them; an empty text says nothing."""

    def chosen(self, options: Options) -> str:
        """The action that was given."""
        return all_given(options, self.names)[0]

    def check(self, options: Options) -> None:
        """Raise UsageError unless there is one action, with all that it needs and nothing that goes with others."""
        if len(all_given(options, self.names)) != 1:
            raise click.UsageError(f"Give exactly one action: {listed(self.names)}.")
        action = self.chosen(options)
        for name in all_given(options, self.goes_with):
            if action not in self.goes_with[name]:
                raise click.UsageError(
                    f"{flag(name)} goes with {listed(self.goes_with[name])}, not with {flag(action)}."
                )
        for name in self.needs.get(action, ()):
            if not given(options, name) or getattr(options, name) == "":
                raise click.UsageError(f"{flag(action)} needs {flag(name)}.")


def renamed(options: Options, new: str, old: str) -> str:
    """Which of two flags was given for the same thing: Kafka's new one or, with a remark, its old one."""
    if not given(options, old):
        return new
    if given(options, new):
        raise click.UsageError(f"Give {flag(new)} or {flag(old)}, not both.")
    remark(f"{flag(old)} is deprecated in Kafka: use {flag(new)}.")
    return old
