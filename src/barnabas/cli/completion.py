"""`barnabas completion`: the script that teaches a shell to complete our commands and options."""

from __future__ import annotations

from dataclasses import dataclass

import click
from click.shell_completion import get_completion_class

from barnabas.cli.common import options as common
from barnabas.cli.common.help import Command
from barnabas.cli.common.options import takes

SHELLS = ("bash", "zsh", "fish")


@dataclass(frozen=True, kw_only=True)
class Options(common.Options):
    """The options of `barnabas completion`."""

    shell: str


@click.command(
    cls=Command,
    examples=[
        ("bash: put this line into ~/.bashrc", 'eval "$(barnabas completion bash)"'),
        ("zsh: put this line into ~/.zshrc", 'eval "$(barnabas completion zsh)"'),
        ("fish: run this once", "barnabas completion fish > ~/.config/fish/completions/barnabas.fish"),
    ],
)
@click.argument("shell", type=click.Choice(SHELLS))
@takes(Options)
def command(options: Options) -> None:
    """Print the script with which SHELL completes commands and options."""
    script = get_completion_class(options.shell)
    assert script is not None
    click.echo(script(click.get_current_context().find_root().command, {}, "barnabas", "_BARNABAS_COMPLETE").source())
