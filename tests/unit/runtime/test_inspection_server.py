"""The inspection API's server: who is believed, who may ask, and what floods cost."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest

from tests.fakes.clock import SetClock
from tests.fakes.server import FakeServer, fake_server, json
from trimtab.kube.connection.config import ServerConfig
from trimtab.kube.errors import InputError
from trimtab.kube.resources import NODES, PODS
from trimtab.runtime.http.server import Limits
from trimtab.runtime.inspection.front_proxy import FrontProxy, front_proxy_config
from trimtab.runtime.inspection.questions import PREFIX, NotServed, Question, access_check, parse_question
from trimtab.runtime.inspection.server import LIMITS, InspectionServer
from trimtab_local.certificates import FRONT_PROXY, Keys, make_keys

NODE = f"{PREFIX}/nodes/n1/explanation"
ALICE = {"X-Remote-User": "alice", "X-Remote-Group": "admins"}


def config_map(keys: Keys, **changes: str) -> dict[str, str]:
    return {
        "client-ca-file": keys.ca.read_text(),
        "requestheader-client-ca-file": keys.front_proxy_ca.read_text(),
        "requestheader-allowed-names": f'["{FRONT_PROXY}"]',
        "requestheader-username-headers": '["X-Remote-User"]',
        "requestheader-group-headers": '["X-Remote-Group"]',
        "requestheader-extra-headers-prefix": '["X-Remote-Extra-"]',
        **{key.replace("_", "-"): value for key, value in changes.items()},
    }


class Published:
    """An API server that publishes the front proxy's CA."""

    def __init__(self, data: Mapping[str, str]) -> None:
        self.data = data

    async def request(self, *_: Any, **__: Any) -> Any:
        return {"data": self.data}

    def stream(self, *_: Any, **__: Any) -> Any:
        raise AssertionError


class Service:
    """A running server, its front proxy, and the questions that were answered."""

    def __init__(self, server: InspectionServer, proxy: FrontProxy, published: Published, keys: Keys) -> None:
        self.server, self.proxy, self.published, self.keys = server, proxy, published, keys
        self.asked: list[Question] = []

    async def get(
        self,
        path: str = NODE,
        *,
        headers: Mapping[str, str] | None = None,
        client: Keys | None = None,
        method: str = "GET",
    ) -> tuple[int, Any]:
        context = ssl.create_default_context(cadata=self.keys.ca.read_text())
        if client is not None:
            context.load_cert_chain(client.front_proxy, client.front_proxy_key)
        url = f"https://127.0.0.1:{self.server.port}{path}"
        async with (
            aiohttp.ClientSession() as session,
            session.request(method, url, headers=headers, ssl=context) as response,
        ):
            content = await response.read()
            return response.status, msgspec.json.decode(content) if content else None


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Keys:
    return make_keys(tmp_path_factory.mktemp("keys"))


@asynccontextmanager
async def serving(
    api: FakeServer, keys: Keys, *, limits: Limits | None = None, **changes: str
) -> AsyncIterator[Service]:
    published = Published(config_map(keys, **changes))
    proxy = FrontProxy(published, SetClock())
    proxy.serve(keys.serving.read_bytes(), keys.serving_key.read_bytes())
    await proxy.read()

    async def answer(question: Question) -> bytes:
        service.asked.append(question)
        if question.name == "gone":
            raise NotServed("gone", status=404, reason="NotFound")
        return msgspec.json.encode({"node": question.name})

    server = InspectionServer(
        "127.0.0.1",
        0,
        config=ServerConfig(server=api.url),
        front_proxy=proxy,
        answer=answer,
        kinds=(NODES, PODS),
        limits=limits or LIMITS,
    )
    service = Service(server, proxy, published, keys)
    await server.start()
    try:
        yield service
    finally:
        await server.stop()


def allow(api: FakeServer, *users: str, but: str = "") -> None:
    """Let users do everything but list one resource. A token authenticates the user of the same name."""

    async def review(request: Any) -> Any:
        spec = (await request.json())["spec"]
        if "token" in spec:
            status: Any = {"authenticated": spec["token"] in users, "user": {"username": spec["token"]}}
        else:
            status = {"allowed": spec["user"] in users and spec["resourceAttributes"]["resource"] != but}
        return await json({"status": status})(request)

    api.answer(review)


async def test_front_proxy_is_believed_and_the_users_own_permissions_decide(keys: Keys) -> None:
    async with fake_server() as api, serving(api, keys) as service:
        allow(api, "alice")
        assert await service.get(headers=ALICE, client=keys) == (200, {"node": "n1"})
        status, refused = await service.get(headers={"X-Remote-User": "bob"}, client=keys)
        assert (status, refused["reason"]) == (403, "Forbidden")
        assert [each.name for each in service.asked] == ["n1"]
        bodies = [msgspec.json.decode(each[3])["spec"] for each in api.requests]
        assert {each["user"] for each in bodies} == {"alice", "bob"}
        assert bodies[0]["groups"] == ["admins"]


async def test_user_who_may_not_list_one_kind_is_refused(keys: Keys) -> None:
    async with fake_server() as api, serving(api, keys) as service:
        allow(api, "alice", but="machinesets")
        assert (await service.get(headers=ALICE, client=keys))[0] == 200  # the snapshot has no such kind here
        allow(api, "carol", but="taintmanagers")
        status, refused = await service.get(headers={"X-Remote-User": "carol"}, client=keys)
        assert status == 403
        assert "list taintmanagers" in refused["message"]


async def test_identity_headers_without_client_certificate_are_ignored(keys: Keys) -> None:
    async with fake_server() as api, serving(api, keys) as service:
        allow(api, "alice")
        assert (await service.get(headers=ALICE))[0] == 401
        assert (service.asked, api.requests) == ([], [])


async def test_certificate_of_another_name_or_ca_is_not_believed(keys: Keys, tmp_path: Path) -> None:
    async with fake_server() as api, serving(api, keys, requestheader_allowed_names='["other"]') as service:
        allow(api, "alice")
        assert (await service.get(headers=ALICE, client=keys))[0] == 401
        with pytest.raises(aiohttp.ClientError):
            await service.get(headers=ALICE, client=make_keys(tmp_path))
        assert service.asked == []


async def test_rotated_ca_is_trusted_and_the_old_one_no_longer(keys: Keys, tmp_path: Path) -> None:
    new = make_keys(tmp_path)
    async with fake_server() as api, serving(api, keys) as service:
        allow(api, "alice")
        context = ssl.create_default_context(cadata=keys.ca.read_text())
        context.load_cert_chain(keys.front_proxy, keys.front_proxy_key)
        url = f"https://127.0.0.1:{service.server.port}{NODE}"
        async with aiohttp.ClientSession() as session:
            async with session.get(url, headers=ALICE, ssl=context) as response:
                assert response.status == 200
                await response.read()
            service.published.data = {
                **service.published.data,
                "requestheader-client-ca-file": new.front_proxy_ca.read_text(),
            }
            await service.proxy.read()
            async with session.get(url, headers=ALICE, ssl=context) as response:  # the same connection
                assert response.status == 401
        with pytest.raises(aiohttp.ClientError):
            await service.get(headers=ALICE, client=keys)
        assert (await service.get(headers=ALICE, client=new))[0] == 200


async def test_bearer_token_works_on_the_same_port(keys: Keys) -> None:
    async with fake_server() as api, serving(api, keys) as service:
        allow(api, "dave")
        assert (await service.get(headers={"Authorization": "Bearer dave"}))[0] == 200
        assert (await service.get(headers={"Authorization": "Bearer eve"}))[0] == 401


async def test_only_reads_of_known_resources(keys: Keys) -> None:
    async with fake_server() as api, serving(api, keys) as service:
        allow(api, "alice")
        assert (await service.get(method="POST", headers=ALICE, client=keys))[0] == 405
        assert (await service.get(f"{PREFIX}/secrets/x", headers=ALICE, client=keys))[0] == 404
        assert (await service.get(f"{NODE}?shell=1", headers=ALICE, client=keys))[0] == 400
        assert (await service.get(f"{PREFIX}/nodes/{'a' * 3000}/explanation", headers=ALICE, client=keys))[0] == 400
        status, gone = await service.get(f"{PREFIX}/nodes/gone/explanation", headers=ALICE, client=keys)
        assert (status, gone["reason"]) == (404, "NotFound")
        status, resources = await service.get(PREFIX)
        assert status == 200
        assert {"nodes/explanation", "plans"} <= {each["name"] for each in resources["resources"]}
        assert all(each["verbs"] == ["get"] for each in resources["resources"])


async def test_flood_of_one_user_is_limited_and_reviews_are_cached(keys: Keys) -> None:
    limits = Limits(
        connections=64, connections_per_client=64, requests_per_second=None, requests_per_second_in_all=None
    )
    async with fake_server() as api, serving(api, keys, limits=limits) as service:
        allow(api, "alice", "bob")
        statuses = [(await service.get(headers=ALICE, client=keys))[0] for _ in range(40)]
        assert statuses.count(429) >= 5
        assert (await service.get(headers={"X-Remote-User": "bob"}, client=keys))[0] == 200
        checks = len(access_check(Question("nodes/explanation", "", "n1"), (NODES, PODS)).attributes)
        assert len(api.requests) == 2 * checks


def test_cluster_whose_client_certificates_could_impersonate_is_refused(keys: Keys) -> None:
    data = config_map(keys, requestheader_allowed_names="[]")
    assert front_proxy_config(data).names == frozenset()
    with pytest.raises(InputError) as caught:
        front_proxy_config({**data, "requestheader-client-ca-file": data["client-ca-file"]})
    assert caught.value.field == "requestheader-allowed-names"


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/nodes/n1/explanation", Question("nodes/explanation", "", "n1")),
        ("/nodes/a%2Fb/explanation", Question("nodes/explanation", "", "a/b")),
        ("/plans/current", Question("plans", "", "current")),
        ("/plans/other", None),
        ("/nodes/n1", None),
        ("/nodes/n1/explanation/more", None),
        ("/namespaces/shop/nodes/n1/explanation", None),
        ("/namespaces//nodes/n1/explanation", None),
        ("/", None),
    ],
)
def test_paths_are_questions(path: str, expected: Question | None) -> None:
    assert parse_question(f"{PREFIX}{path}", "") == expected
