"""Iteration reports for tests of status, events and metrics."""

from __future__ import annotations

from typing import Any

from trimtab.api.plan import Kept, Plan, RemoveNode, ScaleUp
from trimtab.autoscaling.actuation.removal import Phase, RemovalOutcome, RemovalResult, RemovalState
from trimtab.autoscaling.cluster_state.readiness import Readiness
from trimtab.autoscaling.cluster_state.state import AutoscalerState, GroupError, GroupRecord, OpenScaleUp
from trimtab.autoscaling.groups import GroupMachine, Groups, MachineState, NodeGroup
from trimtab.autoscaling.providers import ScaleResult
from trimtab.autoscaling.report import ClusterTotals, IterationReport, PendingPod, ScaleUpOutcome

NOW = 1_795_176_000.0  # 2026-11-20T12:00:00Z
NAMESPACE = "openshift-machine-api"


def id_of(name: str) -> str:
    return f"MachineSet/{NAMESPACE}/{name}"


def group(name: str = "a", *, nodes: int = 2, target: int | None = None, most: int = 9, **more: Any) -> NodeGroup:
    """A MachineSet with running machines, each with a node ``<group>-<number>``."""
    machines = tuple(
        GroupMachine(NAMESPACE, f"{name}-{each}", MachineState.RUNNING, node=f"{name}-{each}") for each in range(nodes)
    )
    return NodeGroup(
        id=id_of(name),
        api_version="machine.openshift.io/v1beta1",
        kind="MachineSet",
        namespace=NAMESPACE,
        name=name,
        minimum=0,
        maximum=most,
        target=nodes if target is None else target,
        uid=f"uid-of-{name}",
        **{"machines": machines, **more},
    )


def groups(*of: NodeGroup, **more: Any) -> Groups:
    by_id = {each.id: each for each in sorted(of, key=lambda each: each.id)}
    nodes = {node: each.id for each in by_id.values() for node in each.nodes}
    return Groups(by_id=by_id, of_node=nodes, **more)


def report(*of: NodeGroup, **more: Any) -> IterationReport:
    """A report on these groups; their nodes are ready by default."""
    found = groups(*of)
    defaults: dict[str, Any] = {
        "started": NOW,
        "finished": NOW + 0.25,
        "mode": "Act",
        "generation": 3,
        "plan": Plan(now=NOW, scaling=()),
        "groups": found,
        "state": AutoscalerState(),
        "readiness": dict.fromkeys(found.of_node, Readiness.READY),
        "totals": ClusterTotals(
            nodes=len(found.of_node), cores=4 * len(found.of_node), memory_gib=16 * len(found.of_node)
        ),
    }
    return IterationReport(**{**defaults, **more})


def plan(*scaling: ScaleUp | RemoveNode, kept: tuple[Kept, ...] = ()) -> Plan:
    return Plan(now=NOW, kept=kept, scaling=scaling)


def scale_up(name: str = "a", before: int = 2, after: int = 4, pods: tuple[str, ...] = ("shop/web-1",)) -> ScaleUp:
    return ScaleUp(
        machine_set=f"{NAMESPACE}/{name}",
        from_=before,
        to=after,
        reason="PendingPods",
        pods=pods,
        message="2 nodes",
        group=id_of(name),
    )


def grown(action: ScaleUp, *, at: float = NOW + 0.2, **more: Any) -> ScaleUpOutcome:
    scaled = ScaleResult(action.group, action.from_, action.to, **{"calls": 1, **more})
    return ScaleUpOutcome(action, scaled, at)


def remove(node: str = "a-0", name: str = "a", *, reason: str = "Underutilized") -> RemoveNode:
    return RemoveNode(
        node=node,
        machine_set=f"{NAMESPACE}/{name}",
        reason=reason,
        moves=(),
        message="cpu 10%",
        group=id_of(name),
        machine=f"{NAMESPACE}/{node}",
        uid=f"uid-of-{node}",
    )


def removal(node: str = "a-0", name: str = "a", *, phase: Phase = Phase.EVICTING, **more: Any) -> RemovalState:
    return RemovalState(
        node,
        id_of(name),
        f"{NAMESPACE}/{node}",
        phase,
        since=NOW - 30,
        **{"uid": f"uid-of-{node}", "why": "Underutilized", **more},
    )


def removed(
    node: str = "a-0", name: str = "a", *, result: RemovalResult = RemovalResult.REMOVED, **more: Any
) -> RemovalOutcome:
    defaults: dict[str, Any] = {
        "reason": "Underutilized",
        "message": "its machine is gone",
        "started": NOW - 40,
        "finished": NOW,
        "uid": f"uid-of-{node}",
        "why": "Underutilized",
        "calls": 2.0,
    }
    return RemovalOutcome(node, id_of(name), result, **{**defaults, **more})


def kept_node(name: str, reason: str = "NotUnderutilized", message: str = "cpu 80%", pod: str = "") -> Kept:
    return Kept("Node", "", name, "ScaleDown", reason, message, pod=pod)


def kept_pod(key: str, reason: str = "MaxSizeReached", message: str = "a has 9 of 9 nodes") -> Kept:
    namespace, _, name = key.partition("/")
    return Kept("Pod", namespace, name, "ScaleUp", reason, message)


def opened(before: int = 2, after: int = 4) -> tuple[OpenScaleUp, ...]:
    return (OpenScaleUp(before, after, since=NOW - 60, deadline=NOW + 840),)


def in_trouble(*, until: float = NOW + 300, message: str = "no capacity", **more: Any) -> GroupRecord:
    return GroupRecord(
        failures=1, backoff_until=until, last_error=GroupError(NOW, "InsufficientResources", message), **more
    )


def waiting(*keys: str, since: float | None = NOW - 5) -> dict[str, PendingPod]:
    return {key: PendingPod(uid=f"uid-of-{key}", since=since) for key in keys}


WORDS = "0/5000 nodes are available: 4998 Insufficient cpu, 1 node(s) had untolerated taint(s), 1 node(s) <&> "


def full_size(*, number: int = 500, each: int = 10, words: str = WORDS * 12) -> IterationReport:
    """500 groups of 10 nodes, all in backoff, and a long message for every node."""
    of = [group(f"workers-in-zone-{place:04}-of-the-cluster", nodes=each) for place in range(number)]
    found = groups(*of)
    names = sorted(found.of_node)
    kept = [
        kept_node(node, ("BlockedByPod", "NoPlaceToMovePods", "NotUnderutilized")[place % 3], words, "shop/web-0")
        for place, node in enumerate(names)
    ]
    pods = [kept_pod(f"shop-{place:03}/web-{place}", "NoGroupFits", words) for place in range(5000)]
    return report(
        *of,
        plan=Plan(now=NOW, kept=(*pods, *kept), scaling=()),
        state=AutoscalerState(
            groups={
                one.id: in_trouble(
                    message=words,
                    boots=tuple(float(second) + 0.5 for second in range(100, 116)),
                    known_failures=(f"{one.name}-abcde", f"{one.name}-fghij"),
                )
                for one in of
            },
            scale_ups={one.id: opened() for one in of},
            targets={one.id: one.target for one in of},
            unneeded={node: NOW - place for place, node in enumerate(names)},
        ),
        removals={node: removal(node, message=words) for node in names[:1000]},
        pending_pods=waiting(*(f"{pod.namespace}/{pod.name}" for pod in pods)),
    )
