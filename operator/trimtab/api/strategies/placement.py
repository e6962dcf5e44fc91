"""Strategies that enforce placement rules: duplicates, affinity, anti-affinity, taints and topology spread."""

from __future__ import annotations

from typing import Annotated, ClassVar, Final, Literal

from msgspec import Meta

from trimtab.api.base import SET, Spec, Strategy, bounded, doc


class DuplicatesParams(Spec, frozen=True):
    """Which owners RemoveDuplicates ignores."""

    exclude_owner_kinds: Annotated[
        tuple[Annotated[str, bounded("Kind of an owner, for example ReplicaSet.", least=1, limit=63)], ...],
        bounded(
            "Kinds of owners whose pods this strategy does not evict, for example StatefulSet or ReplicaSet.",
            limit=16,
            **SET,
        ),
    ] = ()


class RemoveDuplicatesParams(Spec, frozen=True):
    """Parameters of RemoveDuplicates."""

    remove_duplicates: Annotated[
        DuplicatesParams, doc("Excludes pods from the strategy based on the kind of their owner.")
    ] = DuplicatesParams()


class RemoveDuplicates(Strategy, frozen=True):
    """Spreads the pods of each owner evenly over the nodes that can run them."""

    params: Annotated[RemoveDuplicatesParams, doc("Parameters of RemoveDuplicates.")] = RemoveDuplicatesParams()


REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
NodeAffinityType = Literal[
    "requiredDuringSchedulingIgnoredDuringExecution", "preferredDuringSchedulingIgnoredDuringExecution"
]


class NodeAffinityParams(Spec, frozen=True):
    """Parameters of RemovePodsViolatingNodeAffinity."""

    node_affinity_type: Annotated[
        tuple[NodeAffinityType, ...],
        bounded(
            "Types of node affinity to enforce. requiredDuringSchedulingIgnoredDuringExecution evicts a pod if its "
            "node does not match its node selector or required node affinity. "
            "preferredDuringSchedulingIgnoredDuringExecution evicts a pod if another node that can run the pod matches "
            "preferred node affinity terms with a higher total weight. Defaults to "
            "requiredDuringSchedulingIgnoredDuringExecution.",
            least=1,
            limit=2,
            **SET,
        ),
    ] = (REQUIRED,)


class RemovePodsViolatingNodeAffinity(Strategy, frozen=True):
    """Evicts pods whose node does not satisfy their node selector or node affinity.

    Pods are evicted only if another node that satisfies it can run them.
    """

    params: Annotated[NodeAffinityParams, doc("Parameters of RemovePodsViolatingNodeAffinity.")] = NodeAffinityParams()


class InterPodAffinityParams(Spec, frozen=True):
    """Parameters of RemovePodsViolatingInterPodAffinity."""

    inter_pod_affinity_type: Annotated[
        tuple[NodeAffinityType, ...],
        bounded(
            "Types of pod affinity to enforce. requiredDuringSchedulingIgnoredDuringExecution evicts a pod if another "
            "node, but not its own node, satisfies its required pod affinity. "
            "preferredDuringSchedulingIgnoredDuringExecution evicts a pod if another node satisfies preferred pod "
            "affinity terms with a higher total weight. Defaults to requiredDuringSchedulingIgnoredDuringExecution.",
            least=1,
            limit=2,
            **SET,
        ),
    ] = (REQUIRED,)


class RemovePodsViolatingInterPodAffinity(Strategy, frozen=True):
    """Evicts pods that violate inter-pod affinity.

    They are rescheduled near the pods that their affinity terms select.
    """

    params: Annotated[InterPodAffinityParams, doc("Parameters of RemovePodsViolatingInterPodAffinity.")] = (
        InterPodAffinityParams()
    )


class InterPodAntiAffinityParams(Spec, frozen=True):
    """Parameters of RemovePodsViolatingInterPodAntiAffinity."""

    inter_pod_anti_affinity_type: Annotated[
        tuple[NodeAffinityType, ...],
        bounded(
            "Types of pod anti-affinity to enforce. requiredDuringSchedulingIgnoredDuringExecution evicts pods that "
            "violate a required anti-affinity term. preferredDuringSchedulingIgnoredDuringExecution evicts a pod if "
            "the total weight of the violated preferred terms is lower on another node. The terms of other pods that "
            "select the pod also count. Defaults to requiredDuringSchedulingIgnoredDuringExecution.",
            least=1,
            limit=2,
            **SET,
        ),
    ] = (REQUIRED,)


class RemovePodsViolatingInterPodAntiAffinity(Strategy, frozen=True):
    """Evicts pods that violate inter-pod anti-affinity, as few of them as possible."""

    params: Annotated[InterPodAntiAffinityParams, doc("Parameters of RemovePodsViolatingInterPodAntiAffinity.")] = (
        InterPodAntiAffinityParams()
    )


_KEY: Final = "[A-Za-z0-9]([-A-Za-z0-9_./]*[A-Za-z0-9])?"
_VALUE: Final = "[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?"
TaintName = Annotated[
    str,
    Meta(
        description=(
            "A taint in the form key or key=value. The form key= matches only taints with an empty value. The "
            "effect cannot be specified."
        ),
        min_length=1,
        max_length=381,
        pattern=f"^{_KEY}(=({_VALUE})?)?$",
    ),
]
"""A taint name has at most 381 characters: 253 + 1 + 63 for the key, 1 for the equals sign and 63 for the value."""


class NodeTaintsParams(Spec, frozen=True):
    """Parameters of RemovePodsViolatingNodeTaints."""

    include_prefer_no_schedule: Annotated[
        bool,
        doc(
            "Whether PreferNoSchedule taints are also enforced. If true, a pod is evicted when another node has fewer "
            "PreferNoSchedule taints that the pod does not tolerate."
        ),
    ] = False
    excluded_taints: Annotated[
        tuple[TaintName, ...],
        bounded(
            "Taints to ignore, in the form key or key=value. For example, add node.kubernetes.io/unschedulable to "
            "prevent the eviction of pods from cordoned nodes. Mutually exclusive with includedTaints.",
            least=1,
            limit=64,
            **SET,
        ),
    ] = ()
    included_taints: Annotated[
        tuple[TaintName, ...],
        bounded(
            "Taints to enforce, in the form key or key=value. If set, all other taints are ignored. If unset, all "
            "taints are enforced except those in excludedTaints and those that the strategy ignores by default. "
            "Mutually exclusive with excludedTaints.",
            least=1,
            limit=64,
            **SET,
        ),
    ] = ()


class RemovePodsViolatingNodeTaints(Strategy, frozen=True):
    """Evicts pods that do not tolerate a NoSchedule taint of their node, if another node can run them."""

    at_most_one_of: ClassVar[tuple[str, ...]] = ("excludedTaints", "includedTaints")

    params: Annotated[NodeTaintsParams, doc("Parameters of RemovePodsViolatingNodeTaints.")] = NodeTaintsParams()


UnsatisfiableConstraintAction = Literal["DoNotSchedule", "ScheduleAnyway"]


class TopologySpreadParams(Spec, frozen=True):
    """Parameters of RemovePodsViolatingTopologySpreadConstraint."""

    constraints: Annotated[
        tuple[UnsatisfiableConstraintAction, ...],
        bounded(
            "Topology spread constraints to enforce, specified by their whenUnsatisfiable value: DoNotSchedule, "
            "ScheduleAnyway, or both. Defaults to DoNotSchedule. Evictions never increase the skew of a "
            "DoNotSchedule constraint, even if only ScheduleAnyway is enforced.",
            least=1,
            limit=2,
            **SET,
        ),
    ] = ("DoNotSchedule",)
    topology_balance_node_fit: Annotated[
        bool,
        doc(
            "Has no effect. The field is accepted for compatibility with policies of the Kubernetes descheduler. "
            "Pods are evicted only if another node can run them, regardless of the value."
        ),
    ] = True


class RemovePodsViolatingTopologySpreadConstraint(Strategy, frozen=True):
    """Evicts pods that violate topology spread constraints.

    They are rescheduled so that the pods are spread evenly over zones, nodes or other topology domains.
    """

    params: Annotated[TopologySpreadParams, doc("Parameters of RemovePodsViolatingTopologySpreadConstraint.")] = (
        TopologySpreadParams()
    )
