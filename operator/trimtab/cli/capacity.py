"""``trimtab capacity``: how many more instances of a pod fit, on which nodes, and what limits them."""

from __future__ import annotations

from typing import Any, Final

import click

from trimtab.cli.errors import report_errors
from trimtab.cli.options import STDIN, cluster_options, output_option, parse_time
from trimtab.kube.errors import InputError

SHOWN: Final = 20
"""Number of nodes that are shown, except with ``--all``."""


@click.command()
@click.argument("file", metavar="FILE|-")
@cluster_options
@click.option(
    "--policy",
    "policies",
    metavar="FILE|-",
    multiple=True,
    help="File with a ClusterAutoscaler and MachineAutoscalers, instead of those in the cluster.",
)
@click.option("--limit", type=click.IntRange(1, 1_000_000), help="Maximum number of instances. Default: 1000000.")
@click.option("--now", metavar="RFC3339", type=parse_time, help="Time to plan for. Default: the current time.")
@click.option("--all", "everything", is_flag=True, help=f"Show all nodes, not only the first {SHOWN}.")
@output_option("table", "json", "yaml")
def capacity(
    *,
    file: str,
    cluster: str | None,
    kubeconfig: str | None,
    context: str | None,
    skip_invalid: bool,
    policies: tuple[str, ...],
    limit: int | None,
    now: int | None,
    everything: bool,
    form: str,
) -> None:
    """Count how many more instances of a pod fit, on which nodes, and what limits their number.

    FILE contains a Pod, or a workload with a pod template, such as a Deployment; the first one counts. The instances
    are placed with kube-scheduler's filters and scores; pending pods are ignored, and no pod is preempted. With an
    autoscaler, the output also contains how many instances fit if node groups are scaled up to their limits.
    """
    from trimtab.cli.cluster_input import ClusterSource, load_cluster_input, read_policy_set
    from trimtab.cli.output import emit
    from trimtab.cli.plan import warn_of_defaults
    from trimtab.cli.what_if import read_manifests
    from trimtab.inspection.applied_objects import HAVE_PODS, pod_of
    from trimtab.inspection.capacity import MAX_INSTANCES
    from trimtab.inspection.capacity import capacity as count

    source = ClusterSource(cluster=cluster, kubeconfig=kubeconfig, context=context, skip_invalid=skip_invalid)
    source.check()
    if (file, *policies, cluster).count(STDIN) > 1:
        raise click.UsageError("standard input (-) can be given only once: for FILE, --cluster or one --policy")
    with report_errors():
        manifests = [each for each in read_manifests((file,)) if each.get("kind") in HAVE_PODS]
        if not manifests:
            raise InputError(f"contains none of {', '.join(HAVE_PODS)}", source=file)
        wanted = read_policy_set(source, policies)
        warn_of_defaults(wanted)
        loaded = load_cluster_input(source, wanted, now=now, machines=True)
        pod = pod_of(loaded.snapshot, manifests[0], now=loaded.now)
        document = count(loaded, pod, limit=limit or MAX_INSTANCES)
        if form == "table":
            show_capacity(document, most=None if everything else SHOWN)
        else:
            emit(document, form)


def show_capacity(document: dict[str, Any], *, most: int | None) -> None:
    """Print the result of :func:`trimtab.inspection.capacity.capacity`.

    Args:
        document: the result.
        most: the maximum number of nodes to show; ``None`` for all.
    """
    from trimtab.cli.output import echo, table

    nodes = document["nodes"]
    number, on = document["instances"], len(nodes)
    plural = "" if number == 1 else "s"
    sentence = f"{number} more instance{plural} of {document['pod']} fit{'s' if number == 1 else ''}"
    if on:
        sentence += f" on {on} node{'' if on == 1 else 's'}"
    echo(f"{sentence}, limited by: {document['limitedBy']}.")
    if document["withNodeGroups"] is not None:
        echo(
            f"With the autoscaler: {document['withNodeGroups']}, limited by: {document['limitedByWithNodeGroups']}"
            f"{': ' if document['messageWithNodeGroups'] else ''}{document['messageWithNodeGroups'].rstrip('.')}."
        )
    if nodes:
        ordered = sorted(nodes, key=lambda each: (-each["instances"], each["node"]))
        echo()
        echo(table(["NODE", "INSTANCES"], [[each["node"], str(each["instances"])] for each in ordered[:most]]))
        if most is not None and on > most:
            echo(f"… and {on - most} more (--all shows them)")
    if document.get("nodeGroups"):
        echo()
        rows = [
            [each["nodeGroup"], str(each["from"]), str(each["to"]), str(each["instances"])]
            for each in document["nodeGroups"]
        ]
        echo(table(["NODE GROUP", "FROM", "TO", "INSTANCES"], rows))
    if document["message"]:
        echo()
        echo(f"The next instance: {document['message']}")
