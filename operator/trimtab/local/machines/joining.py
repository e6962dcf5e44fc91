"""The node that a machine becomes: what its set's annotations and its own spec say of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from trimtab.kube.rules.quantity import QuantityError, format_amount, resource_amount
from trimtab.local.machines.live import Live
from trimtab.local.machines.steps import provider_id
from trimtab.local.nodes import DEFAULT_CAPACITY, ZONES, node

CAPACITY: Final = "capacity.cluster-autoscaler.kubernetes.io/"
RESERVED: Final = "trimtab.dev/reserved"
NODES_MACHINE: Final = "machine.openshift.io/machine"
"""On a node: its machine, ``namespace/name``."""
_MACHINE: Final = "machine.openshift.io/"

_AMOUNTS: Final = {"cpu": "cpu", "memory": "memory", "ephemeral-disk": "ephemeral-storage", "maxPods": "pods"}
_OLD: Final = {
    "vCPU": ("cpu", ""),
    "memoryMb": ("memory", "Mi"),
    "maxPods": ("pods", ""),
    "GPU": ("nvidia.com/gpu", ""),
}
"""OpenShift's older keys: the resource, and the unit of the number."""

_WELL_KNOWN: Final = {
    "zone": "topology.kubernetes.io/zone",
    "region": "topology.kubernetes.io/region",
    "instance-type": "node.kubernetes.io/instance-type",
}
"""Labels of machines, below the API's prefix, that their nodes have under another name."""


def node_of(machine: Live, owner: Live | None) -> dict[str, Any]:
    """The node of a machine, as it stands once it has joined.

    Labels and taints of the machine's own spec hold over those of capacity annotations, which only describe what nodes
    are like: as in the Machine API, whose nodes get the former.

    Args:
        machine: the machine; its capacity annotations, if any, go over those of its set.
        owner: its set, where it has one.
    """
    annotations = {**(owner.annotations if owner is not None else {}), **machine.annotations}
    labels = _pairs(annotations, "labels") | dict((machine.spec.get("metadata") or {}).get("labels") or {})
    for name, label in _WELL_KNOWN.items():
        if value := machine.labels.get(_MACHINE + name):
            labels.setdefault(label, value)
    capacity = _capacity(annotations)
    taints = _unique([*(machine.spec.get("taints") or ()), *_taints(annotations)])
    manifest = node(machine.name, zone=ZONES[0], capacity=capacity, labels=labels, taints=taints)
    manifest["metadata"]["annotations"] = {NODES_MACHINE: machine.key}
    manifest["spec"]["providerID"] = machine.spec.get("providerID") or provider_id(machine)
    manifest["status"]["allocatable"] = capacity | _less(capacity, annotations.get(RESERVED, ""))
    return manifest


def _capacity(annotations: Mapping[str, str]) -> dict[str, str]:
    """What the annotations say; where they say nothing, a local cluster's usual node."""
    found = dict(DEFAULT_CAPACITY)
    for name, (resource, unit) in _OLD.items():
        _take(found, resource, annotations.get(_MACHINE + name, ""), unit)
    for name, resource in _AMOUNTS.items():
        _take(found, resource, annotations.get(CAPACITY + name, ""))
    gpu = annotations.get(f"{CAPACITY}gpu-type", "nvidia.com/gpu")
    _take(found, gpu, annotations.get(f"{CAPACITY}gpu-count", ""))
    return {resource: amount for resource, amount in found.items() if amount != "0"}


def _take(found: dict[str, str], resource: str, text: str, unit: str = "") -> None:
    """Take an amount that the API server would take; a node must come of it whatever else an annotation says."""
    try:
        if text and resource_amount(resource, text + unit) >= 0:
            found[resource] = text + unit
    except QuantityError:
        return


def _less(capacity: Mapping[str, str], reserved: str) -> dict[str, str]:
    """What is allocatable where something is held back: ``cpu=500m,memory=1Gi``."""
    found = {}
    for part in filter(None, (part.strip() for part in reserved.split(","))):
        resource, _, text = part.partition("=")
        try:
            left = resource_amount(resource, capacity.get(resource, "0")) - resource_amount(resource, text)
        except QuantityError:
            continue
        found[resource] = format_amount(resource, max(0, left))
    return found


def _pairs(annotations: Mapping[str, str], name: str) -> dict[str, str]:
    parts = (part.strip().partition("=") for part in annotations.get(CAPACITY + name, "").split(","))
    return {key: value for key, equals, value in parts if equals}


def _taints(annotations: Mapping[str, str]) -> list[dict[str, str]]:
    found = []
    for part in annotations.get(f"{CAPACITY}taints", "").split(","):
        pair, colon, effect = part.strip().rpartition(":")
        key, _, value = pair.partition("=")
        if colon and key:
            found.append({"key": key, "effect": effect} | ({"value": value} if value else {}))
    return found


def _unique(taints: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The first of each key and effect: the API server refuses a node with two."""
    found: dict[tuple[Any, Any], dict[str, Any]] = {}
    for taint in taints:
        found.setdefault((taint.get("key"), taint.get("effect")), taint)
    return list(found.values())
