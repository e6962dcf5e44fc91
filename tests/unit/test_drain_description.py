"""The description of drains in failure messages names what blocks each pod."""

from __future__ import annotations

from typing import Any

from tests.fixtures.drains import describe_drains
from tests.fixtures.golden import Golden

DELETED = "2026-11-20T12:00:00Z"


def machine(name: str, **metadata: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "finalizers": ["f"], **metadata}, "status": {"nodeRef": {"name": name}}}


def pod(name: str, *, node: str, ready: str = "True", **metadata: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "namespace": "shop", "labels": {"app": "web"}, **metadata},
        "spec": {"nodeName": node},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": ready, "lastTransitionTime": "t"}]},
    }


BUDGET = {
    "metadata": {"name": "b", "namespace": "shop"},
    "spec": {"selector": {"matchLabels": {"app": "web"}}},
    "status": {"disruptionsAllowed": 0, "currentHealthy": 1, "desiredHealthy": 1},
}


def test_blocked_pod_is_described_with_its_budget_and_the_pods_that_are_not_ready(golden: Golden) -> None:
    pods = [pod("web-1", node="n1"), pod("web-2", node="n2", ready="False")]

    lines = describe_drains([], machines=[machine("n1", deletionTimestamp=DELETED)], pods=pods, budgets=[BUDGET])

    golden("\n".join(lines))


def test_terminating_pod_is_described_with_its_deletion(golden: Golden) -> None:
    pods = [pod("web-1", node="n1", deletionTimestamp=DELETED, deletionGracePeriodSeconds=30)]

    lines = describe_drains(["n1"], machines=[machine("n1")], pods=pods, budgets=[])

    golden("\n".join(lines))
