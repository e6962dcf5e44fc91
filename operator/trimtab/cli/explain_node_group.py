"""``trimtab explain nodegroup``: the state of node groups, and what the autoscaler does with them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from trimtab.cli.errors import report_errors
from trimtab.cli.inspection_client import ask_unless_direct, direct_option, object_path
from trimtab.cli.inspections import inspection_options, load_inspection, show_list, show_section
from trimtab.cli.names import NODE_GROUP, object_not_found, parse_object_name
from trimtab.cli.options import namespace_option
from trimtab.kube.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trimtab.inspection.node_group import Document


@click.command("nodegroup")
@click.argument("name", metavar="[[NAMESPACE/]NAME|ID]", required=False)
@namespace_option
@inspection_options
@direct_option
def explain_node_group(
    *, name: str | None, namespace: str | None, everything: bool, form: str, direct: bool, **source: Any
) -> None:
    """Explain the size, limits and template of node groups, and what the autoscaler does with them and why.

    Without NAME, the output contains a row for each node group. With NAME, it contains the limits and what sets them,
    the nodes that are ready, upcoming or missing, the template from which new nodes are predicted and its source, the
    backoff after failed scale-ups, which pending pods would fit on a new node and why others would not, whether the
    expanders chose the group and by how much it was better or worse than others, and why its nodes are not removed.

    A group is named by its object, for example a MachineSet, or by its id, for example
    MachineSet/openshift-machine-api/workers-a. The backoff and the unneeded times are those in the status of the
    ClusterAutoscaler.
    """
    from trimtab.cli.output import emit
    from trimtab.inspection import node_group

    with report_errors():
        served = ask_unless_direct(_path(name, namespace), direct=direct, **source)
        if name is None:
            table = served or node_group.explain_node_groups(load_inspection(**source, machines=True))
            emit(table, form) if form == "json" else _print_all(table, everything=everything)
            return
        if served is not None:
            emit(served, form) if form == "json" else _print(served, everything=everything)
            return
        loaded = load_inspection(**source, machines=True)
        ids = node_group.node_group_ids(loaded)
        id_ = name if name in ids else _find(name, namespace, ids, source=source["cluster"] or "")
        found = node_group.explain_node_group(loaded, id_)
        emit(found, form) if form == "json" else _print(found, everything=everything)


def _path(name: str | None, namespace: str | None) -> str:
    """Return the path of the question to the inspection API. A name with two slashes is an id."""
    if name is None:
        return "nodegroups/current"
    if name.count("/") > 1:
        return object_path("nodegroups", name.rpartition("/")[2], id=name)
    wanted = parse_object_name(name, NODE_GROUP, namespace=namespace)
    return object_path("nodegroups", wanted.name, **({"namespace": wanted.namespace} if wanted.namespace else {}))


def _find(name: str, namespace: str | None, ids: Mapping[str, str], *, source: str) -> str:
    """Return the id of the node group with a name.

    Raises:
        InputError: there is no such group, or there are several.
    """
    from trimtab.inspection.node_group import find_node_groups

    wanted = parse_object_name(name, NODE_GROUP, namespace=namespace)
    found = find_node_groups(ids, wanted.name, namespace=wanted.namespace)
    if not found:
        raise object_not_found(wanted, list(ids.values()), type_=NODE_GROUP, what="node groups", source=source)
    if len(found) > 1:
        raise InputError(f"several node groups have this name; give one of {', '.join(sorted(found))}", object=name)
    return found[0]


def _print_all(document: Document, *, everything: bool) -> None:
    from trimtab.cli.output import echo

    echo(f"{document['message']}.")
    priced = any("nodeHourlyCost" in each for each in document["nodeGroups"])
    headers = ["NODE GROUP", "KIND", "SIZE", "MIN", "MAX", "READY", "UPCOMING", "UNNEEDED"]
    show_section(
        "Node groups",
        [*headers, *(["PRICE"] if priced else []), "PLAN", "CANNOT BE SCALED UP"],
        [
            [
                each["nodeGroup"],
                each["kind"],
                *(str(each[key]) for key in ("size", "minimum", "maximum", "ready", "upcoming", "unneeded")),
                *([f"{each['nodeHourlyCost']:g}" if "nodeHourlyCost" in each else ""] if priced else []),
                "" if each["scaleUp"] is None else f"scale up to {each['scaleUp']['to']}",
                "" if each["limit"] is None else f"{each['limit']['reason']}: {each['limit']['message']}",
            ]
            for each in document["nodeGroups"]
        ],
        everything=everything,
    )
    show_section(
        "Problems",
        ["OBJECT", "REASON", "MESSAGE"],
        [
            [f"{each['kind']} {each['namespace']}/{each['name']}", each["reason"], each["message"]]
            for each in document["problems"]
        ],
        everything=everything,
    )
    if document["nodeGroups"]:
        echo(f"\nNext: trimtab explain nodegroup {document['nodeGroups'][0]['nodeGroup']}")


def _print(document: Document, *, everything: bool) -> None:
    from trimtab.cli.output import echo
    from trimtab.inspection.pod_node_groups import CLEAR_BACKOFF

    echo(f"{click.style(document['nodeGroup'], bold=True)} ({document['kind']}): {document['message']}.")
    limits = document["limitsFrom"]
    echo(f"Limits: {document['minimum']} to {document['maximum']}, set by {limits['kind']} {limits['name']}.")
    if document["limit"] is not None:
        echo(f"It cannot be scaled up: {document['limit']['message']} ({document['limit']['reason']}).")
    backoff = document["backoff"]
    if backoff is not None:
        echo(
            f"Backoff until {backoff['until']} after {backoff['failures']} failed scale-ups: {backoff['message']} "
            f"({backoff['reason']})."
        )
        echo(f"To end the backoff of all node groups after its cause is removed: {CLEAR_BACKOFF}")
    if "nodeHourlyCost" in document:
        echo(f"Price: {document['nodeHourlyCost']:g} an hour for each node, {document['hourlyCost']:g} for the group.")
    _print_template(document["template"])
    show_list("Problems", [f"{each['reason']}: {each['message']}" for each in document["problems"]])
    if document["scaleUp"] is not None:
        scaled = document["scaleUp"]
        echo(f"Plan: scale up from {scaled['from']} to {scaled['to']}: {scaled['message']}.")
    show_list(
        "Choice among groups",
        [
            f"{each['verdict']} for {each['pods']} pods on {each['nodes']} new nodes"
            + (f": {each['message']}" if each["message"] else "")
            for each in document["choices"]
        ],
    )
    _print_pods(document["pendingPods"], everything=everything)
    show_section(
        "Machines without a node",
        ["MACHINE", "STATE", "SINCE", "REASON", "MESSAGE"],
        [
            [each["machine"], each["state"], each["since"] or "", each["reason"], each["message"]]
            for each in document["notRegistered"]
        ],
        everything=everything,
    )
    show_section(
        "Nodes",
        ["NODE", "STATE", "UNNEEDED SINCE", "SCALE-DOWN", "REASON", "MESSAGE"],
        [
            [
                each["node"],
                each["readiness"],
                each["unneededSince"] or "",
                "remove" if each["removed"] else "keep",
                each["reason"],
                f"{each['blockedBy']}: {each['message']}" if each["blockedBy"] else each["message"],
            ]
            for each in document["nodes"]
        ],
        everything=everything,
    )


def _print_template(template: Document | None) -> None:
    from trimtab.cli.output import echo

    if template is None:
        echo("Template: unknown, so that the autoscaler cannot tell which pods fit.")
        return
    origins = {
        "Learned": f"learned from node {template['node']}",
        "Recorded": f"recorded from the earlier node {template['node']}",
        "Annotations": "estimated from annotations",
        "Provider": "from the provider",
    }
    free = ", ".join(f"{name} {amount}" for name, amount in template["free"].items() if amount != "0")
    echo(f"Template: {origins[template['origin']]}; free for pods on a new node: {free}.")
    if template["taints"]:
        echo(f"Taints: {', '.join(template['taints'])}.")


def _print_pods(pods: Document, *, everything: bool) -> None:
    show_section("Pending pods that fit on a new node", [], [[pod] for pod in pods["fits"]], everything=everything)
    show_section(
        "Pending pods that do not fit on a new node",
        ["PODS", "REASONS", "FOR EXAMPLE"],
        [
            [str(len(each["pods"])), "; ".join(each["reasons"]), ", ".join(each["pods"][:3])]
            for each in pods["doesNotFit"]
        ],
        everything=everything,
    )
    show_section(
        "Pending pods for which no node is added to any group",
        ["POD", "REASON", "MESSAGE"],
        [[each["pod"], each["reason"], each["message"]] for each in pods["notConsidered"]],
        everything=everything,
    )
