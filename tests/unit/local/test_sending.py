from __future__ import annotations

from typing import Any

import pytest

from trimtab.kube.api import Conflict, Forbidden, Invalid, NotFound, ServerError, TooManyRequests, Unreachable
from trimtab_local import LocalError
from trimtab_local.load import running_pods, send_until_accepted


class Scripted:
    """An API server with a fixed sequence of responses."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.sent: list[tuple[str, str]] = []

    async def request(self, method: str, path: str, **more: Any) -> Any:
        self.sent.append((method, more["content_type"]))
        response = self.answers.pop(0)
        if isinstance(response, Exception):
            raise response
        return response


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    async def sleep(seconds: float) -> None:
        assert seconds > 0

    monkeypatch.setattr("trimtab_local.load.asyncio.sleep", sleep)


@pytest.mark.parametrize("error", [ServerError("x"), TooManyRequests("x"), Unreachable("x")], ids=repr)
async def test_busy_server_is_retried(error: Exception) -> None:
    api = Scripted(error, error, {"kind": "Pod"})
    assert await send_until_accepted(api, "POST", "/p", {}) == {"kind": "Pod"}
    assert len(api.sent) == 3


async def test_unreachable_server_is_reported() -> None:
    with pytest.raises(Unreachable):
        await send_until_accepted(Scripted(*[Unreachable("gone")] * 20), "POST", "/p", {})


async def test_existing_objects_are_unchanged() -> None:
    assert await send_until_accepted(Scripted(Conflict("exists")), "POST", "/p", {}) is None


@pytest.mark.parametrize("error", [Invalid("spec.x: no"), Forbidden("spec.x: no"), NotFound("spec.x: no")], ids=repr)
async def test_rejection_is_reported_with_the_servers_message(error: Exception) -> None:
    api = Scripted(error)
    with pytest.raises(LocalError, match=r"POST /p: spec\.x: no"):
        await send_until_accepted(api, "POST", "/p", {})


async def test_patches_are_merge_patches() -> None:
    api = Scripted({}, {})
    await send_until_accepted(api, "PATCH", "/p", {})
    await send_until_accepted(api, "PUT", "/p", {})
    assert api.sent == [("PATCH", "application/merge-patch+json"), ("PUT", "application/json")]


@pytest.mark.parametrize(
    ("kind", "live", "expected"),
    [
        ("Deployment", {"spec": {"replicas": 3}, "status": {"readyReplicas": 2}}, (2, 3)),
        ("ReplicaSet", {"spec": {"replicas": 3}, "status": {}}, (0, 3)),
        ("StatefulSet", {"spec": {}, "status": {"readyReplicas": 1}}, (1, 1)),
        ("DaemonSet", {"status": {"desiredNumberScheduled": 0}}, (0, 1)),
        ("DaemonSet", {"status": {"observedGeneration": 1, "desiredNumberScheduled": 0}}, (0, 0)),
        (
            "DaemonSet",
            {"status": {"observedGeneration": 1, "desiredNumberScheduled": 4, "numberReady": 3}},
            (3, 4),
        ),
        ("Job", {"spec": {"completions": 2}, "status": {"succeeded": 2}}, (2, 2)),
        ("Pod", {"status": {"phase": "Running"}}, (1, 1)),
        ("Pod", {"status": {"phase": "Pending"}}, (0, 1)),
    ],
)
def test_how_far_an_owner_is_read_from_its_status(kind: str, live: dict, expected: tuple[int, int]) -> None:
    assert running_pods(kind, live) == expected
