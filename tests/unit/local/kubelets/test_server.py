"""The server with certificates of a real CA, on loopback, and an API server that reviews tokens."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.fakes.clock import SetClock
from trimtab.kube.api import Unreachable
from trimtab_local.certificates import Keys, make_keys
from trimtab_local.kubelets.server import ALLOWED, AUTHENTICATED, DENIED, Kubelet, Reviewer, Server
from trimtab_local.nodes import loopback_address

ADDRESS = loopback_address("n1")


class ReviewingApi:
    """Authenticates the tokens ``reader`` and ``stranger``; only ``reader`` may read stats."""

    def __init__(self) -> None:
        self.reviews: list[Any] = []
        self.up = True

    async def request(self, method: str, path: str, *, body: Any = None, **_options: Any) -> Any:
        if not self.up:
            raise Unreachable(path)
        self.reviews.append(body)
        spec = body["spec"]
        if path.endswith("tokenreviews"):
            return {"status": {"authenticated": spec["token"] != "wrong", "user": {"username": spec["token"]}}}
        return {"status": {"allowed": spec["user"] == "reader"}}

    def stream(self, *_args: Any, **_options: Any) -> Any:
        raise NotImplementedError


@pytest.fixture
def api() -> ReviewingApi:
    return ReviewingApi()


@pytest.fixture
def clock() -> SetClock:
    return SetClock()


@pytest.fixture
def reviewer(api: ReviewingApi, clock: SetClock) -> Reviewer:
    return Reviewer(api, clock=clock)


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Keys:
    return make_keys(tmp_path_factory.mktemp("keys"))


def summary(_only_cpu_and_memory: bool) -> dict[str, Any]:
    return {"node": {"nodeName": "n1", "memory": {}}, "pods": []}


class Served:
    """A kubelet that listens, and a client that trusts the cluster's CA."""

    def __init__(self, kubelet: Kubelet, server: Server, port: int, ca: Path) -> None:
        self.kubelet = kubelet
        self.server = server
        self._url = f"https://{kubelet.address}:{port}/stats/summary"
        self._context = ssl.create_default_context(cafile=str(ca))

    async def get(self, token: str = "reader", seconds: float = 5.0) -> tuple[int, bytes]:
        timeout = aiohttp.ClientTimeout(total=seconds)
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.get(self._url, headers=headers, ssl=self._context) as response,
        ):
            return response.status, await response.read()


@pytest.fixture
async def served(reviewer: Reviewer, keys: Keys) -> AsyncIterator[Served]:
    with socket.socket() as probe:
        probe.bind((ADDRESS, 0))
        port = probe.getsockname()[1]
    server = Server(reviewer, keys, port)
    kubelet = Kubelet("n1", ADDRESS, summary)
    await server.start()
    await server.add(kubelet)
    yield Served(kubelet, server, port, keys.ca)
    await server.stop()


@pytest.mark.parametrize(
    ("authorization", "status"),
    [
        ("Bearer reader", 200),
        ("bearer reader", 200),
        ("Bearer stranger", 403),
        ("Bearer wrong", 401),
        ("", 401),
        ("Basic reader", 401),
    ],
)
async def test_requests_are_authenticated_and_authorized(reviewer: Reviewer, authorization: str, status: int) -> None:
    assert await reviewer.status(authorization, "n1") == status


async def test_access_is_reviewed_as_the_kubelet_does(reviewer: Reviewer, api: ReviewingApi) -> None:
    await reviewer.status("Bearer reader", "n1")

    attributes = {"verb": "get", "version": "v1", "resource": "nodes", "subresource": "stats", "name": "n1"}
    assert api.reviews[1]["spec"]["resourceAttributes"] == attributes


@pytest.mark.parametrize(("token", "cached"), [("reader", min(AUTHENTICATED, ALLOWED)), ("stranger", DENIED)])
async def test_reviews_are_cached_for_a_time(
    reviewer: Reviewer, api: ReviewingApi, clock: SetClock, token: str, cached: float
) -> None:
    for _ in range(3):
        await reviewer.status(f"Bearer {token}", "n1")
    assert len(api.reviews) == 2

    clock.time += cached + 1
    await reviewer.status(f"Bearer {token}", "n1")
    assert len(api.reviews) == 3


async def test_summary_is_served_with_a_certificate_for_the_address(served: Served) -> None:
    assert await served.get() == (200, b'{"node":{"nodeName":"n1","memory":{}},"pods":[]}')
    assert (await served.get("stranger"))[0] == 403
    assert (await served.get(""))[0] == 401


async def test_kubelet_without_an_api_server_responds_with_an_error(served: Served, api: ReviewingApi) -> None:
    api.up = False

    assert (await served.get())[0] == 500


@pytest.mark.parametrize(("fault", "status"), [("Unauthorized", 401), ("Forbidden", 403), ("ServerError", 500)])
async def test_fault_has_its_status(served: Served, fault: Any, status: int) -> None:
    served.kubelet.fault = fault

    assert (await served.get())[0] == status


@pytest.mark.parametrize("fault", ["Hang", "Drip"])
async def test_fault_lasts_longer_than_the_client_waits(served: Served, fault: Any) -> None:
    served.kubelet.fault = fault

    with pytest.raises(asyncio.TimeoutError):
        await served.get(seconds=0.5)


async def test_silent_node_accepts_connections_and_never_responds(served: Served) -> None:
    served.kubelet.silent = True

    with pytest.raises(asyncio.TimeoutError):
        await served.get(seconds=0.5)


async def test_reset_closes_the_connection(served: Served) -> None:
    served.kubelet.fault = "Reset"

    with pytest.raises(aiohttp.ClientError):
        await served.get()


async def test_certificate_of_another_node_fails_verification(served: Served) -> None:
    await served.server.remove(served.kubelet)
    served.kubelet.fault = "OtherCertificate"
    await served.server.add(served.kubelet)

    with pytest.raises(aiohttp.ClientConnectorCertificateError):
        await served.get()


async def test_nothing_listens_for_a_deleted_node(served: Served) -> None:
    await served.server.remove(served.kubelet)

    with pytest.raises(aiohttp.ClientConnectorError):
        await served.get()
