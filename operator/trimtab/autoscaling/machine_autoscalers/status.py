"""What the status of a MachineAutoscaler says: pure."""

from __future__ import annotations

from msgspec.structs import replace

from trimtab.api.conditions import READY, find_condition, set_condition
from trimtab.api.machine_autoscaler import MachineAutoscalerStatus, TargetReference
from trimtab.autoscaling.machine_autoscalers.decision import Decision, size_of
from trimtab.autoscaling.machine_autoscalers.registry import Entry


def next_status(entry: Entry, decision: Decision, *, now: float) -> MachineAutoscalerStatus:
    """The status after a decision was carried out; equal to the old one where there is nothing new to say.

    ``lastTargetRef`` stays what it was where there is no target now: what had the limits last is known to whoever comes
    next, be it OpenShift's operator.
    """
    old = entry.status
    generation = entry.metadata.generation
    conditions = set_condition(
        old.conditions,
        READY,
        decision.ready,
        reason=decision.reason,
        message=decision.message,
        now=now,
        generation=generation,
    )
    target = decision.target
    reference = old.last_target_ref
    if target is not None:
        version = _said_version(entry, target.api_version)
        reference = TargetReference(kind=target.kind, name=target.name, api_version=version)
    return replace(
        old,
        observed_generation=generation,
        conditions=conditions,
        last_target_ref=reference,
        replicas=None if target is None else size_of(target),
    )


def is_urgent(old: MachineAutoscalerStatus, new: MachineAutoscalerStatus) -> bool:
    """Whether a status says more than another size of the target, which may wait for further ones."""
    return _without_size(old) != _without_size(new)


def told_anew(old: MachineAutoscalerStatus, decision: Decision) -> bool:
    """Whether a decision has not been told yet: then it is worth an event."""
    ready = find_condition(old.conditions, READY)
    return ready is None or (ready.reason, ready.message) != (decision.reason, decision.message)


def _said_version(entry: Entry, served: str) -> str:
    """The version that the spec says, as OpenShift's operator has it; it compares the two references as they stand."""
    return served if entry.autoscaler is None else entry.autoscaler.spec.scale_target_ref.api_version


def _without_size(status: MachineAutoscalerStatus) -> object:
    ready = find_condition(status.conditions, READY)
    told = None if ready is None else (ready.status, ready.reason, ready.observed_generation)
    held = ready is not None and ready.status == "True"  # its message has the size in it
    return (
        status.observed_generation,
        status.last_target_ref,
        told,
        "" if ready is None or held else ready.message,
    )
