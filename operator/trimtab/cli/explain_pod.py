"""``trimtab explain pod``: why a pod is pending, what would make it leave its node, or who evicted it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import click

from trimtab.cli.errors import report_errors
from trimtab.cli.inspection_client import ask_operator, direct_option, object_path
from trimtab.cli.inspections import load_inspection, show_section
from trimtab.cli.names import NODE, POD, ObjectName, object_not_found, parse_object_name
from trimtab.cli.options import cluster_options, completed, namespace_option, output_option, parse_time
from trimtab.kube.errors import InputError

if TYPE_CHECKING:  # importing numpy takes a tenth of a second, which would delay --help
    from trimtab.inspection.cluster import ClusterInput
    from trimtab.placement.registry import Profile

Document = dict[str, Any]

SHOWN: Final = 30
"""Maximum number of nodes for a table with one row per node. If there are more nodes, they are grouped by reason,
except with ``--all``."""

MAX_VICTIMS: Final = 5
"""Number of pods to preempt that are named."""

BEST: Final = 5
"""Number of feasible nodes that are shown with their scores above the grouped table."""


class ExplainPodCommand(click.Command):
    """The command ``explain pod``. Its help ends with a list of all filters and score plugins."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the filters and scores after the help."""
        from trimtab.cluster.snapshot import Snapshot
        from trimtab.placement.placer import Placer
        from trimtab.placement.registry import DEFAULT

        super().format_epilog(ctx, formatter)
        placer = Placer(Snapshot(), DEFAULT)
        filters = ", ".join(dict.fromkeys(each.name for each in placer.filters))
        scores = ", ".join(f"{each.name} ({each.weight})" for each in placer.scorer.scores)
        with formatter.section("Filters"):
            formatter.write_text(filters)
        with formatter.section("Scores, with weights"):
            formatter.write_text(scores)


@click.command("pod", cls=ExplainPodCommand)
@click.argument("pod", metavar="[NAMESPACE/]NAME", shell_complete=completed(POD))
@namespace_option
@cluster_options
@click.option(
    "--policy",
    "policies",
    metavar="FILE|-",
    multiple=True,
    help="File with policies, as in `trimtab plan`, or a scheduler configuration that `trimtab convert` reads; may be "
    "given several times. Default: the policies in the cluster.",
)
@click.option("--now", metavar="RFC3339", type=parse_time, help="Time to explain for. Default: the current time.")
@click.option("--all", "everything", is_flag=True, help=f"Show each node, also if there are more than {SHOWN}.")
@click.option("--node", "nodes", metavar="NAME", multiple=True, help="Show only this node; may be given several times.")
@click.option(
    "--scoring",
    type=click.Choice(["LeastAllocated", "MostAllocated"]),
    help="The scoringStrategy that kube-scheduler's NodeResourcesFit plugin is configured with. Default: the filters "
    "and scores of the SchedulerPolicy of the pod's scheduler, or LeastAllocated if there is none.",
)
@direct_option
@output_option("table", "json")
def explain_pod(
    *,
    pod: str,
    namespace: str | None,
    everything: bool,
    nodes: tuple[str, ...],
    scoring: str | None,
    direct: bool,
    form: str,
    **source: Any,
) -> None:
    """Explain why a pod is pending, what would make it leave its node, or who evicted it.

    Pending: on which nodes the pod fits and why not on others, with the reasons of kube-scheduler v1.36; which pods the
    scheduler would preempt for it; for each node group, whether a new node would take the pod, and what the autoscaler
    does; and the cheapest changes with which the pod would fit. Each change is tried on a copy of the cluster first.

    Running: for each policy, whether it would evict the pod now, and why not; what protects the pod; deadlines because
    of taints; and whether its node is to be removed. The nodes are evaluated as if the pod were pending.

    Terminating, or gone: who evicted the pod, when and why, and where its replacement runs, from the history of all
    controllers, or else from the pod's events.

    Feasible nodes are listed with their score, the highest first. The scheduler selects one of the nodes with the
    highest score. In clusters of more than 100 nodes, it scores only a part of the feasible nodes. A pod with
    scheduling gates fits on no node until the gates are removed. trimtab does not evaluate pods with ResourceClaims.
    """
    from trimtab.cli.sources import default_namespace
    from trimtab.inspection import pod as inspection

    where = {"kubeconfig": source["kubeconfig"], "context": source["context"]}
    with report_errors():
        default = default_namespace(source["cluster"], **where)
        wanted = parse_object_name(pod, POD, namespace=namespace, default_namespace=default)
        document: dict[str, Any] | None = None
        if source["cluster"] is None and not (
            nodes or scoring or source["policies"] or source["now"] or source["skip_invalid"] or direct
        ):
            document = ask_operator(object_path("pods", wanted.name, inside=wanted.namespace), **where)
        if document is not None:
            _show(document, form, everything=everything)
            return
        loaded = load_inspection(history=True, **source)
        for node in nodes:
            if node not in loaded.snapshot.nodes.slot_of:
                names = list(loaded.snapshot.nodes.slot_of)
                raise object_not_found(ObjectName(node), names, type_=NODE, source=source["cluster"] or "")
        document = inspection.explain_pod(
            loaded,
            wanted.namespace,
            wanted.name,
            profile=_profile(loaded, wanted, scoring, source["policies"]),
            events=[] if source["cluster"] is not None else _events(loaded, wanted, where),
        )
        if document is None:
            keys = [each.key for each in loaded.snapshot.pods.values()]
            raise object_not_found(wanted, keys, type_=POD, source=source["cluster"] or "")
        if nodes:
            document["nodes"] = [node for node in document["nodes"] if node["node"] in nodes]
        _show(document, form, everything=everything or bool(nodes))


def _show(document: dict[str, Any], form: str, *, everything: bool) -> None:
    from trimtab.cli.output import emit

    if form == "json":
        emit(document, form)
    else:
        _print(document, everything=everything)


def _profile(loaded: ClusterInput, wanted: ObjectName, scoring: str | None, files: tuple[str, ...]) -> Profile | None:
    """Return the filters and scores that the options select; ``None`` for those of the policies in the cluster.

    The only SchedulerPolicy of ``--policy`` is used for a pod of any scheduler.

    Raises:
        InputError: the files contain several SchedulerPolicies, and none of them is for the pod's scheduler.
    """
    from trimtab.placement.explanation import PROFILES
    from trimtab.scheduling.planner import scheduler_of
    from trimtab.scheduling.profiles import profile_of

    if scoring is not None:
        return PROFILES[scoring]
    pod, policies = loaded.snapshot.pods.get(wanted.key), loaded.policies.schedulers
    if pod is None or not files or not policies:
        return None
    scheduler = scheduler_of(pod)
    found = [each for each in policies if each.spec.scheduler_name == scheduler] or list(policies)
    if len(found) != 1:
        names = ", ".join(each.spec.scheduler_name for each in policies)
        raise InputError(f"has no SchedulerPolicy for scheduler {scheduler}; it has: {names}", source=files[0])
    return profile_of(found[0].spec)


def _events(loaded: ClusterInput, wanted: ObjectName, where: Mapping[str, str | None]) -> list[Document]:
    """Return the events of a pod that is leaving or gone and is not in the history; nothing if they cannot be read."""
    from trimtab.cli.live import with_api
    from trimtab.inspection.pod_eviction import entries_of_pod
    from trimtab.kube.api import Api, ApiError
    from trimtab.kube.resources import EVENTS
    from trimtab.kube.verbs import list_objects

    pod = loaded.snapshot.pods.get(wanted.key)
    running = pod is not None and pod.deleted is None and not pod.terminal
    if running or entries_of_pod(loaded.history, wanted.namespace, wanted.name):
        return []

    async def work(api: Api) -> list[Document]:
        selector = f"regarding.kind=Pod,regarding.name={wanted.name}"
        try:
            return (await list_objects(api, EVENTS, namespace=wanted.namespace, field_selector=selector)).items
        except ApiError:  # no permission to list events: the history and the conditions remain
            return []

    return with_api(work, kubeconfig=where["kubeconfig"], context=where["context"])


# --- output -----------------------------------------------------------------------------------------------------------


def _print(document: Document, *, everything: bool) -> None:
    from trimtab.cli.output import echo

    key = document["pod"]
    echo(f"{click.style(key, bold=True)}{document['summary'].removeprefix(key)}.")
    if document["state"] == "Pending":
        _print_pending(document, everything=everything)
    else:
        _print_eviction(document["eviction"])
        _print_leaving(document, everything=everything)
    if document["state"] in ("Pending", "Running"):
        _print_nodes(document, everything=everything)


def _print_pending(document: Document, *, everything: bool) -> None:
    from trimtab.cli.output import echo

    scheduling = document["scheduling"]
    if scheduling["policy"]:
        echo(f"Scheduler {scheduling['scheduler']}, SchedulerPolicy {scheduling['policy']}.")
    preemption = document["preemption"]
    if preemption is not None and preemption["node"]:
        echo(_preemption_line(preemption))
    for line in _summary_lines(document):
        echo(line)
    autoscaling = document["autoscaling"]
    if autoscaling is not None and autoscaling["reason"]:
        echo(f"Autoscaler: {autoscaling['reason']}: {autoscaling['message']}")
    show_section(
        "Node groups",
        ["NODE GROUP", "SIZE", "MIN", "MAX", "FITS", "SCALE-UP", "REASONS"],
        [_group_row(each) for each in document["nodeGroups"]],
        everything=everything,
    )


def _preemption_line(preemption: Document) -> str:
    victims = preemption["victims"]
    if not victims:
        return f"The scheduler nominates node {preemption['node']}: {preemption['message']}."
    named = [
        f"{each['pod']} (priority {each['priority']}{', violates a PodDisruptionBudget' * each['violatesBudget']})"
        for each in victims[:MAX_VICTIMS]
    ]
    more = f" and {len(victims) - MAX_VICTIMS} more" if len(victims) > MAX_VICTIMS else ""
    return f"The scheduler would preempt on node {preemption['node']}: {', '.join(named)}{more}."


def _group_row(group: Document) -> list[str]:
    upcoming = f" (+{group['upcoming']} upcoming)" if group["upcoming"] else ""
    scale_up, limit, backoff = group["scaleUp"], group["limit"], group["backoff"]
    reasons = list(group["reasons"])
    if limit is not None:
        reasons.append(f"{limit['reason']}: {limit['message']}")
    elif backoff is not None:
        reasons.append(f"in backoff until {backoff['until']}")
    return [
        group["nodeGroup"],
        f"{group['size']}{upcoming}",
        str(group["minimum"]),
        str(group["maximum"]),
        "yes" if group["fits"] else "no",
        "" if scale_up is None else f"{scale_up['from']} to {scale_up['to']}",
        "; ".join(reasons),
    ]


def _print_eviction(eviction: Document | None) -> None:
    from trimtab.cli.output import echo

    if eviction is None:
        return
    echo()
    rows = [
        ("Evicted by", eviction["by"]),
        ("Time", eviction["time"]),
        ("Policy", f"{eviction['policy']} ({eviction['strategy']})" if eviction["strategy"] else eviction["policy"]),
        ("Reason", f"{eviction['reason']}: {eviction['message']}" if eviction["message"] else eviction["reason"]),
        ("From node", eviction["node"]),
        ("Replacement", _replacement(eviction)),
        ("Source", eviction["source"].lower()),
    ]
    for name, value in rows:
        if value:
            echo(f"  {name + ':':<13}{value}")


def _replacement(eviction: Document) -> str:
    found = eviction["replacement"]
    if found is None:
        return "none found"
    node = f"on {found['node']}" if found["node"] else "pending"
    planned = eviction["target"]
    return f"{found['pod']} {node}{f' (planned: {planned})' if planned and planned != found['node'] else ''}"


def _print_leaving(document: Document, *, everything: bool) -> None:
    policies = document["policies"]
    show_section(
        "Policies",
        ["POLICY", "STRATEGY", "VERDICT", "REASON", "MESSAGE"],
        [
            *(
                [each["policy"], each["strategy"], each["verdict"], each["reason"], each["message"]]
                for policy in policies
                for each in [{**each, "policy": policy["policy"]} for each in policy["strategies"]]
            ),
            *([each["policy"], "", each["verdict"], "", each["message"]] for each in policies if each.get("message")),
        ],
        everything=everything,
    )
    protections = {
        (each["reason"], each["message"]): policy["policy"]
        for policy in policies
        for each in policy.get("protections", ())
    }
    show_section(
        "What protects it",
        ["REASON", "POLICY", "MESSAGE"],
        [
            *([reason, policy, message] for (reason, message), policy in protections.items()),
            *(["DisruptionBudget", each["pdb"], each["message"]] for each in document["pdbs"] if each["blocks"]),
        ],
        everything=everything,
    )
    removal, deadline = document["nodeRemoval"], document["deadline"]
    show_section(
        "Node and taints",
        ["WHAT", "WHEN", "REASON", "MESSAGE"],
        [
            *([["deadline", deadline["due"], deadline["taint"], deadline["message"]]] if deadline else []),
            *([[_removal_text(removal), "", removal["reason"], removal["message"]]] if removal else []),
        ],
        everything=everything,
    )
    show_section(
        "Recorded actions",
        ["TIME", "ACTION", "RESULT", "POLICY", "REASON", "MESSAGE"],
        [
            [each["time"], each["action"], each["result"], each["policy"], each["reason"], each["message"]]
            for each in document["history"]
        ],
        everything=everything,
    )


def _removal_text(removal: Document) -> str:
    if removal["underway"]:
        return f"{removal['node']} is being removed"
    return f"{removal['node']} {'is to be removed' if removal['planned'] else 'is kept'}"


def _print_nodes(document: Document, *, everything: bool) -> None:
    from trimtab.cli.output import echo, table

    nodes = sorted(document["nodes"], key=_best_first)
    if not nodes:
        return
    echo()
    if document["node"]:
        echo(f"Evaluated as if it were pending: {document['message']}")
        for line in _summary_lines(document):
            echo(line)
        echo()
    if everything or len(nodes) <= SHOWN:
        echo(_node_table(nodes))
        return
    best = [node for node in nodes[:BEST] if node["fits"]]
    if best:
        echo(_node_table(best))
        echo()
    echo(table(["NODES", "FITS", "REASONS", "FOR EXAMPLE"], _rows_by_verdict(nodes)))
    echo(f"{len(nodes)} nodes (--all shows each)")


def _summary_lines(document: dict[str, Any]) -> list[str]:
    """Return the sentences about the pod that are printed above the table of nodes."""
    lines = []
    likely = document["likely"]
    if len(document["fits"]) == 1:
        lines.append(f"The scheduler can only choose {likely[0]}.")
    elif len(likely) == 1:
        lines.append(f"The scheduler would most likely choose {likely[0]}.")
    elif likely:
        more = f" and {len(likely) - BEST} more" if len(likely) > BEST else ""
        lines.append(f"The scheduler would most likely choose one of {', '.join(likely[:BEST])}{more}.")
    remedy = document["remedy"]
    if remedy:
        steps = remedy["steps"]
        if len(steps) == 1:
            lines.append(f"Cheapest change that would make it fit: {steps[0]['change']}.")
        else:
            where = remedy["node"] or f"a new node of {remedy['nodeGroup']}"
            lines.append(f"Cheapest changes that together would make it fit on {where}:")
            lines += [f"  {number}. {step['change']}" for number, step in enumerate(steps, start=1)]
        lines += [f"Alternative: {other['change']}." for other in remedy["alternatives"]]
    return lines


def _best_first(node: dict[str, Any]) -> tuple[int, str]:
    return (-node["score"]["total"] if node["fits"] else 1), node["node"]


def _node_table(nodes: list[dict[str, Any]]) -> str:
    """Return a table with one row per node, with the score if some node is feasible."""
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
    parts = ", ".join(f"{name} {number}" for name, number in points.items() if number)
    return f"{total} ({parts})" if parts else str(total)


def _verdict(node: dict[str, Any]) -> tuple[str, str]:
    return ("yes" if node["fits"] else "no"), "; ".join(node["reasons"])


def _rows_by_verdict(nodes: list[dict[str, Any]]) -> list[list[str]]:
    """Return one row for all feasible nodes, then one row for each reason, most frequent reasons first."""
    groups: dict[tuple[str, str], list[str]] = {}
    for node in nodes:
        groups.setdefault(_verdict(node), []).append(node["node"])
    ordered = sorted(groups.items(), key=lambda group: (group[0][0] == "no", -len(group[1]), group[0]))
    return [
        [str(len(names)), *verdict, ", ".join(names[:3]) + (", …" if len(names) > 3 else "")]
        for verdict, names in ordered
    ]
