"""Help that teaches: options in named sections, and examples that can be pasted.

click prints one flat list of options. A command with twenty of them is read faster when they are sorted by what they
are for, and an example says more than any list.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

from barnabas.cli.common.values.numbers import Whole

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from click.shell_completion import CompletionItem
    from click.types import OptionHelpExtra

F = TypeVar("F", bound="Callable[..., Any]")
Example = tuple[str, str]
"""What one wants to do, and the command line that does it."""


class Formatter(click.HelpFormatter):
    """Wraps lines between words only: names such as kafka-topics and --max-messages stay whole."""

    _HYPHEN = "\N{NON-BREAKING HYPHEN}"

    def write_text(self, text: str) -> None:
        """Write a paragraph or several."""
        super().write_text(text.replace("-", self._HYPHEN))

    def write_dl(self, rows: Iterable[tuple[str, str]], col_max: int = 30, col_spacing: int = 2) -> None:
        """Write terms and what they mean."""
        super().write_dl([(term, text.replace("-", self._HYPHEN)) for term, text in rows], col_max, col_spacing)

    def getvalue(self) -> str:
        """All of it."""
        return super().getvalue().replace(self._HYPHEN, "-")


class Context(click.Context):
    """Has help written by our formatter."""

    formatter_class = Formatter


class Option(click.Option):
    """An option that knows the section of the help it belongs to, and names that the shell completes after it.

    One that is `shared` by a group and its commands may stand before a command as well as behind it. Behind it is
    stronger.
    """

    def __init__(self, *args: Any, section: str = "Options", shared: bool = False, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.section = section
        self.shared = shared

    def consume_value(self, ctx: click.Context, opts: Mapping[str, click.Parameter]) -> tuple[Any, ParameterSource]:
        """What was given for the option: behind the command, or before it if it is shared."""
        value, source = super().consume_value(ctx, opts)
        if self.shared and source is not ParameterSource.COMMANDLINE and ctx.parent and is_given(ctx.parent, self):
            return ctx.parent.params[self.name], ParameterSource.COMMANDLINE
        return value, source

    def get_help_extra(self, ctx: click.Context) -> OptionHelpExtra:
        """What stands in brackets behind the help, with the range of a number."""
        extra = super().get_help_extra(ctx)
        if isinstance(self.type, Whole) and self.type.range:
            extra["range"] = self.type.range
        return extra

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Topics and groups by name, anything else as click has it."""
        from click.shell_completion import CompletionItem

        from barnabas.cli.common.names import names_for

        found = [name for name in names_for(self.opts[0], ctx) if name.startswith(incomplete)]
        return [CompletionItem(name) for name in found] or super().shell_complete(ctx, incomplete)


def option(*names: str, **kwargs: Any) -> Callable[[F], F]:
    """`click.option`, with `section` and `shared`."""
    return click.option(*names, cls=Option, **kwargs)


def is_given(ctx: click.Context, parameter: click.Parameter) -> bool:
    """Whether an option stands on the command line, among the words of this context."""
    return ctx.get_parameter_source(parameter.name) is ParameterSource.COMMANDLINE


class Command(click.Command):
    """A command whose help has sections and, at the end, examples."""

    context_class = Context

    def __init__(self, *args: Any, examples: Sequence[Example] = (), **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.examples = examples

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, then the examples."""
        self.format_sections(ctx, formatter)
        write_examples(formatter, self.examples)

    def format_sections(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, one list per section, in the order in which the sections first appear."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            if not isinstance(parameter, click.Option):
                continue
            record = parameter.get_help_record(ctx)
            if record is not None:
                sections.setdefault(getattr(parameter, "section", "Options"), []).append(record)
        for title, records in sections.items():
            with formatter.section(title):
                formatter.write_dl(records)


def write_examples(formatter: click.HelpFormatter, examples: Sequence[Example]) -> None:
    """Write examples as a comment and a command each, never wrapped, so that they can be copied."""
    if not examples:
        return
    with formatter.section("Examples"):
        for index, (purpose, line) in enumerate(examples):
            if index:
                formatter.write_paragraph()
            indent = " " * formatter.current_indent
            formatter.write(f"{indent}# {purpose}\n{indent}{line}\n")


class CommandGroup(Command, click.Group):
    """A command with commands of its own, which may have options too; its help ends with examples."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, the commands and the examples."""
        self.format_sections(ctx, formatter)
        self.format_commands(ctx, formatter)
        write_examples(formatter, self.examples)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read what stands before the command; of an option that belongs behind it, that is said."""
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            if takers := [name for name, command in self.commands.items() if _find(command, error.option_name)]:
                lines = " or ".join(f"`{ctx.command_path} {name} {error.option_name}`" for name in takers)
                raise click.UsageError(f"{error.option_name} goes behind the command: {lines}.", ctx) from None
            raise

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command. What stands before it must be for it: nothing that was asked for is left undone."""
        name, command, rest = super().resolve_command(ctx, args)
        if command is not None and not ctx.resilient_parsing:
            for one in self.get_params(ctx):
                if not is_given(ctx, one):
                    continue
                found = _find(command, one.opts[0])
                if found is None:
                    raise click.UsageError(f"`{ctx.command_path} {name}` does not take {one.opts[0]}.", ctx)
                if not found.shared:
                    raise click.UsageError(f"{one.opts[0]} goes behind `{ctx.command_path} {name}`.", ctx)
        return name, command, rest


def _find(command: click.Command, name: str) -> Option | None:
    """A command's option of this name."""
    return next((one for one in command.params if isinstance(one, Option) and name in one.opts), None)
