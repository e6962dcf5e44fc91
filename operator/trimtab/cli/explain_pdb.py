"""``trimtab explain pdb``: what a PodDisruptionBudget allows and why, and what it blocks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from trimtab.cli.errors import report_errors
from trimtab.cli.inspection_client import ask_unless_direct, current_path, direct_option, object_path
from trimtab.cli.inspections import inspection_options, load_inspection, show_list, show_section
from trimtab.cli.names import PDB, object_not_found, parse_object_name
from trimtab.cli.options import completed, namespace_option

if TYPE_CHECKING:
    from trimtab.inspection.budget import Document


@click.command("pdb")
@click.argument("name", metavar="[[NAMESPACE/]NAME]", required=False, shell_complete=completed(PDB))
@namespace_option
@click.option(
    "-A", "--all-namespaces", is_flag=True, help="Consider all namespaces, which is the default without NAME."
)
@inspection_options
@direct_option
def explain_pdb(
    *,
    name: str | None,
    namespace: str | None,
    all_namespaces: bool,
    everything: bool,
    form: str,
    direct: bool,
    **source: Any,
) -> None:
    """Explain which PodDisruptionBudgets block evictions, or what one of them allows and why.

    Without NAME, the output contains the budgets that block something now or allow no disruption, those that block most
    first. They are the budgets of all namespaces, unless --namespace is given.

    With NAME, it contains the numbers of the disruption controller (disruptionsAllowed = currentHealthy -
    desiredHealthy), whether its status is stale, the selected pods with their health, other budgets that select the
    same pods, the nodes that scale-down cannot remove because of the budget, the planned evictions that it holds back,
    and what would unblock it.

    The evictions are those of the policies in the cluster, unless --policy is given. Without a ClusterAutoscaler, no
    node is removed, so the budgets block no removal.
    """
    from trimtab.cli.output import emit
    from trimtab.cli.sources import default_namespace
    from trimtab.inspection import budget

    if all_namespaces and (name is not None or namespace is not None):
        raise click.UsageError("--all-namespaces cannot be combined with NAME or --namespace")
    with report_errors():
        if name is None:
            found = ask_unless_direct(
                current_path("disruptionbudgets", namespace=namespace), direct=direct, **source
            ) or budget.explain_pdbs(load_inspection(**source), namespace=namespace)
            emit(found, form) if form == "json" else _print_all(found, everything=everything)
            return
        default = default_namespace(source["cluster"], kubeconfig=source["kubeconfig"], context=source["context"])
        wanted = parse_object_name(name, PDB, namespace=namespace, default_namespace=default)
        path = object_path("poddisruptionbudgets", wanted.name, inside=wanted.namespace)
        served = ask_unless_direct(path, direct=direct, **source)
        if served is not None:
            emit(served, form) if form == "json" else _print(served, everything=everything)
            return
        loaded = load_inspection(**source)
        if wanted.key not in loaded.snapshot.budgets:
            raise object_not_found(wanted, list(loaded.snapshot.budgets), type_=PDB, source=source["cluster"] or "")
        found = budget.explain_pdb(loaded, wanted.namespace, wanted.name)
        emit(found, form) if form == "json" else _print(found, everything=everything)


def _print_all(document: Document, *, everything: bool) -> None:
    from trimtab.cli.output import echo

    echo(f"{document['message']}.")
    show_section(
        "Budgets",
        ["PDB", "ALLOWED", "HEALTHY", "NEEDED", "EXPECTED", "BLOCKED NODES", "BLOCKED EVICTIONS", "REASON"],
        [
            [
                each["pdb"],
                str(each["disruptionsAllowed"]),
                str(each["currentHealthy"]),
                str(each["desiredHealthy"]),
                str(each["expectedPods"]),
                str(each["nodes"]),
                str(each["evictions"]),
                each["reason"],
            ]
            for each in document["budgets"]
        ],
        everything=everything,
    )
    if document["others"]:
        echo(f"{document['others']} other budgets allow disruptions and block nothing, or select no pods.")
    if document["budgets"]:
        echo(f"\nNext: trimtab explain pdb {document['budgets'][0]['pdb']}")


def _print(document: Document, *, everything: bool) -> None:
    from trimtab.cli.output import echo

    echo(f"{click.style(document['pdb'], bold=True)}: {document['message']} ({document['reason']}).")
    echo(
        f"disruptionsAllowed {document['disruptionsAllowed']}: currentHealthy {document['currentHealthy']} - "
        f"desiredHealthy {document['desiredHealthy']}, of {document['expectedPods']} expectedPods; "
        f"{document['evictable']} of the {document['observed']['pods']} selected pods can be evicted now."
    )
    for note in document["notes"]:
        echo(f"Note: {note}.")
    show_section(
        "Pods",
        ["POD", "NODE", "STATE", "EVICTABLE", "WHY NOT"],
        [[each["pod"], each["node"], each["state"], _evictable(each), each["message"]] for each in document["pods"]],
        everything=everything,
    )
    show_section(
        "Other budgets that select the same pods",
        ["PDB", "PODS"],
        [[each["pdb"], ", ".join(each["pods"])] for each in document["overlapping"]],
        everything=everything,
    )
    show_section(
        "Nodes that scale-down cannot remove because of it",
        ["NODE", "PODS", "MESSAGE"],
        [[each["node"], ", ".join(each["pods"]), each["message"]] for each in document["blocksNodes"]],
        everything=everything,
    )
    show_section(
        "Planned evictions that it holds back",
        ["POD", "NODE", "POLICY", "STRATEGY", "MESSAGE"],
        [
            [each["pod"], each["node"], each["policy"], each["strategy"], each["message"]]
            for each in document["heldEvictions"]
        ],
        everything=everything,
    )
    show_list("What would unblock it", [each["message"] for each in document["remedies"]])


def _evictable(pod: Document) -> str:
    if not pod["evictable"]:
        return "no"
    return "yes, does not count" if pod["free"] else "yes"
