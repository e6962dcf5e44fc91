"""A new kwok process finds no Lease of the old one, and the pods that wait for it change."""

from __future__ import annotations

from typing import Any

import pytest

from trimtab.kube.api import NotFound
from trimtab.kube.resources import NODES, PODS
from trimtab_local import handover
from trimtab_local.handover import LEASES_PATH, REPLAYED, release_nodes, replay_pods


class FakeClient:
    """Answers with lists of objects. Lists with several entries by path are answered in turn; the last one stays."""

    def __init__(self, **lists: list[list[dict[str, Any]]]) -> None:
        paths = {"leases": LEASES_PATH, "nodes": NODES.path(), "pods": PODS.path()}
        self._lists = {paths[name]: answers for name, answers in lists.items()}
        self.requests: list[tuple[str, str]] = []
        self.annotated: list[str] = []

    def request(self, method: str, path: str, body: Any = None, **_: Any) -> Any:
        self.requests.append((method, path))
        if method == "PATCH":
            self.annotated.append(path.rpartition("/")[2])
            assert REPLAYED in body["metadata"]["annotations"]
            raise NotFound("terminated", status=404)
        answers = self._lists[path]
        items = answers.pop(0) if method == "GET" and len(answers) > 1 else answers[0]
        return {"metadata": {}, "items": items}


def named(name: str) -> dict[str, Any]:
    return {"metadata": {"name": name}}


def pod(name: str, node: str, phase: str = "Running", **metadata: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "namespace": "shop", "uid": name, **metadata},
        "spec": {"nodeName": node} if node else {},
        "status": {"phase": phase},
    }


@pytest.fixture(autouse=True)
def without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handover.time, "sleep", lambda _seconds: None)


def test_release_ends_when_the_cache_shows_no_lease() -> None:
    client = FakeClient(leases=[[named("n1")], [named("n1")], []])

    release_nodes(client)  # type: ignore[arg-type]

    assert client.requests == [("DELETE", LEASES_PATH), *[("GET", LEASES_PATH)] * 3]


def test_only_waiting_pods_of_managed_nodes_are_changed() -> None:
    pods = [
        pod("running", "n1"),
        pod("starting", "n1", "Pending"),
        pod("terminating", "n1", deletionTimestamp="2026-11-20T12:00:00Z"),
        pod("on-a-silent-node", "n2", "Pending"),
        pod("unscheduled", "", "Pending"),
    ]
    client = FakeClient(nodes=[[named("n1")]], leases=[[], [named("n1")]], pods=[pods])

    replay_pods(client)  # type: ignore[arg-type]

    assert client.annotated == ["starting", "terminating"]


def test_pods_are_listed_after_all_nodes_have_leases() -> None:
    client = FakeClient(nodes=[[named("n1")]], leases=[[], [], [named("n1")]], pods=[[]])

    replay_pods(client)  # type: ignore[arg-type]

    listed = [path for _, path in client.requests]
    assert listed.index(PODS.path()) > max(i for i, path in enumerate(listed) if path == LEASES_PATH)
    assert listed.count(LEASES_PATH) == 3
