"""Measures the damage that 50 pods of one namespace can cause to planners, the event loop and other namespaces.

``python benchmarks/worst_tenant.py [--seeds 200] [--first 1]`` tries random tenants (tests/fixtures/hostile.py) one
after another in one cluster of 100 nodes and 3,000 pods, and prints the maximum of each measure with its seed.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "operator"), str(ROOT)]

import msgspec  # noqa: E402
from msgspec import Struct  # noqa: E402
from msgspec.structs import replace  # noqa: E402

from benchmarks.clusters import CREATED, ZONE, node, pod  # noqa: E402
from tests.fixtures.hostile import EXCLUDING, QUOTA, HostileTenant  # noqa: E402
from trimtab.api.cluster_autoscaler import ClusterAutoscalerSpec  # noqa: E402
from trimtab.api.descheduler_policy import DeschedulerPolicy  # noqa: E402
from trimtab.api.plan import Plan, RemoveNode, ScaleUp  # noqa: E402
from trimtab.api.scheduler_policy import DEFAULT_SCHEDULER, SchedulerPolicySpec  # noqa: E402
from trimtab.api.taint_manager import TaintManagerSpec  # noqa: E402
from trimtab.autoscaling import planner as autoscaling  # noqa: E402
from trimtab.autoscaling.scale_up import PlanInputs  # noqa: E402
from trimtab.cluster.snapshot import Snapshot  # noqa: E402
from trimtab.descheduling.planning import planner as descheduling  # noqa: E402
from trimtab.kube.frozen import Labels, ResourceList  # noqa: E402
from trimtab.kube.objects import (  # noqa: E402
    SYSTEM_CLASSES,
    Affinity,
    KubeObject,
    LabelSelector,
    Machine,
    MachineSet,
    Namespace,
    OwnerReference,
    Pod,
    PodAffinityTerm,
    PodCondition,
    PodSpec,
    Taint,
    WeightedPodTerm,
)
from trimtab.kube.watching.informer import THREAD_DECODE_BYTES  # noqa: E402
from trimtab.kube.wire.decode import decode_object  # noqa: E402
from trimtab.placement.placer import Placer  # noqa: E402
from trimtab.runtime.memory import forget_removed  # noqa: E402
from trimtab.scheduling.planner import Bind, CyclePlanner, Decision, batch_order  # noqa: E402
from trimtab.scheduling.profiles import profile_of  # noqa: E402
from trimtab.tainting.preview import TaintPlan, plan_taints  # noqa: E402

NAMESPACE: Final = "tenant"
NOW: Final = CREATED + 86_400.0
LARGEST: Final = 3 * 2**19
"""The maximum size of an object in etcd, in bytes."""
LARGE: Final = 129
"""The seed of a tenant with large objects."""
CAPACITY: Final = "capacity.cluster-autoscaler.kubernetes.io"
SIZE: Final = "machine.openshift.io/cluster-api-autoscaler-node-group"
STRATEGIES: Final = (
    "RemoveDuplicates",
    "RemovePodsViolatingInterPodAntiAffinity",
    "RemovePodsViolatingInterPodAffinity",
    "RemovePodsViolatingNodeAffinity",
    "RemovePodsViolatingNodeTaints",
    "RemovePodsViolatingTopologySpreadConstraint",
)
PARAMS: Final[dict[str, Any]] = {
    "RemovePodsViolatingNodeAffinity": {"nodeAffinityType": ["requiredDuringSchedulingIgnoredDuringExecution"]},
    "LowNodeUtilization": {
        "nodeResourceUtilizationThresholds": {"thresholds": {"cpu": 20}, "targetThresholds": {"cpu": 60}}
    },
}


class Shape(Struct, frozen=True):
    """The cluster around the tenant.

    Attributes:
        sets: the number of MachineSets with ten nodes each.
        pods: the number of pods per node of other tenants, with twenty per owner.
        pending: the number of pending pods of another tenant.
    """

    sets: int = 10
    pods: int = 30
    pending: int = 8

    @property
    def nodes(self) -> int:
        """Return the number of nodes."""
        return 10 * self.sets


def objects(shape: Shape) -> Iterator[KubeObject]:
    """Yield a balanced cluster, in which strategies find nothing to do and pods need nodes, some of an empty group."""
    limits = Labels({f"{SIZE}-min-size": "1", f"{SIZE}-max-size": "20"})
    api = "machine.openshift.io/v1beta1"
    for name in (NAMESPACE, *(f"team-{number:02}" for number in range(50))):
        yield Namespace(name=name, uid=f"uid-{name}", labels=Labels({"kubernetes.io/metadata.name": name}))
    for place in range(shape.sets):
        name = f"set-{place:02}"
        labels = Labels({ZONE: f"zone-{place % 3}"})
        yield MachineSet(
            "machines", name, uid=name, api_version=api, annotations=limits, replicas=10, node_labels=labels
        )
        owner = OwnerReference("MachineSet", name, name, api, controller=True)
        for number in range(10 * place, 10 * place + 10):
            made = node(number)
            yield Machine(
                "machines",
                f"m-{number}",
                owners=(owner,),
                created=CREATED,
                node=made.name,
                node_uid=made.uid,
                phase="Running",
            )
            yield replace(made, labels=Labels({**made.labels, **labels}))
    for number in range(shape.nodes * shape.pods):
        yield _running(number, number % shape.nodes)
    # Pods of two groups fit in no other group: one group has no node, the other has one node, which is full.
    size = Labels({f"{SIZE}-min-size": "0", f"{SIZE}-max-size": "20"})
    capacity = Labels({**size, f"{CAPACITY}/cpu": "8", f"{CAPACITY}/memory": "32Gi"})
    empty, single = (Labels({"pool": name}) for name in ("empty", "single"))
    yield MachineSet("machines", "empty", uid="empty", api_version=api, annotations=capacity, node_labels=empty)
    yield MachineSet(
        "machines", "single", uid="single", api_version=api, annotations=size, replicas=1, node_labels=single
    )
    owner = OwnerReference("MachineSet", "single", "single", api, controller=True)
    made = node(shape.nodes)
    yield Machine(
        "machines", "m-single", owners=(owner,), created=CREATED, node=made.name, node_uid=made.uid, phase="Running"
    )
    yield replace(made, labels=Labels({**made.labels, **single}))
    filler = pod(shape.nodes * shape.pods, 9998, shape.nodes)
    yield replace(filler, spec=_shared(_requesting(filler.spec, 4500)))
    for number in range(shape.pending):
        yield _pending(number)
    for number, pool in enumerate((empty, empty, single, single), shape.pending):
        wanting = _pending(number)
        yield replace(wanting, spec=_shared(replace(wanting.spec, node_selector=pool)))


def _running(number: int, place: int) -> Pod:
    owner = number // 20
    made = pod(number, owner, place)
    term = PodAffinityTerm("kubernetes.io/hostname", LabelSelector(made.labels))
    kinds = (
        Affinity(anti_required=(term,)),
        Affinity(anti_preferred=(WeightedPodTerm(100, term),)),
        Affinity(),
        Affinity(),
    )
    return replace(made, spec=_shared(replace(made.spec, affinity=kinds[owner % 4])))


_specs: dict[Any, Any] = {}


def _shared(spec: Any) -> Any:
    return _specs.setdefault(spec, spec)


def _pending(number: int) -> Pod:
    made = pod(number, 9999, 0)
    spec = _requesting(made.spec, 6000)
    refused = (PodCondition("PodScheduled", "False", "Unschedulable", since=NOW - 5),)
    return replace(
        made, name=f"wait-{number}", spec=_shared(spec), node="", phase="Pending", ready=False, conditions=refused
    )


def _requesting(spec: PodSpec, cpu: int) -> PodSpec:
    requests = ResourceList({"cpu": cpu, "memory": 1 << 30})
    return replace(spec, requests=requests, containers=(replace(spec.containers[0], requests=requests),))


def policy() -> DeschedulerPolicy:
    """Return a policy with the strategies that evaluate pods' scheduling constraints."""
    strategies = {name: {"enabled": True} for name in (*STRATEGIES, *PARAMS)}
    for name, params in PARAMS.items():
        strategies[name]["params"] = params
    return msgspec.convert({"metadata": {"name": "default"}, "spec": {"strategies": strategies}}, DeschedulerPolicy)


class Plans(Struct, frozen=True):
    """The plans of all controllers."""

    moved: Plan
    scaled: Plan
    scheduled: Sequence[Decision]
    tainted: TaintPlan


def _descheduling(snapshot: Snapshot) -> Plan:
    return descheduling.plan_evictions(snapshot, [policy()], now=NOW)


def _autoscaling(snapshot: Snapshot) -> Plan:
    spec = msgspec.convert({"scaleDown": {"enabled": True}}, ClusterAutoscalerSpec)
    return autoscaling.plan(snapshot, PlanInputs(spec, NOW))[0]


def _scheduling(snapshot: Snapshot) -> Sequence[Decision]:
    pending = [pod for _, pod in snapshot.unbound() if not pod.terminal]
    pending.sort(key=lambda pod: (batch_order(pod), pod.created or 0.0, pod.key))
    placers = {DEFAULT_SCHEDULER: Placer(snapshot, profile_of(SchedulerPolicySpec(DEFAULT_SCHEDULER)))}
    with snapshot.fork():
        return CyclePlanner(snapshot, placers).plan(pending)


def _tainting(snapshot: Snapshot) -> TaintPlan:
    spec = TaintManagerSpec(mode="TaintAndEvict")
    taint = Taint("maintenance", effect="NoExecute", time_added=NOW - 10)
    with snapshot.fork():
        for each in [each for each in snapshot.nodes.at if each is not None][::10]:
            snapshot.put(replace(each, taints=(taint,)))
        return plan_taints(snapshot, spec, now=NOW)


PLANNERS: Final[Mapping[str, Callable[[Snapshot], Any]]] = {
    "moved": _descheduling,
    "scaled": _autoscaling,
    "scheduled": _scheduling,
    "tainted": _tainting,
}
"""The planners of all controllers, by the fields of :class:`Plans`. Every tenth node is tainted for the last one."""


def plans(snapshot: Snapshot) -> Plans:
    """Return the plans of all controllers, without a deadline."""
    return Plans(**{name: make(snapshot) for name, make in PLANNERS.items()})


Action = tuple[str, ...]


def actions_on_others(made: Plans) -> frozenset[Action]:
    """Return the actions in other namespaces: ends of pods, node removals with their pods, and nodes for pods."""
    found: set[Action] = {("evict", each.key) for each in made.moved.actions if each.namespace != NAMESPACE}
    for each in made.scaled.scaling or ():
        if isinstance(each, RemoveNode):
            found.add(("remove", each.node))
        elif isinstance(each, ScaleUp):
            found |= {("node for", key) for key in each.pods if not key.startswith(f"{NAMESPACE}/")}
    for decision in made.scheduled:
        if isinstance(decision, Bind):
            victims = ()
            found |= {("bind", decision.pod.key)} if decision.pod.namespace != NAMESPACE else set()
        else:
            victims = decision.preemption.victims if decision.preemption else ()
        found |= {("preempt", each.key) for each in victims if each.namespace != NAMESPACE}
    found |= {
        ("delete", f"{each.namespace}/{each.pod}") for each in made.tainted.deletions if each.namespace != NAMESPACE
    }
    return frozenset(found)


class Harm(Struct, frozen=True):
    """The damage that one tenant causes.

    Attributes:
        seed: the seed of the tenant.
        what: a description of the objects that it creates.
        ratio: the factor by which all plans together take longer than right before.
        ratios: the same for each planner, by the keys of :data:`PLANNERS`.
        held: the maximum time for applying one of its objects, in seconds.
        decoding: the maximum time for decoding one of its objects from JSON, in seconds.
        memory: the relative increase of resident memory over that right before.
        acted: actions in other namespaces that are not planned without the tenant.
        missed: actions that are planned only without the tenant.
    """

    seed: int
    what: str
    ratio: float
    ratios: Mapping[str, float]
    held: float
    decoding: float
    memory: float
    acted: tuple[Action, ...] = ()
    missed: tuple[Action, ...] = ()


class Trial:
    """A cluster in which tenants are tried, one after another.

    Args:
        shape: the size of the cluster.
        repeat: the number of times to plan. The minimum time is used.
    """

    def __init__(self, shape: Shape, *, repeat: int = 2) -> None:
        self.snapshot = Snapshot(objects(shape))
        self._repeat = repeat
        self._nodes = sorted(self.snapshot.nodes.slot_of)
        self._labels = [dict(each.labels) for each in list(self.snapshot.pods.values())[:20]]
        # The manifests of a large tenant, which only the benchmark makes, leave 14 MiB in the allocator.
        self.remove(self.send(self.tenant(LARGE))[0])
        plans(self.snapshot)
        self.alone, self.usual = self._time()
        self.expected = actions_on_others(self.alone)
        self.resident = resident()

    def tenant(self, seed: int) -> HostileTenant:
        """Return the tenant of a seed."""
        return HostileTenant(seed, namespace=NAMESPACE, nodes=self._nodes, labels=self._labels)

    def send(self, tenant: HostileTenant) -> tuple[list[KubeObject], float, float]:
        """Apply all objects of a tenant, and return them with the maximum times for applying and for decoding one.

        The times are CPU times, for which the operator's event loop would wait.
        """
        sent: list[KubeObject] = []
        held = decoding = 0.0
        for manifest in self._manifests(tenant):
            text = msgspec.json.encode(self._as_stored(manifest, tenant))
            del manifest
            if len(text) > LARGEST:
                continue  # as the API server does
            read = msgspec.json.decode(text)
            began = time.thread_time()
            decoded = decode_object(read)
            if len(text) <= THREAD_DECODE_BYTES:  # the operator decodes larger objects in a separate thread
                decoding = max(decoding, time.thread_time() - began)
            if decoded is None:
                continue
            began = time.thread_time()
            self.snapshot.put(decoded)
            held = max(held, time.thread_time() - began)
            sent.append(decoded)
        return sent, held, decoding

    def remove(self, sent: Sequence[KubeObject]) -> None:
        """Delete the tenant's objects."""
        for each in sent:
            self.snapshot.remove(each)
        with self.snapshot.fork():
            pass

    def reclaimed(self) -> int:
        """Drop unused values as the operator does after removals; returns the resident memory of the process."""
        forget_removed(self.snapshot)
        return resident()

    def harm(self, seed: int) -> Harm:
        """Measure the damage that a tenant causes."""
        tenant = self.tenant(seed)
        _, usual = self._time()  # other jobs of the machine change it
        before = self.reclaimed()
        sent, held, decoding = self.send(tenant)
        made, seconds = self._time()
        memory = resident() / before - 1
        found = actions_on_others(made)
        self.remove(sent)
        return Harm(
            seed,
            str(tenant),
            sum(seconds.values()) / sum(usual.values()),
            {name: seconds[name] / usual[name] for name in PLANNERS},
            held,
            decoding,
            memory,
            tuple(sorted(found - self.expected)),
            tuple(sorted(self.expected - found)),
        )

    def _as_stored(self, manifest: dict[str, Any], tenant: HostileTenant) -> dict[str, Any]:
        """Return an object as the API server, scheduler, kubelet and DaemonSet controller would change it."""
        metadata = {**manifest["metadata"], "uid": _uid(manifest)}
        status: dict[str, Any] = {}
        if manifest["kind"] == "DaemonSet":
            desired = self._matching(manifest)
            created = min(len(desired), QUOTA - tenant.count)
            status = {"desiredNumberScheduled": len(desired), "currentNumberScheduled": created}
        elif manifest["kind"] == "Pod" and "kubernetes.io/config.mirror" in metadata.get("annotations", {}):
            status = {"phase": "Pending"}  # the kubelet runs no mirror pod that it did not create
        elif manifest["kind"] == "Pod" and "nodeName" in manifest["spec"]:
            status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        elif manifest["kind"] == "Pod":
            condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
            status = {"phase": "Pending", "conditions": [condition]}
        if manifest["kind"] == "Pod":
            priority = SYSTEM_CLASSES.get(manifest["spec"].get("priorityClassName", ""), 0)
            manifest = {**manifest, "spec": {**manifest["spec"], "priority": priority}}
        return {**manifest, "metadata": metadata, "status": status}

    def _manifests(self, tenant: HostileTenant) -> Iterator[dict[str, Any]]:
        yield from tenant.pods()
        made = list(tenant.objects())
        yield from made
        yield from self._daemon_pods(made, tenant)

    def _matching(self, daemon_set: dict[str, Any]) -> list[str]:
        """Return the nodes that a DaemonSet of the tenant does not exclude by name."""
        affinity = daemon_set["spec"]["template"]["spec"].get("affinity", {}).get("nodeAffinity", {})
        terms = affinity.get("requiredDuringSchedulingIgnoredDuringExecution", {}).get("nodeSelectorTerms", [])
        excluded = {
            name
            for term in terms
            for each in term.get("matchExpressions", ())
            if each["key"] == "kubernetes.io/hostname"
            for name in each["values"]
        }
        return [name for name in self._nodes if name not in excluded]

    def _daemon_pods(self, objects: Sequence[dict[str, Any]], tenant: HostileTenant) -> Iterator[dict[str, Any]]:
        """Yield the pods that the DaemonSet controller creates for the DaemonSet that excludes most nodes."""
        for owner in objects:
            if owner["kind"] == "DaemonSet" and owner["metadata"]["name"] == EXCLUDING:
                reference = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": EXCLUDING, "uid": _uid(owner)}
                for name in self._matching(owner)[: QUOTA - tenant.count]:
                    metadata = {"name": f"{EXCLUDING}-{name}", "namespace": NAMESPACE}
                    metadata["ownerReferences"] = [{**reference, "controller": True}]
                    spec = {**owner["spec"]["template"]["spec"], "nodeName": name}
                    yield {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}

    def _time(self) -> tuple[Plans, dict[str, float]]:
        made: dict[str, Any] = {}
        best = dict.fromkeys(PLANNERS, float("inf"))
        for _ in range(self._repeat):
            for name, make in PLANNERS.items():
                began = time.process_time()
                made[name] = make(self.snapshot)
                best[name] = min(best[name], time.process_time() - began)
        return Plans(**made), best


def _uid(manifest: dict[str, Any]) -> str:
    return f"uid-{manifest['kind']}-{manifest['metadata']['name']}"


def resident() -> int:
    """Return the resident memory of this process in bytes, after freeing unused memory of the allocator."""
    gc.collect()
    ctypes.CDLL("libc.so.6").malloc_trim(0)
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


MEASURES: Final[dict[str, Callable[[Harm], float]]] = {
    "plan time": lambda each: each.ratio,
    "applying an object, ms": lambda each: 1000 * each.held,
    "decoding an object, ms": lambda each: 1000 * each.decoding,
    "memory": lambda each: each.memory,
    **{f"plan time, {name}": lambda each, name=name: each.ratios[name] for name in PLANNERS},
}


def main() -> None:
    """Try tenants and print the maximum of each measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--verbose", action="store_true", help="print every tenant")
    options = parser.parse_args()
    trial = Trial(Shape())
    usual = ", ".join(f"{name} {1000 * each:.0f} ms" for name, each in trial.usual.items())
    print(f"without a tenant: {usual}, {resident() >> 20} MiB, {len(trial.expected)} actions", flush=True)
    found = []
    for seed in range(options.first, options.first + options.seeds):
        harm = trial.harm(seed)
        found.append(harm)
        if options.verbose or harm.acted or harm.missed or harm.ratio > 2:
            parts = ", ".join(f"{each:.1f}" for each in harm.ratios.values())
            print(
                f"seed {seed}: {harm.ratio:.2f} times ({parts}), {1000 * harm.held:.1f} ms, {harm.memory:+.0%}: "
                f"{harm.what}; acted {harm.acted[:3]}, missed {harm.missed[:3]}",
                flush=True,
            )
    ratios = sorted(each.ratio for each in found)
    shares = ", ".join(f"{share}% below {ratios[len(ratios) * share // 100]:.2f}" for share in (50, 90, 95, 99))
    print(f"plan time: {shares}; {sum(ratio > 2 for ratio in ratios)} of {len(ratios)} above 2")
    for name, measure in MEASURES.items():
        worst = max(found, key=measure)
        usual = statistics.median(map(measure, found))
        print(f"{name}: worst {measure(worst):.2f}, median {usual:.2f} (seed {worst.seed}: {worst.what})")
    print(f"actions in other namespaces: {sum(len(each.acted) for each in found)} by {len(found)} tenants")
    print(f"after all of them: {trial.reclaimed() / trial.resident - 1:+.0%} memory")


if __name__ == "__main__":
    main()
