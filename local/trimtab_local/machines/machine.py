"""Decides the next step of a Machine's life cycle, and builds its Node."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final

import msgspec
from msgspec import Raw, Struct

from trimtab.kube.errors import InputError
from trimtab.kube.objects import Node
from trimtab.kube.rules.quantity import QuantityError, format_amount, resource_amount
from trimtab_local.machines.orders import FAIL, NEVER_JOIN, PREFIX, Orders, read_orders
from trimtab_local.nodes import DEFAULT_CAPACITY, ZONES, addresses, node

FINALIZER: Final = "machine.machine.openshift.io"
"""The Machine API's finalizer: a machine is deleted only after its node."""


class LiveObject(Struct, frozen=True):
    """An object as returned by the API server, with properties for common fields."""

    manifest: dict[str, Any]

    @property
    def metadata(self) -> dict[str, Any]:
        """Return ``metadata``."""
        found: dict[str, Any] = self.manifest["metadata"]
        return found

    @property
    def spec(self) -> dict[str, Any]:
        """Return ``spec``; empty if there is none."""
        return self.manifest.get("spec") or {}

    @property
    def status(self) -> dict[str, Any]:
        """Return ``status``; empty if there is none."""
        return self.manifest.get("status") or {}

    @property
    def name(self) -> str:
        """Return the object's name."""
        return str(self.metadata["name"])

    @property
    def namespace(self) -> str:
        """Return the object's namespace."""
        return str(self.metadata["namespace"])

    @property
    def key(self) -> str:
        """Return ``namespace/name``."""
        return f"{self.namespace}/{self.name}"

    @property
    def uid(self) -> str:
        """Return the object's UID."""
        return str(self.metadata.get("uid", ""))

    @property
    def resource_version(self) -> str:
        """Return the object's resource version."""
        return str(self.metadata.get("resourceVersion", ""))

    @property
    def annotations(self) -> Mapping[str, str]:
        """Return the object's annotations."""
        return self.metadata.get("annotations") or {}

    @property
    def labels(self) -> Mapping[str, str]:
        """Return the object's labels."""
        return self.metadata.get("labels") or {}

    @property
    def created(self) -> float:
        """Return the creation time in seconds since the epoch."""
        text = self.metadata.get("creationTimestamp")
        return datetime.fromisoformat(text).timestamp() if text else 0.0

    @property
    def deleting(self) -> bool:
        """Return whether the object has a deletion timestamp."""
        return "deletionTimestamp" in self.metadata

    @property
    def failed(self) -> bool:
        """Return whether a machine's status has an error."""
        return bool(self.status.get("errorReason") or self.status.get("errorMessage"))

    @property
    def node(self) -> str:
        """Return the name of a machine's node; empty until the node has registered."""
        return str((self.status.get("nodeRef") or {}).get("name", ""))

    @property
    def controller(self) -> Mapping[str, str]:
        """Return the owner reference of the object's controller; empty if it has none."""
        owners = self.metadata.get("ownerReferences") or ()
        return next((owner for owner in owners if owner.get("controller")), {})


def decode(raw: bytes | Raw) -> LiveObject:
    """Decode an object from JSON.

    Raises:
        InputError: it is not an object with a name.
    """
    try:
        return LiveObject(msgspec.json.decode(raw, type=dict[str, Any]))
    except msgspec.DecodeError as error:
        raise InputError(str(error)) from None


PROVISIONING: Final = "Provisioning"
PROVISIONED: Final = "Provisioned"
RUNNING: Final = "Running"
DELETING: Final = "Deleting"
FAILED: Final = "Failed"

EXCLUDE_DRAINING: Final = "machine.openshift.io/exclude-node-draining"
"""Annotation of a machine. With any value, its node is deleted without being drained."""

HOOKS: Final = ("preDrain", "preTerminate")


class Write(Struct, frozen=True):
    """A step that merges fields into the machine or its status."""

    patch: dict[str, Any]
    subresource: str = ""


class Wait(Struct, frozen=True):
    """A step that waits for the given number of seconds."""

    seconds: float


class CreateNode(Struct, frozen=True):
    """A step that creates the machine's node and writes its name to the machine's status."""


class RemoveNode(Struct, frozen=True):
    """A step that deletes the machine's node, after draining it if required, and removes the finalizer."""

    node: str
    drain: bool


Step = Write | Wait | CreateNode | RemoveNode | None
"""A step of a machine's life cycle; ``None`` if nothing must be done until an object changes."""


def next_step(machine: LiveObject, *, now: float) -> Step:
    """Return the next step of a machine.

    Args:
        machine: the machine as last read.
        now: seconds since the epoch.
    """
    phase = machine.status.get("phase", "")
    if machine.deleting:
        return _farewell(machine, phase)
    if FINALIZER not in (machine.metadata.get("finalizers") or ()):
        finalizers = [*(machine.metadata.get("finalizers") or ()), FINALIZER]
        return Write({"metadata": {"finalizers": finalizers, "resourceVersion": machine.resource_version}})
    if phase in (FAILED, RUNNING):
        return None
    return _birth(machine, phase, read_orders(_own(machine)), now)


def _own(machine: LiveObject) -> dict[str, str]:
    return {key: value for key, value in machine.annotations.items() if key.startswith(PREFIX)}


def _birth(machine: LiveObject, phase: str, orders: Orders, now: float) -> Step:
    if orders.problems:
        return _fail("InvalidConfiguration", "; ".join(orders.problems))
    if FAIL in machine.annotations:
        return _fail(orders.fail_reason, f"as annotation {FAIL} orders")
    left = machine.created + orders.boot_seconds - now
    if left > 0:
        return Wait(left) if phase else Write({"status": {"phase": PROVISIONING}}, "status")
    if not machine.spec.get("providerID"):
        return Write({"spec": {"providerID": provider_id(machine)}})
    if NEVER_JOIN not in machine.annotations or not orders.never_join.of_next(0):
        return CreateNode()
    return None if phase == PROVISIONED else Write({"status": {"phase": PROVISIONED}}, "status")


def _fail(reason: str, message: str) -> Write:
    return Write({"status": {"phase": FAILED, "errorReason": reason, "errorMessage": message}}, "status")


def _farewell(machine: LiveObject, phase: str) -> Step:
    if FINALIZER not in (machine.metadata.get("finalizers") or ()):
        return None
    if phase != DELETING:
        return Write({"status": {"phase": DELETING}}, "status")
    hooks = machine.spec.get("lifecycleHooks") or {}
    if any(hooks.get(hook) for hook in HOOKS):
        return None  # their owners remove them
    return RemoveNode(node=machine.node or machine.name, drain=EXCLUDE_DRAINING not in machine.annotations)


def running(node: str, uid: str) -> Write:
    """Return the status of a machine whose node has registered."""
    reference = {"kind": "Node", "name": node, "uid": uid}
    return Write({"status": {"phase": RUNNING, "nodeRef": reference, "addresses": addresses(node)}}, "status")


def provider_id(machine: LiveObject) -> str:
    """Return the provider ID of a machine, which its node has as well."""
    return f"trimtab-local:///{machine.namespace}/{machine.name}"


CAPACITY: Final = "capacity.cluster-autoscaler.kubernetes.io/"
RESERVED: Final = "trimtab.dev/reserved"
NODES_MACHINE: Final = "machine.openshift.io/machine"
"""Annotation of a node: its machine as ``namespace/name``."""
_MACHINE: Final = "machine.openshift.io/"

_AMOUNTS: Final = {"cpu": "cpu", "memory": "memory", "ephemeral-disk": "ephemeral-storage", "maxPods": "pods"}
_OLD: Final = {
    "vCPU": ("cpu", ""),
    "memoryMb": ("memory", "Mi"),
    "maxPods": ("pods", ""),
    "GPU": ("nvidia.com/gpu", ""),
}
"""OpenShift's older annotation keys, with the resource and the unit of the number."""

_WELL_KNOWN: Final = {
    "zone": "topology.kubernetes.io/zone",
    "region": "topology.kubernetes.io/region",
    "instance-type": "node.kubernetes.io/instance-type",
}
"""Labels of machines, without the API's prefix, that nodes have under another key."""


def node_of(machine: LiveObject, owner: LiveObject | None) -> dict[str, Any]:
    """Return the node of a machine as it is after registration.

    Labels and taints in the machine's spec take precedence over those in capacity annotations, which only describe
    nodes. The Machine API gives nodes the former, too.

    Args:
        machine: the machine. Its capacity annotations take precedence over those of its MachineSet.
        owner: its MachineSet, if it has one.
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
    """Return the capacity in the annotations, with the default capacity of local nodes for missing resources."""
    found = dict(DEFAULT_CAPACITY)
    for name, (resource, unit) in _OLD.items():
        _take(found, resource, annotations.get(_MACHINE + name, ""), unit)
    for name, resource in _AMOUNTS.items():
        _take(found, resource, annotations.get(CAPACITY + name, ""))
    gpu = annotations.get(f"{CAPACITY}gpu-type", "nvidia.com/gpu")
    _take(found, gpu, annotations.get(f"{CAPACITY}gpu-count", ""))
    return {resource: amount for resource, amount in found.items() if amount != "0"}


def _take(found: dict[str, str], resource: str, text: str, unit: str = "") -> None:
    """Add an amount if it is a valid quantity.

    Invalid amounts are ignored, because a node must be created in any case.
    """
    try:
        if text and resource_amount(resource, text + unit) >= 0:
            found[resource] = text + unit
    except QuantityError:
        return


def _less(capacity: Mapping[str, str], reserved: str) -> dict[str, str]:
    """Return the allocatable resources after subtracting a reservation such as ``cpu=500m,memory=1Gi``."""
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
    """Return the first taint of each key and effect, because the API server rejects duplicates."""
    found: dict[tuple[Any, Any], dict[str, Any]] = {}
    for taint in taints:
        found.setdefault((taint.get("key"), taint.get("effect")), taint)
    return list(found.values())


Manifest = Mapping[str, Any]


def lacks(machine: LiveObject, node: Node) -> bool:
    """Return whether the node lacks labels or taints of its machine, according to the cache."""
    there = {(taint.key, taint.effect) for taint in node.taints}
    return any(_of(taint) not in there for taint in _missing_taints(machine)) or not (
        _labels(machine).items() <= node.labels.items()
    )


def link(machine: LiveObject, node: Manifest) -> dict[str, Any] | None:
    """Return the merge patch that adds the missing labels and taints to a node, or ``None`` if it has all of them.

    A merge patch replaces the whole list of taints. So it contains the resource version of the node: if another client
    changes the node in between, the patch fails and is built again.

    Args:
        machine: the machine of the node.
        node: the current node.
    """
    there = (node.get("spec") or {}).get("taints") or []
    known = {_of(taint) for taint in there}
    missing = [taint for taint in _missing_taints(machine) if _of(taint) not in known]
    labels = {
        key: value
        for key, value in _labels(machine).items()
        if (node["metadata"].get("labels") or {}).get(key) != value
    }
    if not missing and not labels:
        return None
    metadata = {"resourceVersion": node["metadata"]["resourceVersion"]} | ({"labels": labels} if labels else {})
    return {"metadata": metadata} | ({"spec": {"taints": [*there, *missing]}} if missing else {})


def _missing_taints(machine: LiveObject) -> list[dict[str, Any]]:
    return machine.spec.get("taints") or []


def _labels(machine: LiveObject) -> dict[str, str]:
    return (machine.spec.get("metadata") or {}).get("labels") or {}


def _of(taint: Manifest) -> tuple[str, str]:
    return str(taint.get("key", "")), str(taint.get("effect", ""))
