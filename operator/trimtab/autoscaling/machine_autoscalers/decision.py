"""What is to be done about one MachineAutoscaler, and what is to be told: pure."""

from __future__ import annotations

from msgspec import Struct

from trimtab.api import reasons
from trimtab.api.decode import InvalidObject
from trimtab.api.machine_autoscaler import MachineAutoscaler
from trimtab.autoscaling.groups.build import DEFAULT_REPLICAS
from trimtab.autoscaling.groups.keys import OWNER
from trimtab.autoscaling.groups.limits import governed_target, no_target, owned_target, rightful
from trimtab.autoscaling.groups.ownership import why_paused
from trimtab.autoscaling.machine_autoscalers.registry import Entry, MachineAutoscalers
from trimtab.autoscaling.machine_autoscalers.targets import TargetKey, Targets
from trimtab.kube.objects import AnyMachineSet


class Decision(Struct, frozen=True):
    """What holds for one MachineAutoscaler now.

    Attributes:
        ready: whether its target is there and is its own.
        reason: a code of :mod:`trimtab.api.reasons`.
        message: the reason in words.
        target: what is to have its limits; ``None`` where nothing is.
        release: what has its annotations and is not to have them.
    """

    ready: bool
    reason: str
    message: str
    target: AnyMachineSet | None = None
    release: tuple[AnyMachineSet, ...] = ()


def decide(entry: Entry, autoscalers: MachineAutoscalers, targets: Targets) -> Decision:
    """Decide on one that is not being deleted.

    One that cannot be used keeps what it had: its last good limits hold until somebody mends or deletes it.
    """
    autoscaler, claim = entry.autoscaler, entry.claim
    if autoscaler is None or claim is None:
        return _invalid(entry)
    release = tuple(each for each in targets.owned_by(entry.key) if TargetKey.of(each) != claim)
    target = targets.get(claim)
    if target is None:
        return Decision(False, reasons.TARGET_NOT_FOUND, no_target(autoscaler), release=release)
    governed = targets.governed(target)
    if governed:
        message = governed_target(autoscaler, governed)
        return Decision(False, reasons.TARGET_UNSUPPORTED, message, release=release)
    first = rightful(autoscalers.wanting(claim), target.annotations.get(OWNER, ""))
    if first.key != entry.key:
        message = owned_target(autoscaler, first.key)
        return Decision(False, reasons.TARGET_ALREADY_OWNED, message, release=release)
    if target.deleted is not None:
        message = f"spec.scaleTargetRef: {claim} is being deleted"
        return Decision(False, reasons.TARGET_NOT_FOUND, message, release=release)
    reason, message = size_told(autoscaler, target)
    return Decision(True, reason, message, target=target, release=release)


def size_told(autoscaler: MachineAutoscaler, target: AnyMachineSet) -> tuple[str, str]:
    """What there is to say of a target that has the limits: a reason, and that in words."""
    spec, size = autoscaler.spec, size_of(target)
    message = f"{TargetKey.of(target)} has the limits {spec.min_replicas} to {spec.max_replicas}"
    reason = reasons.LIMITS_SET
    if size > spec.max_replicas:
        reason = reasons.ABOVE_MAXIMUM
        message += f", and a size of {size}, above maxReplicas: only nodes that nobody needs go, none for that"
    elif size < spec.min_replicas:
        reason = reasons.BELOW_MINIMUM
        message += (
            f", and a size of {size}, below minReplicas: it is raised to that only where the ClusterAutoscaler has "
            "enforceNodeGroupMinSize: Enabled"
        )
    paused = why_paused(target)
    return reason, f"{message}; it is not scaled at present: {paused}" if paused else message


def size_of(target: AnyMachineSet) -> int:
    """The size that a target asks for."""
    return DEFAULT_REPLICAS if target.replicas is None else target.replicas


def _invalid(entry: Entry) -> Decision:
    problem = entry.problem
    message = "; ".join(map(str, problem.errors)) if isinstance(problem, InvalidObject) else str(problem)
    unsupported = isinstance(problem, InvalidObject) and all(
        error.field == "spec.scaleTargetRef" for error in problem.errors
    )
    return Decision(False, reasons.TARGET_UNSUPPORTED if unsupported else reasons.INVALID_MACHINE_AUTOSCALER, message)
