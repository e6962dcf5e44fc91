"""How long pods may hold a node that scale-down would remove: ``scaleDown.maxHold``."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from tests.builders import budget
from tests.unit.autoscaling.scale_down_plans import (
    NOW,
    group,
    kept_messages,
    kept_reasons,
    planned,
    removed,
    web,
    worker,
)
from trimtab.api import reasons
from trimtab.api.cluster_autoscaler import ClusterAutoscalerSpec, ScaleDown
from trimtab.autoscaling.actuation.removal_review import eviction_blockers, review_nodes
from trimtab.autoscaling.cluster_state.state import AutoscalerState, state_from_status, status_with_state
from trimtab.autoscaling.groups import build_groups
from trimtab.autoscaling.scale_down.eligibility import held_too_long
from trimtab.cluster.snapshot import Snapshot

HOUR = 3600.0
SAFE_TO_EVICT = "cluster-autoscaler.kubernetes.io/safe-to-evict"
DOWN = {"enabled": True, "maxHold": "1h"}


def holding(name: str = "p", on: str = "n1", value: str = "false") -> Any:
    return web(name, on).annotations({SAFE_TO_EVICT: value})


def cluster(*more: Any) -> list[Any]:
    """Two nodes of a group: a pod holds ``n1``, and the utilization of ``n2`` keeps it."""
    of = group(size=2)
    return [of, worker("n1", of), worker("n2", of), web("other", "n2", cpu="3"), *(more or (holding(),))]


def held_since(seconds: float, name: str = "n1") -> dict[str, Any]:
    """A status in which the node has been held for some seconds."""
    return {"held": [{"name": name, "since": datetime.fromtimestamp(NOW - seconds, UTC)}]}


@pytest.mark.parametrize("value", ["false", "on-completion"])
def test_annotation_holds_a_node_until_max_hold(value):
    objects = cluster(holding(value=value))
    made = planned(*objects, scaleDown=DOWN)
    assert (removed(made), made.held) == ({}, {"n1": NOW})
    made = planned(*objects, scaleDown=DOWN, status=held_since(HOUR - 1))
    assert (removed(made), made.held) == ({}, {"n1": NOW - HOUR + 1})
    made = planned(*objects, scaleDown=DOWN, status=held_since(HOUR))
    assert (removed(made), made.held) == ({"n1": {"shop/p": "n2"}}, {"n1": NOW - HOUR})


@pytest.mark.parametrize("value", ["false", "on-completion"])
def test_annotation_holds_indefinitely_without_max_hold(value):
    made = planned(*cluster(holding(value=value)), status=held_since(1000 * HOUR), scaleDown={"enabled": True})
    assert (removed(made), made.held) == ({}, {})
    assert kept_reasons(made)["n1"] in (reasons.BLOCKED_BY_POD, reasons.BLOCKED_BY_ON_COMPLETION_POD)


def test_changed_annotation_or_pod_does_not_restart_the_period():
    status = held_since(HOUR / 2)
    for objects in (cluster(web("p", "n1")), cluster(holding("q")), cluster(holding(value="on-completion"))):
        assert planned(*objects, scaleDown=DOWN, status=status).held == {"n1": NOW - HOUR / 2}


def test_period_ends_if_the_node_is_no_candidate():
    made = planned(*cluster(holding(), web("big", "n1", cpu="3")), scaleDown=DOWN, status=held_since(HOUR))
    assert (removed(made), made.held) == ({}, {})


def test_other_rules_apply_after_max_hold():
    objects = cluster(holding(), holding("local").volume("emptyDir"))
    made = planned(*objects, scaleDown=DOWN, status=held_since(2 * HOUR))
    assert (removed(made), kept_reasons(made)["n1"]) == ({}, reasons.BLOCKED_BY_POD)
    assert "local" in kept_messages(made)["n1"]
    assert made.held == {"n1": NOW - 2 * HOUR}  # another holding pod does not start a new period


@pytest.mark.parametrize("seconds", [HOUR - 1, HOUR, 1000 * HOUR])
def test_pdb_holds_and_is_reported_after_max_hold(seconds):
    guarded = [web("p", "n1").labels(app="guarded"), budget("guard").selecting(app="guarded").allowing(0)]
    made = planned(*cluster(*guarded), scaleDown=DOWN, status=held_since(seconds))
    assert (removed(made), made.held) == ({}, {"n1": NOW - seconds})
    assert kept_reasons(made)["n1"] == (reasons.HELD_TOO_LONG if seconds >= HOUR else reasons.BLOCKED_BY_POD)
    assert "guard" in kept_messages(made)["n1"]


def test_pdb_used_up_by_other_removals_does_not_count_as_hold():
    of = group(size=3)
    objects = [of, *(worker(f"n{number}", of) for number in (1, 2, 3)), web("other", "n3", cpu="2")]
    objects += [web(f"p{number}", f"n{number}").labels(app="guarded") for number in (1, 2)]
    objects.append(budget("guard").selecting(app="guarded").allowing(1))
    made = planned(*objects, scaleDown=DOWN)
    assert (len(removed(made)), made.held) == (1, {})


def test_hold_record_survives_a_restart():
    state = AutoscalerState(held={"n1": NOW - 5.0, "n2": NOW})
    status = status_with_state(state)
    assert [each.name for each in status.held] == ["n1", "n2"]
    assert state_from_status(status).held == state.held


def test_held_too_long():
    spec = ClusterAutoscalerSpec(scale_down=ScaleDown(enabled=True, max_hold="1h"))
    held = {"a": NOW - HOUR, "b": NOW - HOUR + 1}
    assert held_too_long(held, spec, now=NOW) == {"a"}
    assert held_too_long(held, ClusterAutoscalerSpec(), now=NOW) == frozenset()


def test_removal_continues_after_max_hold():
    """The review right before the evictions."""
    of = group(size=2)
    parts = [of, *worker("n1", of), *worker("n2", of), web("other", "n2", cpu="3"), holding()]
    snapshot = Snapshot([each.build() for each in parts])
    spec = ClusterAutoscalerSpec(scale_down=ScaleDown(enabled=True, max_hold="1h"))
    for not_held, reason in ((frozenset[str](), reasons.NOT_SAFE_TO_EVICT_ANNOTATION), (frozenset({"n1"}), "")):
        blockers = eviction_blockers(snapshot, spec, ("shop/p",), now=NOW, not_held=not_held)
        found = blockers["shop/p"]
        assert (found.reason if found is not None else "") == reason
        review = review_nodes(snapshot, build_groups, spec, ("n1",), now=NOW, not_held=not_held)["n1"]
        assert getattr(review, "reason", "") == (reasons.BLOCKED_BY_POD if reason else reasons.UNDERUTILIZED)
