"""An approved plan, judged again on the picture as it is when it is to be carried out. Pure.

Between planning and approving the world goes on, for an hour perhaps. That a pod may still be moved and finds a place
is not enough then: what was wrong may have mended itself, and a move would only disturb. So the policy is planned anew,
and of the approved moves those are made that the new plan makes too. Nothing is made that was not approved, and nothing
that a cycle in mode Act would not do now.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct

from trimtab.api import reasons
from trimtab.api.plan import Evict, Kept, Plan
from trimtab.descheduling.strategies.registry import WHOLE_NODES
from trimtab.disruption.outcome import GONE, SKIPPED, Outcome


class Judgement(Struct, frozen=True):
    """What is left of an approved plan.

    Attributes:
        go: the moves to make, in the order and with the targets of the new plan.
        dropped: an outcome for each of the others.
    """

    go: tuple[Evict, ...]
    dropped: tuple[Outcome, ...]


def judge_again(approved: Sequence[Evict], fresh: Plan, *, present: frozenset[str]) -> Judgement:
    """Part the approved moves into those that still hold and those that do not.

    Args:
        approved: the moves that were approved and have no outcome yet.
        fresh: the plan of the same policy on the picture as it is now.
        present: the UIDs of those pods of ``approved`` that are still there.
    """
    now = {action.uid: action for action in fresh.actions}
    wanted = {action.uid for action in approved}
    partial = {
        (action.strategy, action.node)
        for action in fresh.actions
        if action.strategy in WHOLE_NODES and action.uid not in wanted
    }
    kept = _by_pod(fresh.kept)
    dropped, go = [], set()
    for action in approved:
        against = _against(action, now.get(action.uid), kept, partial, present)
        if against is None:
            go.add(action.uid)
        else:
            result, reason, message = against
            dropped.append(Outcome(action=action, result=result, reason=reason, message=message, at=fresh.now))
    return Judgement(go=tuple(action for action in fresh.actions if action.uid in go), dropped=tuple(dropped))


def _against(
    action: Evict,
    now: Evict | None,
    kept: dict[str, list[Kept]],
    partial: set[tuple[str, str]],
    present: frozenset[str],
) -> tuple[str, str, str] | None:
    """Result, reason and message of a move that no longer holds; ``None`` where it does."""
    if action.uid not in present:
        return GONE, reasons.ALREADY_GONE, "the pod has gone since the plan was made"
    if now is None:
        left = [each for each in kept.get(action.key, ()) if each.strategy == action.strategy]
        if left:
            return SKIPPED, left[0].reason, f"judged again before acting: {left[0].message}"
        found = "judged again before acting, nothing is wrong any more that this move would mend"
        return SKIPPED, reasons.NO_LONGER_PLANNED, found
    if (now.strategy, now.reason) != (action.strategy, action.reason):
        other = f"by now {now.strategy} would move it ({now.reason}), which nobody has approved"
        return SKIPPED, reasons.NO_LONGER_PLANNED, other
    if now.node != action.node or bool(now.target) != bool(action.target):
        return SKIPPED, reasons.PLAN_OUTDATED, f"the pod is no longer as it was approved: it is on {now.node}"
    if now.how != action.how:
        ways = {"Evict": "evicted", "Surge": "renewed by a rollout"}
        return SKIPPED, reasons.PLAN_OUTDATED, f"by now it would be {ways[now.how]}, which nobody has approved"
    if (now.strategy, now.node) in partial:
        whole = f"emptying {now.node} takes moves by now that nobody has approved"
        return SKIPPED, reasons.NO_LONGER_PLANNED, whole
    return None


def _by_pod(kept: Iterable[Kept]) -> dict[str, list[Kept]]:
    found: dict[str, list[Kept]] = {}
    for each in kept:
        if each.kind == "Pod":
            found.setdefault(f"{each.namespace}/{each.name}", []).append(each)
    return found
