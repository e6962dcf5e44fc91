"""The workloads of Kubernetes' scheduler_perf (``test/integration/scheduler_perf``, v1.36) by name.

Names, pod templates and numbers of pods are scheduler_perf's. All workloads run on one cluster here, so its nodes have
three zones for all of them; scheduler_perf's affinity workloads have one zone. ``UnschedulableStorm`` is not from
scheduler_perf.
"""

from __future__ import annotations

from typing import Any, Final

from msgspec import Struct

Manifest = dict[str, Any]

FILLED: Final = "sched-0"
"""The namespace of pods that run before the measurement, and of pods that are created in intervals."""
MEASURED: Final = "sched-1"
"""The namespace of the pods that are measured."""
LARGE: Final = 5_000
"""From this number of nodes, the numbers of pods are scheduler_perf's for 5,000 nodes, otherwise those for 500."""
NODE: Final = {"cpu": 4, "memory": "32Gi", "pods": 110}
"""scheduler_perf's node."""

_ZONE: Final = "topology.kubernetes.io/zone"
_HOST: Final = "kubernetes.io/hostname"


def _pod(cpu: str = "100m", *, color: str = "", limits: bool = True, **spec: Any) -> Manifest:
    amounts = {"cpu": cpu, "memory": "500Mi"}
    container = {
        "name": "pause",
        "image": "registry.k8s.io/pause:3.10.2",
        "ports": [{"containerPort": 80}],
        "resources": {"requests": amounts, **({"limits": amounts} if limits else {})},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"labels": {"color": color}} if color else {},
        "spec": {"automountServiceAccountToken": False, "containers": [container], **spec},
    }


def _term(color: str, topology: str) -> Manifest:
    return {
        "labelSelector": {"matchLabels": {"color": color}},
        "topologyKey": topology,
        "namespaces": [MEASURED, FILLED],
    }


def _required(kind: str, color: str, topology: str) -> Manifest:
    terms = {"requiredDuringSchedulingIgnoredDuringExecution": [_term(color, topology)]}
    return _pod(color=color, affinity={kind: terms})


def _preferred(kind: str, color: str) -> Manifest:
    term = {"weight": 1, "podAffinityTerm": _term(color, _HOST)}
    return _pod(color=color, affinity={kind: {"preferredDuringSchedulingIgnoredDuringExecution": [term]}})


DEFAULT: Final = _pod()
SPREADING: Final = _pod(
    color="blue",
    topologySpreadConstraints=[
        {
            "maxSkew": 5,
            "topologyKey": _ZONE,
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"color": "blue"}},
        }
    ],
)
AFFINITY: Final = _required("podAffinity", "blue", _ZONE)
ANTI_AFFINITY: Final = _required("podAntiAffinity", "green", _HOST)
PREFERRED_AFFINITY: Final = _preferred("podAffinity", "red")
PREFERRED_ANTI_AFFINITY: Final = _preferred("podAntiAffinity", "yellow")
LOW_PRIORITY: Final = _pod("900m", terminationGracePeriodSeconds=0)
HIGH_PRIORITY: Final = _pod("3", priority=10)
TOO_LARGE: Final = _pod("9", limits=False, priority=10)


class Filled(Struct, frozen=True):
    """Pods that run when the measurement starts, spread evenly over the nodes.

    Attributes:
        template: of the pods.
        small: number of pods in a small cluster.
        large: number of pods on 5,000 nodes.
        every: the pods are on every n-th node; 3 selects the nodes of one zone.
    """

    template: Manifest
    small: int
    large: int
    every: int = 1


class Workload(Struct, frozen=True):
    """A workload.

    Attributes:
        name: scheduler_perf's.
        template: of the pods that are measured.
        small: number of measured pods in a small cluster.
        large: number of measured pods on 5,000 nodes.
        filled: pods that run before.
        per_node: number of LOW_PRIORITY pods that run on each node.
        churn: template of a pod that is created every 200 ms during the measurement, or ``None``.
        storm: number of unschedulable pods that are pending when the measurement starts.
    """

    name: str
    template: Manifest
    small: int
    large: int
    filled: tuple[Filled, ...] = ()
    per_node: int = 0
    churn: Manifest | None = None
    storm: int = 0

    def measured(self, nodes: int) -> int:
        """Return the number of measured pods."""
        return self.large if nodes >= LARGE else self.small

    def running(self, nodes: int) -> list[tuple[Manifest, int, int]]:
        """Return the pods that run before: the template, the number and the distance of their nodes."""
        found = [(each.template, each.large if nodes >= LARGE else each.small, each.every) for each in self.filled]
        if self.per_node:
            found.append((LOW_PRIORITY, self.per_node * nodes, 1))
        return found


WORKLOADS: Final = {
    each.name: each
    for each in (
        Workload("SchedulingBasic", DEFAULT, 1000, 10_000, (Filled(DEFAULT, 500, 1000),)),
        Workload("TopologySpreading", SPREADING, 1000, 2000, (Filled(DEFAULT, 1000, 5000),)),
        Workload("SchedulingPodAffinity", AFFINITY, 1000, 1000, (Filled(AFFINITY, 500, 5000, 3),)),
        Workload("SchedulingPodAntiAffinity", ANTI_AFFINITY, 400, 1000, (Filled(ANTI_AFFINITY, 100, 1000),)),
        Workload("PreemptionBasic", HIGH_PRIORITY, 500, 1000, per_node=4),
        Workload("PreemptionAsync", DEFAULT, 500, 5000, per_node=4, churn=HIGH_PRIORITY),
        Workload("Unschedulable", DEFAULT, 1000, 10_000, (Filled(DEFAULT, 10, 100),), churn=TOO_LARGE),
        Workload("UnschedulableStorm", DEFAULT, 1000, 5000, (Filled(DEFAULT, 10, 100),), storm=2000),
        Workload(
            "MixedSchedulingBasePod",
            DEFAULT,
            1000,
            5000,
            (
                Filled(DEFAULT, 200, 2000),
                Filled(AFFINITY, 200, 2000, 3),
                Filled(ANTI_AFFINITY, 200, 2000),
                Filled(PREFERRED_AFFINITY, 200, 2000),
                Filled(PREFERRED_ANTI_AFFINITY, 200, 2000),
            ),
        ),
    )
}
