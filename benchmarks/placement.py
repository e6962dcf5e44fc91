"""Measures placing 10,000 pods of 50 classes one after another, with reservations, next to 150,000 running pods."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

from benchmarks.clusters import CREATED, HOSTNAME, ZONE, Shape, cluster
from trimtab.api.scheduler_policy import (
    Policy,
    Predicate,
    PredicateArgument,
    Priority,
    SchedulerPolicySpec,
    ServiceAffinity,
)
from trimtab.cluster.snapshot import Snapshot
from trimtab.kube.frozen import Labels, ResourceList
from trimtab.kube.objects import (
    Affinity,
    Container,
    KubeObject,
    LabelSelector,
    OwnerReference,
    Pod,
    PodAffinityTerm,
    PodSpec,
    ReplicaSet,
    Service,
    Toleration,
    TopologySpread,
)
from trimtab.placement.placer import Placer
from trimtab.placement.registry import DEFAULT
from trimtab.scheduling.profiles import profile_of

NAMESPACE: Final = "new"
CLASSES: Final = 50
PODS: Final = 10_000
_TOLERATIONS: Final = tuple(
    Toleration(key=f"node.kubernetes.io/{key}", operator="Exists", effect="NoExecute", seconds=300)
    for key in ("not-ready", "unreachable")
)

Extra = dict[str, Any]
Result = dict[str, Any]


def plain(number: int) -> Extra:
    """Return no additional constraints."""
    del number
    return {}


def spread(number: int) -> Extra:
    """Return topology spread over zones, and for every other class over hosts as well."""
    selector = LabelSelector(_labels(number))
    constraints = [TopologySpread(1, ZONE, "DoNotSchedule", selector)]
    if number % 2:
        constraints.append(TopologySpread(1, HOSTNAME, "DoNotSchedule", selector))
    return {"topology_spread": tuple(constraints)}


def affinity(number: int) -> Extra:
    """Return pod affinity: to the class in a zone or, for every other class, to a running application on a host."""
    if number % 2:
        there = LabelSelector(Labels({"app": f"app-{number:05}"}))
        term = PodAffinityTerm(HOSTNAME, there, namespaces=(f"team-{number % 50:02}",))
    else:
        term = PodAffinityTerm(ZONE, LabelSelector(_labels(number)))
    return {"affinity": Affinity(pod_required=(term,))}


def anti_affinity(number: int) -> Extra:
    """Return anti-affinity: to the class on a host or, for every other class, to its guard pods in a zone."""
    if number % 2:
        term = PodAffinityTerm(HOSTNAME, LabelSelector(_labels(number)))
    else:
        term = PodAffinityTerm(ZONE, LabelSelector(Labels({"guards": str(number)})))
    return {"affinity": Affinity(anti_required=(term,))}


def pods(extra: Callable[[int], Extra]) -> list[Pod]:
    """Return the pending pods, alternating between the classes."""
    specs = [_spec(number, extra(number)) for number in range(CLASSES)]
    labels = [_labels(number) for number in range(CLASSES)]
    owners = [(_owner(number),) for number in range(CLASSES)]
    return [
        Pod(
            namespace=NAMESPACE,
            name=f"new-{number:05}",
            uid=f"uid-new-{number:05}",
            labels=labels[number % CLASSES],
            owners=owners[number % CLASSES],
            created=CREATED,
            spec=specs[number % CLASSES],
            phase="Pending",
        )
        for number in range(PODS)
    ]


def guards() -> Iterator[Pod]:
    """Yield a pod in zone-0 for each class with anti-affinity to it."""
    for number in range(0, CLASSES, 2):
        yield Pod(
            namespace=NAMESPACE,
            name=f"guard-{number}",
            labels=Labels({"guards": str(number)}),
            node=f"node-{3 * number:05}",
            spec=_spec(number, {}),
            phase="Running",
        )


def replica_sets() -> Iterator[KubeObject]:
    """Yield the ReplicaSets of the pods, over which the scheduler spreads pods by default."""
    for number in range(CLASSES):
        yield ReplicaSet(NAMESPACE, _owner(number).name, selector=LabelSelector(_labels(number)))


def services() -> Iterator[KubeObject]:
    """Yield a Service for each class."""
    for number in range(CLASSES):
        yield Service(NAMESPACE, _owner(number).name, selector=_labels(number))


SERVICE_AFFINITY: Final = SchedulerPolicySpec(
    "legacy",
    policy=Policy(
        predicates=(
            Predicate("GeneralPredicates"),
            Predicate("Zone", PredicateArgument(service_affinity=ServiceAffinity((ZONE,)))),
        ),
        priorities=(Priority("LeastRequestedPriority", 1),),
    ),
)
SELECTOR_SPREAD: Final = SchedulerPolicySpec("legacy", provider="DefaultProvider")


def place(
    extra: Callable[[int], Extra],
    *,
    owned: bool = False,
    served: bool = False,
    policy: SchedulerPolicySpec | None = None,
) -> Result:
    """Place all pods in the cluster of 5,000 nodes and 150,000 pods, on three forks. The median is reported.

    Args:
        extra: the constraints of each class.
        owned: whether the ReplicaSets of the pods exist.
        served: whether a Service selects the pods of each class.
        policy: the filters and scores; by default kube-scheduler's.
    """
    shape = Shape()
    snapshot = Snapshot(cluster(shape))
    for each in (*guards(), *(replica_sets() if owned else ()), *(services() if served else ())):
        snapshot.put(each)
    pending = pods(extra)
    times, placed = [], 0
    for _ in range(3):
        placer = Placer(snapshot, DEFAULT if policy is None else profile_of(policy))
        with snapshot.fork():
            started = time.perf_counter()
            made = placer.place(pending)
            times.append(time.perf_counter() - started)
            placed = sum(bool(each.pod.node) for each in made)
    seconds = statistics.median(times)
    params = {"nodes": shape.nodes, "running": shape.pods, "pods": PODS, "classes": CLASSES, "placed": placed}
    return {"seconds": seconds, "decisions_per_s": round(PODS / seconds), "params": params}


def _spec(number: int, extra: Extra) -> PodSpec:
    requests = ResourceList({"cpu": 20 + number, "memory": (32 + number) << 20})
    return PodSpec(
        containers=(Container("main", f"registry.example/new-{number}:1", requests),),
        requests=requests,
        nonzero_requests=requests,
        qos="Burstable",
        tolerations=_TOLERATIONS,
        **extra,
    )


def _labels(number: int) -> Labels:
    return Labels({"app": f"new-{number}"})


def _owner(number: int) -> OwnerReference:
    return OwnerReference("ReplicaSet", f"new-{number}", f"uid-new-{number}", "apps/v1", controller=True)
