"""``trimtab explain node``: everything that is known about one node in one place."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
import msgspec

from trimtab.cli.errors import report_errors
from trimtab.cli.inspection_client import ask_operator, direct_option, object_path
from trimtab.cli.names import NODE
from trimtab.cli.options import cluster_options, completed, output_option, parse_time
from trimtab.kube.errors import InputError

if TYPE_CHECKING:
    from trimtab.inspection.node import Document
    from trimtab.pressure.node_arithmetic import KubeletSettings

SHOWN: Final = 10
"""Maximum number of rows of each table, except with ``--all``."""


@click.command("node")
@click.argument("node", metavar="NAME", shell_complete=completed(NODE))
@cluster_options
@click.option(
    "--policy",
    "policies",
    metavar="FILE|-",
    multiple=True,
    help="File with NodePressurePolicies, a TaintManager or a ClusterAutoscaler with MachineAutoscalers; may be given "
    "several times. Default: those in the cluster.",
)
@click.option(
    "--kubelet-config",
    metavar="FILE",
    help="The node's KubeletConfiguration, or OpenShift 3's node-config.yaml, for system-reserved, kube-reserved and "
    "the eviction thresholds. Default: the kubelet's default thresholds, or kubeletEvictionHard of the policy.",
)
@click.option(
    "--stats/--no-stats",
    default=None,
    help="Whether to read the node's stats from its kubelet, through the API server; this needs permission to get "
    "nodes/proxy. Default: those that the operator has read, if its inspection API answers; otherwise only the memory, "
    "from metrics.k8s.io.",
)
@direct_option
@click.option("--now", metavar="RFC3339", type=parse_time, help="Time to explain for. Default: the current time.")
@click.option("--all", "everything", is_flag=True, help=f"Show all rows of each table, not only the first {SHOWN}.")
@output_option("table", "json")
def explain_node(
    *,
    node: str,
    cluster: str | None,
    kubeconfig: str | None,
    context: str | None,
    skip_invalid: bool,
    policies: tuple[str, ...],
    kubelet_config: str | None,
    stats: bool | None,
    direct: bool,
    now: int | None,
    everything: bool,
    form: str,
) -> None:
    """Explain the state of a node: its taints, its pressure, its pods' deadlines, and whether scale-down removes it.

    The output contains the taints and who adds them, whether the node is cordoned and by whom, its conditions, the
    arithmetic of allocatable memory and storage, the node's signals with the distance to each eviction threshold and
    the eviction order of its pods, the order in which the kernel's OOM killer would kill its containers, the deadlines
    of its pods because of NoExecute taints, pods that are leaving, and whether scale-down would remove it.

    Who changed the taints last is only known from the node's managedFields (kubectl get --show-managed-fields).

    The eviction thresholds and deadlines are those of the policies in the cluster, unless --policy is given. Without a
    TaintManager, the deadlines are those of kube-controller-manager. Without a ClusterAutoscaler, nodes are not
    removed.
    """
    from trimtab.cli.cluster_input import ClusterSource, load_cluster_input, read_policy_set
    from trimtab.cli.explain import check_node
    from trimtab.inspection.node import explain_node as explain

    source = ClusterSource(cluster=cluster, kubeconfig=kubeconfig, context=context, skip_invalid=skip_invalid)
    source.check()
    with report_errors():
        document = None
        if cluster is None and not (policies or kubelet_config or now or stats or skip_invalid or direct):
            document = ask_operator(object_path("nodes", node), kubeconfig=kubeconfig, context=context)
        if document is not None:
            _show(document, form, everything=everything)
            return
        wanted = read_policy_set(source, policies)
        settings = None if kubelet_config is None else _kubelet_settings(kubelet_config)
        loaded = load_cluster_input(
            source,
            wanted,
            now=now,
            stats=False if stats is False else node,
            kubelets=bool(stats),
            managed_fields=("Node", node),
            history=True,
        )
        check_node(loaded.snapshot, node, source=cluster or "")
        _show(explain(loaded, node, settings=settings), form, everything=everything)


def _show(document: Document, form: str, *, everything: bool) -> None:
    from trimtab.cli.output import emit

    if form == "json":
        emit(document, form)
    else:
        _print(document, everything=everything)


def _kubelet_settings(path: str) -> KubeletSettings:
    """Read the settings of a kubelet from a file.

    Raises:
        InputError: the file cannot be read, or is neither a KubeletConfiguration nor a node-config.yaml.
    """
    from trimtab.kube.wire.files.reader import read_documents
    from trimtab.pressure.node_arithmetic import kubelet_settings

    for source, document in read_documents(Path(path)):
        if document.fault is not None:
            raise InputError(document.fault.message, source=source)
        content = document.content
        manifest = msgspec.json.decode(content) if isinstance(content, msgspec.Raw) else dict(content)
        found = kubelet_settings(manifest, source=source)
        if found is not None:
            return found
    raise InputError("contains neither a KubeletConfiguration nor kubeletArguments", source=path)


# --- the tables -------------------------------------------------------------------------------------------------------


def _print(document: Document, *, everything: bool) -> None:
    from trimtab.cli.output import echo, show_node_pressure, table

    most = None if everything else SHOWN

    def section(title: str, headers: list[str], rows: list[list[str]]) -> None:
        if not rows:
            return
        echo()
        echo(click.style(title, bold=True))
        echo(table(headers, rows[:most], indent="  "))
        if most is not None and len(rows) > most:
            echo(f"  … and {len(rows) - most} more (--all shows them)")

    echo(f"{click.style(document['node'], bold=True)}: {document['message']}")
    if document["cordon"]:
        echo(f"Cordoned by: {document['cordon']['by']}{_changed(document['cordon']['changed'])}.")
    changed = document["taintsChanged"]
    section(
        f"Taints{_changed(changed)}",
        ["TAINT", "SINCE", "ADDED BY"],
        [[_taint_text(each), each["timeAdded"] or "", each["addedBy"] or "user"] for each in document["taints"]],
    )
    section(
        "Conditions",
        ["TYPE", "STATUS", "SINCE", "REASON", "CHANGED BY"],
        [
            [
                each["type"],
                each["status"],
                each["since"] or "",
                each["reason"],
                (each["changed"] or {}).get("manager", ""),
            ]
            for each in document["conditions"]
        ],
    )
    for each in document["resources"]:
        _print_resource(each)
    if document["pressure"] is not None:
        echo()
        show_node_pressure(document["pressure"], most=most)
    section(
        "OOM killer: order in which it kills containers",
        ["POD", "CONTAINER", "QOS", "REQUEST", "OOM_SCORE_ADJ", "RESIDENT", "SCORE"],
        list(_oom_rows(document["oom"])),
    )
    section(
        "Deadlines because of NoExecute taints",
        ["DUE", "POD", "HOW", "BY", "MESSAGE"],
        [[each["due"], each["pod"], each["how"], each["by"], each["message"]] for each in document["deadlines"]],
    )
    section(
        "Pods that are leaving",
        ["POD", "GRACE PERIOD ENDS", "BY", "REASON", "MESSAGE"],
        [
            [each["pod"], each["graceEnds"] or "", each["by"], each["reason"], each["message"]]
            for each in document["leaving"]
        ],
    )
    section(
        "Pods that the policies would move now",
        ["POD", "TO", "BY", "STRATEGY", "REASON", "MESSAGE"],
        [
            [each["pod"], each["target"], each["by"], each["strategy"], each["reason"], each["message"]]
            for each in document["wouldMove"]
        ],
    )
    section(
        "Last actions",
        ["TIME", "ACTION", "OBJECT", "RESULT", "REASON", "MESSAGE"],
        [
            [each["time"], each["action"], each["object"], each["result"], each["reason"], each["message"]]
            for each in document["history"]
        ],
    )
    used = document["utilization"]
    if used is not None:
        price = f", {document['hourlyCost']:g} an hour" if "hourlyCost" in document else ""
        echo()
        echo(
            f"{click.style('Node group', bold=True)}: {document['nodeGroup']}{price}; {used['message']}; scale-down "
            f"considers nodes below {used['threshold']:g}"
        )
    down = document["scaleDown"]
    echo()
    echo(f"{click.style('Scale-down', bold=True)}: {'removable' if down['removable'] else 'kept'} ({down['reason']})")
    if down["removable"]:
        echo(f"  {down['message']}")
    else:
        rows = [[each["reason"], each["pod"], each["message"]] for each in down["blockers"]]
        echo(table([], rows[:most], indent="  "))
        if most is not None and len(rows) > most:
            echo(f"  … and {len(rows) - most} more (--all shows them)")


def _changed(changed: Document | None) -> str:
    return f" (last changed by {changed['manager']}, {changed['time']})" if changed else ""


def _taint_text(taint: Document) -> str:
    value = f"={taint['value']}" if taint["value"] else ""
    return f"{taint['key']}{value}:{taint['effect']}"


def _print_resource(each: Document) -> None:
    from trimtab.cli.output import echo
    from trimtab.kube.rules.quantity import format_bytes

    echo()
    shown = {key: format_bytes(value) for key, value in each.items() if isinstance(value, int)}
    echo(
        f"{click.style(each['resource'].capitalize(), bold=True)}: allocatable {shown['allocatable']} of "
        f"{shown['capacity']}, requested {shown['requested']}"
    )
    parts = [f"eviction threshold {shown['evictionThreshold']}"]
    if each["expectedAllocatable"] is None:
        parts.append(f"{shown['daemons']} for daemons (system-reserved and kube-reserved)")
    else:
        parts += [f"system-reserved {shown['systemReserved']}", f"kube-reserved {shown['kubeReserved']}"]
    if each["hugePages"]:
        parts.append(f"huge pages {shown['hugePages']}")
    echo(f"  reserved {shown['reserved']} = {' + '.join(parts)}")
    expected = each["expectedAllocatable"]
    if expected is not None and expected != each["allocatable"]:
        echo(f"  the node reports another value than the {format_bytes(expected)} that follow from this configuration")
    for threshold in each["thresholds"]:
        hardness = "hard" if threshold["hard"] else "soft"
        name = f"{hardness} threshold {threshold['signal']}<{format_bytes(threshold['value'])} ({threshold['by']})"
        room = threshold["daemonRoom"]
        if room >= 0:
            text = f"if pods use all of allocatable, daemons may use {format_bytes(room)} until it is met"
        else:
            text = f"pods that use no more than allocatable can meet it; it needs {format_bytes(-room)} more reserved"
        echo(f"  {name}: {text}")


def _oom_rows(containers: Iterable[Document]) -> Iterable[list[str]]:
    from trimtab.kube.rules.quantity import format_bytes

    for each in containers:
        resident, score = each["residentMemory"], each["oomScore"]
        yield [
            each["pod"],
            each["container"],
            each["qos"],
            format_bytes(each["memoryRequest"]),
            str(each["oomScoreAdj"]),
            "" if resident is None else format_bytes(resident),
            "" if score is None else str(score),
        ]
