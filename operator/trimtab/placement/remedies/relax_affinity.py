"""Make what the pod requires of other pods a preference."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Final

from msgspec.structs import replace

from trimtab.kube.objects import Node, WeightedPodTerm
from trimtab.placement.remedies.costs import EACH_FURTHER, NEIGHBOURS
from trimtab.placement.remedies.framework import NEVER, Case, Costs, Step

_WEIGHT: Final = 100
_FIELDS: Final = (
    ("pod_required", "pod_preferred", "podAffinity"),
    ("anti_required", "anti_preferred", "podAntiAffinity"),
)


class RelaxAffinity:
    """A required term is preferred with full weight instead: the scheduler does what it can.

    Anti-affinity that other pods require of this one is theirs to change.
    """

    reason: ClassVar = "RelaxAffinity"
    rules: ClassVar = frozenset(("InterPodAffinity",))
    evicts: ClassVar = False

    def bound(self, case: Case, rule: str) -> Costs | float:
        """One term, if the pod states any."""
        del rule
        affinity = case.pod.spec.affinity
        return NEIGHBOURS if affinity.pod_required or affinity.anti_required else NEVER

    def steps(self, case: Case, node: Node, rule: str) -> Iterator[Step]:
        """Affinity alone, anti-affinity alone, both."""
        del rule
        stated = [fields for fields in _FIELDS if getattr(case.pod.spec.affinity, fields[0])]
        for chosen in ([each] for each in stated):
            yield _relaxed(case, node, chosen)
        if len(stated) > 1:
            yield _relaxed(case, node, stated)


def _relaxed(case: Case, node: Node, chosen: list[tuple[str, str, str]]) -> Step:
    affinity = case.pod.spec.affinity
    changes: dict[str, tuple[object, ...]] = {}
    number = 0
    keys = []
    for required, preferred, _ in chosen:
        terms = getattr(affinity, required)
        number += len(terms)
        keys += [term.topology_key for term in terms]
        weighted = tuple(WeightedPodTerm(_WEIGHT, term) for term in terms)
        changes |= {required: (), preferred: getattr(affinity, preferred) + weighted}
    names = " and ".join(name for _, _, name in chosen)
    return case.on_pod(
        "RelaxAffinity",
        f"let {case.template} prefer, not require, its {names} by {', '.join(keys)}: node {node.name} takes it then",
        NEIGHBOURS + EACH_FURTHER * (number - 1),
        field=f"spec.affinity.{chosen[0][2]}" if len(chosen) == 1 else "spec.affinity",
        before="requiredDuringSchedulingIgnoredDuringExecution",
        after="preferredDuringSchedulingIgnoredDuringExecution",
        affinity=replace(affinity, **changes),
    )
