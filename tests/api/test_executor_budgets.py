"""The budget ledger predicts the response of the API server to a dry-run eviction of every pod."""

from __future__ import annotations

from typing import Any

import pytest

from tests.fixtures.waiting import eventually_async
from trimtab.cluster.loader import load
from trimtab.cluster.snapshot import Snapshot
from trimtab.disruption.budgets import BudgetLedger
from trimtab.kube import verbs
from trimtab.kube.api import ServerError, TooManyRequests
from trimtab.kube.connection.transport import Transport
from trimtab.kube.objects import Pod
from trimtab.kube.resources import BUDGETS, PODS


def least(number: int | str, **more: Any) -> dict[str, Any]:
    return {"minAvailable": number, "selector": {"matchLabels": {"app": "web"}}, **more}


SCENES = [
    # ready pods, pods that are not ready, budgets, how many evictions the server would grant one by one
    pytest.param(2, 0, {}, 2, id="no budget"),
    pytest.param(2, 0, {"a": least(1)}, 2, id="one to spare"),
    pytest.param(2, 0, {"a": least(2)}, 0, id="none to spare"),
    pytest.param(2, 0, {"a": least(1), "b": least(0)}, 0, id="two budgets"),
    pytest.param(2, 0, {"a": {"minAvailable": 2, "selector": {}}}, 0, id="an empty selector selects all"),
    pytest.param(2, 0, {"a": {"minAvailable": 2}}, 2, id="a nil selector selects nothing"),
    pytest.param(2, 0, {"a": least("100%")}, 0, id="a share of pods without a scale"),
    pytest.param(2, 1, {"a": least(2)}, 1, id="an unready pod beside enough ready ones"),
    pytest.param(1, 1, {"a": least(2)}, 0, id="an unready pod beside too few"),
    pytest.param(1, 1, {"a": least(2, unhealthyPodEvictionPolicy="AlwaysAllow")}, 1, id="an unready pod always goes"),
    pytest.param(1, 1, {"a": least(2, unhealthyPodEvictionPolicy="IfHealthyBudget")}, 0, id="unless healthy"),
    pytest.param(0, 2, {"a": least(0)}, 0, id="a budget that wants none"),
]


async def settled(api: Transport, namespace: str, *, pods: int, budgets: int) -> Snapshot:
    """The namespace once its pods run and the disruption controller has updated the budgets."""

    async def found() -> Snapshot | None:
        snapshot = await load(api)
        mine = [pod for pod in snapshot.pods.values() if pod.namespace == namespace]
        known = [budget for budget in snapshot.budgets.values() if budget.namespace == namespace]
        ready = sum(pod.ready for pod in mine)
        counted = all(
            each.observed_generation >= each.generation > 0 and (each.selector is None or each.current_healthy == ready)
            for each in known
        )
        complete = len(mine) == pods and len(known) == budgets
        return snapshot if complete and counted and all(pod.phase == "Running" for pod in mine) else None

    snapshot = await eventually_async(found, f"the budgets of {namespace} count its running pods", pause=0.2)
    assert snapshot is not None
    return snapshot


async def make_pod(api: Transport, namespace: str, name: str) -> None:
    body = {
        "metadata": {"name": name, "labels": {"app": "web"}},
        "spec": {"containers": [{"name": "main", "image": "none"}]},
    }
    await verbs.create(api, PODS, body, namespace=namespace)


async def running(api: Transport, namespace: str, name: str) -> None:
    async def ready() -> bool:
        pod = await verbs.get(api, PODS, name, namespace=namespace)
        conditions = {each["type"]: each["status"] for each in pod["status"].get("conditions", [])}
        return pod["status"].get("phase") == "Running" and conditions.get("Ready") == "True"

    await eventually_async(ready, f"{name} is ready", pause=0.1)


async def make_unready(api: Transport, namespace: str, name: str) -> None:
    path = PODS.path(name, namespace=namespace, subresource="status")
    unready = [{"type": name, "status": "False"} for name in ("ContainersReady", "Ready")]  # as with a failing probe
    patch = {"status": {"conditions": unready}}
    await api.request("PATCH", path, body=patch, content_type="application/strategic-merge-patch+json")


@pytest.mark.parametrize(("ready", "unready", "budgets", "granted"), SCENES)
async def test_budget_ledger_predicts_the_api_servers_decision(
    api: Transport, namespace: str, ready: int, unready: int, budgets: dict[str, Any], granted: int
) -> None:
    names = [*(f"ready-{number}" for number in range(ready)), *(f"unready-{number}" for number in range(unready))]
    for name in names:
        await make_pod(api, namespace, name)
    for name in names:
        await running(api, namespace, name)
    for name in names[ready:]:
        await make_unready(api, namespace, name)
    for name, spec in budgets.items():
        await verbs.create(api, BUDGETS, {"metadata": {"name": name}, "spec": spec}, namespace=namespace)
    snapshot = await settled(api, namespace, pods=len(names), budgets=len(budgets))
    ledger = BudgetLedger(snapshot)
    said: dict[str, bool] = {}
    for name in names:
        pod = snapshot.pods[f"{namespace}/{name}"]
        said[name] = await would_grant(api, pod)
        foretold = ledger.refusal(pod)
        assert (foretold is None) == said[name], (name, foretold)
    assert sum(said.values()) == granted


async def would_grant(api: Transport, pod: Pod) -> bool:
    """Whether the API server grants a dry-run eviction of the pod."""
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": pod.name, "namespace": pod.namespace},
        "deleteOptions": {"preconditions": {"uid": pod.uid}},
    }
    path = PODS.path(pod.name, namespace=pod.namespace, subresource="eviction")
    try:
        await api.request("POST", path, params={"dryRun": "All"}, body=body)
    except (TooManyRequests, ServerError):  # a budget refuses, or more than one selects the pod
        return False
    return True
