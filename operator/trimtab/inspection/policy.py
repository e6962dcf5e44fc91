"""Explains a custom resource: what it would do now, what holds that back, and what it did last."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import msgspec

from trimtab.api import reasons
from trimtab.api.bounds import plural
from trimtab.api.plan import Action, Delete, Evict, Kept, Mutate, Plan, Preempt, Refuse, RemoveNode, ScaleUp
from trimtab.api.plan import Bind as BindPod
from trimtab.inspection.status import resource_states

if TYPE_CHECKING:
    from trimtab.inspection.cluster import ClusterInput

Document = dict[str, Any]

MAX_ACTIONS: Final = 200
"""Maximum number of actions in a document. All actions are counted."""

EXAMPLES: Final = 3
"""Number of examples for each reason of kept candidates."""

_WAITING: Final = frozenset(
    {
        reasons.WAITING_FOR_OWNER,
        reasons.WAITING_FOR_BUDGET,
        reasons.WAITING_FOR_EVICTION,
        reasons.WAITING_FOR_EVICTION_LIMIT,
        reasons.WAITING_FOR_PLAN,
        reasons.LIMIT_REACHED,
        reasons.COOLING_DOWN,
        reasons.GAVE_UP,
        reasons.DISRUPTION_BUDGET,
        reasons.OWNER_NOT_SETTLED,
    }
)
"""Reasons of kept candidates that hold an action back which would otherwise be planned."""

_REPORT_ONLY: Final = {
    "Simulate": "mode Simulate reports the plan and evicts no pod",
    "Approve": "mode Approve evicts pods only after a user has approved the DeschedulingRun",
    "Observe": "mode Observe reports deadlines and evicts no pod",
    "Warn": "mode Warn admits all objects and returns warnings",
}
"""Modes in which nothing, or not everything, is done, by name."""


def policy_names(cluster: ClusterInput) -> list[tuple[str, str]]:
    """Return the kind and the name of each custom resource that can be explained."""
    return [
        (each["kind"], each["name"])
        for each in resource_states(cluster.policies, now=cluster.now)
        if each["kind"] != "MachineAutoscaler"
    ]


def explain_policy(cluster: ClusterInput, kind: str, name: str, *, plan: Plan | None = None) -> Document:
    """Return what a custom resource would do now, what holds it back and what it did last, ready for JSON.

    The actions are those of the joint plan of all custom resources, as if nothing held them back: mode, suspend,
    windows and pace are ignored there and listed in ``heldBackBy``.

    Args:
        cluster: the cluster.
        kind: the kind of an existing resource.
        name: its name.
        plan: the joint plan of the cluster, if the caller has made it already.
    """
    from trimtab.inspection.planning import joint_plan

    made = joint_plan(cluster) if plan is None else plan
    states = resource_states(cluster.policies, now=cluster.now, history=cluster.history, read_at=cluster.read_at)
    state = next(each for each in states if (each["kind"], each["name"]) == (kind, name))
    actions = [each for each in made.every_action if _is_of(each, kind, name)]
    kept = [each for each in made.kept if _is_kept_by(each, kind, name)]
    held = [*_held_by_mode(state), *state["blockedBy"]]
    return {
        "kind": kind,
        "name": name,
        "message": _message(len(actions), held),
        "state": state["state"],
        "mode": state["mode"],
        "nextRun": state["nextRun"],
        "lastRun": state["lastRun"],
        "window": state["window"],
        "inFlight": state["inFlight"],
        "heldBackBy": held,
        "missingPermissions": state["missingPermissions"],
        "planned": _counts(actions),
        "actions": [msgspec.to_builtins(each) for each in actions[:MAX_ACTIONS]],
        "actionsOmitted": max(0, len(actions) - MAX_ACTIONS),
        "kept": _kept(kept),
        "details": state["details"],
        "lastActions": state["lastActions"],
    }


def _is_of(action: Action, kind: str, name: str) -> bool:
    """Return whether a resource is the reason for an action of the joint plan."""
    match kind:
        case "DeschedulerPolicy":
            return isinstance(action, Evict) and action.policy == name and action.strategy != "NodePressure"
        case "NodePressurePolicy":
            return isinstance(action, Evict) and action.policy == name and action.strategy == "NodePressure"
        case "ClusterAutoscaler":
            return isinstance(action, ScaleUp | RemoveNode)
        case "SchedulerPolicy":
            return isinstance(action, BindPod | Preempt) and action.policy == name
        case "PlacementAdmission":
            return isinstance(action, Refuse | Mutate)
    return isinstance(action, Delete) or type(action).__name__ in ("TaintNode", "UntaintNode")


_SCALING: Final = frozenset({"ScaleUp", "ScaleDown", "Replace"})
_TAINTING: Final = frozenset({"TaintManager"})


def _is_kept_by(kept: Kept, kind: str, name: str) -> bool:
    match kind:
        case "ClusterAutoscaler":
            return not kept.policy and kept.strategy in _SCALING
        case "TaintManager":
            return kept.strategy in _TAINTING
        case "PlacementAdmission":
            return not kept.policy and kept.strategy not in _SCALING | _TAINTING
    pressure = kept.strategy == "NodePressure"
    return kept.policy == name and pressure is (kind == "NodePressurePolicy") and kept.strategy not in _TAINTING


def _held_by_mode(state: Document) -> list[Document]:
    message = _REPORT_ONLY.get(state["mode"])
    return [] if message is None else [{"type": "Mode", "reason": state["mode"], "message": message, "since": None}]


def _counts(actions: list[Action]) -> list[Document]:
    """Return the number of planned actions by type, strategy and reason, the most frequent first."""
    found = Counter(
        (str(each.__struct_config__.tag), str(getattr(each, "strategy", "")), each.reason) for each in actions
    )
    return [
        {"action": action, "strategy": strategy, "reason": reason, "count": count}
        for (action, strategy, reason), count in sorted(found.items(), key=lambda item: (-item[1], item[0]))
    ]


def _kept(kept: list[Kept]) -> list[Document]:
    """Return the candidates for which nothing is planned, by strategy and reason, the most frequent first."""
    groups: dict[tuple[str, str], list[Kept]] = {}
    for each in kept:
        groups.setdefault((each.strategy, each.reason), []).append(each)
    return [
        {
            "strategy": strategy,
            "reason": reason,
            "count": len(found),
            "waits": reason in _WAITING,
            "examples": [
                {
                    "object": f"{each.namespace}/{each.name}" if each.namespace else each.name,
                    "kind": each.kind,
                    "message": each.message,
                }
                for each in found[:EXAMPLES]
            ],
        }
        for (strategy, reason), found in sorted(groups.items(), key=lambda item: (-len(item[1]), item[0]))
    ]


def _message(actions: int, held: list[Document]) -> str:
    wanted = f"it plans {plural(actions, 'action')} now" if actions else "it plans nothing now"
    if not held:
        return f"{wanted}, and nothing holds it back"
    causes = ", ".join(dict.fromkeys(each["reason"] for each in held))
    return f"{wanted}, and is held back by {causes}"
