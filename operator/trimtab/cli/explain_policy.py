"""``trimtab explain policy``: what a custom resource would do now, and what holds it back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

from trimtab.cli.errors import report_errors
from trimtab.cli.inspection_client import ask_unless_direct, direct_option, object_path
from trimtab.cli.inspections import inspection_options, load_inspection, show_list, show_section
from trimtab.cli.names import POLICY, did_you_mean, parse_object_name
from trimtab.cli.options import completed
from trimtab.kube.errors import InputError

if TYPE_CHECKING:
    from trimtab.inspection.policy import Document

_KINDS: Final = {
    "deschedulerpolicy": "DeschedulerPolicy",
    "deschedulerpolicies": "DeschedulerPolicy",
    "dp": "DeschedulerPolicy",
    "clusterautoscaler": "ClusterAutoscaler",
    "clusterautoscalers": "ClusterAutoscaler",
    "ca": "ClusterAutoscaler",
    "taintmanager": "TaintManager",
    "taintmanagers": "TaintManager",
    "tm": "TaintManager",
    "schedulerpolicy": "SchedulerPolicy",
    "schedulerpolicies": "SchedulerPolicy",
    "sp": "SchedulerPolicy",
    "nodepressurepolicy": "NodePressurePolicy",
    "nodepressurepolicies": "NodePressurePolicy",
    "npp": "NodePressurePolicy",
    "placementadmission": "PlacementAdmission",
    "placementadmissions": "PlacementAdmission",
    "pa": "PlacementAdmission",
}
"""The kinds by their names and short names in lower case."""


@click.command("policy")
@click.argument("name", metavar="[KIND/]NAME", shell_complete=completed(POLICY))
@inspection_options
@direct_option
def explain_policy(*, name: str, everything: bool, form: str, direct: bool, **source: Any) -> None:
    """Explain what a custom resource would do now, what holds it back, and what it did last.

    The output contains the actions of the resource in the joint plan of all resources, by strategy and reason; what
    holds them back: the mode, suspend, closed windows and when they open, conflicts, waiting evictions, backoff,
    missing permissions and an outdated status; the candidates that are kept, by reason; the next and the last run;
    and the last recorded actions.

    KIND is DeschedulerPolicy (dp), ClusterAutoscaler (ca), TaintManager (tm), SchedulerPolicy, NodePressurePolicy or
    PlacementAdmission. It is needed only if resources of several kinds have the name.
    """
    from trimtab.cli.output import emit
    from trimtab.inspection import policy

    with report_errors():
        wanted = parse_object_name(name, POLICY)
        kind = _KINDS.get(wanted.kind, "")
        if wanted.kind and not kind:
            raise InputError(f"{wanted.kind!r} is not a kind of policies{did_you_mean(wanted.kind, _KINDS)}")
        path = object_path("policies", wanted.name, **({"kind": kind} if kind else {}))
        served = ask_unless_direct(path, direct=direct, **source)
        if served is not None:
            emit(served, form) if form == "json" else _print(served, everything=everything)
            return
        loaded = load_inspection(**source, history=True)
        names = policy.policy_names(loaded)
        found = [each for each in names if each[1] == wanted.name and kind in ("", each[0])]
        if len(found) != 1:
            raise _not_one(name, found, names, source=source["cluster"] or "")
        document = policy.explain_policy(loaded, *found[0])
        emit(document, form) if form == "json" else _print(document, everything=everything)


def _not_one(name: str, found: list[tuple[str, str]], names: list[tuple[str, str]], *, source: str) -> InputError:
    """Return the error that no policy, or several ones, have the name."""
    if found:
        several = ", ".join(f"{kind.lower()}/{each}" for kind, each in found)
        return InputError(f"several policies have this name; give one of {several}", source=source, object=name)
    there = ", ".join(f"{kind.lower()}/{each}" for kind, each in names[:10]) or "none"
    return InputError(f"policy not found; there are: {there}", source=source, object=name)


def _print(document: Document, *, everything: bool) -> None:
    from trimtab.cli.output import echo

    title = f"{document['kind']} {document['name']}"
    echo(f"{click.style(title, bold=True)} ({document['state']}, {document['mode']}): {document['message']}.")
    times = [
        f"{text} {document[key]}"
        for key, text in (("nextRun", "next run"), ("lastRun", "last run"))
        if document[key] is not None
    ]
    if times:
        echo(f"{', '.join(times)}.".capitalize())
    if document["inFlight"]:
        echo(f"In flight: {document['inFlight']}.")
    show_list("Held back by", [f"{each['reason']}: {each['message']}" for each in document["heldBackBy"]])
    show_section(
        "Planned actions",
        ["ACTION", "STRATEGY", "REASON", "COUNT"],
        [[each["action"], each["strategy"], each["reason"], str(each["count"])] for each in document["planned"]],
        everything=everything,
    )
    show_section(
        "Kept",
        ["STRATEGY", "REASON", "COUNT", "FOR EXAMPLE", "MESSAGE"],
        [
            [
                each["strategy"],
                each["reason"],
                str(each["count"]),
                each["examples"][0]["object"],
                each["examples"][0]["message"],
            ]
            for each in document["kept"]
        ],
        everything=everything,
    )
    show_section(
        "Last actions",
        ["TIME", "ACTION", "OBJECT", "RESULT", "REASON", "MESSAGE"],
        [
            [each["time"], each["action"], each["object"], each["result"], each["reason"], each["message"]]
            for each in document["lastActions"]
        ],
        everything=everything,
    )
    if document["planned"]:
        echo("\nNext: trimtab plan shows each action with its numbers")
