"""``trimtab explain``: where a pod fits, where it would go, where it does not fit, why, and what would help."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Final

import click

from trimtab.cli.errors import reported
from trimtab.cli.options import check_connection, cluster_options, output_option
from trimtab.kube.errors import InputError

if TYPE_CHECKING:  # numpy takes a tenth of a second, which --help must not wait for
    from trimtab.cluster.snapshot import Snapshot
    from trimtab.kube.objects import Pod

SHOWN: Final = 30
"""So many nodes the table shows one by one; more it shows by verdict, unless ``--all`` is given."""

BEST: Final = 5
"""So many of the nodes that fit are shown with their scores where the others are shown by verdict."""

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


class Judged(click.Command):
    """A command whose help ends with the rules that the registry holds."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List what is judged and what is scored."""
        from trimtab.placement.registry import DEFAULT

        super().format_epilog(ctx, formatter)
        filters = ", ".join(dict.fromkeys(rule.name for rule in DEFAULT.filters))
        scores = ", ".join(f"{score.name} ({score.weight})" for score in DEFAULT.scores)
        with formatter.section("Judged"):
            formatter.write_text(filters)
        with formatter.section("Scored, with weights"):
            formatter.write_text(scores)


@click.group(cls=Resources)
def explain() -> None:
    """Explain where a pod fits, where not, and why."""


@explain.command("pod", cls=Judged)
@click.argument("pod", metavar="NAMESPACE/NAME")
@cluster_options
@click.option("--all", "everything", is_flag=True, help=f"Show each node also where there are more than {SHOWN}.")
@click.option("--node", "nodes", metavar="NAME", multiple=True, help="Show this node only; may be given several times.")
@click.option(
    "--scoring",
    type=click.Choice(["LeastAllocated", "MostAllocated"]),
    default="LeastAllocated",
    show_default=True,
    help="The scoringStrategy that kube-scheduler's NodeResourcesFit is configured with.",
)
@output_option("table", "json")
def explain_pod(
    *,
    pod: str,
    cluster: str | None,
    kubeconfig: str | None,
    context: str | None,
    skip_invalid: bool,
    everything: bool,
    nodes: tuple[str, ...],
    scoring: str,
    form: str,
) -> None:
    """Explain on which nodes a pod fits, and why not on the others.

    The reasons are kube-scheduler's own (v1.36, default profile). A pod that is on a node already is judged as if it
    were not there yet.

    Nodes that fit are shown with their score, the best first: the scheduler takes one of the best, of the nodes that
    it looks at. In clusters of more than 100 nodes it looks at a part of those that fit. A pod with scheduling gates
    fits nowhere until they are gone; one with ResourceClaims is not judged, and that is said.

    Where no node fits, the cheapest change is told that would make one fit. Each is tried on a copy before it is told.
    """
    from trimtab.cli.output import emit
    from trimtab.cli.sources import load_cluster

    check_connection(cluster, kubeconfig, context)
    with reported():
        namespace, name = _split(pod)
        snapshot = load_cluster(cluster, kubeconfig=kubeconfig, context=context, skip_invalid=skip_invalid)
        found = find_pod(snapshot, namespace, name, source=cluster or "")
        for node in nodes:
            _check_node(snapshot, node, source=cluster or "")
        document = _explained(snapshot, found, scoring, nodes)
        if form == "json":
            emit(document, form)
        else:
            _print(document, everything=everything or bool(nodes))


def find_pod(snapshot: Snapshot, namespace: str, name: str, *, source: str = "") -> Pod:
    """The pod of that name.

    Args:
        snapshot: the cluster.
        namespace: of the pod.
        name: of the pod.
        source: the cluster's file, for messages.

    Raises:
        InputError: there is no such pod; names the nearest ones.
    """
    pod = snapshot.pods.get(f"{namespace}/{name}")
    if pod is None:
        near = _nearest(snapshot, namespace, name)
        raise InputError(f"no such pod{near}", source=source, object=f"Pod/{namespace}/{name}")
    return pod


def _explained(snapshot: Snapshot, pod: Pod, scoring: str, nodes: tuple[str, ...]) -> dict[str, Any]:
    from trimtab.placement.explanation import PROFILES, explanation
    from trimtab.placement.placer import Placer

    document = explanation(Placer(snapshot, PROFILES[scoring]), pod)
    if nodes:
        document["nodes"] = [node for node in document["nodes"] if node["node"] in nodes]
    return document


def _check_node(snapshot: Snapshot, name: str, *, source: str) -> None:
    if name not in snapshot.nodes.slot_of:
        near = get_close_matches(name, snapshot.nodes.slot_of, n=3)
        meant = f"; did you mean {' or '.join(near)}?" if near else ""
        raise InputError(f"no such node{meant}", source=source, object=f"Node/{name}")


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

    nodes = sorted(document["nodes"], key=_best_first)
    echo(f"{click.style(document['pod'], bold=True)}: {document['message']}")
    for line in _said(document):
        echo(line)
    if not nodes:
        return
    echo()
    if everything or len(nodes) <= SHOWN:
        echo(_each(nodes))
        return
    best = [node for node in nodes[:BEST] if node["fits"]]
    if best:
        echo(_each(best))
        echo()
    echo(table(["NODES", "FITS", "REASONS", "FOR EXAMPLE"], _groups(nodes)))
    echo(f"{len(nodes)} nodes (--all shows each)")


def _said(document: dict[str, Any]) -> list[str]:
    """What is said of the pod, a line each."""
    said = []
    if document["node"]:
        said.append(f"It is on {document['node']} now, and judged as if it were not there yet.")
    likely = document["likely"]
    if len(document["fits"]) == 1:
        said.append(f"The scheduler can only take {likely[0]}.")
    elif len(likely) == 1:
        said.append(f"The scheduler would most likely take {likely[0]}.")
    elif likely:
        more = f" and {len(likely) - BEST} more" if len(likely) > BEST else ""
        said.append(f"The scheduler would most likely take one of {', '.join(likely[:BEST])}{more}.")
    remedy = document["remedy"]
    if remedy:
        steps = remedy["steps"]
        if len(steps) == 1:
            said.append(f"The cheapest change that would make it fit: {steps[0]['change']}.")
        else:
            said.append(f"The cheapest changes that together would make it fit, on {remedy['node']}:")
            said += [f"  {number}. {step['change']}" for number, step in enumerate(steps, start=1)]
        said += [f"Or: {other['change']}." for other in remedy["alternatives"]]
    return said


def _best_first(node: dict[str, Any]) -> tuple[int, str]:
    return (-node["score"]["total"] if node["fits"] else 1), node["node"]


def _each(nodes: list[dict[str, Any]]) -> str:
    """A row a node, with the points that make its score where some fit."""
    from trimtab.cli.output import table

    if not any(node["fits"] for node in nodes):
        return table(["NODE", "FITS", "REASONS"], [[node["node"], *_verdict(node)] for node in nodes])
    rows = [[node["node"], *_verdict(node), _score(node)] for node in nodes]
    if any(node["reasons"] for node in nodes):
        return table(["NODE", "FITS", "REASONS", "SCORE"], rows)
    return table(["NODE", "FITS", "SCORE"], [[name, fits, score] for name, fits, _, score in rows])


def _score(node: dict[str, Any]) -> str:
    points = dict(node.get("score", {}))
    total = points.pop("total", "")
    told = ", ".join(f"{name} {number}" for name, number in points.items() if number)
    return f"{total} ({told})" if told else str(total)


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
