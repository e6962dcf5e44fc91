"""Every protection, in the order in which they are asked: the first that refuses gives the reason.

First what the pod is (those can't be lifted), then what its author says, then what the policy says. So a static pod in
kube-system is called a static pod, whatever else it is. The rules that hold for whole templates stand side by side.
"""

from __future__ import annotations

from typing import Final

from trimtab.disruption.protections.bare_pod import BarePods, LivingBarePods
from trimtab.disruption.protections.critical_pod import CriticalPods
from trimtab.disruption.protections.daemon_set_pod import DaemonSetPods
from trimtab.disruption.protections.evict_annotation import EvictAnnotation
from trimtab.disruption.protections.local_storage import PodsWithLocalStorage
from trimtab.disruption.protections.min_replicas import MinReplicas
from trimtab.disruption.protections.mirror_pod import MirrorPods
from trimtab.disruption.protections.no_budget import PodsWithoutBudget
from trimtab.disruption.protections.no_eviction_annotation import PodsThatPreferToStay
from trimtab.disruption.protections.persistent_volume_claim import PodsWithPersistentVolumeClaims
from trimtab.disruption.protections.pod_age import MinPodAge
from trimtab.disruption.protections.priority_threshold import PriorityThresholdRule, UnknownThreshold
from trimtab.disruption.protections.protection import Context, Protection
from trimtab.disruption.protections.resource_claim import PodsWithResourceClaims
from trimtab.disruption.protections.single_replica import RollingOut, SingleReplicas
from trimtab.disruption.protections.starting_pod import StartingPods
from trimtab.disruption.protections.static_pod import StaticPods
from trimtab.disruption.protections.system_namespace import SystemNamespaces
from trimtab.disruption.protections.terminal import TerminalPods
from trimtab.disruption.protections.terminating import TerminatingPods
from trimtab.disruption.protections.unknown_namespace import UnknownNamespaces

PROTECTIONS: Final[tuple[type[Protection], ...]] = (
    TerminatingPods,
    TerminalPods,
    LivingBarePods,
    MirrorPods,
    StaticPods,
    DaemonSetPods,
    BarePods,
    CriticalPods,
    UnknownThreshold,
    UnknownNamespaces,
    EvictAnnotation,
    PodsThatPreferToStay,
    PriorityThresholdRule,
    SystemNamespaces,
    PodsWithLocalStorage,
    PodsWithResourceClaims,
    PodsWithPersistentVolumeClaims,
    PodsWithoutBudget,
    RollingOut,
    SingleReplicas,
    MinReplicas,
    StartingPods,
    MinPodAge,
)


def protections_of(context: Context) -> tuple[Protection, ...]:
    """The protections that the context's policy has, ready to be asked."""
    return tuple(kind(context) for kind in PROTECTIONS if kind.applies(context.spec))
