"""Nodes with conditions, and a cluster that lives in time, for tests of the node lifecycle.

Times are seconds since :data:`START`; nodes renew their Lease every ten seconds while they live.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime

from msgspec.structs import replace

from trimtab.api.taint_manager import NodeLifecycle
from trimtab.kube.frozen import FrozenMap
from trimtab.kube.objects import NODE_LEASES, KubeObject, Lease, Node, NodeCondition, Pod, PodSpec, Taint
from trimtab.tainting.lifecycle.node_health import ProbeResult
from trimtab.tainting.lifecycle.node_updates import taint_patch
from trimtab.tainting.lifecycle.planner import NO_EXECUTE_KEYS, LifecyclePlan, TaintChange, plan_lifecycle, spend_token
from trimtab.tainting.lifecycle.record import (
    LifecycleState,
    build_record,
    decode_record,
    encode_record,
    restore_state,
)

START = datetime(2026, 11, 20, 12, tzinfo=UTC).timestamp()
ZONE = "topology.kubernetes.io/zone"
PRESSURES = ("MemoryPressure", "DiskPressure", "PIDPressure")
DEFAULTS = NodeLifecycle()


def a_node(
    name="n1",
    ready: str | None = "True",
    *,
    zone="",
    since=0.0,
    taints: Iterable[Taint] = (),
    uid="",
    conditions: dict[str, str] | None = None,
    **fields,
) -> Node:
    """A node whose Ready condition is ``ready`` since so many seconds after the start; ``None`` for without one."""
    others = {"MemoryPressure": "False", "DiskPressure": "False", "PIDPressure": "False"} | (conditions or {})
    if ready == "Unknown":
        others |= dict.fromkeys(PRESSURES, "Unknown")
    found = [NodeCondition(kind, status, since=START) for kind, status in others.items()]
    if ready is not None:
        found.append(NodeCondition("Ready", ready, since=START + since))
    return Node(
        name=name,
        uid=uid or f"uid-{name}",
        resource_version="1",
        created=START - 3600,
        labels=FrozenMap({ZONE: zone} if zone else {}),
        taints=tuple(taints),
        conditions=tuple(found) if ready is not None or conditions else (),
        **fields,
    )


def a_pod(name, node, *, ready=True, ready_since=0.0, phase="Running") -> Pod:
    return Pod(
        namespace="shop",
        name=name,
        uid=f"uid-{name}",
        node=node,
        spec=PodSpec(),
        phase=phase,
        ready=ready,
        ready_since=START + ready_since,
    )


def watched(*objects: KubeObject) -> tuple[dict[str, Node], dict[str, Lease]]:
    """The nodes and Leases among the objects, as the caches have them."""
    nodes = {each.name: each for each in objects if isinstance(each, Node)}
    return nodes, {each.key: each for each in objects if isinstance(each, Lease)}


def no_execute_of(node: Node) -> set[str]:
    return {taint.key for taint in node.taints if taint.effect == "NoExecute" and taint.key in NO_EXECUTE_KEYS}


def written(node: Node, changes: Iterable[TaintChange]) -> Node:
    """The node after its patch, operation by operation, as an API server goes about it; AssertionError if refused."""
    body = {
        "metadata": {"uid": node.uid},
        "spec": {"taints": [_taint_body(taint) for taint in node.taints]} if node.taints else {},
        "status": {"conditions": [{"type": each.type, "status": each.status} for each in node.conditions]},
    }
    apply_all(body, taint_patch(node, [*changes]))
    taints = tuple(
        Taint(
            each["key"],
            each["effect"],
            each.get("value", ""),
            datetime.fromisoformat(each["timeAdded"]).timestamp() if "timeAdded" in each else None,
        )
        for each in body["spec"].get("taints", ())
    )
    return replace(node, taints=taints, resource_version=str(int(node.resource_version or 0) + 1))


def _taint_body(taint: Taint) -> dict[str, str]:
    body = {"key": taint.key, "effect": taint.effect}
    if taint.value:
        body["value"] = taint.value
    if taint.time_added is not None:
        body["timeAdded"] = datetime.fromtimestamp(taint.time_added, UTC).isoformat()
    return body


def apply_all(body, operations) -> None:
    """A JSON patch."""
    for operation in operations:
        apply(body, operation)


def apply(body, operation) -> None:
    """One operation of a JSON patch."""
    *path, last = operation["path"].strip("/").split("/")
    for part in path:
        body = body[int(part)] if isinstance(body, list) else body[part]
    if isinstance(body, list):
        place = len(body) if last == "-" else int(last)
        if operation["op"] == "test":
            assert body[place] == operation["value"], operation
        elif operation["op"] == "add":
            body.insert(place, operation["value"])
        else:
            del body[place]
    elif operation["op"] == "test":
        assert body.get(last) == operation["value"], operation
    elif operation["op"] == "add":
        body[last] = operation["value"]
    else:
        del body[last]


class World:
    """Nodes that live, fail and recover, and a planner that looks at them every second.

    Attributes:
        tainted: which node got a NoExecute taint at which second, in order.
        freed: which node lost its NoExecute taints when.
        unknown: which node was marked Unknown when.
    """

    def __init__(self, nodes: Iterable[Node], *, settings: NodeLifecycle = DEFAULTS) -> None:
        self.nodes = {node.name: replace(node, heartbeat=START) for node in nodes}
        self.leases = {name: self._lease(name, 0.0) for name in self.nodes}
        self.dead: set[str] = set()
        self.settings = settings
        self.memory = LifecycleState()
        self.before = LifecycleState()
        self.second = 0.0
        self.watch: float | None = None  # second at which our watches froze
        self.frozen: dict[str, Lease] = {}
        self.probe_results: dict[str, ProbeResult] = {}
        self.plan: LifecyclePlan | None = None
        self.tainted: list[tuple[str, float]] = []
        self.freed: list[tuple[str, float]] = []
        self.unknown: list[tuple[str, float]] = []
        self.asked: list[tuple[str, float]] = []

    def _lease(self, name: str, second: float) -> Lease:
        return Lease(NODE_LEASES, name, holder=name, duration=40, renewed=START + second)

    def fail(self, *names: str) -> None:
        self.dead.update(names)

    def recover(self, *names: str) -> None:
        """They renew at once, and post that they are ready."""
        self.dead.difference_update(names)
        for name in names:
            self.leases[name] = self._lease(name, self.second)
            self._set(name, "False", others="False")
            self._set(name, "True", others="False")
            self.nodes[name] = replace(self.nodes[name], heartbeat=START + self.second)

    def _set(self, name: str, ready: str, *, others: str) -> None:
        node = self.nodes[name]
        conditions = [
            NodeCondition(
                each.type,
                ready if each.type == "Ready" else others,
                since=START + self.second if each.type == "Ready" and each.status != ready else each.since,
            )
            for each in node.conditions
        ]
        self.nodes[name] = replace(node, conditions=tuple(conditions))

    def kill(self, *, away: float = 0.0, unwritten: bool = False) -> None:
        """Our process is killed, and another one starts so many seconds later with the record of this one.

        ``unwritten``: it was killed after it acted and before it wrote down that it did.
        """
        record = self.before if unwritten else build_record(self.memory, self.nodes, now=START + self.second)
        for _ in range(int(away)):
            self._tick()
        self.probe_results = {}
        self.memory = restore_state(decode_record(encode_record(record)), now=START + self.second)

    def _tick(self) -> None:
        self.second += 1
        for name in self.nodes.keys() - self.dead:
            if self.second % 10 == 0:
                self.leases[name] = self._lease(name, self.second)

    def run(self, until: float, each: Callable[[World], None] = lambda _: None) -> World:
        while self.second < until:
            self._tick()
            self.step()
            each(self)
        return self

    def step(self) -> LifecyclePlan:
        """One pass, and what it says is done."""
        self.before = build_record(self.memory, self.nodes, now=START + self.second)
        now = START + self.second
        leases = self.frozen if self.watch is not None else self.leases
        seen = watched(*self.nodes.values(), *leases.values())
        plan = plan_lifecycle(
            *seen,
            self.settings,
            now=now,
            memory=self.memory,
            watches_verified_at=now if self.watch is None else START + self.watch,
            probe_results=self.probe_results,
        )
        self.plan, self.memory = plan, plan.memory
        for token in plan.taken.values():
            self.memory = spend_token(self.memory, token, in_flight=1, at=now)
        for name in plan.probes:
            node, lease = self.nodes[name], self.leases[name]
            self.asked.append((name, self.second))
            self.probe_results[name] = ProbeResult(node.uid, (lease.renewed, node.heartbeat), now)
        for mark in plan.unknown:
            self._set(mark.node, "Unknown", others="Unknown")
            self.unknown.append((mark.node, self.second))
        self._taint(plan)
        return plan

    def _taint(self, plan: LifecyclePlan) -> None:
        for name in sorted({change.node for change in plan.taints}):
            before = self.nodes[name]
            after = written(before, [change for change in plan.taints if change.node == name])
            self.nodes[name] = after
            if no_execute_of(after) and not no_execute_of(before):
                self.tainted.append((name, self.second))
            if no_execute_of(before) and not no_execute_of(after):
                self.freed.append((name, self.second))
