"""May this pod be moved now? Protections, budgets and limits behind one question."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from trimtab.api.descheduler_policy import DeschedulerPolicySpec
from trimtab.api.plan import SURGE
from trimtab.api.reasons import LIMIT_REACHED
from trimtab.cluster.rollouts import Rollouts
from trimtab.cluster.snapshot import Snapshot
from trimtab.disruption.background import REQUEST_EVICT_ONLY
from trimtab.disruption.budgets import BudgetLedger
from trimtab.disruption.limits import LimitCounter, PlannedEvictions
from trimtab.disruption.protections.protection import EVICT_ANNOTATION_KEY, Context, Protection
from trimtab.disruption.protections.registry import protections_of
from trimtab.disruption.protections.terminal import TerminalPods
from trimtab.disruption.refusal import Refusal
from trimtab.disruption.surge import Surges
from trimtab.kube.frozen import Labels
from trimtab.kube.objects import OwnerReference, Pod, PodSpec

Template = tuple[PodSpec, tuple[OwnerReference, ...], Labels]
"""What a protection of templates reads, the namespace aside."""

Check = Callable[[Pod], Refusal | None]
Checks = tuple[tuple[Check, ...], tuple[Check, ...]]
"""What is asked of most pods, and of those that are willing to go: this is asked of every pod that may move."""


class Gate:
    """One a plan. What its policies take is counted together: budgets, and evictions per node, namespace and owner.

    Args:
        snapshot: the picture that is planned on. Budgets are read from it now, owners' pods when they are asked for.
        now: seconds since the epoch that the plan is made for.
        rollouts: the Deployments, for policies with ``singleReplica: Surge``.
        leaving: pods that are being evicted in the background; they count for limits until they are gone.
    """

    def __init__(
        self, snapshot: Snapshot, *, now: float, rollouts: Rollouts | None = None, leaving: Iterable[Pod] = ()
    ) -> None:
        self.budgets = BudgetLedger(snapshot)
        self.planned = PlannedEvictions(leaving)
        self._snapshot = snapshot
        self._surges = Surges(snapshot, rollouts)
        self._now = now

    def rules_for(self, spec: DeschedulerPolicySpec) -> Rules:
        """The rules of one policy, to be asked by all its strategies: keep them as long as the gate."""
        context = Context(spec=spec, snapshot=self._snapshot, budgets=self.budgets, surges=self._surges, now=self._now)
        return Rules(self, context)


class Rules:
    """What one policy lets be moved. Made by :meth:`Gate.rules_for`."""

    def __init__(self, gate: Gate, context: Context) -> None:
        self._budgets = gate.budgets
        self._planned = gate.planned
        self._limits = LimitCounter(context.spec.limits, gate.planned)
        self._surges = context.surges if context.spec.single_replica == SURGE else None
        rules = protections_of(context)
        shared = [index for index, rule in enumerate(rules) if rule.of_template]
        before = rules[: shared[0]]
        self._before = _checks(before)
        self._once_ended = _checks(tuple(rule for rule in before if not isinstance(rule, TerminalPods)))
        self._shared = _checks(rules[shared[0] : shared[-1] + 1])
        self._after = _checks(rules[shared[-1] + 1 :])
        self._templates: dict[tuple[str, int, int, int], tuple[Template, Refusal | None]] = {}
        self._known: dict[str, Refusal | None] = {}

    def protected(self, pod: Pod) -> Refusal | None:
        """Why the pod is never to be moved under this policy, or ``None``. The same answer throughout a plan."""
        key = pod.key
        try:
            return self._known[key]
        except KeyError:
            found = self._known[key] = self._first_refusal(pod, self._before)
            return found

    def protected_from_removal(self, pod: Pod) -> Refusal | None:
        """Why a pod that has run to its end is not to be removed, or ``None``: what protects others protects it too."""
        return self._first_refusal(pod, self._once_ended)

    def surges(self, pod: Pod) -> bool:
        """Whether the pod is not evicted, but renewed by a rollout of its Deployment."""
        return self._surges is not None and self._surges.surges(pod)

    def stays_until_replaced(self, pod: Pod) -> bool:
        """Whether the pod holds its place until the one that comes for it runs: it surges, or is moved by a webhook."""
        return REQUEST_EVICT_ONLY in pod.annotations or self.surges(pod)

    def refusal(self, pod: Pod) -> Refusal | None:
        """Why the pod cannot be moved as things stand: budgets and limits, less what the plan has taken.

        Args:
            pod: as it is before the move: ``pod.node`` is the node that loses it.
        """
        if pod.key in self._planned.pods:
            return Refusal(reason=LIMIT_REACHED, message="the pod is moved by this plan already, and only once a plan")
        return (None if self.surges(pod) else self._budgets.refusal(pod)) or self._limits.refusal(pod)

    def take(self, pod: Pod) -> None:
        """Count the planned eviction of a pod, as it is before the move, against budgets and limits.

        A pod that surges costs no budget: at no time is one less.
        """
        if not self.surges(pod):
            self._budgets.take(pod)
        self._limits.take(pod)

    def take_back(self, pod: Pod) -> None:
        """Undo :meth:`take`: the move is not to be after all."""
        if not self.surges(pod):
            self._budgets.take_back(pod)
        self._limits.take_back(pod)

    def _first_refusal(self, pod: Pod, before: Checks) -> Refusal | None:
        willing = bool(pod.annotations) and pod.annotations.get(EVICT_ANNOTATION_KEY) == "true"
        return (
            _first(before, pod, willing=willing)
            or self._of_template(pod, willing=willing)
            or _first(self._after, pod, willing=willing)
        )

    def _of_template(self, pod: Pod, *, willing: bool) -> Refusal | None:
        """What the pod's template is refused for; pods of one template share its parts, which are known by identity."""
        key = (pod.namespace, id(pod.spec), id(pod.owners), id(pod.annotations))
        known = self._templates.get(key)
        if known is None:
            template = (pod.spec, pod.owners, pod.annotations)  # held, so that their ids stay theirs
            known = self._templates[key] = (template, _first(self._shared, pod, willing=willing))
        return known[1]


def _checks(rules: tuple[Protection, ...]) -> Checks:
    """The rules for pods that are not willing, and those that a pod's annotation does not lift."""
    return tuple(rule.refusal for rule in rules), tuple(rule.refusal for rule in rules if not rule.liftable)


def _first(checks: Checks, pod: Pod, *, willing: bool) -> Refusal | None:
    """The first refusal; the annotation of a pod that is ``willing`` lifts the rules that can be lifted."""
    for refusal in checks[willing]:
        found = refusal(pod)
        if found is not None:
            return found
    return None
