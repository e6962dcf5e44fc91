"""What a MachineSet has to do, and what its status says: decided from its machines, without acting."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from msgspec import Struct

from trimtab.kube.resources import MACHINE_SETS, MACHINES
from trimtab.local.machines.live import FINALIZER, Live
from trimtab.local.machines.orders import BOOT_TIME, FAIL, NEVER_JOIN, PREFIX, Orders, read_orders
from trimtab.local.machines.ranks import first_to_go

NO_ROOM: Final = "InsufficientResources"
"""The Machine API's ``errorReason`` where a quota is used up or a zone has no room."""
INVALID: Final = "InvalidConfiguration"
"""The Machine API's ``errorReason`` of a set that can make nothing as it stands."""


class SetPlan(Struct, frozen=True):
    """What a set has to do.

    Attributes:
        births: the machines to make, as manifests.
        deaths: the machines to delete.
        used_up: the set's orders after the births: annotations to write before them, ``None`` to remove one.
        problems: why nothing is done, in words; empty where all is well.
    """

    births: tuple[dict[str, Any], ...] = ()
    deaths: tuple[Live, ...] = ()
    used_up: dict[str, str | None] = {}
    problems: tuple[str, ...] = ()


def of_set(machines: Iterable[Live], owner: Live) -> list[Live]:
    """The machines that the set controls, those being deleted included, by name."""
    return sorted((each for each in machines if each.controller.get("uid") == owner.uid), key=lambda each: each.name)


def plan_set(owner: Live, machines: Sequence[Live], *, now: float) -> SetPlan:
    """What the set has to do so that it has as many machines as it wants.

    As in the Machine API, machines that are being deleted no longer count, and failed ones do.

    Args:
        owner: the set.
        machines: all that it controls.
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
        dead = first_to_go(active, -missing, policy=policy, now=now, ignore_marks=orders.ignore_marks)
        return SetPlan(deaths=tuple(dead))
    return _births(owner, orders, machines, missing)


def _misfits(owner: Live) -> list[str]:
    """Selectors that the machines would not match: the set would make new ones for ever."""
    wanted = (owner.spec.get("selector") or {}).get("matchLabels") or {}
    labels = _template(owner).get("metadata", {}).get("labels") or {}
    missing = [f"{key}={value}" for key, value in sorted(wanted.items()) if labels.get(key) != value]
    if not wanted:
        return ["spec.selector.matchLabels must name the labels of spec.template.metadata.labels; it is empty"]
    return [f"spec.template.metadata.labels lack {', '.join(missing)} of spec.selector"] if missing else []


def _births(owner: Live, orders: Orders, machines: Sequence[Live], count: int) -> SetPlan:
    alive = sum(not machine.failed and FAIL not in machine.annotations for machine in machines)
    failing = lonely = 0
    births = []
    for _ in range(count):
        told: dict[str, str] = {}
        if BOOT_TIME in owner.annotations:
            told[BOOT_TIME] = owner.annotations[BOOT_TIME]
        if orders.quota is not None and alive >= orders.quota:
            told[FAIL] = NO_ROOM
        elif orders.fail.of_next(failing):
            told[FAIL] = orders.fail_reason
            failing += 1
        else:
            alive += 1
            if orders.never_join.of_next(lonely):
                told[NEVER_JOIN] = "true"
                lonely += 1
        births.append(_machine(owner, told))
    used = {}
    if failing and orders.fail.count is not None:
        used[FAIL] = _left(orders.fail.count - failing, lambda left: f"{orders.fail_reason}:{left}")
    if lonely and orders.never_join.count is not None:
        used[NEVER_JOIN] = _left(orders.never_join.count - lonely, str)
    return SetPlan(births=tuple(births), used_up=used)


def _left(count: int, text: Callable[[int], str]) -> str | None:
    return text(count) if count else None


def _template(owner: Live) -> dict[str, Any]:
    return owner.spec.get("template") or {}


def _machine(owner: Live, told: dict[str, str]) -> dict[str, Any]:
    """A new machine; its name is left to the API server, as no name shall ever be used twice."""
    metadata = _template(owner).get("metadata") or {}
    annotations = {
        key: value for key, value in (metadata.get("annotations") or {}).items() if not key.startswith(PREFIX)
    } | told
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
    owner: Live, machines: Sequence[Live], ready_since: Callable[[str], float | None], *, now: float
) -> tuple[dict[str, Any], float | None]:
    """The set's status, and in how many seconds it has to be looked at again (``minReadySeconds``), if at all.

    Args:
        owner: the set.
        machines: all that it controls.
        ready_since: since when the node of that name is Ready; ``None`` where it is not.
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
