"""In which groups pods are most welcome: PreferNoSchedule keeps nodes free, so others are added first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from trimtab.autoscaling.scale_up.classes import PodClass
from trimtab.autoscaling.scale_up.option import Candidate
from trimtab.kube.objects import Pod, Taint
from trimtab.kube.rules.taints import PREFER_NO_SCHEDULE, tolerates

Fits = Mapping[int, frozenset[str]]


def rounds(fits: Fits, found: Sequence[PodClass], candidates: Sequence[Candidate]) -> tuple[Fits, ...]:
    """Which groups may help a class, round after round; what one round leaves is asked of the next.

    First only those with the fewest PreferNoSchedule taints that the class does not tolerate, then all that take it.
    The scheduler goes by these taints among the nodes that there are; a node that is added for pods that it had better
    not take would make that worthless. Upstream's autoscaler does not look at them.

    Args:
        fits: the groups' ids whose nodes take a pod of a class, by the class' number.
        found: the classes.
        candidates: the groups.

    Returns:
        One round where no such taint is in the way, else two.
    """
    soft = {
        each.group.id: taints
        for each in candidates
        if (taints := tuple(taint for taint in each.template.node.taints if taint.effect == PREFER_NO_SCHEDULE))
    }
    if not soft:
        return (fits,)
    welcome = {each.number: _most_welcome(each.first, fits[each.number], soft) for each in found}
    return (fits,) if welcome == fits else (welcome, fits)


def _most_welcome(pod: Pod, groups: frozenset[str], soft: Mapping[str, Sequence[Taint]]) -> frozenset[str]:
    minded = {id_: sum(_minds(taint, pod) for taint in soft.get(id_, ())) for id_ in groups}
    fewest = min(minded.values(), default=0)
    return frozenset(id_ for id_, number in minded.items() if number == fewest)


def _minds(taint: Taint, pod: Pod) -> bool:
    return not any(tolerates(each, taint) for each in pod.spec.tolerations)
