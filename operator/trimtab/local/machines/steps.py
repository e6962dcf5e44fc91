"""What comes next in a machine's life: one step at a time, decided without acting."""

from __future__ import annotations

from typing import Any, Final

from msgspec import Struct

from trimtab.local.machines.live import FINALIZER, Live
from trimtab.local.machines.orders import FAIL, NEVER_JOIN, PREFIX, Orders, read_orders

PROVISIONING: Final = "Provisioning"
PROVISIONED: Final = "Provisioned"
RUNNING: Final = "Running"
DELETING: Final = "Deleting"
FAILED: Final = "Failed"

EXCLUDE_DRAINING: Final = "machine.openshift.io/exclude-node-draining"
"""On a machine, with any value: its node goes without being drained."""

HOOKS: Final = ("preDrain", "preTerminate")


class Write(Struct, frozen=True):
    """Merge these fields into the machine, or into its status."""

    patch: dict[str, Any]
    subresource: str = ""


class Wait(Struct, frozen=True):
    """Nothing for so many seconds."""

    seconds: float


class Join(Struct, frozen=True):
    """Make its node, and write that down."""


class Depart(Struct, frozen=True):
    """Take its node away, drained or not, and let the machine go."""

    node: str
    drain: bool


Step = Write | Wait | Join | Depart | None
"""``None``: nothing, until somebody changes something."""


def next_step(machine: Live, *, now: float) -> Step:
    """What comes next for a machine.

    Args:
        machine: as it is.
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


def _own(machine: Live) -> dict[str, str]:
    return {key: value for key, value in machine.annotations.items() if key.startswith(PREFIX)}


def _birth(machine: Live, phase: str, orders: Orders, now: float) -> Step:
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
        return Join()
    return None if phase == PROVISIONED else Write({"status": {"phase": PROVISIONED}}, "status")


def _fail(reason: str, message: str) -> Write:
    return Write({"status": {"phase": FAILED, "errorReason": reason, "errorMessage": message}}, "status")


def _farewell(machine: Live, phase: str) -> Step:
    if FINALIZER not in (machine.metadata.get("finalizers") or ()):
        return None
    if phase != DELETING:
        return Write({"status": {"phase": DELETING}}, "status")
    hooks = machine.spec.get("lifecycleHooks") or {}
    if any(hooks.get(hook) for hook in HOOKS):
        return None  # whoever put them there takes them away
    return Depart(node=machine.node or machine.name, drain=EXCLUDE_DRAINING not in machine.annotations)


def running(node: str, uid: str) -> Write:
    """What a machine's status says once its node has joined."""
    reference = {"kind": "Node", "name": node, "uid": uid}
    addresses = [{"type": "Hostname", "address": node}]
    return Write({"status": {"phase": RUNNING, "nodeRef": reference, "addresses": addresses}}, "status")


def provider_id(machine: Live) -> str:
    """What stands in for a cloud's name of the machine; equal on machine and node."""
    return f"trimtab-local:///{machine.namespace}/{machine.name}"
