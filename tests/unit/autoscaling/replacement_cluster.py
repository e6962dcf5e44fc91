"""Clusters with prices, and a simulation that carries out plans."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec.structs import replace

from tests.builders import machine_set, node, pod
from tests.unit.autoscaling.scale_down_plans import flat
from trimtab.api.cluster_autoscaler import ClusterAutoscalerSpec
from trimtab.api.cluster_autoscaler_status import ClusterAutoscalerStatus, UnneededNode
from trimtab.api.plan import Plan, RemoveNode, ScaleUp
from trimtab.autoscaling.planner import PlanReservations, plan
from trimtab.autoscaling.scale_up import PlanInputs
from trimtab.cluster.snapshot import Snapshot

NOW = 1_795_176_000.0  # 2026-11-20T12:00:00Z
LONG_AGO = "2026-11-20T10:00:00Z"
NAMESPACE = "openshift-machine-api"
CORES = {"small": "2", "large": "8"}


def group(name: str, price: str | None, *, size: int = 0, cpu: str = "4", least: int = 0, most: int = 20) -> Any:
    """A MachineSet without nodes, with the cores and the price of a node."""
    made = machine_set(name).limits(least, most).replicas(size)
    made.capacity(cpu=cpu, memory="16Gi").annotations({"trimtab.dev/reserved": "cpu=0,memory=0"})
    return made if price is None else made.annotations({"trimtab.dev/price": price})


def worker(name: str, of: Any, *, cpu: str = "4", created: str = LONG_AGO) -> Any:
    """A ready node and its machine."""
    made = node(name).created(created).condition("Ready", "True", since=created)
    return [made.allocatable(cpu=cpu, memory="16Gi").capacity(cpu=cpu), of.machine(f"m-{name}").on(name)]


def web(name: str, on: str, cpu: str = "1", app: str = "web") -> Any:
    """A running pod of a ReplicaSet."""
    return pod(name).on(on).cpu(cpu).memory("1Gi").labels(app=app).owned_by("ReplicaSet", app).ready()


class World:
    """A cluster that carries out each plan, like an ideal machine API, kubelet and scheduler."""

    def __init__(self, *parts: Any, status: dict[str, Any] | None = None, **scale_down: Any) -> None:
        self.builders = {self._key(each): each for each in flat(parts)}
        self.status = msgspec.convert(status or {}, ClusterAutoscalerStatus)
        self.now = NOW
        given = {"enabled": True, "replace": "Enabled", **scale_down}
        self.spec = msgspec.convert({"scaleDown": given}, ClusterAutoscalerSpec)
        self.promises: PlanReservations | None = None
        self.made = 0

    def add(self, *parts: Any) -> None:
        """Add objects to the cluster."""
        self.builders |= {self._key(each): each for each in flat(parts)}

    @staticmethod
    def _key(builder: Any) -> str:
        metadata = builder.manifest()["metadata"]
        return f"{builder.manifest()['kind']}/{metadata.get('namespace', '')}/{metadata['name']}"

    def snapshot(self) -> Snapshot:
        return Snapshot([each.build() for each in self.builders.values()])

    def plan(self, **inputs: Any) -> Plan:
        snapshot = self.snapshot()
        before = dict(snapshot.pods), dict(snapshot.nodes.slot_of), snapshot.nodes.requested.tolist()
        made, self.promises = plan(snapshot, PlanInputs(self.spec, self.now, status=self.status, **inputs))
        assert (snapshot.pods, snapshot.nodes.slot_of, snapshot.nodes.requested.tolist()) == before
        return made

    def keep(self) -> None:
        """Write the records of the last plan to the status, as an iteration does before it acts."""
        assert self.promises is not None
        unneeded = self.promises.removals.unneeded.items()
        self.status = replace(
            self.status,
            replacements=self.promises.replacements,
            unneeded=tuple(UnneededNode(name, datetime.fromtimestamp(since, UTC)) for name, since in unneeded),
        )

    def grow(self, made: Plan, *, cpus: dict[str, str], ready: bool = True) -> list[str]:
        """Carry out the planned scale-ups; returns the names of the new nodes."""
        names = []
        for action in (each for each in made.scaling or () if isinstance(each, ScaleUp)):
            name = action.machine_set.partition("/")[2]
            of = self.builders[f"MachineSet/{NAMESPACE}/{name}"].replicas(action.to)
            for _ in range(action.to - action.from_):
                self.made += 1
                names.append(f"new-{self.made}")
                created = datetime.fromtimestamp(self.now + 1, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
                for each in worker(names[-1], of, cpu=cpus[name], created=created):
                    self.builders[self._key(each)] = each
                if not ready:
                    self.builders[f"Node//{names[-1]}"].not_ready()
            self.status = replace(self.status, last_scale_up=datetime.fromtimestamp(self.now, UTC))
        return names

    def shrink(self, made: Plan) -> list[str]:
        """Carry out the planned removals and moves; returns the names of the removed nodes."""
        deleted = []
        for action in (each for each in made.scaling or () if isinstance(each, RemoveNode)):
            for move in action.moves:
                namespace, _, name = move.pod.partition("/")
                self.builders[f"Pod/{namespace}/{name}"].on(move.target)
            deleted.append(action.node)
            self.builders.pop(f"Node//{action.node}")
            machine = self.builders.pop(f"Machine/{action.machine}")
            owner = machine.manifest()["metadata"]["ownerReferences"][0]["name"]
            of = self.builders[f"MachineSet/{NAMESPACE}/{owner}"]
            of.replicas(of.manifest()["spec"]["replicas"] - 1)
        return deleted

    def price(self, prices: dict[str, str]) -> float:
        """The price of all nodes per hour."""
        owners = [
            each.manifest()["metadata"]["ownerReferences"][0]["name"]
            for key, each in self.builders.items()
            if key.startswith("Machine/")
        ]
        return sum(float(prices[owner]) for owner in owners)


def ups(made: Plan) -> dict[str, tuple[int, int]]:
    found = [each for each in made.scaling or () if isinstance(each, ScaleUp)]
    return {each.machine_set.partition("/")[2]: (each.from_, each.to) for each in found}


def removals(made: Plan) -> dict[str, str]:
    return {each.node: each.reason for each in made.scaling or () if isinstance(each, RemoveNode)}


def kept_reasons(made: Plan) -> dict[str, str]:
    """The reasons of what is not replaced, by name."""
    return {each.name: each.reason for each in made.kept if each.strategy == "Replace"}


def message(made: Plan, name: str) -> str:
    return next(each.message for each in made.kept if each.strategy == "Replace" and each.name == name)
