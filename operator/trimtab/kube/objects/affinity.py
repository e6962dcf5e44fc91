"""Affinity of pods to nodes and to other pods (core/v1 Affinity)."""

from __future__ import annotations

from msgspec import Struct

from trimtab.kube.objects.selector import LabelSelector, NodeSelector, NodeSelectorTerm


class PreferredNodeTerm(Struct, frozen=True, gc=False):
    """A node preference with its weight, 1 to 100."""

    weight: int
    term: NodeSelectorTerm


class NodeAffinity(Struct, frozen=True, gc=False):
    """``required`` is nil where the pod states none; a required selector without terms matches no node."""

    required: NodeSelector | None = None
    preferred: tuple[PreferredNodeTerm, ...] = ()


class PodAffinityTerm(Struct, frozen=True, gc=False):
    """Pods that ``selector`` picks in ``namespaces``, counted per value of the node label ``topology_key``.

    ``namespaces`` empty and ``namespace_selector`` nil mean the pod's own namespace; an empty namespace selector
    means all namespaces. The API server has merged (mis)matchLabelKeys into ``selector`` when the pod was created.
    """

    topology_key: str
    selector: LabelSelector | None = None
    namespaces: tuple[str, ...] = ()
    namespace_selector: LabelSelector | None = None
    match_label_keys: tuple[str, ...] = ()
    mismatch_label_keys: tuple[str, ...] = ()


class WeightedPodTerm(Struct, frozen=True, gc=False):
    """A preferred pod (anti-)affinity term with its weight, 1 to 100."""

    weight: int
    term: PodAffinityTerm


class Affinity(Struct, frozen=True, gc=False):
    """All three affinities of a pod; empty where not stated."""

    node: NodeAffinity = NodeAffinity()
    pod_required: tuple[PodAffinityTerm, ...] = ()
    pod_preferred: tuple[WeightedPodTerm, ...] = ()
    anti_required: tuple[PodAffinityTerm, ...] = ()
    anti_preferred: tuple[WeightedPodTerm, ...] = ()

    @property
    def of_pods(self) -> bool:
        """Whether the pod states anything about other pods."""
        return bool(self.pod_required or self.anti_required or self.pod_preferred or self.anti_preferred)
