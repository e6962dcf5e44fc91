"""``trimtab diff``: what changed in a cluster between two times."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

from trimtab.cli.errors import report_errors
from trimtab.cli.inspections import show_section
from trimtab.cli.options import connection_options, output_option, skip_invalid_option

if TYPE_CHECKING:
    from trimtab.inspection.cluster import ClusterInput

NOW: Final = "now"


@click.command()
@click.argument("before", metavar="FILE|DIR")
@click.argument("after", metavar="[FILE|DIR|now]", default=NOW)
@click.option("--all", "everything", is_flag=True, help="Show all rows of each table.")
@connection_options
@skip_invalid_option
@output_option("table", "json")
def diff(
    *,
    before: str,
    after: str,
    everything: bool,
    kubeconfig: str | None,
    context: str | None,
    skip_invalid: bool,
    form: str,
) -> None:
    """Show what changed between two snapshots, or between a snapshot and the live cluster.

    The first argument is the earlier snapshot, the second one is the later snapshot, or `now` (the default) for the
    live cluster. Snapshots are files of `trimtab snapshot`, or folders with such a file and the policies at that time.

    The output contains nodes (labels, taints, cordons, readiness, allocatable resources), pods by controller, the
    status of PodDisruptionBudgets, sizes of node groups, fields of policies, and the totals. It also contains the
    planned actions that are new, and those that are not planned any more.
    """
    from trimtab.cli.output import emit
    from trimtab.inspection.diff import diff as compare

    with report_errors():
        old = _load(before, None, None, skip_invalid=skip_invalid)
        live = after == NOW
        new = _load(None if live else after, kubeconfig, context, skip_invalid=skip_invalid)
        document = compare(old, new)
        emit(document, form) if form == "json" else _print(document, everything=everything)


def _load(cluster: str | None, kubeconfig: str | None, context: str | None, *, skip_invalid: bool) -> ClusterInput:
    from trimtab.cli.cluster_input import ClusterSource, load_cluster_input, read_policy_set

    source = ClusterSource(cluster=cluster, kubeconfig=kubeconfig, context=context, skip_invalid=skip_invalid)
    return load_cluster_input(source, read_policy_set(source), machines=True)


def _print(document: dict[str, Any], *, everything: bool) -> None:
    from trimtab.cli.output import echo

    echo(f"{document['before']['source']} to {document['after']['source']}: {document['message']}.")
    for title, part, key in (
        ("Nodes", "nodes", "node"),
        ("PodDisruptionBudgets", "budgets", "pdb"),
        ("Node groups", "nodeGroups", "nodeGroup"),
        ("Policies", "policies", "policy"),
    ):
        rows = [[each[key], each["change"], _fields(each)] for each in document[part]]
        show_section(title, ["NAME", "CHANGE", "FIELDS"], rows, everything=everything)
    pods = [[each["owner"], each["pod"], each["change"], _pod_details(each)] for each in document["pods"]]
    show_section("Pods", ["OWNER", "POD", "CHANGE", "DETAILS"], pods, everything=everything)
    totals = document["totals"]
    rows = [
        [name, _shown(totals["before"][name]), _shown(totals["after"][name])]
        for name in totals["before"]
        if totals["before"][name] != totals["after"][name]
    ]
    show_section("Totals", ["", "BEFORE", "AFTER"], rows, everything=True)
    actions = [
        [which, each["action"], each.get("pod") or each.get("node") or each.get("machineSet", ""), each["reason"]]
        for which in ("new", "gone")
        for each in document["plan"][which]
    ]
    show_section("Planned actions", ["", "ACTION", "OBJECT", "REASON"], actions, everything=everything)


def _fields(change: dict[str, Any]) -> str:
    return ", ".join(
        f"{each['field']}: {_shown(each['before'])} → {_shown(each['after'])}" for each in change.get("fields", ())
    )


def _pod_details(change: dict[str, Any]) -> str:
    if change["change"] == "Moved":
        return f"{change['from'] or '(none)'} → {change['to'] or '(none)'}"
    if change["change"] == "Restarted":
        return f"{change['restarts']} restarts on {change['node']}"
    return _fields(change) or change["node"]


def _shown(value: Any) -> str:
    if value is None:
        return "(none)"
    if isinstance(value, dict):
        return ", ".join(f"{key} {each}" for key, each in value.items()) or "(none)"
    return ", ".join(map(str, value)) or "(none)" if isinstance(value, list) else str(value)
