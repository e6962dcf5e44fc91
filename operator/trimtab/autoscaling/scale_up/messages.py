"""Builds messages for pods that remain pending, and selects the reason if groups have different reasons."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import Struct

from trimtab.api import reasons
from trimtab.api.plan import Kept
from trimtab.autoscaling.groups.node_group import NodeGroup
from trimtab.autoscaling.scale_up.limits import LimitReason
from trimtab.kube.objects import Pod
from trimtab.placement.feasibility import Diagnosis
from trimtab.placement.plan_budget import PlanBudget

STRATEGY: Final = "ScaleUp"
"""Strategy name of all plan entries about adding nodes."""

_MOST_NAMES: Final = 3


def kept_pod(pod: Pod, reason: str, message: str, *, node: str = "") -> Kept:
    """Return the plan entry for a pending pod for which no node is added."""
    return Kept(
        kind="Pod", namespace=pod.namespace, name=pod.name, strategy=STRATEGY, reason=reason, message=message, node=node
    )


def deadline_exceeded(pod: Pod, budget: PlanBudget) -> Kept:
    """Return the plan entry for a pending pod that was not evaluated before the plan's deadline."""
    return kept_pod(pod, reasons.PLAN_DEADLINE_EXCEEDED, budget.message(pod.namespace))


def names_text(names: Sequence[str]) -> str:
    """Return the first few names, comma-separated, followed by the number of the others: ``a, b and 3 more``."""
    shown = ", ".join(names[:_MOST_NAMES])
    return shown if len(names) <= _MOST_NAMES else f"{shown} and {len(names) - _MOST_NAMES} more"


class ExplanationContext(Struct, frozen=True):
    """The information about groups that does not depend on the pod.

    Attributes:
        groups: all groups in the order of their ids.
        slots: for each group whose template is known, the snapshot slot of a new node, by group id.
        limit_reasons: for each group that cannot be scaled up, the reason, by group id.
    """

    groups: Sequence[NodeGroup]
    slots: Mapping[str, int]
    limit_reasons: Mapping[str, LimitReason]


def explain(pods: Sequence[Pod], diagnosis: Diagnosis, context: ExplanationContext) -> list[Kept]:
    """Return one plan entry for each pod of a class that remains pending.

    Args:
        pods: the pods of the class that remain pending.
        diagnosis: the result of the scheduler's filters for the first pod of the class, in a snapshot with a new node
            of each group.
        context: the information about groups.
    """
    reason, message = _unschedulable_reason(diagnosis, context)
    return [kept_pod(pod, reason, message) for pod in pods]


class GroupVerdict(Struct, frozen=True):
    """Whether a new node of a group would take a pod, and whether the group can be scaled up.

    Attributes:
        group: the node group.
        reasons: why the pod does not fit on a new node, in kube-scheduler's words; empty if it fits.
        limit: why the group cannot be scaled up; ``None`` if it can.
    """

    group: NodeGroup
    reasons: tuple[str, ...] = ()
    limit: LimitReason | None = None

    @property
    def fits(self) -> bool:
        """Return whether the pod fits on a new node of the group."""
        return not self.reasons


UNKNOWN_TEMPLATE: Final = "unknown node template"


def group_verdicts(diagnosis: Diagnosis, context: ExplanationContext) -> tuple[GroupVerdict, ...]:
    """Return the verdict of each group for one pod, in the order of the groups, see :func:`explain`."""
    texts = {slot: found for found, slots in diagnosis.failures for slot in slots.tolist()}
    found = []
    for group in context.groups:
        slot, limit = context.slots.get(group.id), context.limit_reasons.get(group.id)
        if slot is None:
            reasons_: tuple[str, ...] = (UNKNOWN_TEMPLATE,)
        elif diagnosis.refusal is not None:
            reasons_ = (diagnosis.refusal,)
        else:
            reasons_ = tuple(texts.get(slot, ()))
        found.append(GroupVerdict(group, reasons_, limit))
    return tuple(found)


_NO_NODE_GROUPS: Final = (
    "no MachineAutoscaler has a valid target, and no MachineSet, MachineDeployment or MachinePool has the min-size and "
    "max-size annotations"
)


def _unschedulable_reason(diagnosis: Diagnosis, context: ExplanationContext) -> tuple[str, str]:
    if not context.groups:
        return reasons.NO_NODE_GROUPS, _NO_NODE_GROUPS
    if diagnosis.refusal is not None:
        return reasons.NO_GROUP_FITS, f"the pod fits on no node: {diagnosis.refusal}"
    limited: list[tuple[NodeGroup, LimitReason]] = []
    failing: dict[str, list[str]] = {}
    for verdict in group_verdicts(diagnosis, context):
        for text in verdict.reasons:
            failing.setdefault(text, []).append(verdict.group.key)
        if verdict.fits:
            limited.append((verdict.group, verdict.limit or _BLOCKED))
    parts = [f"{len(keys)} {text} ({names_text(keys)})" for text, keys in failing.items()]
    sentence = ", ".join(sorted(parts))
    number = len(context.groups)
    if not limited:
        unknown = [group for group in context.groups if group.id not in context.slots]
        reason = reasons.NO_TEMPLATE if len(unknown) == number else reasons.NO_GROUP_FITS
        return reason, f"the pod fits 0/{number} node groups: {sentence}."
    limit_texts = names_text([f"{group.key}: {limit_reason.message}" for group, limit_reason in limited])
    others = f" It does not fit the others: {sentence}." if sentence else ""
    first = limited[0][1]
    return (
        first.reason,
        f"the pod fits {len(limited)}/{number} node groups, which cannot be scaled up: {limit_texts}.{others}",
    )


_BLOCKED = LimitReason(
    reasons.NO_GROUP_FITS, "the pod fits on its next node, but not together with the other planned nodes and pods"
)
