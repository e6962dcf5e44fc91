"""The strategies of a DeschedulerPolicy and their parameters, named and nested as in descheduler/v1alpha1.

A new strategy is one class here and one field of :class:`Strategies`: schema, CEL rules, checks and the reference page
follow. What a strategy does is in ``trimtab.descheduling.strategies``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, ClassVar, Final, Literal

from msgspec import field

from trimtab.api.base import NaturalInt, Percentage, Rule, Spec, bounded, doc

REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
NodeAffinityType = Literal[
    "requiredDuringSchedulingIgnoredDuringExecution", "preferredDuringSchedulingIgnoredDuringExecution"
]
SET: Final = {"x-kubernetes-list-type": "set"}


class NoParams(Spec, frozen=True):
    """The strategy has no parameters."""


class Strategy(Spec, frozen=True):
    """A strategy of any kind."""

    needs: ClassVar[tuple[str, ...]] = ()
    """Parameters that must be given where the strategy is enabled."""

    enabled: Annotated[bool, doc("Whether the strategy runs. A strategy that is not listed does not.")] = True


class DuplicatesParams(Spec, frozen=True):
    """Which owners may keep several pods on one node."""

    exclude_owner_kinds: Annotated[
        tuple[Annotated[str, bounded("A kind.", least=1, limit=63)], ...],
        bounded("Kinds of owners whose pods are left alone, e.g. StatefulSet or ReplicaSet.", limit=16, **SET),
    ] = ()


class RemoveDuplicatesParams(Spec, frozen=True):
    """Parameters of RemoveDuplicates."""

    remove_duplicates: Annotated[DuplicatesParams, doc("Which owners may keep several pods on one node.")] = (
        DuplicatesParams()
    )


class RemoveDuplicates(Strategy, frozen=True):
    """Spreads the pods of one owner over the nodes that can run them."""

    params: Annotated[RemoveDuplicatesParams, doc("Parameters of RemoveDuplicates.")] = RemoveDuplicatesParams()


Shares = Mapping[Annotated[str, bounded("A resource.", least=1, limit=317)], Percentage]
"""Resource name to percentage of what nodes can allocate."""


class UtilizationThresholds(Spec, frozen=True):
    """When a node counts as underutilized and when as overutilized, in percent of allocatable, by pods' requests."""

    cel: ClassVar[tuple[Rule, ...]] = (
        Rule(
            rule="self.thresholds.all(r, !(r in self.targetThresholds) || "
            "self.thresholds[r] <= self.targetThresholds[r])",
            message="thresholds must not exceed targetThresholds",
            # format, not join: a key's length has no bound, and the cost of joining keys is estimated beyond the budget
            expression="'thresholds must not exceed targetThresholds, but do for %s'.format([self.thresholds.filter(r, "
            "r in self.targetThresholds && self.thresholds[r] > self.targetThresholds[r])])",
            field_path=".thresholds",
        ),
    )

    thresholds: Annotated[
        Shares,
        bounded(
            "A node is underutilized, and pods are moved to it, if its usage of every resource named here is at or "
            "below the percentage. Resources: cpu, memory, pods, and any other that nodes offer. A resource that is "
            "not named never keeps a node from being underutilized.",
            least=1,
            limit=16,
        ),
    ]
    target_thresholds: Annotated[
        Shares,
        bounded(
            "A node is overutilized, and pods are moved away from it, while its usage of any resource named here is "
            "above the percentage; no node is filled beyond it. A resource that is not named counts as 100.",
            least=1,
            limit=16,
        ),
    ]
    number_of_nodes: Annotated[
        NaturalInt,
        doc("The strategy acts only while more nodes than this are underutilized; 0 acts from the first one on."),
    ] = 0


class LowNodeUtilizationParams(Spec, frozen=True):
    """Parameters of LowNodeUtilization."""

    node_resource_utilization_thresholds: Annotated[
        UtilizationThresholds | None,
        doc("When a node counts as underutilized and when as overutilized. Required where the strategy is enabled."),
    ] = None


class LowNodeUtilization(Strategy, frozen=True):
    """Moves pods from overutilized nodes to underutilized ones."""

    needs: ClassVar[tuple[str, ...]] = ("nodeResourceUtilizationThresholds",)

    params: Annotated[LowNodeUtilizationParams, doc("Parameters of LowNodeUtilization.")] = LowNodeUtilizationParams()


class RemovePodsViolatingInterPodAntiAffinity(Strategy, frozen=True):
    """Parts pods that a required anti-affinity term forbids to be together, moving as few of them as it takes."""

    params: Annotated[NoParams, doc("The strategy has no parameters.")] = NoParams()


class NodeAffinityParams(Spec, frozen=True):
    """Parameters of RemovePodsViolatingNodeAffinity."""

    node_affinity_type: Annotated[
        tuple[NodeAffinityType, ...],
        bounded(
            "Which rules are looked at: requiredDuringSchedulingIgnoredDuringExecution moves pods whose node no longer "
            "satisfies their node selector or required node affinity, preferredDuringSchedulingIgnoredDuringExecution "
            "pods for which a node of higher preference has room. Without it: the required ones.",
            least=1,
            limit=2,
            **SET,
        ),
    ] = (REQUIRED,)


class RemovePodsViolatingNodeAffinity(Strategy, frozen=True):
    """Moves pods whose node does not, or no longer, satisfy their node affinity to one that does."""

    params: Annotated[NodeAffinityParams, doc("Parameters of RemovePodsViolatingNodeAffinity.")] = NodeAffinityParams()


class Strategies(Spec, frozen=True):
    """The strategies by name. They run in the order of the descheduler's registry, whatever the order of the input."""

    remove_duplicates: Annotated[
        RemoveDuplicates | None,
        doc("Spreads the pods of one owner over the nodes that can run them."),
    ] = field(default=None, name="RemoveDuplicates")
    low_node_utilization: Annotated[
        LowNodeUtilization | None,
        doc("Moves pods from overutilized nodes to underutilized ones."),
    ] = field(default=None, name="LowNodeUtilization")
    inter_pod_anti_affinity: Annotated[
        RemovePodsViolatingInterPodAntiAffinity | None,
        doc("Parts pods that a required anti-affinity term forbids to be together."),
    ] = field(default=None, name="RemovePodsViolatingInterPodAntiAffinity")
    node_affinity: Annotated[
        RemovePodsViolatingNodeAffinity | None,
        doc("Moves pods to nodes that satisfy their node affinity."),
    ] = field(default=None, name="RemovePodsViolatingNodeAffinity")

    def __iter__(self) -> Iterator[tuple[str, Strategy]]:
        """Every strategy that is listed, with its name, enabled or not."""
        for name, attribute in zip(self.__struct_encode_fields__, self.__struct_fields__, strict=True):
            strategy = getattr(self, attribute)
            if strategy is not None:
                yield name, strategy

    def enabled(self) -> tuple[tuple[str, Strategy], ...]:
        """The strategies that run, with their names."""
        return tuple((name, strategy) for name, strategy in self if strategy.enabled)


STRATEGIES: Final[tuple[str, ...]] = Strategies.__struct_encode_fields__
"""Every strategy's name, in the order in which they are listed to users."""
