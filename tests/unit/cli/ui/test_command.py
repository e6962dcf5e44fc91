"""``trimtab ui``: it serves the page until it is interrupted."""

from __future__ import annotations

import os
import signal
import urllib.error
import urllib.request
from http.cookiejar import CookieJar

import pytest

from tests.builders import node
from trimtab.kube.resources import NODES

Opened = list[tuple[int, str]]


@pytest.fixture
def browser(monkeypatch: pytest.MonkeyPatch) -> Opened:
    """Replaces the browser: reads the page with the given URL twice, and then interrupts the command."""
    opened: Opened = []

    def read(url: str) -> int:
        opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(CookieJar()))
        try:
            with opener.open(url, timeout=60) as response:
                return int(response.status)
        except urllib.error.HTTPError as error:
            return error.code

    def show(url: str) -> bool:
        opened.extend((read(url), url) for _ in range(2))
        os.kill(os.getpid(), signal.SIGTERM)
        return True

    monkeypatch.setattr("webbrowser.open", show)
    return opened


def test_page_of_files_is_served_until_the_command_is_interrupted(run, write, browser: Opened) -> None:
    cluster = write("c.json", node("n1"))
    before = (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT))

    result = run("ui", "--cluster", cluster, "--open", "--now", "2026-11-20T12:00:00Z")

    assert result.exit_code == 0
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before
    assert [status for status, _ in browser] == [200, 401]  # the browser's URL works once
    assert f"Serving {cluster} at http://127.0.0.1:" in result.stdout
    printed = result.stdout.split()[-1]
    assert printed != browser[0][1]
    assert "token" in result.stderr


def test_page_of_a_live_cluster_is_served(run, server, kubeconfig, browser: Opened) -> None:
    server.add(NODES, node("n1"))

    result = run("ui", "--kubeconfig", kubeconfig, "--open")

    assert result.exit_code == 0
    assert [status for status, _ in browser] == [200, 401]
    assert {call.method for call in server.calls} <= {"GET"}


@pytest.mark.parametrize("graphical", [True, False])
def test_browser_is_opened_on_a_terminal_with_a_session(run, write, monkeypatch, graphical: bool) -> None:
    started: list[bool] = []
    monkeypatch.setattr("trimtab.cli.ui._graphical", lambda: graphical)
    monkeypatch.setattr("trimtab.cli.ui._serve_files", lambda *_, opens, **__: started.append(opens))

    assert run("ui", "--cluster", write("c.json", node("n1"))).exit_code == 0
    assert started == [graphical]


def test_live_page_shows_the_present(run, kubeconfig) -> None:
    assert run("ui", "--kubeconfig", kubeconfig, "--now", "2026-11-20T12:00:00Z").exit_code == 2
