"""Events on MachineAutoscalers, by the reasons of OpenShift's operator; unlike there, only of what has changed."""

from __future__ import annotations

from typing import Final

from trimtab.api import reasons
from trimtab.autoscaling.machine_autoscalers.decision import Decision
from trimtab.autoscaling.machine_autoscalers.registry import Entry
from trimtab.autoscaling.machine_autoscalers.targets import TargetKey
from trimtab.kube.events.event import WARNING
from trimtab.kube.events.recorder import Recorder
from trimtab.kube.objects import AnyMachineSet
from trimtab.kube.reference import ObjectReference
from trimtab.kube.resources import MACHINE_AUTOSCALERS

UPDATE: Final = "UpdateTarget"
VALIDATE: Final = "Validate"

_FAILURES: Final = {
    reasons.TARGET_NOT_FOUND: (reasons.FAILED_GET_TARGET, UPDATE),
    reasons.TARGET_UNSUPPORTED: (reasons.FAILED_GET_TARGET, UPDATE),
    reasons.TARGET_ALREADY_OWNED: (reasons.FAILED_SET_OWNER, UPDATE),
    reasons.LIMITS_NOT_SET: (reasons.FAILED_UPDATE_TARGET, UPDATE),
    reasons.INVALID_MACHINE_AUTOSCALER: (reasons.FAILED_VALIDATION, VALIDATE),
}
"""Reason and action of the event by the reason of the condition."""


class Telling:
    """Posts them."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    def updated(self, entry: Entry, target: AnyMachineSet, changes: str, *, put_back: bool = False) -> None:
        """Tell that annotations of a target were changed, or put back as they were."""
        how = ", which somebody had changed" if put_back else ""
        self._recorder.event(
            _reference(entry),
            reason=reasons.SUCCESSFUL_UPDATE,
            action=UPDATE,
            note=f"{TargetKey.of(target)}{how}: {changes}",
            related=ObjectReference(
                kind=target.kind,
                name=target.name,
                namespace=target.namespace,
                uid=target.uid,
                api_version=target.api_version,
            ),
        )

    def failed(self, entry: Entry, decision: Decision) -> None:
        """Tell why a target does not have the limits."""
        reason, action = _FAILURES[decision.reason]
        self._recorder.event(_reference(entry), reason=reason, action=action, note=decision.message, type=WARNING)


def _reference(entry: Entry) -> ObjectReference:
    metadata = entry.metadata
    return ObjectReference.to(MACHINE_AUTOSCALERS, metadata.name, namespace=metadata.namespace, uid=metadata.uid)
