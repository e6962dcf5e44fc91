"""What a machine's node lacks of its machine's labels and taints: the part of the Machine API's nodelink controller.

Taints are only ever added, and told apart by key and effect: a node may have one of that key and effect with another
value, which stays, and taints that others put there are theirs (machine-api-operator, pkg/controller/nodelink).
Labels of the machine hold over what the node says.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trimtab.kube.objects import Node
from trimtab.local.machines.live import Live

Manifest = Mapping[str, Any]


def lacks(machine: Live, node: Node) -> bool:
    """Whether the node has to be written, as far as the watch has shown it."""
    there = {(taint.key, taint.effect) for taint in node.taints}
    return any(_of(taint) not in there for taint in _taints(machine)) or not (
        _labels(machine).items() <= node.labels.items()
    )


def link(machine: Live, node: Manifest) -> dict[str, Any] | None:
    """The merge patch that gives a node what it lacks; ``None`` where it lacks nothing.

    A merge patch can write a list of taints as a whole only. So it names the version that it was made of: what
    somebody else puts on the node in between makes it fail, and it is made anew.

    Args:
        machine: whose node it is.
        node: as the API server has it now.
    """
    there = (node.get("spec") or {}).get("taints") or []
    known = {_of(taint) for taint in there}
    missing = [taint for taint in _taints(machine) if _of(taint) not in known]
    labels = {
        key: value
        for key, value in _labels(machine).items()
        if (node["metadata"].get("labels") or {}).get(key) != value
    }
    if not missing and not labels:
        return None
    metadata = {"resourceVersion": node["metadata"]["resourceVersion"]} | ({"labels": labels} if labels else {})
    return {"metadata": metadata} | ({"spec": {"taints": [*there, *missing]}} if missing else {})


def _taints(machine: Live) -> list[dict[str, Any]]:
    return machine.spec.get("taints") or []


def _labels(machine: Live) -> dict[str, str]:
    return (machine.spec.get("metadata") or {}).get("labels") or {}


def _of(taint: Manifest) -> tuple[str, str]:
    return str(taint.get("key", "")), str(taint.get("effect", ""))
