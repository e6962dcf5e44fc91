"""What the commands that explain objects share: options, loading the cluster, and sections of their output."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from trimtab.cli.options import cluster_options, output_option, parse_time

if TYPE_CHECKING:
    from trimtab.inspection.cluster import ClusterInput

F = TypeVar("F", bound=Callable[..., Any])

SHOWN: Final = 10
"""Maximum number of rows of each table, except with ``--all``."""


def inspection_options(command: F) -> F:
    """Add the options for the cluster, the policies and the time, ``--all`` and ``-o``.

    Pass the values of ``cluster``, ``kubeconfig``, ``context``, ``skip_invalid``, ``policies`` and ``now`` to
    :func:`load_inspection`.
    """
    command = output_option("table", "json")(command)
    command = click.option(
        "--all", "everything", is_flag=True, help=f"Show all rows of each table, not only the first {SHOWN}."
    )(command)
    command = click.option(
        "--now", metavar="RFC3339", type=parse_time, help="Time to explain for. Default: the current time."
    )(command)
    command = click.option(
        "--policy",
        "policies",
        metavar="FILE|-",
        multiple=True,
        help="File with policies, as in `trimtab plan`; may be given several times. Default: those in the cluster.",
    )(command)
    return cluster_options(command)


def load_inspection(
    *,
    cluster: str | None,
    kubeconfig: str | None,
    context: str | None,
    skip_invalid: bool,
    policies: tuple[str, ...],
    now: int | None,
    history: bool = False,
    machines: bool = False,
) -> ClusterInput:
    """Read the policies and the cluster that a command was called for.

    Args:
        cluster: the option ``--cluster``.
        kubeconfig: the option ``--kubeconfig``.
        context: the option ``--context``.
        skip_invalid: the option ``--skip-invalid``.
        policies: the values of the option ``--policy``.
        now: the option ``--now``.
        history: whether the recorded actions of the controllers are needed.
        machines: whether the objects of autoscalers are needed even if nothing configures autoscaling.

    Raises:
        click.UsageError: options exclude each other.
        InputError: a file, an object in it, or the kubeconfig is invalid.
        CommandError: the API server does not respond or refuses a request.
    """
    from trimtab.cli.cluster_input import ClusterSource, load_cluster_input, read_policy_set
    from trimtab.cli.cluster_policies import print_warning

    source = ClusterSource(cluster=cluster, kubeconfig=kubeconfig, context=context, skip_invalid=skip_invalid)
    source.check()
    warnings: list[str] = []
    wanted = read_policy_set(source, policies, warn=warnings.append)
    loaded = load_cluster_input(
        source, wanted, now=now, stats=bool(wanted.pressure), history=history, machines=machines
    )
    for each in warnings:  # only now: if the cluster cannot be read either, that error is enough
        print_warning(each)
    return loaded


def show_section(title: str, headers: Sequence[str], rows: Sequence[Sequence[str]], *, everything: bool) -> None:
    """Print a heading and a table. If there are no rows, print nothing.

    Args:
        title: the heading.
        headers: the column headers.
        rows: the cells of each row.
        everything: whether to show all rows, instead of the first :data:`SHOWN`.
    """
    from trimtab.cli.output import echo, table

    if not rows:
        return
    shown = rows if everything else rows[:SHOWN]
    echo()
    echo(click.style(title, bold=True))
    echo(table(headers, shown, indent="  "))
    if len(shown) < len(rows):
        echo(f"  … and {len(rows) - len(shown)} more (--all shows them)")


def show_list(title: str, lines: Sequence[str]) -> None:
    """Print a heading and a list of sentences. If there are none, print nothing."""
    from trimtab.cli.output import echo

    if lines:
        echo()
        echo(click.style(title, bold=True))
        for line in lines:
            echo(f"  - {line}")
