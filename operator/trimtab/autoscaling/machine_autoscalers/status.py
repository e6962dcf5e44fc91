"""Reports on MachineAutoscalers: builds their status, decides when it is written, and posts events."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from trimtab.api import reasons
from trimtab.api.conditions import PERMISSIONS_MISSING, READY, find_condition, set_condition
from trimtab.api.machine_autoscaler import MachineAutoscalerStatus, TargetReference
from trimtab.api.state import with_state
from trimtab.autoscaling.machine_autoscalers.decision import Decision, size_of
from trimtab.autoscaling.machine_autoscalers.registry import RegistryEntry
from trimtab.autoscaling.machine_autoscalers.targets import TargetKey
from trimtab.controller.permissions import ObjectKey, PermissionRegistry, without_permissions
from trimtab.kube.events.event import WARNING
from trimtab.kube.events.recorder import Recorder
from trimtab.kube.objects import AnyMachineSet
from trimtab.kube.resources import MACHINE_AUTOSCALERS, ObjectReference


def next_status(
    entry: RegistryEntry, decision: Decision, *, now: float, registry: PermissionRegistry | None = None
) -> MachineAutoscalerStatus:
    """Return the status after a decision was applied. It equals the old status if nothing has changed.

    Args:
        entry: the MachineAutoscaler.
        decision: the decision.
        now: seconds since the epoch.
        registry: the permissions of the process; ``None`` if they are not checked.

    If there is no target, ``lastTargetRef`` is kept. It names the object that last had the limits, for OpenShift's
    operator or a later process.
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
    if registry is not None:
        own = without_permissions(conditions)
        conditions = registry.add_to(own, KEY, before=old.conditions, now=now, generation=generation)
    target = decision.target
    reference = old.last_target_ref
    if target is not None:
        version = _spec_version(entry, target.api_version)
        reference = TargetReference(kind=target.kind, name=target.name, api_version=version)
    status = replace(
        old,
        observed_generation=generation,
        conditions=conditions,
        last_target_ref=reference,
        replicas=None if target is None else size_of(target),
    )
    return with_state(status)


def is_urgent(old: MachineAutoscalerStatus, new: MachineAutoscalerStatus) -> bool:
    """Return whether more than the target size has changed. A new size may wait for further changes."""
    return _without_size(old) != _without_size(new)


def is_new_reason(old: MachineAutoscalerStatus, decision: Decision) -> bool:
    """Return whether the reason or message has changed since the last report, so that an event is due."""
    ready = find_condition(old.conditions, READY)
    return ready is None or (ready.reason, ready.message) != (decision.reason, decision.message)


def _spec_version(entry: RegistryEntry, served: str) -> str:
    """Return the API version for ``lastTargetRef``: the one in the spec, or ``served`` if the spec is invalid.

    OpenShift's operator writes the spec's version too, and compares the two references.
    """
    return served if entry.autoscaler is None else entry.autoscaler.spec.scale_target_ref.api_version


def _without_size(status: MachineAutoscalerStatus) -> object:
    missing = find_condition(status.conditions, PERMISSIONS_MISSING)
    ready = find_condition(status.conditions, READY)
    summary = None if ready is None else (ready.status, ready.reason, ready.observed_generation)
    is_ready = ready is not None and ready.status == "True"  # its message contains the size
    return (
        status.observed_generation,
        status.last_target_ref,
        summary,
        "" if ready is None or is_ready else ready.message,
        None if missing is None else (missing.status, missing.message, missing.observed_generation),
    )


KEY: Final = ObjectKey(MACHINE_AUTOSCALERS)
"""The key of the permissions of all MachineAutoscalers."""

UPDATE: Final = "UpdateTarget"
VALIDATE: Final = "Validate"

_FAILURES: Final = {
    reasons.TARGET_NOT_FOUND: (reasons.FAILED_GET_TARGET, UPDATE),
    reasons.TARGET_UNSUPPORTED: (reasons.FAILED_GET_TARGET, UPDATE),
    reasons.TARGET_ALREADY_OWNED: (reasons.FAILED_SET_OWNER, UPDATE),
    reasons.LIMITS_NOT_SET: (reasons.FAILED_UPDATE_TARGET, UPDATE),
    reasons.INVALID_MACHINE_AUTOSCALER: (reasons.FAILED_VALIDATION, VALIDATE),
}
"""Reason and action of the event to post, by the condition's reason."""


class MachineAutoscalerEventReporter:
    """Posts events on MachineAutoscalers."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    def updated(self, entry: RegistryEntry, target: AnyMachineSet, changes: str, *, restored: bool = False) -> None:
        """Report that annotations of a target were changed, or restored after another client changed them."""
        how = "restored" if restored else "changed"
        why = " after a change by another client" if restored else ""
        self._recorder.event(
            _reference(entry),
            reason=reasons.SUCCESSFUL_UPDATE,
            action=UPDATE,
            note=f"{how} annotations of {TargetKey.of(target)}{why}: {changes}",
            related=ObjectReference(
                kind=target.kind,
                name=target.name,
                namespace=target.namespace,
                uid=target.uid,
                api_version=target.api_version,
            ),
        )

    def failed(self, entry: RegistryEntry, decision: Decision) -> None:
        """Report why a target does not have the limits."""
        reason, action = _FAILURES[decision.reason]
        self._recorder.event(_reference(entry), reason=reason, action=action, note=decision.message, type=WARNING)


def _reference(entry: RegistryEntry) -> ObjectReference:
    metadata = entry.metadata
    return ObjectReference.to(MACHINE_AUTOSCALERS, metadata.name, namespace=metadata.namespace, uid=metadata.uid)
