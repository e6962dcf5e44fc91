"""What topology spread constraints count, for the filter, the score and whoever evens pods out.

A constraint asks: how many pods does its selector pick in each domain (each value of a node label), and how far is a
domain above the smallest? Source: kube-scheduler v1.36.3 ``plugins/podtopologyspread``. Pods that are being deleted, of
other namespaces, or on nodes that do not count are left out. Its quirks are kept:

- an empty selector picks the pod itself, but counts nobody (``countPodsMatchSelector``); a nil one picks nobody, also
  with ``matchLabelKeys``;
- without a single domain the smallest count is 0 where ``minDomains`` is at least 1, which unset means, and else so
  large that every node passes (``MaxInt32``).
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from trimtab.cluster.affinity import AffinityIndex
from trimtab.cluster.resources import IntArray
from trimtab.cluster.snapshot import Snapshot
from trimtab.cluster.spread_selectors import narrowed
from trimtab.cluster.topology import SlotCounter
from trimtab.kube.frozen import NO_LABELS, Labels
from trimtab.kube.objects import LabelSelector, Pod, PodSpec, TopologySpread
from trimtab.kube.rules.node_labels import HOSTNAME, ZONE
from trimtab.kube.rules.selectors import matches_labels
from trimtab.placement.spread_domains import Domains, Ground, tables_of

DO_NOT_SCHEDULE: Final = "DoNotSchedule"
SCHEDULE_ANYWAY: Final = "ScheduleAnyway"

SYSTEM_DEFAULTS: Final = ((HOSTNAME, 3), (ZONE, 5))
"""Topology key and maxSkew of the soft constraints that a pod without any has (``systemDefaultConstraints``)."""

_ANY_NODE: Final = (NO_LABELS, None)
_NO_DOMAIN: Final = 2**31 - 1
_MOST_TEMPLATES: Final = 16_384


class SpreadConstraint(Struct, frozen=True):
    """A constraint as the scheduler reads it on one pod: ``matchLabelKeys`` merged, defaults filled in."""

    max_skew: int
    topology_key: str
    selector: LabelSelector | None
    min_domains: int = 1
    honors_affinity: bool = True
    honors_taints: bool = False

    @property
    def counted(self) -> LabelSelector | None:
        """The selector of the pods that count, ``None`` where none does."""
        selector = self.selector
        if selector is None or not (selector.match_labels or selector.match_expressions):
            return None
        return selector


def stated(pod: Pod, when: str) -> tuple[SpreadConstraint, ...]:
    """The constraints of a pod that have ``when`` as their ``whenUnsatisfiable``, in its order."""
    return tuple(_read(each, pod.labels) for each in pod.spec.topology_spread if each.when_unsatisfiable == when)


def _read(constraint: TopologySpread, labels: Labels) -> SpreadConstraint:
    selector = constraint.selector
    own = {key: labels[key] for key in constraint.match_label_keys if key in labels}
    if selector is not None and own:
        selector = narrowed(selector, own)
    return SpreadConstraint(
        max_skew=constraint.max_skew,
        topology_key=constraint.topology_key,
        selector=selector,
        min_domains=1 if constraint.min_domains is None else constraint.min_domains,
        honors_affinity=constraint.node_affinity_policy in ("", "Honor"),
        honors_taints=constraint.node_taints_policy == "Honor",
    )


def least(counts: IntArray, min_domains: int = 1) -> int:
    """The count that skew is measured from: the smallest, or 0 where there are fewer domains than ``min_domains``.

    Args:
        counts: int64, shape (domains,): of each domain that has a node that counts.
        min_domains: the constraint's, 1 where unset.
    """
    if len(counts) < min_domains:
        return 0
    return int(counts.min()) if len(counts) else _NO_DOMAIN


def skews(counts: IntArray, smallest: int, *, own: int = 0) -> IntArray:
    """How far each domain would be above the smallest; the constraint holds up to its ``maxSkew``.

    Args:
        counts: int64, the pods of each domain.
        smallest: see :func:`least`.
        own: 1 to ask for one pod more that the selector picks (the pod to place), else 0.
    """
    return counts + (own - smallest)


class Rule(Struct, frozen=True, eq=False):
    """A constraint of one pod with what is needed to count for it.

    Attributes:
        constraint: the constraint.
        own: 1 where it picks the pod itself, else 0.
        ground: which nodes count.
        counter: the pods that it picks per node, ``None`` where it can pick none.
    """

    constraint: SpreadConstraint
    own: int
    ground: Ground
    counter: SlotCounter | None


class Rules:
    """The rules of pods, made once per template, and again only when what they rest on changed.

    Args:
        snapshot: the picture.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._index: AffinityIndex | None = None
        self._known: dict[tuple[object, ...], tuple[PodSpec, tuple[Rule, ...]]] = {}
        self.tables = tables_of(snapshot.nodes)

    def hard(self, pod: Pod) -> tuple[Rule, ...]:
        """The rules of the pod's DoNotSchedule constraints: a node that lacks one of their labels does not count."""
        if not pod.spec.topology_spread:
            return ()
        return self._of(pod, DO_NOT_SCHEDULE, None)

    def soft(self, pod: Pod) -> tuple[Rule, ...]:
        """The rules of the pod's ScheduleAnyway constraints, with the same condition on nodes."""
        if not pod.spec.topology_spread:
            return ()
        return self._of(pod, SCHEDULE_ANYWAY, None)

    def default(self, pod: Pod, selector: LabelSelector) -> tuple[Rule, ...]:
        """The rules for a pod without constraints that belongs with the pods that ``selector`` picks."""
        return self._of(pod, SCHEDULE_ANYWAY, selector)

    def count(self, rule: Rule) -> tuple[Domains, IntArray]:
        """The domains of a rule and how many pods each has: int64, shape (domains + 1,), the last 0.

        With :func:`least` of ``domains.of_eligible(counts)`` and :func:`skews` that is all there is to a constraint.
        The value of a domain is in ``nodes.column(topology_key).values``.
        """
        domains = self.tables.domains(self._snapshot, rule.ground)
        return domains, self.tables.counts(domains, rule.counter)

    def _of(self, pod: Pod, when: str, deduced: LabelSelector | None) -> tuple[Rule, ...]:
        index = self._snapshot.affinity
        if self._index is not index or len(self._known) >= _MOST_TEMPLATES:
            self._known.clear()
            self._index = index
        key = (pod.namespace, id(pod.spec), pod.labels, when, deduced)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = (pod.spec, self._make(pod, when, deduced))  # held: the spec's id stays its own
        return found[1]

    def _make(self, pod: Pod, when: str, deduced: LabelSelector | None) -> tuple[Rule, ...]:
        if deduced is None:
            constraints = stated(pod, when)
            required = tuple(each.topology_key for each in constraints)
        else:
            constraints = tuple(SpreadConstraint(skew, key, deduced) for key, skew in SYSTEM_DEFAULTS)
            required = ()
        return tuple(self._rule(pod, each, required) for each in constraints)

    def _rule(self, pod: Pod, constraint: SpreadConstraint, required: tuple[str, ...]) -> Rule:
        spec, selector = pod.spec, constraint.counted
        affinity = spec.node_selector, spec.affinity.node.required
        ground = self.tables.ground(
            constraint.topology_key,
            required=required,
            affinity=affinity if constraint.honors_affinity and affinity != _ANY_NODE else None,
            tolerations=spec.tolerations if constraint.honors_taints else None,
        )
        counter = None if selector is None else self._snapshot.affinity.staying(pod.namespace, selector)
        return Rule(constraint, int(matches_labels(constraint.selector, pod.labels)), ground, counter)
