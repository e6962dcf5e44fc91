"""``trimtab explain``: the group of the commands that explain objects."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from trimtab.cli.explain_node import explain_node
from trimtab.cli.explain_node_group import explain_node_group
from trimtab.cli.explain_pdb import explain_pdb
from trimtab.cli.explain_pod import explain_pod
from trimtab.cli.explain_policy import explain_policy
from trimtab.cli.explain_protections import explain_protections
from trimtab.cli.names import ALIASES, NODE, OBJECT_TYPES, ObjectName, object_not_found, split_type

if TYPE_CHECKING:  # importing numpy takes a tenth of a second, which would delay --help
    from click.shell_completion import CompletionItem

    from trimtab.cluster.snapshot import Snapshot


class ResourceGroup(click.Group):
    """A command group whose commands are types of objects, with kubectl's aliases, also as ``TYPE/NAME``."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command with this name or alias."""
        return super().get_command(ctx, ALIASES.get(cmd_name, cmd_name))

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete types, and names after ``TYPE/``."""
        from click.shell_completion import CompletionItem

        split = split_type(incomplete)
        if split is None:
            return super().shell_complete(ctx, incomplete)
        from trimtab.cli.completion import complete_names

        type_, rest = split
        given = next(each for each in OBJECT_TYPES if each.name == type_)
        prefix = incomplete.removesuffix(rest)
        return [CompletionItem(prefix + str(each.value)) for each in complete_names(given, ctx, rest)]

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Resolve the command, so that help and errors contain its name instead of the alias."""
        split = split_type(args[0])
        if split is not None:
            args = [*split, *args[1:]]
        _, command, rest = super().resolve_command(ctx, args)
        return (command.name if command else None), command, rest


@click.group(cls=ResourceGroup)
def explain() -> None:
    """Explain why a pod, node, node group, PodDisruptionBudget or policy is in its state, and what would change it.

    Names are as in kubectl: `explain pod web-1 -n shop`, `explain pod/web-1 -n shop` or `explain pod shop/web-1`.
    """


explain.add_command(explain_pod)
explain.add_command(explain_node)
explain.add_command(explain_node_group)
explain.add_command(explain_pdb)
explain.add_command(explain_policy)
explain.add_command(explain_protections)


def check_node(snapshot: Snapshot, name: str, *, source: str) -> None:
    """Raise an error with similar names if the node does not exist.

    Raises:
        InputError: the node does not exist.
    """
    if name not in snapshot.nodes.slot_of:
        raise object_not_found(ObjectName(name), list(snapshot.nodes.slot_of), type_=NODE, source=source)
