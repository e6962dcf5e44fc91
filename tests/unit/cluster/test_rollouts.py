"""Deployments as far as their rollouts matter: rounding, progress, listing."""

from __future__ import annotations

from typing import Any

import pytest

from tests.fakes.api import FakeApi
from tests.fixtures.golden import Golden
from trimtab.cluster.workloads.rollouts import read_rollouts, rollout_of, rollouts_of
from trimtab.kube.api import Forbidden, Gone
from trimtab.kube.objects import LabelRequirement


def deployment(name: str = "web", /, replicas: int | None = 1, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": "shop", "uid": f"uid-{name}", "resourceVersion": "7", "generation": 1},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, **spec},
    }


def settled(manifest: dict[str, Any], **status: int) -> dict[str, Any]:
    done = {"observedGeneration": 1, "replicas": 1, "updatedReplicas": 1, "availableReplicas": 1}
    return {**manifest, "status": {**done, **status}}


def rolling(surge: Any, unavailable: Any) -> dict[str, Any]:
    return {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}}


@pytest.mark.parametrize(
    ("strategy", "replicas", "fence_posts"),
    [
        pytest.param({}, 1, (1, 0), id="the default of one pod"),
        pytest.param(None, None, (1, 0), id="nothing said"),
        pytest.param({}, 10, (3, 2), id="the default of ten"),
        pytest.param(rolling("25%", "25%"), 4, (1, 1), id="of four"),
        pytest.param(rolling("1%", "99%"), 1, (1, 0), id="surge up, unavailable down"),
        pytest.param(rolling(0, 1), 1, (0, 1), id="no surge"),
        pytest.param(rolling("0%", "0%"), 1, (0, 1), id="neither means one unavailable"),
        pytest.param(rolling(0, "25%"), 1, (0, 1), id="neither after rounding"),
        pytest.param(rolling(1, "100%"), 1, (1, 1), id="both"),
        pytest.param(rolling("9" * 400 + "%", 0), 1, (10_000, 0), id="more percent than a float holds"),
        pytest.param({"type": "Recreate"}, 1, (0, 1), id="Recreate"),
    ],
)
def test_surge_and_unavailable_are_rounded_like_the_deployment_controller(strategy, replicas, fence_posts):
    found = rollout_of(deployment(replicas=replicas, strategy=strategy))
    assert (found.surge, found.unavailable) == fence_posts


def test_deployment_is_parsed():
    template = {"metadata": {"annotations": {"kubectl.kubernetes.io/restartedAt": "2026-11-20T12:00:00Z"}}}
    selector = {"matchExpressions": [{"key": "app", "operator": "In", "values": ["web"]}]}
    manifest = deployment(template=template, selector=selector, paused=True)
    manifest["status"] = {"observedGeneration": 1, "replicas": 2, "updatedReplicas": 1, "availableReplicas": 1}
    found = rollout_of(manifest)
    assert (found.key, found.uid, found.resource_version) == ("shop/web", "uid-web", "7")
    assert found.selector is not None
    assert found.selector.match_expressions == (LabelRequirement("app", "In", ("web",)),)
    assert (found.paused, found.deleted, found.restarted_at) == (True, False, "2026-11-20T12:00:00Z")
    assert (found.generation, found.observed_generation) == (1, 1)
    assert (found.pods, found.updated, found.available) == (2, 1, 1)


def test_invalid_deployment_is_skipped():
    selector = {"matchLabels": {"version": 1}}  # as somebody may write it by hand
    others = [{"metadata": {}}, {"metadata": {"name": "x"}, "spec": "?"}, deployment("b", selector=selector)]
    assert set(rollouts_of([deployment("a"), *others]).found) == {"shop/a"}


class Pages(FakeApi):
    """Lists Deployments in pages of one, and forgets its first token once."""

    def __init__(self, *names: str) -> None:
        super().__init__()
        self.names = names
        self.expired = False

    async def request(self, method: str, path: str, **more: Any) -> Any:
        await super().request(method, "/apis", **more) if self.faults else None
        params = more["params"]
        start = int(params.get("continue", 0))
        if start and not self.expired:
            self.expired = True
            raise Gone("the token has expired", status=410)
        size = 1 if params.get("limit") else len(self.names)
        token = str(start + size) if start + size < len(self.names) else ""
        return {"metadata": {"continue": token}, "items": [deployment(each) for each in self.names[start:][:size]]}


async def test_all_pages_are_read_and_expired_tokens_restart_the_list():
    found = await read_rollouts(Pages("a", "b", "c"))
    assert (sorted(found.found), found.problem) == (["shop/a", "shop/b", "shop/c"], "")


async def test_forbidden_deployments_are_reported_without_raising(golden: Golden):
    api = Pages("a")
    api.fail(Forbidden("deployments.apps is forbidden", status=403))
    found = await read_rollouts(api)
    assert not found.found
    golden(found.problem)
