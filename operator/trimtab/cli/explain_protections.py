"""``trimtab explain protections``: the pods that are never evicted, and why."""

from __future__ import annotations

from typing import Any

import click

from trimtab.cli.errors import report_errors
from trimtab.cli.inspection_client import ask_unless_direct, current_path, direct_option
from trimtab.cli.inspections import inspection_options, load_inspection, show_section


@click.command("protections")
@click.option(
    "-n", "--namespace", metavar="NAMESPACE", help="Show only pods of this namespace. Default: all namespaces."
)
@inspection_options
@direct_option
def explain_protections(*, namespace: str | None, everything: bool, form: str, direct: bool, **source: Any) -> None:
    """List the pods that are never evicted, grouped by the reason.

    There is one list for each DeschedulerPolicy, and one for scale-down if a ClusterAutoscaler enables it. It contains
    the pods that the protections of the policy, or the drain rules of scale-down, exclude, and the pods whose
    PodDisruptionBudgets never allow a disruption. Pods that are protected only for some time, for example while they
    start, are counted. Without a DeschedulerPolicy, the default protections apply.

    Pods on nodes with NoExecute taints, and on nodes under pressure, may be deleted nevertheless: these protections do
    not apply to a TaintManager and to NodePressurePolicies. `trimtab explain pod` shows everything about one pod.
    """
    from trimtab.cli.output import echo, emit
    from trimtab.inspection.protections import explain_protections as explain

    with report_errors():
        found = ask_unless_direct(current_path("protections", namespace=namespace), direct=direct, **source) or explain(
            load_inspection(**source), namespace=namespace
        )
        if form == "json":
            emit(found, form)
            return
        echo(f"{found['message']}.")
        for each in found["controllers"]:
            echo()
            number = sum(len(group["pods"]) for group in each["groups"])
            more = f", {each['temporary']} are protected for some time" if each["temporary"] else ""
            echo(f"{click.style(each['controller'], bold=True)}: {number} pods are never evicted{more}")
            for group in each["groups"]:
                title = f"{group['reason']} ({len(group['pods'])})"
                rows = [[pod["pod"], pod["node"], pod["message"]] for pod in group["pods"]]
                show_section(title, ["POD", "NODE", "MESSAGE"], rows, everything=everything)
