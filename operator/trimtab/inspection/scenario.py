"""The scenario of a forecast: which nodes fail, are drained or added, and which objects are applied.

Example::

    Scenario(without=(parse_selection("zone=a"),), add={"workers-b": 2})
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any, Final, Literal

from msgspec import Struct, field

from trimtab.autoscaling.groups import Groups, NodeGroup
from trimtab.cluster.snapshot import Snapshot
from trimtab.kube.errors import InputError
from trimtab.kube.objects import Node

ZONE: Final = "topology.kubernetes.io/zone"
SHORT_LABELS: Final[Mapping[str, str]] = {"zone": ZONE, "region": "topology.kubernetes.io/region"}
"""Short names of labels that every cloud sets."""

SelectedBy = Literal["node", "nodegroup", "label"]


class NodeSelection(Struct, frozen=True, order=True):
    """Nodes that a scenario names: one node, the nodes of a node group, or the nodes with a label.

    Attributes:
        by: ``node``, ``nodegroup`` or ``label``.
        name: the name of the node, the name of the group, or the label's key.
        value: the label's value; otherwise empty.
    """

    by: SelectedBy
    name: str
    value: str = ""

    def __str__(self) -> str:
        """Return the selection as users write it, with the complete key of the label."""
        return f"{self.name}={self.value}" if self.by == "label" else f"{self.by}/{self.name}"


class Scenario(Struct, frozen=True, kw_only=True):
    """Changes of a cluster whose consequences are forecast. They can be combined.

    Attributes:
        without: nodes that fail. Their pods are deleted; PodDisruptionBudgets do not protect them.
        drain: nodes that are cordoned and drained. PodDisruptionBudgets protect their pods.
        add: the number of nodes to add, by name or id of the node group.
        apply: manifests of objects that are created or changed, as decoded JSON or YAML.
    """

    without: tuple[NodeSelection, ...] = ()
    drain: tuple[NodeSelection, ...] = ()
    add: Mapping[str, int] = field(default_factory=dict)
    apply: tuple[Mapping[str, Any], ...] = ()


def parse_selection(text: str) -> NodeSelection:
    """Parse ``node/NAME``, ``nodegroup/NAME`` or ``LABEL=VALUE``; ``zone=a`` is short for the label of zones.

    Raises:
        InputError: the text has none of these forms.
    """
    label, equals, value = text.partition("=")
    kind, slash, name = text.partition("/")
    if slash and name and not equals and kind in ("node", "no", "nodes"):
        return NodeSelection("node", name)
    if slash and name and not equals and kind in ("nodegroup", "ng", "nodegroups"):
        return NodeSelection("nodegroup", name)
    if equals and label:
        return NodeSelection("label", SHORT_LABELS.get(label, label), value)
    raise InputError(f"{text!r} selects no nodes; write node/NAME, nodegroup/NAME, zone=NAME or LABEL=VALUE")


def parse_addition(text: str) -> tuple[str, int]:
    """Parse ``GROUP=NUMBER``.

    Raises:
        InputError: there is no group, or the number is not positive.
    """
    name, _, number = text.removeprefix("nodegroup/").rpartition("=")
    if not name or not number.isdecimal() or not 0 < int(number) <= 10_000:
        raise InputError(f"{text!r} adds no nodes; write GROUP=NUMBER with a number from 1 to 10000")
    return name, int(number)


def select_nodes(snapshot: Snapshot, selection: NodeSelection, groups: Groups) -> list[Node]:
    """Return the selected nodes, ordered by name.

    Raises:
        InputError: no node is selected. The message names similar nodes, groups or values.
    """
    nodes = snapshot.nodes
    if selection.by == "node":
        found = nodes.get(selection.name)
        if found is None:
            raise InputError(f"there is no node {selection.name}{_similar(selection.name, nodes.slot_of)}")
        return [found]
    if selection.by == "nodegroup":
        group = find_group(groups, selection.name)
        return [node for name in group.nodes if (node := nodes.get(name)) is not None]
    every = [node for node in nodes.at if node is not None]
    chosen = [node for node in every if node.labels.get(selection.name) == selection.value]
    if not chosen:
        values = {node.labels[selection.name] for node in every if selection.name in node.labels}
        if values:
            known = ", ".join(sorted(values)[:10])
            raise InputError(f"no node has the label {selection}; its values are {known}")
        keys = {key for node in every for key in node.labels}
        raise InputError(f"no node has the label {selection.name}{_similar(selection.name, keys)}")
    return sorted(chosen, key=lambda node: node.name)


def find_group(groups: Groups, name: str) -> NodeGroup:
    """Return the node group with this name, ``namespace/name`` or id.

    Raises:
        InputError: there is no such group, or there are several.
    """
    found = [group for group in groups.all if name in (group.id, group.key, group.name)]
    if len(found) == 1:
        return found[0]
    if found:
        raise InputError(f"{name} is ambiguous; name one of {', '.join(group.id for group in found)}")
    if not groups.by_id:
        raise InputError(f"there is no node group {name}: no MachineAutoscaler or annotation defines a node group")
    names = [group.name for group in groups.all]
    raise InputError(f"there is no node group {name}{_similar(name, names)}")


def label_values(snapshot: Snapshot, label: str) -> list[str]:
    """Return the values of a label on the nodes, sorted.

    Raises:
        InputError: no node has the label.
    """
    key = SHORT_LABELS.get(label, label)
    every = [node for node in snapshot.nodes.at if node is not None]
    found = {node.labels[key] for node in every if key in node.labels}
    if not found:
        keys = {key for node in every for key in node.labels}
        raise InputError(f"no node has the label {key}{_similar(key, keys)}")
    return sorted(found)


def _similar(name: str, known: Mapping[str, object] | set[str] | list[str]) -> str:
    close = difflib.get_close_matches(name, sorted(known), n=3)
    return f"; did you mean {' or '.join(close)}?" if close else ""
