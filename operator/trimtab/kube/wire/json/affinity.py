"""What core/v1 pods say of where they want to be: affinities, tolerations, spreading."""

from __future__ import annotations

from msgspec import field

from trimtab.kube.wire.json.base import Message
from trimtab.kube.wire.json.meta import LabelSelector, NodeSelector, NodeSelectorTerm


class PreferredSchedulingTerm(Message):
    """core/v1 PreferredSchedulingTerm."""

    weight: int = 0
    preference: NodeSelectorTerm = field(default_factory=NodeSelectorTerm)


class NodeAffinity(Message):
    """core/v1 NodeAffinity, its two long names cut short."""

    required: NodeSelector | None = field(name="requiredDuringSchedulingIgnoredDuringExecution", default=None)
    preferred: list[PreferredSchedulingTerm] = field(
        name="preferredDuringSchedulingIgnoredDuringExecution", default_factory=list
    )


class PodAffinityTerm(Message):
    """core/v1 PodAffinityTerm."""

    label_selector: LabelSelector | None = None
    namespaces: list[str] = []
    topology_key: str = ""
    namespace_selector: LabelSelector | None = None
    match_label_keys: list[str] = []
    mismatch_label_keys: list[str] = []


class WeightedPodAffinityTerm(Message):
    """core/v1 WeightedPodAffinityTerm."""

    weight: int = 0
    pod_affinity_term: PodAffinityTerm = field(default_factory=PodAffinityTerm)


class PodAffinity(Message):
    """core/v1 PodAffinity and PodAntiAffinity, their two long names cut short."""

    required: list[PodAffinityTerm] = field(name="requiredDuringSchedulingIgnoredDuringExecution", default_factory=list)
    preferred: list[WeightedPodAffinityTerm] = field(
        name="preferredDuringSchedulingIgnoredDuringExecution", default_factory=list
    )


class Affinity(Message):
    """core/v1 Affinity."""

    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class Toleration(Message):
    """core/v1 Toleration."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None


class TopologySpreadConstraint(Message):
    """core/v1 TopologySpreadConstraint."""

    max_skew: int = 0
    topology_key: str = ""
    when_unsatisfiable: str = ""
    label_selector: LabelSelector | None = None
    min_domains: int | None = None
    node_affinity_policy: str = ""
    node_taints_policy: str = ""
    match_label_keys: list[str] = []
