"""Groups pods into classes that fit the same nodes, so that only one pod of each class is evaluated."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Sequence
from typing import Final

from msgspec import Struct

from trimtab.cluster.affinity import BoundTerm, as_incoming, bind
from trimtab.cluster.snapshot import Snapshot
from trimtab.cluster.term_index import PodIndex, absent_keys, pod_keys
from trimtab.kube.objects import HostPort, Pod
from trimtab.kube.rules.node_labels import HOSTNAME
from trimtab.placement.topology_spread import DO_NOT_SCHEDULE, SpreadRules, global_minimum, stated


class UnplacedPods:
    """The unplaced pods of each class.

    Args:
        classes: all classes in the order of their numbers.
    """

    def __init__(self, classes: Sequence[PodClass]) -> None:
        self._classes = classes
        self._left = {each.number: deque(each.pods) for each in classes}

    def subset(self, numbers: Collection[int]) -> UnplacedPods:
        """Return a view of some classes. Pods that are removed from the view are removed from all classes."""
        made = UnplacedPods(())
        made._classes = [each for each in self._classes if each.number in numbers]
        made._left = self._left
        return made

    def __bool__(self) -> bool:
        return any(self._left[each.number] for each in self._classes)

    def classes(self, *, countable: bool | None = None) -> list[PodClass]:
        """Return the classes with unplaced pods; ``countable`` selects only countable or only other classes."""
        return [each for each in self._classes if self._left[each.number] and countable in (None, each.countable)]

    def count(self, number: int) -> int:
        """Return the number of unplaced pods of a class."""
        return len(self._left[number])

    def pods(self, number: int) -> list[Pod]:
        """Return the unplaced pods of a class, by descending priority."""
        return list(self._left[number])

    def take(self, number: int, count: int) -> list[Pod]:
        """Remove up to ``count`` pods of a class by descending priority, and return them."""
        left = self._left[number]
        return [left.popleft() for _ in range(count)]

    def remove(self, number: int, pods: Iterable[Pod]) -> None:
        """Remove the given pods of a class."""
        removed = {pod.key for pod in pods}
        self._left[number] = deque(pod for pod in self._left[number] if pod.key not in removed)


_EVERYWHERE: Final = frozenset({"emptyDir", "hostPath"})
"""Volume types that are available on every node."""

_ANY: Final = "0.0.0.0"


class PodClass(Struct, frozen=True, eq=False):
    """Pods of one namespace with identical specs and labels.

    Attributes:
        number: index of the class in the plan.
        pods: sorted by descending priority, then by name.
        countable: whether bin packing can place the pods by counting resources. This is possible if the placement of a
            pod depends only on the node and the pods on it. All other pods are placed one by one by the scheduler's
            filters, on a snapshot with the new nodes.
        max_per_node: the maximum number of its pods on one node, regardless of the node's size; 0 for no maximum.
    """

    number: int
    pods: tuple[Pod, ...]
    countable: bool
    max_per_node: int = 0

    @property
    def first(self) -> Pod:
        """Return the pod that represents the class."""
        return self.pods[0]


ClassConflicts = dict[int, frozenset[int]]
"""Numbers of the countable classes that must not share a node with a class, by class number."""


def group_equal_pods(pods: Iterable[Pod]) -> list[list[Pod]]:
    """Group pods by class, in the order of the first pod of each class.

    A pod with an ephemeral volume has its own class, because the claim is named after the pod.
    """
    by_identity: dict[tuple[str, int, int], list[Pod]] = {}
    for pod in pods:
        identity = (pod.namespace, id(pod.spec), id(pod.labels))
        known = by_identity.get(identity)
        if known is None:
            by_identity[identity] = [pod]
        else:
            known.append(pod)
    by_value: dict[tuple[object, ...], list[list[Pod]]] = {}
    for group in by_identity.values():
        first = group[0]
        if any(volume.kind == "ephemeral" for volume in first.spec.volumes):
            for pod in group:
                by_value[pod.namespace, pod.name, pod.uid] = [[pod]]
            continue
        by_value.setdefault((first.namespace, first.spec, first.labels), []).append(group)
    return [_merged(groups) for groups in by_value.values()]


def build_pod_classes(groups: Iterable[list[Pod]], snapshot: Snapshot) -> tuple[PodClass, ...]:
    """Build the classes, and determine which of them bin packing can place by counting.

    Args:
        groups: pods by class, as returned by :func:`group_equal_pods`.
        snapshot: the cluster state with existing and upcoming nodes, but no planned ones.
    """
    rules = SpreadRules(snapshot)
    ordered = sorted(groups, key=lambda group: (group[0].namespace, group[0].name))
    firsts = [group[0] for group in ordered]
    made = []
    for number, group in enumerate(ordered):
        counted, max_per_node = _counted(group[0], firsts, rules, snapshot)
        made.append(PodClass(number, tuple(group), counted, max_per_node))
    return tuple(made)


def find_conflicts(found: Sequence[PodClass], snapshot: Snapshot) -> ClassConflicts:
    """Return the countable classes that must not share a node, because of hostname anti-affinity or host ports.

    If a class conflicts with itself, at most one of its pods fits on a node.
    """
    counted = [each for each in found if each.countable]
    index: PodIndex[PodClass] = PodIndex()
    for each in counted:
        pod = each.first
        index.add(pod_keys(pod.namespace, pod.labels, snapshot.namespace_labels(pod.namespace)), pod.labels, each)
    made: dict[int, set[int]] = {}
    for each in counted:
        for term in _anti_terms(each.first):
            for other in index.near(index.rarest(term.key_sets(), absent_keys(term.selector))):
                if _selects(term, other.first, snapshot):
                    made.setdefault(each.number, set()).add(other.number)
                    made.setdefault(other.number, set()).add(each.number)
    with_ports = [each for each in counted if each.first.spec.host_ports]
    for each in with_ports:
        for other in with_ports:
            if _conflict(each.first.spec.host_ports, other.first.spec.host_ports):
                made.setdefault(each.number, set()).add(other.number)
    return {number: frozenset(others) for number, others in made.items()}


def _merged(groups: list[list[Pod]]) -> list[Pod]:
    if len(groups) == 1:
        return groups[0]
    return sorted((pod for group in groups for pod in group), key=lambda pod: (-pod.priority, pod.key))


def _counted(pod: Pod, firsts: Sequence[Pod], rules: SpreadRules, snapshot: Snapshot) -> tuple[bool, int]:
    """Return whether bin packing can place a pod's class by counting, and the maximum number of its pods per node."""
    spec = pod.spec
    if spec.affinity.pod_required or spec.resource_claims:
        return False, 0
    if any(term.topology_key != HOSTNAME for term in spec.affinity.anti_required):
        return False, 0
    if any(volume.kind not in _EVERYWHERE for volume in spec.volumes):
        return False, 0
    if not spec.topology_spread:
        return True, 0
    hard = stated(pod, DO_NOT_SCHEDULE)
    if any(each.topology_key != HOSTNAME or each.min_domains > 1 for each in hard):
        return False, 0
    max_per_node = 0
    for rule in rules.hard(pod):
        domains, counts = rules.count(rule)
        eligible = domains.of_eligible(counts)
        if not rule.own or rule.counter is None or not len(eligible) or global_minimum(eligible):
            return False, 0  # each new node is an empty domain and would change the minimum count
        term = BoundTerm(HOSTNAME, rule.constraint.counted, frozenset((pod.namespace,)))
        if sum(_selects(term, other, snapshot) for other in firsts) > 1:
            return False, 0  # the rule also counts pods of other classes
        skew = rule.constraint.max_skew
        max_per_node = skew if not max_per_node else min(max_per_node, skew)
    return True, max_per_node


def _anti_terms(pod: Pod) -> list[BoundTerm]:
    return [as_incoming(bind(term, pod.namespace)) for term in pod.spec.affinity.anti_required]


def _selects(term: BoundTerm, pod: Pod, snapshot: Snapshot) -> bool:
    return term.matches(pod.namespace, pod.labels, snapshot.namespace_labels(pod.namespace))


def _conflict(ours: Iterable[HostPort], theirs: Sequence[HostPort]) -> bool:
    return any(
        mine.port == other.port
        and mine.protocol == other.protocol
        and (mine.ip == other.ip or _ANY in {mine.ip, other.ip})
        for mine in ours
        for other in theirs
    )
