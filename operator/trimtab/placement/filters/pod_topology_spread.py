"""PodTopologySpread: no domain may have more than maxSkew pods above the smallest."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Final

from trimtab.cluster.resources import BoolArray, IntArray
from trimtab.cluster.snapshot import Snapshot
from trimtab.kube.objects import Pod, PodSpec
from trimtab.placement.framework import Failure, Reads
from trimtab.placement.spread_domains import Domains
from trimtab.placement.topology_spread import DO_NOT_SCHEDULE, Rule, Rules, least, skews

UNEVEN: Final = "node(s) didn't match pod topology spread constraints"
UNLABELLED: Final = "node(s) didn't match pod topology spread constraints (missing required label)"


class PodTopologySpread:
    """Every DoNotSchedule constraint must hold with the pod there; a node without the label fails (v1.36).

    What counts is told in :mod:`trimtab.placement.topology_spread`. A node that does not count itself is judged all
    the same, by what its domain has on nodes that do. The first constraint in the pod's order that fails names the
    reason. Constraints by default are soft, so a pod that states none passes everywhere.
    """

    name: ClassVar = "PodTopologySpread"
    reads: ClassVar[Reads] = "pods"

    def __init__(self, snapshot: Snapshot) -> None:
        self._rules = Rules(snapshot)

    def may_concern(self, spec: PodSpec) -> bool:
        """Where it states a constraint that must hold."""
        return any(each.when_unsatisfiable == DO_NOT_SCHEDULE for each in spec.topology_spread)

    def concerns(self, pod: Pod) -> bool:
        """See :meth:`~trimtab.placement.framework.Filter.concerns`."""
        return any(each.when_unsatisfiable == DO_NOT_SCHEDULE for each in pod.spec.topology_spread)

    def refusal(self, pod: Pod) -> str | None:
        """See :meth:`~trimtab.placement.framework.Filter.refusal`: such a rule is about nodes only."""
        del pod
        return None

    def passing(self, pod: Pod) -> BoolArray | None:
        """See :meth:`~trimtab.placement.framework.Filter.passing`."""
        mask: BoolArray | None = None
        for rule in self._rules.hard(pod):
            domains, holds = self._verdicts(rule)
            passing = holds[domains.home]
            mask = passing if mask is None else mask & passing
        return mask

    def failures(self, pod: Pod, slots: IntArray) -> Iterator[Failure]:
        """See :meth:`~trimtab.placement.framework.Filter.failures`."""
        for rule in self._rules.hard(pod):
            domains, holds = self._verdicts(rule)
            home = domains.home[slots]
            unlabelled = home == len(holds) - 1
            if unlabelled.any():
                yield (UNLABELLED,), slots[unlabelled]
            uneven = ~holds[home] & ~unlabelled
            if uneven.any():
                yield (UNEVEN,), slots[uneven]
            slots = slots[holds[home]]

    def _verdicts(self, rule: Rule) -> tuple[Domains, BoolArray]:
        """Which domains may take the pod: bool, shape (domains + 1,), the last, for nodes without the label, not."""
        domains, counts = self._rules.count(rule)
        smallest = least(domains.of_eligible(counts), rule.constraint.min_domains)
        holds: BoolArray = skews(counts, smallest, own=rule.own) <= rule.constraint.max_skew
        holds[-1] = False
        return domains, holds
