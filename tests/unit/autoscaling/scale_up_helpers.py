"""Helpers that plan scale-up for small clusters."""

from __future__ import annotations

from typing import Any

import msgspec

from tests.builders import machine_set, pod
from trimtab.api.cluster_autoscaler import ClusterAutoscalerSpec
from trimtab.autoscaling.scale_up import PlanInputs, ScaleUpPlan, scale_up
from trimtab.cluster.snapshot import Snapshot

NOW = 1_795_176_000.0  # 2026-11-20T12:00:00Z
NAMESPACE = "openshift-machine-api"


def planned(
    *builders: Any,
    backoff: dict[str, str] | None = None,
    priorities: dict[int, tuple[str, ...]] | None = None,
    **spec: Any,
) -> ScaleUpPlan:
    """Plan a cluster of these objects; ``spec`` has fields of the ClusterAutoscaler by their YAML names."""
    snapshot = Snapshot([builder.build() for builder in builders])
    inputs = PlanInputs(
        msgspec.convert(spec, ClusterAutoscalerSpec), NOW, backoff=backoff or {}, priorities=priorities or {}
    )
    before = dict(snapshot.pods), dict(snapshot.nodes.slot_of)
    made = scale_up(snapshot, inputs)
    assert (snapshot.pods, snapshot.nodes.slot_of) == before
    return made


def group(name: str = "a", *, size: int = 0, most: int = 9, cpu: str = "4", memory: str = "16Gi", **more: str) -> Any:
    """A MachineSet without nodes; its nodes have no reserved resources."""
    return (
        machine_set(name)
        .limits(0, most)
        .replicas(size)
        .capacity(cpu=cpu, memory=memory, **more)
        .annotations({"trimtab.dev/reserved": "cpu=0,memory=0"})
    )


def pending_pod(name: str, cpu: str = "1", memory: str = "1Gi") -> Any:
    return pod(name).cpu(cpu).memory(memory).unschedulable()


def pending_pods(number: int, **requests: str) -> list[Any]:
    return [pending_pod(f"web-{each}", **requests).labels(app="web") for each in range(number)]


def sizes(made: ScaleUpPlan) -> dict[str, tuple[int, int]]:
    return {action.machine_set.partition("/")[2]: (action.from_, action.to) for action in made.actions}


def reasons(made: ScaleUpPlan) -> dict[str, str]:
    return {each.name: each.reason for each in made.kept}
