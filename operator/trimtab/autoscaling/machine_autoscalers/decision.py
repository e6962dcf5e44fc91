"""Decides which annotations to write for a MachineAutoscaler and what to report, as a pure function."""

from __future__ import annotations

from msgspec import Struct

from trimtab.api import reasons
from trimtab.api.decode import InvalidObject
from trimtab.api.machine_autoscaler import MachineAutoscaler
from trimtab.autoscaling.groups.annotations import OWNER
from trimtab.autoscaling.groups.build import (
    DEFAULT_REPLICAS,
    choose_owner,
    target_not_found_message,
    target_owned_message,
    target_unsupported_message,
)
from trimtab.autoscaling.groups.machine_groups import pause_reason
from trimtab.autoscaling.machine_autoscalers.registry import MachineAutoscalerRegistry, RegistryEntry
from trimtab.autoscaling.machine_autoscalers.targets import TargetKey, Targets
from trimtab.kube.objects import AnyMachineSet


class Decision(Struct, frozen=True):
    """The target and the result to report for a MachineAutoscaler.

    Attributes:
        ready: whether its target exists and no other MachineAutoscaler owns it.
        reason: a code of :mod:`trimtab.api.reasons`.
        message: a description of the reason.
        target: the object to which its annotations must be written; ``None`` if there is none.
        release: the objects from which its annotations must be removed.
    """

    ready: bool
    reason: str
    message: str
    target: AnyMachineSet | None = None
    release: tuple[AnyMachineSet, ...] = ()


def decide(entry: RegistryEntry, autoscalers: MachineAutoscalerRegistry, targets: Targets) -> Decision:
    """Decide the target and the report of a MachineAutoscaler that is not being deleted.

    An invalid MachineAutoscaler keeps its targets with the last valid limits until it is fixed or deleted.
    """
    autoscaler, claim = entry.autoscaler, entry.claim
    if autoscaler is None or claim is None:
        return _invalid(entry)
    release = tuple(each for each in targets.owned_by(entry.key) if TargetKey.of(each) != claim)
    target = targets.get(claim)
    if target is None:
        return Decision(False, reasons.TARGET_NOT_FOUND, target_not_found_message(autoscaler), release=release)
    governed = targets.governed(target)
    if governed:
        message = target_unsupported_message(autoscaler, governed)
        return Decision(False, reasons.TARGET_UNSUPPORTED, message, release=release)
    first = choose_owner(autoscalers.claiming(claim), target.annotations.get(OWNER, ""))
    if first.key != entry.key:
        message = target_owned_message(autoscaler, first.key)
        return Decision(False, reasons.TARGET_ALREADY_OWNED, message, release=release)
    if target.deleted is not None:
        message = f"spec.scaleTargetRef: {claim} is being deleted"
        return Decision(False, reasons.TARGET_NOT_FOUND, message, release=release)
    reason, message = limits_message(autoscaler, target)
    return Decision(True, reason, message, target=target, release=release)


def limits_message(autoscaler: MachineAutoscaler, target: AnyMachineSet) -> tuple[str, str]:
    """Return the reason and the message for a target that has the limits."""
    spec, size = autoscaler.spec, size_of(target)
    message = f"{TargetKey.of(target)} has the limits {spec.min_replicas} to {spec.max_replicas}"
    reason = reasons.LIMITS_SET
    if size > spec.max_replicas:
        reason = reasons.ABOVE_MAXIMUM
        message += f"; its size {size} is above maxReplicas, and the autoscaler removes only unneeded nodes"
    elif size < spec.min_replicas:
        reason = reasons.BELOW_MINIMUM
        message += (
            f"; its size {size} is below minReplicas, and the autoscaler scales it up to minReplicas only if the "
            "ClusterAutoscaler sets enforceNodeGroupMinSize: Enabled"
        )
    paused = pause_reason(target)
    return reason, f"{message}; it is paused: {paused}" if paused else message


def size_of(target: AnyMachineSet) -> int:
    """Return the target size of an object that can be scaled."""
    return DEFAULT_REPLICAS if target.replicas is None else target.replicas


def _invalid(entry: RegistryEntry) -> Decision:
    problem = entry.problem
    message = "; ".join(map(str, problem.errors)) if isinstance(problem, InvalidObject) else str(problem)
    unsupported = isinstance(problem, InvalidObject) and all(
        error.field == "spec.scaleTargetRef" for error in problem.errors
    )
    return Decision(False, reasons.TARGET_UNSUPPORTED if unsupported else reasons.INVALID_MACHINE_AUTOSCALER, message)
