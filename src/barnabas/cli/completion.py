"""`barnabas completion`: the script that teaches a shell to complete our commands and options."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from barnabas.cli.help import Command

SHELLS = ("bash", "zsh", "fish")


@click.command(
    cls=Command,
    examples=[
        ("bash: put this line into ~/.bashrc", 'eval "$(barnabas completion bash)"'),
        ("zsh: put this line into ~/.zshrc", 'eval "$(barnabas completion zsh)"'),
        ("fish: once", "barnabas completion fish > ~/.config/fish/completions/barnabas.fish"),
    ],
)
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def command(ctx: click.Context, shell: str) -> None:
    """Print the script with which SHELL completes commands and options."""
    script = get_completion_class(shell)
    assert script is not None
    click.echo(script(ctx.find_root().command, {}, "barnabas", "_BARNABAS_COMPLETE").source())
