"""The ``trimtab`` command: a group that knows its commands by name and imports each one on demand."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any, Final

import click

from trimtab import __version__

COMMANDS: Final[dict[str, tuple[str, str]]] = {
    "run": ("trimtab.cli.run:run", "Run the operator."),
    "plan": ("trimtab.cli.plan:plan", "Show what would be done, and why."),
    "explain": ("trimtab.cli.explain:explain", "Explain where a pod fits, where not, and why."),
    "snapshot": ("trimtab.cli.snapshot:snapshot", "Save the live cluster as planners see it."),
    "convert": ("trimtab.cli.convert:convert", "Convert another descheduler's policy."),
    "crds": ("trimtab.cli.crds:crds", "Write the custom resource definitions, or check them for drift."),
    "local": ("trimtab.cli.local:local", "A real control plane on this machine."),
}
"""Command name to (module:attribute, one-line help); the help stands here so that listing imports nothing."""


class BadUsage(click.UsageError):
    """A wrong flag or argument, told in one line as all bad input is; click would take four."""

    def show(self, file: IO[Any] | None = None) -> None:
        """Print the line on stderr."""
        command = self.ctx.command_path if self.ctx is not None else "trimtab"
        told = " ".join(self.format_message().split()).removesuffix(".")
        click.echo(f"trimtab: {told} (see '{command} --help')", file=file, err=file is None)


@contextmanager
def in_one_line() -> Iterator[None]:
    """Turn click's usage errors into :class:`BadUsage`; a command that was given nothing at all still gets its help."""
    try:
        yield
    except (click.exceptions.NoArgsIsHelpError, BadUsage):
        raise
    except click.UsageError as error:
        raise BadUsage(error.format_message(), error.ctx) from error


class LazyGroup(click.Group):
    """A click group whose commands are imported when they are called."""

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        """Parse the arguments before the command's name."""
        with in_one_line():
            return super().make_context(*args, **kwargs)

    def invoke(self, ctx: click.Context) -> Any:
        """Parse the command's own arguments and run it."""
        with in_one_line():
            return super().invoke(ctx)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Every command, in the order of :data:`COMMANDS`."""
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command's module and return the command, or ``None`` where there is no such command."""
        del ctx
        if cmd_name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[cmd_name][0].partition(":")
        command = getattr(importlib.import_module(module), attribute)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without importing them."""
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="trimtab")
def cli() -> None:
    """Keep a Kubernetes cluster trimmed to its policies.

    Exit status: 0 done, 1 failed at run time, 2 bad input (the message names file, object and field).
    """


def main() -> None:
    """Run the command line."""
    cli(prog_name="trimtab")
