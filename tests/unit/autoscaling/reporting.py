"""Passes of the autoscaler as values; tests of what is told of them import it."""

from __future__ import annotations

from typing import Any

from trimtab.api.node_removal import RemoveNode
from trimtab.api.plan import Kept, Plan, ScaleUp
from trimtab.autoscaling.actuation.removal import Phase, RemovalOutcome, RemovalState, Result
from trimtab.autoscaling.groups import GroupMachine, Groups, MachineState, NodeGroup
from trimtab.autoscaling.memory.readiness import Readiness
from trimtab.autoscaling.memory.state import GroupRecord, OpenScaleUp, State, Trouble
from trimtab.autoscaling.providers import Scaled
from trimtab.autoscaling.report import Grown, PassReport, Totals, Waiting

NOW = 1_795_176_000.0  # 2026-11-20T12:00:00Z
NAMESPACE = "openshift-machine-api"


def id_of(name: str) -> str:
    return f"MachineSet/{NAMESPACE}/{name}"


def group(name: str = "a", *, nodes: int = 2, target: int | None = None, most: int = 9, **more: Any) -> NodeGroup:
    """A MachineSet with so many running machines, each with a node ``<group>-<number>``."""
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


def report(*of: NodeGroup, **more: Any) -> PassReport:
    """A pass over these groups, whose nodes are all ready unless said otherwise."""
    found = groups(*of)
    defaults: dict[str, Any] = {
        "started": NOW,
        "finished": NOW + 0.25,
        "mode": "Act",
        "generation": 3,
        "plan": Plan(now=NOW, scaling=()),
        "groups": found,
        "memory": State(),
        "readiness": dict.fromkeys(found.of_node, Readiness.READY),
        "totals": Totals(nodes=len(found.of_node), cores=4 * len(found.of_node), memory_gib=16 * len(found.of_node)),
    }
    return PassReport(**{**defaults, **more})


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


def grown(action: ScaleUp, *, at: float = NOW + 0.2, **more: Any) -> Grown:
    scaled = Scaled(action.group, action.from_, action.to, **{"calls": 1, **more})
    return Grown(action, scaled, at)


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


def removed(node: str = "a-0", name: str = "a", *, result: Result = Result.REMOVED, **more: Any) -> RemovalOutcome:
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
        failures=1, backoff_until=until, last_error=Trouble(NOW, "InsufficientResources", message), **more
    )


def waiting(*keys: str, since: float | None = NOW - 5) -> dict[str, Waiting]:
    return {key: Waiting(uid=f"uid-of-{key}", since=since) for key in keys}


WORDS = "0/5000 nodes are available: 4998 Insufficient cpu, 1 node(s) had untolerated taint(s), 1 node(s) <&> "


def full_size(*, number: int = 500, each: int = 10, words: str = WORDS * 12) -> PassReport:
    """500 groups of 10 nodes, all of them in trouble and every node with a long story."""
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
        memory=State(
            groups={
                one.id: in_trouble(
                    message=words,
                    boots=tuple(float(second) + 0.5 for second in range(100, 116)),
                    troubled=(f"{one.name}-abcde", f"{one.name}-fghij"),
                )
                for one in of
            },
            scale_ups={one.id: opened() for one in of},
            targets={one.id: one.target for one in of},
            unneeded={node: NOW - place for place, node in enumerate(names)},
        ),
        going={node: removal(node, message=words) for node in names[:1000]},
        waiting=waiting(*(f"{pod.namespace}/{pod.name}" for pod in pods)),
    )
