"""Scale-down plans for small clusters."""

from __future__ import annotations

from typing import Any

import msgspec

from tests.builders import machine_set, node, pod
from trimtab.api.cluster_autoscaler import ClusterAutoscalerSpec
from trimtab.api.cluster_autoscaler_status import ClusterAutoscalerStatus
from trimtab.autoscaling.groups import build_groups
from trimtab.autoscaling.scale_down import UNNEEDED_SINCE, ScaleDownPlan, plan
from trimtab.cluster.snapshot import Snapshot

NOW = 1_795_176_000.0  # 2026-11-20T12:00:00Z
LONG_AGO = "2026-11-20T10:00:00Z"


def planned(*parts: Any, status: dict[str, Any] | None = None, **spec: Any) -> ScaleDownPlan:
    """The plan for a cluster of these objects or lists of objects; ``spec`` has the field names of YAML."""
    snapshot = Snapshot([builder.build() for builder in flat(parts)])
    before = dict(snapshot.pods), dict(snapshot.nodes.slot_of), snapshot.nodes.requested.tolist()
    made = plan(
        snapshot,
        build_groups(snapshot),
        msgspec.convert(spec, ClusterAutoscalerSpec),
        now=NOW,
        status=msgspec.convert(status or {}, ClusterAutoscalerStatus),
    )
    assert (snapshot.pods, snapshot.nodes.slot_of, snapshot.nodes.requested.tolist()) == before
    return made


def flat(parts: Any) -> list[Any]:
    return [each for part in parts for each in (flat(part) if isinstance(part, list | tuple) else [part])]


def group(name: str = "a", *, size: int, least: int = 0, most: int = 99) -> Any:
    return machine_set(name).limits(least, most).replicas(size)


def worker(name: str, of: Any, *, since: str | None = LONG_AGO) -> Any:
    """A node of 4 cpus, recorded as unneeded, and its machine."""
    return [unneeded(node(name), since), of.machine(f"m-{name}").on(name)]


def unneeded(builder: Any, since: str | None = LONG_AGO) -> Any:
    return builder if since is None else builder.annotations({UNNEEDED_SINCE: since})


def workers(number: int, of: Any, *, since: str | None = LONG_AGO) -> Any:
    return [worker(f"n{each}", of, since=since) for each in range(1, number + 1)]


def web(name: str, on: str, cpu: str = "500m", memory: str = "1Gi") -> Any:
    """A running pod of a ReplicaSet."""
    return pod(name).on(on).cpu(cpu).memory(memory).labels(app="web").owned_by("ReplicaSet", "web").ready()


def kept_reasons(made: ScaleDownPlan) -> dict[str, str]:
    return {each.name: each.reason for each in made.kept}


def kept_messages(made: ScaleDownPlan) -> dict[str, str]:
    return {each.name: each.message for each in made.kept}


def removed(made: ScaleDownPlan) -> dict[str, dict[str, str]]:
    return {action.node: {move.pod: move.target for move in action.moves} for action in made.actions}
