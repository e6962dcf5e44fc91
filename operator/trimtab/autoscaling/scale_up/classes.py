"""Pod classes: pods that fit alike, so that one of them is judged and the rest is counted."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from msgspec import Struct

from trimtab.cluster.snapshot import Snapshot
from trimtab.cluster.terms import BoundTerm, as_incoming, bind
from trimtab.kube.objects import HostPort, Pod
from trimtab.kube.rules.node_labels import HOSTNAME
from trimtab.placement.topology_spread import DO_NOT_SCHEDULE, Rules, least, stated

_EVERYWHERE: Final = frozenset({"emptyDir", "hostPath"})
"""Volumes that are on every node."""

_ANY: Final = "0.0.0.0"


class PodClass(Struct, frozen=True, eq=False):
    """Pods of one namespace with equal specs and labels.

    Attributes:
        number: its place among the classes of a plan.
        pods: the most important first, of equals by name.
        counted: whether its pods can be counted onto new nodes, because nothing but what is on its node concerns a pod.
            Otherwise each is placed by the filters, on a picture that has the new nodes.
        most: how many of its pods a node may have at most, whatever its room; 0 for any number.
    """

    number: int
    pods: tuple[Pod, ...]
    counted: bool
    most: int = 0

    @property
    def first(self) -> Pod:
        """The pod that stands for all."""
        return self.pods[0]


Clashes = dict[int, frozenset[int]]
"""Class number to the numbers of counted classes with which it must not share a node."""


def alike(pods: Iterable[Pod]) -> list[list[Pod]]:
    """Pods by class, in the order in which each first comes.

    Pods whose volumes' claims are named after them are each a class.
    """
    by_identity: dict[tuple[str, int, int], list[Pod]] = {}
    for pod in pods:
        identity = (pod.namespace, id(pod.spec), id(pod.labels))
        there = by_identity.get(identity)
        if there is None:
            by_identity[identity] = [pod]
        else:
            there.append(pod)
    by_value: dict[tuple[object, ...], list[list[Pod]]] = {}
    for group in by_identity.values():
        first = group[0]
        if any(volume.kind == "ephemeral" for volume in first.spec.volumes):
            for pod in group:
                by_value[pod.namespace, pod.name, pod.uid] = [[pod]]
            continue
        by_value.setdefault((first.namespace, first.spec, first.labels), []).append(group)
    return [_merged(groups) for groups in by_value.values()]


def classes(groups: Iterable[list[Pod]], snapshot: Snapshot) -> tuple[PodClass, ...]:
    """The classes of pods, with what can be counted of them.

    Args:
        groups: of :func:`alike`.
        snapshot: with all that is there already, and without any node that is not.
    """
    rules = Rules(snapshot)
    ordered = sorted(groups, key=lambda group: (group[0].namespace, group[0].name))
    firsts = [group[0] for group in ordered]
    made = []
    for number, group in enumerate(ordered):
        counted, most = _counted(group[0], firsts, rules, snapshot)
        made.append(PodClass(number, tuple(group), counted, most))
    return tuple(made)


def clashes(found: Sequence[PodClass], snapshot: Snapshot) -> Clashes:
    """Which counted classes must not share a node: anti-affinity on the hostname, and host ports.

    A class that clashes with itself has at most one pod a node.
    """
    counted = [each for each in found if each.counted]
    by_pair: dict[tuple[str, str] | None, list[PodClass]] = {None: counted}
    for each in counted:
        for pair in each.first.labels.items():
            by_pair.setdefault(pair, []).append(each)
    made: dict[int, set[int]] = {}
    for each in counted:
        for term in _anti_terms(each.first):
            for other in by_pair.get(term.pair, ()):
                if _picks(term, other.first, snapshot):
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


def _counted(pod: Pod, firsts: Sequence[Pod], rules: Rules, snapshot: Snapshot) -> tuple[bool, int]:
    """Whether a class can be counted, and how many of its pods a node may have at most."""
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
    most = 0
    for rule in rules.hard(pod):
        domains, counts = rules.count(rule)
        eligible = domains.of_eligible(counts)
        if not rule.own or rule.counter is None or not len(eligible) or least(eligible):
            return False, 0  # new nodes are empty at first: what the smallest count is, would change with each
        term = BoundTerm(HOSTNAME, rule.constraint.counted, frozenset((pod.namespace,)))
        if sum(_picks(term, other, snapshot) for other in firsts) > 1:
            return False, 0  # pods of another class count as well
        skew = rule.constraint.max_skew
        most = skew if not most else min(most, skew)
    return True, most


def _anti_terms(pod: Pod) -> list[BoundTerm]:
    return [as_incoming(bind(term, pod.namespace)) for term in pod.spec.affinity.anti_required]


def _picks(term: BoundTerm, pod: Pod, snapshot: Snapshot) -> bool:
    return term.matches(pod.namespace, pod.labels, snapshot.namespace_labels(pod.namespace))


def _conflict(ours: Iterable[HostPort], theirs: Sequence[HostPort]) -> bool:
    return any(
        mine.port == other.port
        and mine.protocol == other.protocol
        and (mine.ip == other.ip or _ANY in {mine.ip, other.ip})
        for mine in ours
        for other in theirs
    )
