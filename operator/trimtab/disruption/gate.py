"""May this pod be moved now? Protections, budgets and limits behind one question."""

from __future__ import annotations

from trimtab.api.descheduler_policy import DeschedulerPolicySpec
from trimtab.api.reasons import LIMIT_REACHED
from trimtab.cluster.snapshot import Snapshot
from trimtab.disruption.budgets import BudgetLedger
from trimtab.disruption.limits import LimitCounter, PlannedEvictions
from trimtab.disruption.protections.protection import EVICT_ANNOTATION_KEY, Context
from trimtab.disruption.protections.registry import protections_of
from trimtab.disruption.refusal import Refusal
from trimtab.kube.objects import Pod


class Gate:
    """One a plan. What its policies take is counted together: budgets, and evictions per node, namespace and owner.

    Args:
        snapshot: the picture that is planned on. Budgets are read from it now, owners' pods when they are asked for.
        now: seconds since the epoch that the plan is made for.
    """

    def __init__(self, snapshot: Snapshot, *, now: float) -> None:
        self.budgets = BudgetLedger(snapshot)
        self.planned = PlannedEvictions()
        self._snapshot = snapshot
        self._now = now

    def rules_for(self, spec: DeschedulerPolicySpec) -> Rules:
        """The rules of one policy, to be asked by all its strategies: keep them as long as the gate."""
        return Rules(self, Context(spec=spec, snapshot=self._snapshot, budgets=self.budgets, now=self._now))


class Rules:
    """What one policy lets be moved. Made by :meth:`Gate.rules_for`."""

    def __init__(self, gate: Gate, context: Context) -> None:
        self._budgets = gate.budgets
        self._planned = gate.planned
        self._limits = LimitCounter(context.spec.limits, gate.planned)
        self._all = protections_of(context)
        self._firm = tuple(rule for rule in self._all if not rule.liftable)
        self._known: dict[str, Refusal | None] = {}

    def protected(self, pod: Pod) -> Refusal | None:
        """Why the pod is never to be moved under this policy, or ``None``. The same answer throughout a plan."""
        key = pod.key
        try:
            return self._known[key]
        except KeyError:
            found = self._known[key] = self._first_refusal(pod)
            return found

    def refusal(self, pod: Pod) -> Refusal | None:
        """Why the pod cannot be moved as things stand: budgets and limits, less what the plan has taken.

        Args:
            pod: as it is before the move: ``pod.node`` is the node that loses it.
        """
        if pod.key in self._planned.pods:
            return Refusal(reason=LIMIT_REACHED, message="the pod is moved by this plan already, and only once a plan")
        return self._budgets.refusal(pod) or self._limits.refusal(pod)

    def take(self, pod: Pod) -> None:
        """Count the planned eviction of a pod, as it is before the move, against budgets and limits."""
        self._budgets.take(pod)
        self._limits.take(pod)

    def _first_refusal(self, pod: Pod) -> Refusal | None:
        willing = pod.annotations.get(EVICT_ANNOTATION_KEY) == "true"
        for rule in self._firm if willing else self._all:
            found = rule.refusal(pod)
            if found is not None:
                return found
        return None
