"""Shell completion: the command ``trimtab completion``, and the names of contexts and of objects in the live cluster.

A completion must never disturb typing. It lists at most :data:`LIMIT` objects with a short timeout, and if anything
fails, it offers nothing and prints nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import click
from click.shell_completion import CompletionItem, ShellComplete, get_completion_class

from trimtab.cli.names import NODE, PDB, POD, POLICY, ObjectType

if TYPE_CHECKING:
    from trimtab.kube.resources import Resource

LIMIT: Final = 500
"""Maximum number of listed objects of a kind."""

TIMEOUT: Final = 3.0
"""Timeout of all requests of a completion, in seconds."""

CONTEXTS: Final = "contexts"
NAMESPACES: Final = "namespaces"

PLUGIN: Final = "kubectl trimtab"
"""The name of the program when it is a plugin of kubectl."""


def complete_names(what: str | ObjectType, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
    """Return the completions of a name; empty if the cluster does not respond in time or refuses the request.

    Args:
        what: :data:`CONTEXTS`, :data:`NAMESPACES` or the type of objects.
        ctx: the context of the command, with the options that are already typed.
        incomplete: the typed beginning of the name.
    """
    found: Sequence[str] = ()
    with suppress(Exception):
        if what == CONTEXTS:
            from trimtab.kube.connection.contexts import load_contexts

            found = sorted(load_contexts(ctx.params.get("kubeconfig")).namespaces)
        elif ctx.params.get("cluster") is None:
            found = sorted(asyncio.run(asyncio.wait_for(_list(what, ctx.params, incomplete), TIMEOUT)))
    return [CompletionItem(name) for name in found if name.startswith(incomplete)]


async def _list(what: str | ObjectType, options: dict[str, Any], incomplete: str) -> list[str]:
    from trimtab.kube.connection.config import load_config
    from trimtab.kube.connection.transport import Transport
    from trimtab.kube.resources import NAMESPACES as NAMESPACE_RESOURCE
    from trimtab.kube.retry import Backoff

    config = await asyncio.to_thread(load_config, options.get("kubeconfig"), context=options.get("context"))
    qualifier, slash, _ = incomplete.rpartition("/")
    async with Transport(config, retries=Backoff(attempts=1)) as api:
        if isinstance(what, str):
            return await _names(api, NAMESPACE_RESOURCE, "")
        if not what.namespaced:
            listed = await asyncio.gather(*(_names(api, each, "") for each in _resources(what)), return_exceptions=True)
            return [name for names in listed if not isinstance(names, BaseException) for name in names]
        namespace = qualifier or options.get("namespace") or config.namespace
        names = [name for each in _resources(what) for name in await _names(api, each, namespace)]
        return [f"{qualifier}/{name}" for name in names] if slash else names


async def _names(api: Any, resource: Resource, namespace: str) -> list[str]:
    path = resource.path(namespace=namespace)
    page = await api.request("GET", path, params={"limit": str(LIMIT)}, timeout=TIMEOUT)
    return [item["metadata"]["name"] for item in page.get("items") or ()]


def _resources(type_: ObjectType) -> Sequence[Resource]:
    from trimtab.inspection.live import POLICY_KINDS
    from trimtab.kube.resources import BUDGETS, NODES, PODS

    return {POD.name: (PODS,), NODE.name: (NODES,), PDB.name: (BUDGETS,), POLICY.name: POLICY_KINDS}.get(type_.name, ())


# --- the script of a shell --------------------------------------------------------------------------------------------


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the completion script of a shell.

    It completes commands, options, and the names of contexts, namespaces, pods, nodes, PodDisruptionBudgets and
    policies in the live cluster.

    Load it in the shell's startup file: `source <(trimtab completion bash)`, `source <(trimtab completion zsh)`, or
    `trimtab completion fish | source`.
    """
    root = ctx.find_root()
    kind = get_completion_class(shell)
    assert kind is not None, "click completes these shells"
    name = "trimtab"  # kubectl completes its plugins itself, see complete_plugin
    script = ShellComplete.source(kind(root.command, {}, name, completion_variable(name)))
    click.echo(script)


def completion_variable(program: str) -> str:
    """Return the environment variable with which a shell asks a program for completions."""
    return f"_{program}_COMPLETE".replace("-", "_").replace(" ", "_").upper()


def complete_plugin(root: click.Command, arguments: Sequence[str]) -> list[str]:
    """Return the lines with which a plugin's completion program answers kubectl.

    kubectl runs ``kubectl_complete-trimtab`` with the typed arguments, of which the last is incomplete. The answer has
    one line for each completion and ends with a directive: ``:4`` stands for no completion of file names.

    Args:
        root: the command group of the program.
        arguments: the arguments after ``kubectl trimtab``.
    """
    *typed, incomplete = arguments or [""]
    completer = ShellComplete(root, {}, PLUGIN, completion_variable(PLUGIN))
    items: list[CompletionItem] = []
    with suppress(Exception):
        items = completer.get_completions(list(typed), incomplete)
    return [*(f"{each.value}\t{each.help}" if each.help else str(each.value) for each in items), ":4"]
