"""What the live page shows: node rows and sections, computed from a cluster and its plan, and the changes between two.

The page gets the complete view once, and after that only changed node rows and changed sections. Every list is bounded,
so that the page stays small in a cluster of any size; its total is sent with it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec
from msgspec import Struct, field

from trimtab.api.conditions import DEGRADED, READY, Condition
from trimtab.api.plan import Plan, rfc3339
from trimtab.cli.ui.activity import activity
from trimtab.cli.ui.pending import pending_pods
from trimtab.cluster.resources import CPU, MEMORY, PODS
from trimtab.inspection.cluster import ClusterInput, PolicySet
from trimtab.kube.objects import Node

MAX_ACTIONS: Final = 1000
MAX_KEPT: Final = 1000
MAX_HISTORY: Final = 500
MAX_PODS: Final = 10
"""Maximum numbers of planned actions, kept candidates, recorded actions, and pods named by one action."""

BOOTING: Final = 900.0
"""Maximum age in seconds of a node that is not ready and has never been ready for the page to call it booting."""

ZONE: Final = "topology.kubernetes.io/zone"

Document = dict[str, Any]
Row = tuple[Any, ...]
"""Name, node group, zone, requested cpu, memory and pods in percent of allocatable, number of pods, states."""

_LIFECYCLE: Final = ("node.kubernetes.io/", "node.cloudprovider.kubernetes.io/")
_REMOVING: Final = "ToBeDeletedByClusterAutoscaler"
_CANDIDATE: Final = "DeletionCandidateOfClusterAutoscaler"
_NO_PLACEMENT: Final = frozenset(("NoSchedule", "NoExecute"))


class Connection(Struct, frozen=True):
    """The state of the connection to the API server.

    Attributes:
        ok: whether the page shows the current state of the cluster.
        message: why not; empty if ``ok``.
        since: the time of the last state that was current, in seconds since the epoch.
    """

    ok: bool = True
    message: str = ""
    since: float | None = None


CONNECTED: Final = Connection()


class PlanResult(Struct, frozen=True):
    """The result of the last planning.

    Attributes:
        plan: the plan; ``None`` before the first one, and if planning failed.
        seconds: how long planning took.
        error: why planning failed; empty if it did not.
        omitted: the kinds of policies that the plan does not include, and which data for policies is missing.
        group_of: the node group of each node, as ``namespace/name``.
        groups: the node groups.
    """

    plan: Plan | None = None
    seconds: float = 0.0
    error: str = ""
    omitted: tuple[str, ...] = ()
    group_of: Mapping[str, str] = field(default_factory=dict)
    groups: tuple[Document, ...] = ()


class View(Struct, frozen=True):
    """What the page shows at one time.

    Attributes:
        nodes: the node rows by name.
        sections: the JSON of the other parts of the page, by name.
    """

    nodes: Mapping[str, Row] = field(default_factory=dict)
    sections: Mapping[str, bytes] = field(default_factory=dict)


_encode: Final = msgspec.json.Encoder(order="deterministic").encode


def view_of(
    cluster: ClusterInput,
    result: PlanResult,
    *,
    live: bool,
    connection: Connection = CONNECTED,
    warnings: Iterable[str] = (),
) -> View:
    """Compute the view of a cluster.

    Args:
        cluster: the cluster. Its snapshot is unchanged afterwards.
        result: the result of the last planning.
        live: whether the cluster is a live one.
        connection: the state of the connection to the API server.
        warnings: what the user may not read, and objects that are invalid, one sentence each.
    """
    nodes = dict(node_rows(cluster, result.group_of))
    pending = pending_pods(cluster, result.plan)
    sections: dict[str, Any] = {
        "head": {
            "source": cluster.source,
            "live": live,
            "time": None if live else rfc3339(cluster.now),
            "connection": {
                "ok": connection.ok,
                "message": connection.message,
                "since": None if connection.since is None else rfc3339(connection.since),
            },
            "warnings": list(warnings),
            "pods": len(cluster.snapshot.pods),
            "pending": pending["total"],
        },
        "pending": pending,
        "plan": plan_section(result, cluster.policies),
        "activity": activity(cluster),
        "history": history_section(cluster),
        "policies": [*policy_rows(cluster.policies)],
        "groups": list(result.groups),
    }
    return View(nodes, {name: _encode(content) for name, content in sections.items()})


def change_between(before: View, after: View) -> bytes | None:
    """Return the JSON of the rows and sections that changed, or ``None`` if nothing did."""
    rows = [row for name, row in after.nodes.items() if before.nodes.get(name) != row]
    gone = [name for name in before.nodes if name not in after.nodes]
    sections = {
        name: msgspec.Raw(content) for name, content in after.sections.items() if before.sections.get(name) != content
    }
    if not rows and not gone and not sections:
        return None
    return _encode({"rows": rows, "gone": gone, "sections": sections})


# --- nodes ------------------------------------------------------------------------------------------------------------


def node_rows(cluster: ClusterInput, group_of: Mapping[str, str]) -> Iterator[tuple[str, Row]]:
    """Yield the name and the row of each node, ordered by name."""
    nodes, autoscaler = cluster.snapshot.nodes, cluster.policies.cluster_autoscaler
    status = None if autoscaler is None else autoscaler.status
    unneeded = frozenset(() if status is None else (each.name for each in status.unneeded))
    removing = frozenset(() if status is None else (each.name for each in status.removing))
    order = nodes.order()
    columns = [CPU, MEMORY, PODS]
    requested, allocatable = nodes.requested[order][:, columns].tolist(), nodes.allocatable[order][:, columns].tolist()
    for slot, used, total in zip(order.tolist(), requested, allocatable, strict=True):
        node = nodes.node(slot)
        cpu, memory, pods = (round(100 * x / y, 1) if y > 0 else None for x, y in zip(used, total, strict=True))
        states = " ".join(node_states(node, unneeded=unneeded, removing=removing, now=cluster.now))
        zone = node.labels.get(ZONE, "")
        yield node.name, (node.name, group_of.get(node.name, ""), zone, cpu, memory, pods, used[2], states)


def node_states(
    node: Node, *, unneeded: frozenset[str] = frozenset(), removing: frozenset[str] = frozenset(), now: float
) -> Iterator[str]:
    """Yield the states of a node.

    The first one is ``ready``, ``booting`` or ``notReady``. Others may follow: ``removing``, ``unneeded``, ``cordoned``
    and ``tainted``.

    Args:
        node: the node.
        unneeded: the names of unneeded nodes.
        removing: the names of nodes that are being removed.
        now: the time, in seconds since the epoch.
    """
    keys = {taint.key for taint in node.taints}
    if node.ready:
        yield "ready"
    elif node.created is not None and now - node.created < BOOTING and not _was_ready(node):
        yield "booting"
    else:
        yield "notReady"
    if node.name in removing or node.deleted is not None or _REMOVING in keys:
        yield "removing"
    elif node.name in unneeded or _CANDIDATE in keys:
        yield "unneeded"
    if node.unschedulable:
        yield "cordoned"
    if any(
        taint.effect in _NO_PLACEMENT and not taint.key.startswith(_LIFECYCLE) and taint.key != _REMOVING
        for taint in node.taints
    ):
        yield "tainted"


def _was_ready(node: Node) -> bool:
    """Return whether the condition Ready changed after the node was created: a new node is not ready from the start."""
    since = next((each.since for each in node.conditions if each.type == "Ready"), None)
    return since is not None and node.created is not None and since - node.created > 2.0


# --- the plan ---------------------------------------------------------------------------------------------------------


def plan_section(result: PlanResult, policies: PolicySet) -> Document:
    """Return the plan of the applied policies: the first actions and kept candidates, and the number of each."""
    plan = result.plan
    head = {
        "state": "failed" if result.error else "planning" if plan is None else "ready",
        "message": result.error,
        "omitted": list(result.omitted),
        "policies": sum(1 for _ in policy_rows(policies)),
    }
    if plan is None:
        return {**head, "summary": {}, "actions": [], "kept": [], "reasons": []}
    actions = [msgspec.to_builtins(each) for each in plan.every_action[:MAX_ACTIONS]]
    reasons = Counter(each.reason for each in plan.kept)
    return {
        **head,
        "summary": plan.summary(),
        "actions": [_short(each) for each in actions],
        "total": len(plan.every_action),
        "kept": [msgspec.to_builtins(each) for each in plan.kept[:MAX_KEPT]],
        "reasons": sorted(reasons.items(), key=lambda each: (-each[1], each[0])),
    }


def _short(action: Document) -> Document:
    """Limit the pods that an action names."""
    for name in ("pods", "moves"):
        if name in action:
            action[f"{name}Total"], action[name] = len(action[name]), action[name][:MAX_PODS]
    return action


def history_section(cluster: ClusterInput) -> Document:
    """Return the newest recorded actions, the newest first."""
    newest = cluster.history[: -MAX_HISTORY - 1 : -1]
    return {"total": len(cluster.history), "entries": [msgspec.to_builtins(each) for each in newest]}


# --- policies ---------------------------------------------------------------------------------------------------------


def policy_rows(policies: PolicySet) -> Iterator[Document]:
    """Yield kind, name, mode and health of each custom resource that configures trimtab."""
    single = (policies.cluster_autoscaler, policies.taint_manager, policies.admission)
    for each in (*policies.descheduler, *single, *policies.schedulers, *policies.pressure):
        if each is None:
            continue
        status = getattr(each, "status", None)
        conditions: Mapping[str, Condition] = {it.type: it for it in getattr(status, "conditions", ())}
        wrong = next(_problems(conditions), None)
        ready = conditions.get(READY)
        next_run = getattr(status, "next_run", None)
        yield {
            "kind": type(each).__name__,
            "name": each.metadata.name,
            "mode": getattr(each.spec, "mode", ""),
            "ready": "Unknown" if ready is None else ready.status,
            "reason": "" if wrong is None else wrong.reason,
            "message": "" if wrong is None else wrong.message,
            "nextRun": None if next_run is None else rfc3339(next_run.timestamp()),
        }


def _problems(conditions: Mapping[str, Condition]) -> Iterator[Condition]:
    """Yield the conditions that report a problem, the summary last."""
    yield from (each for type_, each in conditions.items() if type_ == DEGRADED and each.status == "True")
    yield from (each for type_, each in conditions.items() if type_ == READY and each.status == "False")
