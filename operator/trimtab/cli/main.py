"""The ``trimtab`` command: a group that imports its commands on demand."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from typing import IO, TYPE_CHECKING, Any, Final

import click

from trimtab import __version__
from trimtab.cli.options import HELP_OPTIONS
from trimtab.kube.printable import printable

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

COMMANDS: Final[dict[str, tuple[str, str]]] = {
    "run": ("trimtab.cli.run:run", "Run the operator."),
    "plan": ("trimtab.cli.plan:plan", "Show what the policies would do to the cluster, and why."),
    "explain": ("trimtab.cli.explain:explain", "Explain the state of a pod, node, node group, budget or policy."),
    "what-if": ("trimtab.cli.what_if:what_if", "Forecast what happens if nodes fail or objects are applied."),
    "capacity": ("trimtab.cli.capacity:capacity", "Count how many more instances of a pod fit."),
    "doctor": ("trimtab.cli.doctor:doctor", "Check the installation, and what you are permitted to read."),
    "uninstall": ("trimtab.cli.uninstall:uninstall", "List what trimtab has left in the cluster."),
    "status": ("trimtab.cli.status:status", "Show the state of the operator and of all custom resources."),
    "history": ("trimtab.cli.history:history", "Show what the controllers did, and why."),
    "ui": ("trimtab.cli.ui:ui", "Show the cluster as a live page in the browser."),
    "diff": ("trimtab.cli.diff:diff", "Show what changed between two snapshots."),
    "snapshot": ("trimtab.cli.snapshot:snapshot", "Save the live cluster to a file for --cluster."),
    "convert": ("trimtab.cli.convert:convert", "Convert settings of other programs to policies of trimtab."),
    "migrate": ("trimtab.cli.migrate:migrate", "Prepare the migration from other programs."),
    "completion": ("trimtab.cli.completion:completion", "Print the completion script of a shell."),
    "crds": ("trimtab.cli.crds:crds", "Write the CustomResourceDefinitions, or check them for drift."),
    "local": ("trimtab_local.cli:local", "Run a real control plane on this machine."),
}
"""The module and attribute, and the one-line help, of each command by name.

Because the help strings are here, ``--help`` does not import any command.
"""


class BadUsage(click.UsageError):
    """A usage error. It is shown on one line like other invalid input, because click would print four lines."""

    def show(self, file: IO[Any] | None = None) -> None:
        """Print the error on stderr."""
        command = self.ctx.command_path if self.ctx is not None else "trimtab"
        message = printable(" ".join(self.format_message().split()).removesuffix("."))
        click.echo(f"trimtab: {message} (see '{command} --help')", file=file, err=file is None)


class NotInstalled(click.ClickException):
    """A package that a command needs is not installed. The error is shown on one line, with exit status 1."""

    def show(self, file: IO[Any] | None = None) -> None:
        """Print the error on stderr."""
        click.echo(f"trimtab: {printable(self.message)}", file=file, err=file is None)


@contextmanager
def one_line_usage_errors() -> Iterator[None]:
    """Convert click's usage errors to :class:`BadUsage`. A group without arguments still prints its help."""
    try:
        yield
    except (click.exceptions.NoArgsIsHelpError, BadUsage):
        raise
    except click.UsageError as error:
        raise BadUsage(error.format_message(), error.ctx) from error


class LazyGroup(click.Group):
    """A click group that imports a command when it is called."""

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        """Parse the arguments before the command name."""
        with one_line_usage_errors():
            return super().make_context(*args, **kwargs)

    def invoke(self, ctx: click.Context) -> Any:
        """Parse the command's arguments and run it."""
        with one_line_usage_errors():
            return super().invoke(ctx)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return all command names in the order of :data:`COMMANDS`."""
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return a command, or return ``None`` if it does not exist."""
        del ctx
        if cmd_name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[cmd_name][0].partition(":")
        try:
            command = getattr(importlib.import_module(module), attribute)
        except ModuleNotFoundError as error:
            if error.name != "trimtab_local":
                raise
            raise NotInstalled(
                f"'trimtab {cmd_name}' is a separate package; install it with: pip install 'trimtab[local]'"
            ) from error
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command to run. The error for an unknown name suggests the most similar one."""
        near = [] if args[0] in COMMANDS else get_close_matches(args[0], COMMANDS, n=1)
        if near:
            ctx.fail(f"No such command {args[0]!r}; did you mean {near[0]}?")
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete the names of commands without importing them."""
        from click.shell_completion import CompletionItem

        found = [CompletionItem(name, help=text) for name, (_, text) in COMMANDS.items() if name.startswith(incomplete)]
        return found or click.Command.shell_complete(self, ctx, incomplete)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands without importing them."""
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


@click.group(cls=LazyGroup, context_settings={"help_option_names": HELP_OPTIONS, "max_content_width": 100})
@click.version_option(__version__, prog_name="trimtab")
def cli() -> None:
    """Descheduler, cluster autoscaler, taint manager, scheduler, placement admission and node-pressure eviction.

    Exit status: 0 success; 1 failure at run time, or a check that found something; 2 invalid input (the message names
    the file, the object and the field).
    """


def main() -> None:
    """Run the command line."""
    cli(prog_name="trimtab")


def kubectl_plugin() -> None:
    """Run the command line as ``kubectl trimtab``: kubectl runs the program ``kubectl-trimtab``."""
    cli(prog_name="kubectl trimtab")


def complete_kubectl_plugin() -> None:
    """Print completions for ``kubectl trimtab``: kubectl runs the program ``kubectl_complete-trimtab``."""
    import sys

    from trimtab.cli.completion import complete_plugin

    for line in complete_plugin(cli, sys.argv[1:]):
        click.echo(line)
