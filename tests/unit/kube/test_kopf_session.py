"""Kopf works with the session that we lend it. Its client is private; this is the one place that touches it."""

import logging
from collections.abc import AsyncIterator
from pathlib import Path

import kopf
import pytest
from kopf._cogs.clients import api as kopf_api
from kopf._cogs.clients import auth, errors
from kopf._cogs.structs import credentials

from tests.fakes import server as answers
from tests.fakes.server import FakeServer, fake_server
from trimtab import __version__
from trimtab.kube.connection.config import Login, ServerConfig
from trimtab.kube.connection.credentials import TokenFileCredentials
from trimtab.kube.connection.transport import Transport

LOGGER = logging.getLogger(__name__)


@pytest.fixture
async def server() -> AsyncIterator[FakeServer]:
    async with fake_server() as fake:
        yield fake


@pytest.fixture
def token(tmp_path: Path) -> Path:
    file = tmp_path / "token"
    file.write_text("old")
    return file


@pytest.fixture
async def transport(server: FakeServer, token: Path) -> AsyncIterator[Transport]:
    login = Login(authorization="Bearer old")
    config = ServerConfig(server=server.url, login=login, namespace="trimtab-system")
    async with Transport(config, credentials=TokenFileCredentials(login, str(token))) as each:
        yield each


def lend(transport: Transport) -> kopf.AiohttpSession:
    return kopf.AiohttpSession(
        aiohttp_session=transport.borrowed_session(),
        server=transport.server,
        default_namespace=transport.default_namespace,
    )


@pytest.fixture
async def vault(transport: Transport) -> AsyncIterator[credentials.Vault]:
    vault = credentials.Vault({"trimtab": lend(transport)})
    reset = auth.vault_var.set(vault)
    yield vault
    auth.vault_var.reset(reset)
    await vault.close()


@pytest.fixture
def settings() -> kopf.OperatorSettings:
    settings = kopf.OperatorSettings()
    settings.networking.error_backoffs = []
    return settings


async def test_kopfs_requests_carry_our_login_and_our_name(server, vault, settings):
    server.answer(answers.needs_token("old"))
    response = await kopf_api.get("/api/v1/nodes", settings=settings, logger=LOGGER)
    assert response == {"token": "Bearer old"}
    assert server.requests[0][2]["User-Agent"] == f"trimtab/{__version__}"
    assert await kopf_api.get_default_namespace() == "trimtab-system"


async def test_kopfs_requests_and_streams_renew_the_token_without_a_new_login(server, vault, settings, token):
    token.write_text("new")
    server.answer(answers.needs_token("new"))
    patched = await kopf_api.patch("/api/v1/nodes/n1", payload={"a": 1}, settings=settings, logger=LOGGER)
    assert patched == {"token": "Bearer new"}
    assert [request[3] for request in server.requests] == [b'{"a": 1}'] * 2
    streamed = [each async for each in kopf_api.stream("/api/v1/nodes", settings=settings, logger=LOGGER)]
    assert streamed == [{"token": "Bearer new"}]


async def test_session_closed_by_kopf_leaves_the_transport_open(server, vault, transport, settings):
    server.answer(answers.needs_token("old"))
    await kopf_api.get("/api/v1/nodes", settings=settings, logger=LOGGER)
    await vault.close()
    assert await transport.request("GET", "/api/v1/nodes") == {"token": "Bearer old"}


async def test_login_can_be_lent_again_after_a_permanent_refusal(server, vault, transport, settings, token):
    server.answer(answers.needs_token("new"))
    [(key, info)] = [each async for each in vault]
    context = auth.APIContext(info)
    with pytest.raises(errors.APIUnauthorizedError):
        await kopf_api.request("get", "/api/v1/nodes", settings=settings, logger=LOGGER, context=context)
    token.write_text("new")
    await vault.populate({"again": lend(transport)})
    await vault.invalidate(key, info)
    assert await kopf_api.get("/api/v1/nodes", settings=settings, logger=LOGGER) == {"token": "Bearer new"}
