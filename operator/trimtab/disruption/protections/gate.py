"""Decides which pods a policy may evict now, by protections, PodDisruptionBudgets, causes and limits."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING

from trimtab.api.descheduler_policy import DeschedulerPolicySpec
from trimtab.api.plan import SURGE
from trimtab.api.reasons import DISRUPTION_BUDGET, LIMIT_REACHED, NOT_SAFE_TO_EVICT_ANNOTATION
from trimtab.cluster.workloads.owners import OwnerKey
from trimtab.cluster.workloads.rollouts import Rollouts
from trimtab.disruption.background_evictions import REQUEST_EVICT_ONLY
from trimtab.disruption.budgets import BudgetLedger
from trimtab.disruption.limits import LimitCounter, PlannedEvictions
from trimtab.disruption.outcome import Refusal
from trimtab.disruption.protections.causes import POD_SPEC_REASONS, SAFE_TO_EVICT, Cause, EvictionCauses
from trimtab.disruption.protections.rules import (
    EVICT_ANNOTATION_KEY,
    Protection,
    ProtectionContext,
    TerminalPods,
    protections_of,
)
from trimtab.disruption.protections.surge import SurgeChecker
from trimtab.kube.frozen import Labels
from trimtab.kube.objects import OwnerReference, Pod, PodSpec

if TYPE_CHECKING:
    from trimtab.cluster.snapshot import Snapshot

Template = tuple[PodSpec, tuple[OwnerReference, ...], Labels]
"""The parts of a pod, besides its namespace, that protections with ``of_template`` read."""

Check = Callable[[Pod], Refusal | None]
Checks = tuple[tuple[Check, ...], tuple[Check, ...]]
"""The checks for pods without the annotation ``evict: "true"`` and for pods with it.

The latter do not include liftable protections.
"""


class Gate:
    """The state that the policies of one plan share: budgets, and evictions per node, namespace and owner.

    Args:
        snapshot: the cluster state for the plan. Budgets are read at once, owners' pods on demand.
        now: the time of the plan in seconds since the epoch.
        rollouts: the Deployments, for policies with ``singleReplica: Surge``.
        leaving: pods that are being evicted in the background. They count toward limits until they no longer exist.
    """

    def __init__(
        self, snapshot: Snapshot, *, now: float, rollouts: Rollouts | None = None, leaving: Iterable[Pod] = ()
    ) -> None:
        self.budgets = BudgetLedger(snapshot)
        self.planned = PlannedEvictions(leaving)
        self._snapshot = snapshot
        self._surges = SurgeChecker(snapshot, rollouts)
        self._now = now

    def rules_for(self, spec: DeschedulerPolicySpec, held_too_long: frozenset[OwnerKey] = frozenset()) -> EvictionRules:
        """Return the rules of one policy, which all its strategies share for the lifetime of the gate.

        Args:
            spec: the policy's spec.
            held_too_long: workloads whose pods are no longer protected by annotations (``protections.maxHold``).
        """
        context = ProtectionContext(
            spec=spec,
            snapshot=self._snapshot,
            budgets=self.budgets,
            surges=self._surges,
            now=self._now,
            held_too_long=held_too_long,
        )
        return EvictionRules(self, context)


class EvictionRules:
    """Decides which pods one policy may evict. Created by :meth:`Gate.rules_for`."""

    def __init__(self, gate: Gate, context: ProtectionContext) -> None:
        self._budgets = gate.budgets
        self._planned = gate.planned
        self._limits = LimitCounter(context.spec.limits, gate.planned)
        self._surges = context.surges if context.spec.single_replica == SURGE else None
        rules = protections_of(context)
        self._rules = rules
        shared = [index for index, rule in enumerate(rules) if rule.of_template]
        before = rules[: shared[0]]
        self._before = _checks(before)
        self._once_ended = _checks(tuple(rule for rule in before if not isinstance(rule, TerminalPods)))
        self._shared = _checks(rules[shared[0] : shared[-1] + 1])
        after = rules[shared[-1] + 1 :]
        self._after = _checks(after)
        self._own_doing_after = any(rule.name in POD_SPEC_REASONS for rule in after)
        self._templates: dict[tuple[str, int, int, int], tuple[Template, Refusal | None]] = {}
        self._known: dict[str, Refusal | None] = {}
        self._spec = context.spec
        self._snapshot = context.snapshot

    @property
    def causes(self) -> EvictionCauses:
        """Return the rules about which pods may cause evictions. They refer to this object, so it does not store them.

        A reference cycle would keep the plan until the next garbage collection.
        """
        return EvictionCauses(self._spec, self.unmovable, self._snapshot)

    def unmovable(self, pod: Pod) -> Refusal | None:
        """Return the reason why the pod's own spec or annotations prevent its eviction; ``None`` if they do not.

        Planned evictions and stale budget statuses are ignored.
        """
        refusal = self.protected(pod)
        if refusal is not None:
            return refusal if refusal.reason in POD_SPEC_REASONS else None
        if pod.annotations.get(SAFE_TO_EVICT) == "false":
            return Refusal(NOT_SAFE_TO_EVICT_ANNOTATION, f"the annotation {SAFE_TO_EVICT} is false")
        for budget in self._budgets.matching(pod):
            if budget.disruptions_allowed <= 0:
                return Refusal(DISRUPTION_BUDGET, f"PodDisruptionBudget {budget.name} allows no disruption")
        return None

    def unmovable_by_template(self, pod: Pod) -> bool | None:
        """Return whether :meth:`unmovable` refuses every pod of a template; ``None`` if each pod must be checked.

        Args:
            pod: a pod that is neither terminal nor terminating. The result applies to all such pods with the same
                namespace and :data:`Template`.
        """
        willing = pod.annotations.get(EVICT_ANNOTATION_KEY) == "true"
        if _first(self._before, pod, willing=willing) is not None:
            return None
        refusal = self._of_template(pod, willing=willing)
        if refusal is not None:
            return refusal.reason in POD_SPEC_REASONS
        if self._own_doing_after or SAFE_TO_EVICT in pod.annotations or self._budgets.any_in(pod.namespace):
            return None
        return False

    def protected(self, pod: Pod) -> Refusal | None:
        """Return the reason why the policy must never evict the pod; ``None`` if no protection applies.

        The result is the same throughout a plan.
        """
        key = pod.key
        try:
            return self._known[key]
        except KeyError:
            found = self._known[key] = self._first_refusal(pod, self._before)
            return found

    def protections(self, pod: Pod) -> tuple[Refusal, ...]:
        """Return the reasons of all protections that apply to the pod, in the order in which they are checked."""
        willing = pod.annotations.get(EVICT_ANNOTATION_KEY) == "true"
        rules = (rule for rule in self._rules if not (willing and rule.liftable))
        return tuple(found for rule in rules if (found := rule.refusal(pod)) is not None)

    def protected_from_removal(self, pod: Pod) -> Refusal | None:
        """Return the reason why a terminal pod must not be deleted; ``None`` if it may be deleted.

        The same protections as for other pods apply, except those that protect terminal pods from eviction.
        """
        return self._first_refusal(pod, self._once_ended)

    def surges(self, pod: Pod) -> bool:
        """Return whether a rollout of the pod's Deployment replaces the pod, so that it is not evicted."""
        return self._surges is not None and self._surges.can_surge(pod)

    def stays_until_replaced(self, pod: Pod) -> bool:
        """Return whether the pod keeps running until its replacement runs: it surges, or a webhook migrates it."""
        return REQUEST_EVICT_ONLY in pod.annotations or self.surges(pod)

    def refusal(self, pod: Pod, causes: Collection[Cause] = ()) -> Refusal | None:
        """Return the reason why the pod cannot be evicted now; ``None`` if it can.

        Its causes, budgets and limits are checked, including the evictions planned so far.

        Args:
            pod: the pod in its state before the move, so that ``pod.node`` is the node that it leaves.
            causes: the pods whose scheduling rules are the reason to move it; empty if there are none.
        """
        if causes:
            refusal = self.causes.refusal_of(pod, causes)
            if refusal is not None:
                return refusal
        if pod.key in self._planned.pods:
            return Refusal(
                reason=LIMIT_REACHED, message="the plan already moves the pod; it moves each pod at most once"
            )
        causing = self._causing(pod, causes)
        return (None if self.surges(pod) else self._budgets.refusal(pod)) or self._limits.refusal(pod, causing)

    def take(self, pod: Pod, causes: Collection[Cause] = ()) -> None:
        """Count the planned eviction of a pod against budgets and limits.

        A pod that surges uses no budget, because the number of running pods never decreases.

        Args:
            pod: the pod in its state before the move.
            causes: the causes, as in :meth:`refusal`.
        """
        if not self.surges(pod):
            self._budgets.take(pod)
        self._limits.take(pod, self._causing(pod, causes))

    def take_back(self, pod: Pod) -> None:
        """Undo :meth:`take`."""
        if not self.surges(pod):
            self._budgets.take_back(pod)
        self._limits.take_back(pod)

    def _causing(self, pod: Pod, causes: Collection[Cause]) -> str:
        if not causes:
            return ""
        responsible = self.causes.responsible(pod, causes)
        return "" if responsible is None else responsible.namespace

    def _first_refusal(self, pod: Pod, before: Checks) -> Refusal | None:
        willing = bool(pod.annotations) and pod.annotations.get(EVICT_ANNOTATION_KEY) == "true"
        return (
            _first(before, pod, willing=willing)
            or self._of_template(pod, willing=willing)
            or _first(self._after, pod, willing=willing)
        )

    def _of_template(self, pod: Pod, *, willing: bool) -> Refusal | None:
        """Return the cached result of the template protections for the pod's template.

        Pods with the same template share its parts, so these are compared by identity.
        """
        key = (pod.namespace, id(pod.spec), id(pod.owners), id(pod.annotations))
        known = self._templates.get(key)
        if known is None:
            template = (pod.spec, pod.owners, pod.annotations)  # referenced, so that their ids are not reused
            known = self._templates[key] = (template, _first(self._shared, pod, willing=willing))
        return known[1]


def _checks(rules: tuple[Protection, ...]) -> Checks:
    """Return the checks of protections for pods without the annotation ``evict: "true"`` and for pods with it."""
    return tuple(rule.refusal for rule in rules), tuple(rule.refusal for rule in rules if not rule.liftable)


def _first(checks: Checks, pod: Pod, *, willing: bool) -> Refusal | None:
    """Return the refusal of the first check that refuses the pod; ``None`` if none does.

    ``willing`` is whether the pod has the annotation that disables liftable protections.
    """
    for refusal in checks[willing]:
        found = refusal(pod)
        if found is not None:
            return found
    return None
