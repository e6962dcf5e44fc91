"""``trimtab explain``: where a pod fits, where not, and why."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Final

import click

from trimtab.cli.errors import reported
from trimtab.cli.options import check_connection, cluster_options, output_option
from trimtab.kube.errors import InputError

if TYPE_CHECKING:  # numpy takes a tenth of a second, which --help must not wait for
    from trimtab.cluster.snapshot import Snapshot

SHOWN: Final = 30
"""So many nodes the table shows one by one; more it shows by verdict, unless ``--all`` is given."""

ALIASES: Final = {"pods": "pod", "po": "pod"}


class Resources(click.Group):
    """A group whose commands are resources, known by kubectl's other words for them too."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Find the command, also by an alias."""
        return super().get_command(ctx, ALIASES.get(cmd_name, cmd_name))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Let help and errors show the command's own name, not the alias."""
        _, command, rest = super().resolve_command(ctx, args)
        return (command.name if command else None), command, rest


@click.group(cls=Resources)
def explain() -> None:
    """Explain where a pod fits, where not, and why."""


@explain.command("pod")
@click.argument("pod", metavar="NAMESPACE/NAME")
@cluster_options
@click.option("--all", "everything", is_flag=True, help=f"Show each node also where there are more than {SHOWN}.")
@output_option("table", "json")
def explain_pod(
    *,
    pod: str,
    cluster: str | None,
    kubeconfig: str | None,
    context: str | None,
    skip_invalid: bool,
    everything: bool,
    form: str,
) -> None:
    """Explain on which nodes a pod fits, and why not on the others.

    The reasons are kube-scheduler's own. A pod that is on a node already is judged as if it were not there yet.

    What is judged: cordons, the node's name, taints, node selector and required node affinity, host ports, resource
    requests, required pod affinity and anti-affinity. Volumes, topology spread, scheduling gates and resource claims
    are not judged yet, so a node that fits here may still be refused for one of these.
    """
    from trimtab.cli.output import emit
    from trimtab.cli.sources import load_cluster

    check_connection(cluster, kubeconfig, context)
    with reported():
        namespace, name = _split(pod)
        snapshot = load_cluster(cluster, kubeconfig=kubeconfig, context=context, skip_invalid=skip_invalid)
        document = explanation(snapshot, namespace, name, source=cluster or "")
        if form == "json":
            emit(document, form)
        else:
            _print(document, everything=everything)


def explanation(snapshot: Snapshot, namespace: str, name: str, *, source: str = "") -> dict[str, Any]:
    """The answer as CLI.md prints it: ``pod``, ``fits``, ``message`` and every node with its reasons.

    Args:
        snapshot: the cluster.
        namespace: of the pod.
        name: of the pod.
        source: the cluster's file, for messages.

    Raises:
        InputError: there is no such pod; names the nearest ones.
    """
    from trimtab.placement.placer import Placer

    pod = snapshot.pods.get(f"{namespace}/{name}")
    if pod is None:
        near = _nearest(snapshot, namespace, name)
        raise InputError(f"no such pod{near}", source=source, object=f"Pod/{namespace}/{name}")
    with snapshot.fork():
        placer = Placer(snapshot)
        lifted = placer.lift(pod)
        verdicts, message = placer.verdicts(lifted), placer.judge(lifted).sentence()
    return {
        "pod": pod.key,
        "fits": [verdict.node for verdict in verdicts if verdict.fits],
        "message": message,
        "nodes": [
            {"node": verdict.node, "fits": verdict.fits, "reasons": list(verdict.reasons)} for verdict in verdicts
        ],
    }


def _split(pod: str) -> tuple[str, str]:
    namespace, slash, name = pod.partition("/")
    if not slash or not namespace or not name or "/" in name:
        raise InputError(f"{pod!r} is not NAMESPACE/NAME, as in shop/web-1")
    return namespace, name


def _nearest(snapshot: Snapshot, namespace: str, name: str) -> str:
    """Names that may have been meant: the same name elsewhere, else near ones in the namespace, else its near ones."""
    elsewhere = sorted(pod.key for pod in snapshot.pods.values() if pod.name == name)
    there = sorted(pod.name for pod in snapshot.pods.values() if pod.namespace == namespace)
    near = [f"{namespace}/{each}" for each in get_close_matches(name, there, n=3)]
    meant = elsewhere[:3] or near
    if meant:
        return f"; did you mean {' or '.join(meant)}?"
    if there:
        shown = ", ".join(there[:3])
        return f"; the {len(there)} pods in namespace {namespace} include {shown}"
    namespaces = sorted({pod.namespace for pod in snapshot.pods.values()})
    near = get_close_matches(namespace, namespaces, n=3) or namespaces[:5]
    return f", and none at all in namespace {namespace}; pods are in {', '.join(near)}" if near else "; it has no pods"


def _print(document: dict[str, Any], *, everything: bool) -> None:
    from trimtab.cli.output import echo, table

    nodes = document["nodes"]
    echo(f"{click.style(document['pod'], bold=True)}: {document['message']}")
    if not nodes:
        return
    echo()
    if everything or len(nodes) <= SHOWN:
        echo(table(["NODE", "FITS", "REASONS"], [[node["node"], *_verdict(node)] for node in nodes]))
    else:
        echo(table(["NODES", "FITS", "REASONS", "FOR EXAMPLE"], _groups(nodes)))
        echo(f"{len(nodes)} nodes (--all shows each)")


def _verdict(node: dict[str, Any]) -> tuple[str, str]:
    return ("yes" if node["fits"] else "no"), "; ".join(node["reasons"])


def _groups(nodes: list[dict[str, Any]]) -> list[list[str]]:
    """Nodes of one verdict in a row, those that fit first, then the most frequent reason."""
    groups: dict[tuple[str, str], list[str]] = {}
    for node in nodes:
        groups.setdefault(_verdict(node), []).append(node["node"])
    ordered = sorted(groups.items(), key=lambda group: (group[0][0] == "no", -len(group[1]), group[0]))
    return [
        [str(len(names)), *verdict, ", ".join(names[:3]) + (", …" if len(names) > 3 else "")]
        for verdict, names in ordered
    ]
