import asyncio
import logging
from pathlib import Path

import pytest

from tests.fakes.clock import SetClock
from trimtab.kube.connection.config import Login, ServerConfig
from trimtab.kube.connection.credentials import (
    FixedCredentials,
    ReloadedCredentials,
    TokenFileCredentials,
    credentials_for,
)
from trimtab.kube.errors import InputError


def bearer(token: str, expires: float | None = None) -> Login:
    return Login(authorization=f"Bearer {token}", expires=expires)


class Plugin:
    """Gives out numbered tokens that live ten minutes."""

    def __init__(self, clock: SetClock, *, life: float | None = 600.0) -> None:
        self.clock = clock
        self.life = life
        self.runs = 0
        self.broken = False

    def __call__(self) -> Login:
        self.runs += 1
        if self.broken:
            raise InputError("exec: process returned 1")
        return bearer(f"t{self.runs}", None if self.life is None else self.clock.time + self.life)


@pytest.fixture
def clock() -> SetClock:
    return SetClock()


@pytest.fixture
def token(tmp_path: Path) -> Path:
    file = tmp_path / "token"
    file.write_text("a\n")
    return file


async def test_token_file_is_read_once_a_minute(clock, token):
    credentials = TokenFileCredentials(bearer("a"), str(token), clock=clock)
    token.write_text("b\n")
    clock.time += 59
    assert await credentials.login() == bearer("a")
    clock.time += 1
    assert await credentials.login() == bearer("b")


async def test_rejected_token_is_reloaded_immediately(clock, token):
    credentials = TokenFileCredentials(bearer("a"), str(token), clock=clock)
    assert await credentials.renew(bearer("a")) is None
    token.write_text("b")
    assert await credentials.renew(bearer("a")) == bearer("b")
    assert await credentials.login() == bearer("b")


@pytest.mark.parametrize(
    "content",
    [None, b"", b"\n", b"b\nb", b"b\0", b"\xff\xfe"],
    ids=["missing", "empty", "blank", "of two lines", "of zeros", "of no text"],
)
async def test_a_token_file_in_the_middle_of_a_rotation_keeps_the_last_token(clock, token, content):
    credentials = TokenFileCredentials(bearer("a"), str(token), clock=clock)
    token.unlink()
    if content is not None:
        token.write_bytes(content)
    clock.time += 60
    assert await credentials.login() == bearer("a")


async def test_a_plugins_login_is_renewed_before_its_end(clock):
    plugin = Plugin(clock)
    credentials = ReloadedCredentials(plugin(), plugin, clock=clock)
    clock.time += 539
    assert (await credentials.login()).authorization == "Bearer t1"
    clock.time += 1
    assert (await credentials.login()).authorization == "Bearer t2"
    assert plugin.runs == 2


async def test_many_requests_at_the_end_of_a_login_run_the_plugin_once(clock):
    plugin = Plugin(clock)
    credentials = ReloadedCredentials(plugin(), plugin, clock=clock)
    clock.time += 600
    logins = await asyncio.gather(*(credentials.login() for _ in range(20)))
    assert {login.authorization for login in logins} == {"Bearer t2"}
    assert plugin.runs == 2


async def test_many_refused_requests_run_the_plugin_once(clock):
    plugin = Plugin(clock)
    first = plugin()
    credentials = ReloadedCredentials(first, plugin, clock=clock)
    renewed = await asyncio.gather(*(credentials.renew(first) for _ in range(20)))
    assert {login.authorization for login in renewed} == {"Bearer t2"}
    assert plugin.runs == 2


async def test_repeated_rejections_do_not_run_the_plugin_each_time(clock):
    plugin = Plugin(clock)
    credentials = ReloadedCredentials(plugin(), plugin, clock=clock)
    login = await credentials.renew(await credentials.login())
    for _ in range(10):
        assert await credentials.renew(login) is None
    assert plugin.runs == 2
    clock.time += 5
    assert (await credentials.renew(login)).authorization == "Bearer t3"


async def test_a_login_shorter_than_the_skew_does_not_run_the_plugin_for_each_request(clock):
    plugin = Plugin(clock, life=30.0)
    credentials = ReloadedCredentials(plugin(), plugin, clock=clock)
    for _ in range(10):
        await credentials.login()
    assert plugin.runs == 2


async def test_a_plugin_that_fails_leaves_the_last_login(clock, caplog):
    plugin = Plugin(clock)
    credentials = ReloadedCredentials(plugin(), plugin, clock=clock)
    plugin.broken = True
    clock.time += 550
    assert (await credentials.login()).authorization == "Bearer t1"
    assert "exec: process returned 1" in caplog.text
    plugin.broken = False
    clock.time += 5
    assert (await credentials.login()).authorization == "Bearer t3"


async def test_fixed_credentials_cannot_be_renewed():
    credentials = FixedCredentials(bearer("a"))
    assert await credentials.login() == bearer("a")
    assert await credentials.renew(bearer("a")) is None


@pytest.mark.parametrize(
    ("config", "kind"),
    [
        (ServerConfig(server="http://a"), FixedCredentials),
        (ServerConfig(server="http://a", token_file="/t"), TokenFileCredentials),
        (ServerConfig(server="http://a", kubeconfig="/k"), ReloadedCredentials),
        (ServerConfig(server="http://a", kubeconfig="/k", token_file="/t"), TokenFileCredentials),
    ],
)
def test_credentials_depend_on_the_login(config, kind):
    assert type(credentials_for(config)) is kind


async def test_a_kubeconfig_is_loaded_again_by_the_same_context(tmp_path, caplog):
    caplog.set_level(logging.WARNING)
    file = tmp_path / "config"
    text = (
        "{contexts: [{name: a, context: {cluster: a, user: a}}], clusters: [{name: a, cluster: {server: 'http://a'}}],"
        " users: [{name: a, user: {token: %s}}]}"
    )
    file.write_text(text % "new")
    credentials = credentials_for(
        ServerConfig(server="http://a", kubeconfig=str(file), context="a", login=bearer("old"))
    )
    assert await credentials.renew(bearer("old")) == bearer("new")
    assert caplog.text == ""
