"""Plans the actions of a MachineSet and its status from its machines, without I/O.

The order in which machines are deleted follows the Machine API's delete policies.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from msgspec import Struct

from trimtab.kube.resources import MACHINE_SETS, MACHINES
from trimtab_local.machines.machine import FINALIZER, LiveObject
from trimtab_local.machines.orders import BOOT_TIME, FAIL, NEVER_JOIN, PREFIX, Orders, read_orders

DELETE_MACHINE: Final = "machine.openshift.io/delete-machine"
OLD_DELETE_MACHINE: Final = "machine.openshift.io/cluster-api-delete-machine"

FIRST: Final = 100.0
MARKED_OR_FAILED: Final = 50.0
WITHOUT_NODE: Final = 40.0
OTHERWISE: Final = 20.0
LAST: Final = 0.0
_AGE_SCALE: Final = 864_000.0
"""Seconds (ten days). The age of a machine is mapped to 0…100 by 1 - exp(-age/scale)."""

POLICIES: Final = ("Random", "Newest", "Oldest")


def deletion_order(
    machines: Iterable[LiveObject], count: int, *, policy: str = "Random", now: float, ignore_marks: bool = False
) -> list[LiveObject]:
    """Return the machines to delete if the size is lowered by ``count``.

    Args:
        machines: the machines to choose from.
        count: the number of machines to delete.
        policy: the delete policy; an empty one is Random.
        now: seconds since the epoch, for ages.
        ignore_marks: whether to ignore deletion annotations.
    """

    def order(machine: LiveObject) -> tuple[float, str]:
        return -rank(machine, policy=policy or "Random", now=now, ignore_marks=ignore_marks), machine.name

    return sorted(machines, key=order)[: max(0, count)]


def rank(machine: LiveObject, *, policy: str, now: float, ignore_marks: bool = False) -> float:
    """Return a machine's deletion priority from 0 to 100. Machines with higher priority are deleted first."""
    if machine.deleting:
        return FIRST
    keys = (DELETE_MACHINE, OLD_DELETE_MACHINE) if policy == "Oldest" else (DELETE_MACHINE,)
    marked = not ignore_marks and any(machine.annotations.get(key) for key in keys)
    if marked or machine.failed:
        return MARKED_OR_FAILED if policy == "Random" else FIRST
    if policy == "Random":
        return OTHERWISE if machine.node else WITHOUT_NODE
    age = now - machine.created
    oldness = LAST if age < 0 else FIRST * (1 - math.exp(-age / _AGE_SCALE))
    return oldness if policy == "Oldest" else FIRST - oldness


NO_ROOM: Final = "InsufficientResources"
"""The Machine API's ``errorReason`` if a quota is exhausted or a zone has no capacity."""
INVALID: Final = "InvalidConfiguration"
"""The Machine API's ``errorReason`` of a MachineSet whose spec is invalid."""


class SetPlan(Struct, frozen=True):
    """The actions of a MachineSet.

    Attributes:
        to_create: the manifests of the machines to create.
        to_delete: the machines to delete.
        annotation_changes: annotations of the MachineSet to write before machines are created; ``None`` removes one.
        problems: the reasons why nothing is done; empty if there are none.
    """

    to_create: tuple[dict[str, Any], ...] = ()
    to_delete: tuple[LiveObject, ...] = ()
    annotation_changes: dict[str, str | None] = {}
    problems: tuple[str, ...] = ()


def of_set(machines: Iterable[LiveObject], owner: LiveObject) -> list[LiveObject]:
    """Return the machines that the MachineSet controls, including terminating ones, sorted by name."""
    return sorted((each for each in machines if each.controller.get("uid") == owner.uid), key=lambda each: each.name)


def plan_set(owner: LiveObject, machines: Sequence[LiveObject], *, now: float) -> SetPlan:
    """Return the actions after which the MachineSet has the required number of machines.

    As in the Machine API, terminating machines do not count and failed machines do.

    Args:
        owner: the MachineSet.
        machines: all machines that it controls.
        now: seconds since the epoch.
    """
    orders = read_orders(owner.annotations)
    problems = (*orders.problems, *_misfits(owner))
    if problems or orders.hold or owner.deleting:
        return SetPlan(problems=problems)
    active = [machine for machine in machines if not machine.deleting]
    missing = int(owner.spec.get("replicas", 1)) - len(active)
    if missing < 0:
        policy = owner.spec.get("deletePolicy", "")
        dead = deletion_order(active, -missing, policy=policy, now=now, ignore_marks=orders.ignore_marks)
        return SetPlan(to_delete=tuple(dead))
    return _births(owner, orders, machines, missing)


def _misfits(owner: LiveObject) -> list[str]:
    """Return a message for each selector that new machines would not match.

    With such a selector, the MachineSet would create machines forever.
    """
    wanted = (owner.spec.get("selector") or {}).get("matchLabels") or {}
    labels = _template(owner).get("metadata", {}).get("labels") or {}
    missing = [f"{key}={value}" for key, value in sorted(wanted.items()) if labels.get(key) != value]
    if not wanted:
        return ["spec.selector.matchLabels must name the labels of spec.template.metadata.labels; it is empty"]
    return [f"spec.template.metadata.labels lack {', '.join(missing)} of spec.selector"] if missing else []


def _births(owner: LiveObject, orders: Orders, machines: Sequence[LiveObject], count: int) -> SetPlan:
    alive = sum(not machine.failed and FAIL not in machine.annotations for machine in machines)
    failing = lonely = 0
    to_create = []
    for _ in range(count):
        annotations: dict[str, str] = {}
        if BOOT_TIME in owner.annotations:
            annotations[BOOT_TIME] = owner.annotations[BOOT_TIME]
        if orders.quota is not None and alive >= orders.quota:
            annotations[FAIL] = NO_ROOM
        elif orders.fail.of_next(failing):
            annotations[FAIL] = orders.fail_reason
            failing += 1
        else:
            alive += 1
            if orders.never_join.of_next(lonely):
                annotations[NEVER_JOIN] = "true"
                lonely += 1
        to_create.append(_machine(owner, annotations))
    used = {}
    if failing and orders.fail.count is not None:
        used[FAIL] = _left(orders.fail.count - failing, lambda left: f"{orders.fail_reason}:{left}")
    if lonely and orders.never_join.count is not None:
        used[NEVER_JOIN] = _left(orders.never_join.count - lonely, str)
    return SetPlan(to_create=tuple(to_create), annotation_changes=used)


def _left(count: int, text: Callable[[int], str]) -> str | None:
    return text(count) if count else None


def _template(owner: LiveObject) -> dict[str, Any]:
    return owner.spec.get("template") or {}


def _machine(owner: LiveObject, own_annotations: dict[str, str]) -> dict[str, Any]:
    """Return the manifest of a new machine. The API server generates its name, so that no name is used twice."""
    metadata = _template(owner).get("metadata") or {}
    annotations = {
        key: value for key, value in (metadata.get("annotations") or {}).items() if not key.startswith(PREFIX)
    } | own_annotations
    return {
        "apiVersion": MACHINES.api_version,
        "kind": MACHINES.kind,
        "metadata": {
            "generateName": f"{owner.name}-",
            "namespace": owner.namespace,
            "labels": dict(metadata.get("labels") or {}),
            **({"annotations": annotations} if annotations else {}),
            "finalizers": [FINALIZER],
            "ownerReferences": [
                {
                    "apiVersion": MACHINE_SETS.api_version,
                    "kind": MACHINE_SETS.kind,
                    "name": owner.name,
                    "uid": owner.uid,
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
        },
        "spec": dict(_template(owner).get("spec") or {}),
    }


def status_of(
    owner: LiveObject, machines: Sequence[LiveObject], ready_since: Callable[[str], float | None], *, now: float
) -> tuple[dict[str, Any], float | None]:
    """Return the status of a MachineSet, and the seconds until the next check because of ``minReadySeconds``, if any.

    Args:
        owner: the MachineSet.
        machines: all machines that it controls.
        ready_since: returns the time since which the node with that name has been Ready; ``None`` if it is not.
        now: seconds since the epoch.
    """
    orders = read_orders(owner.annotations)
    problems = [*orders.problems, *_misfits(owner)]
    active = [machine for machine in machines if not machine.deleting]
    wanted = set((_template(owner).get("metadata", {}).get("labels") or {}).items())
    ready = [since for machine in active if machine.node and (since := ready_since(machine.node)) is not None]
    young = [left for since in ready if (left := since + owner.spec.get("minReadySeconds", 0) - now) > 0]
    status = {
        "replicas": len(active) if orders.status_replicas is None else orders.status_replicas,
        "fullyLabeledReplicas": sum(wanted <= set(machine.labels.items()) for machine in active),
        "readyReplicas": len(ready),
        "availableReplicas": len(ready) - len(young),
        "observedGeneration": owner.metadata.get("generation", 0),
        "errorReason": INVALID if problems else None,
        "errorMessage": "; ".join(problems) or None,
    }
    return status, min(young, default=None)
