"""``trimtab ui`` in a real Chromium: content, search, explanations, keyboard, narrow window, themes, hostile names."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.builders import node, pod
from tests.fixtures.browser import Tab, browsing
from tests.fixtures.waiting import eventually_async, patiently
from tests.unit.inspection.test_history import entry, record
from trimtab_local.cluster import LocalCluster

ROOT = Path(__file__).parents[2]
EVIL = "<img src=x onerror=alert(1)>"
BUSY = {
    "enabled": True,
    "params": {
        "nodeResourceUtilizationThresholds": {
            "thresholds": {"MetricResource": 20},
            "targetThresholds": {"MetricResource": 50},
        },
        "metricsUtilization": {"source": "Prometheus", "prometheus": {"query": "node_load"}},
    },
}
LOADED = "Boolean(document.body?.classList.contains('loaded'))"
PRESSED = """(key) => document.activeElement.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }))"""


class Page:
    """A page of ``trimtab ui`` in a tab."""

    def __init__(self, tab: Tab) -> None:
        self.tab = tab

    async def until(self, expression: str, seconds: float = 10.0) -> None:
        """Wait until an expression is true."""
        await eventually_async(lambda: self.tab.evaluate(expression), expression, seconds=seconds)

    async def press(self, key: str) -> None:
        """Press a key on the focused element."""
        await self.tab.evaluate(f"({PRESSED})({json.dumps(key)})")

    async def open(self, url: str, *, width: int = 1440, height: int = 900) -> None:
        """Open a URL, and wait for the first state."""
        await self.tab.send(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False
        )
        await self.tab.send("Page.navigate", url=url)
        await self.loaded()

    async def loaded(self) -> None:
        """Wait for the first state. The page with the token leads to another one, which ends evaluations."""
        async with asyncio.timeout(patiently(30)):
            while True:
                with suppress(AssertionError):
                    await self.until(LOADED)
                    return


def things() -> list[Any]:
    evil = pod("evil").cpu("100").labels(app=EVIL).unschedulable(EVIL).manifest()
    evil["spec"]["schedulingGates"] = [{"name": EVIL}]
    return [
        *(
            node(f"n{number}").allocatable(cpu="4", memory="8Gi", pods="110").zone("ab"[number % 2])
            for number in range(6)
        ),
        node("closed").allocatable(cpu="4", memory="8Gi", pods="110").cordoned(),
        *(pod(f"web-{number}").on("n1").cpu("500m").ready().owned_by("ReplicaSet", "web") for number in range(3)),
        *(pod(f"big-{number}").cpu("64").owned_by("ReplicaSet", "big") for number in range(2)),
        evil,
    ]


@pytest.fixture
async def url(tmp_path: Path) -> AsyncIterator[str]:
    async with serving("--cluster", str(write_cluster(tmp_path))) as found:
        yield found


def write_cluster(folder: Path) -> Path:
    policies = [
        {
            "apiVersion": "trimtab.dev/v1alpha1",
            "kind": kind,
            "metadata": {"name": "default"},
            "spec": spec,
        }
        for kind, spec in (
            ("DeschedulerPolicy", {"strategies": {"RemoveDuplicates": {"enabled": True}, "LowNodeUtilization": BUSY}}),
            ("PlacementAdmission", {"mode": "Warn"}),
        )
    ]
    refused = {"result": "Refused", "result_reason": "DisruptionBudget", "result_message": "no disruption allowed"}
    long = {"node": "ip-10-0-0-1.compute.internal", "target": "ip-10-0-0-2.compute.internal", "message": "pods " * 99}
    history = record("a", entry("web-0", **long), entry("web-1", **long, **refused))
    items = [each if isinstance(each, dict) else each.manifest() for each in things()]
    content = msgspec.json.encode({"apiVersion": "v1", "kind": "List", "items": [*items, *policies, history]})
    (folder / "cluster.json").write_bytes(content)
    return folder / "cluster.json"


@asynccontextmanager
async def serving(*arguments: str, ends: int = 0) -> AsyncIterator[str]:
    """Run ``trimtab ui`` and return its URL.

    Args:
        arguments: further arguments.
        ends: the exit status at the end: 0 to interrupt it, or ``-signal.SIGKILL`` to kill it.
    """
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "trimtab", "ui", "--no-open", *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        cwd=ROOT,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(patiently(60)):
            line = (await process.stdout.readline()).decode()
        yield line.rpartition(" at ")[2].strip()
        if ends:
            process.kill()
        else:
            process.terminate()
        assert await process.wait() == ends
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


@pytest.fixture
async def page(url: str, tmp_path: Path) -> AsyncIterator[Page]:
    del url  # only requested so that the browser is closed before the server ends
    async with browsing(tmp_path / "profile") as tab:
        yield Page(tab)
        assert tab.complaints == []
        outside = [each for each in tab.requests if not each.startswith(("http://127.0.0.1:", "data:", "about:"))]
        assert outside == []


async def test_page_shows_nodes_pending_pods_and_the_plan(page: Page, url: str) -> None:
    await page.open(url)
    tab = page.tab
    assert await tab.evaluate("location.search") == "", "the token is not in the address"
    assert await tab.evaluate("document.querySelectorAll('#heat .cell').length") == 7
    assert await tab.evaluate("document.querySelectorAll('#heat .cordoned').length") == 1
    assert await tab.evaluate("document.querySelector('[data-name=n1]').textContent") == "38"
    text = "document.querySelector('#panel').textContent"
    assert "Insufficient cpu" in await tab.evaluate(text)
    await tab.evaluate("document.querySelector('#tab-plan').click()")
    await page.until(f"{text}.includes('DuplicateOnNode')")
    missing = await tab.evaluate("document.querySelector('#panel .chips').textContent")
    assert "utilization for DeschedulerPolicy default" in missing


async def test_policy_is_explained_when_its_row_is_opened(page: Page, url: str) -> None:
    await page.open(url)
    await page.tab.evaluate("document.querySelector('#tab-plan').click()")
    await page.until("document.querySelector('#panel').textContent.includes('DuplicateOnNode')", seconds=30)
    title, body = "document.querySelector('#inspector-title').textContent", "document.querySelector('#inspector-body')"
    for row, kind in enumerate(("DeschedulerPolicy", "PlacementAdmission")):
        await page.tab.evaluate("document.querySelector('#tab-policies').click()")
        await page.tab.evaluate(f"document.querySelectorAll('#panel .rows .row')[{row}].click()")
        await page.until(f"{title} === '{kind}/default' && {body}.querySelector('.answer') !== null")
        planned = await page.tab.evaluate(f"{body}.textContent.includes('DuplicateOnNode')")
        assert planned is (kind == "DeschedulerPolicy")


async def test_only_refused_and_failed_actions_are_marked(page: Page, url: str) -> None:
    await page.open(url)
    await page.tab.evaluate("document.querySelector('#tab-history').click()")
    await page.until("document.querySelectorAll('#panel .rows .row').length === 2")
    marked = "[...document.querySelectorAll('#panel .rows .bad')].map((each) => each.textContent)"
    assert await page.tab.evaluate(marked) == ["Evict (refused)"]


async def test_outdated_page_says_so_and_continues_with_the_new_url(tmp_path: Path) -> None:
    """The server is killed and started again on its port: its token is new, so the page has to be opened again."""
    arguments = ("--cluster", str(write_cluster(tmp_path)))
    banner = "document.querySelector('#banner')"
    async with browsing(tmp_path / "profile") as tab:
        page = Page(tab)
        async with serving(*arguments, ends=-signal.SIGKILL) as url:
            await page.open(url)
            assert await tab.evaluate("document.body.classList.contains('stale')") is False
        await page.until("document.querySelector('#live').textContent === 'Disconnected'")
        assert await tab.evaluate(f"{banner}.querySelector('time') !== null"), "it says of when the shown state is"
        assert await tab.evaluate("document.body.classList.contains('stale')")
        assert await tab.evaluate("document.querySelectorAll('#heat .cell').length") == 7, "the last state stays"
        port = url.partition("?")[0].rstrip("/").rpartition(":")[2]
        async with serving(*arguments, "--port", port) as again:
            await page.until(f"{banner}.textContent.includes('was restarted')", seconds=30)
            await page.open(again)
            assert await tab.evaluate("document.body.classList.contains('stale')") is False
            assert await tab.evaluate(f"{banner}.hidden")


async def test_hostile_names_stay_text(page: Page, url: str) -> None:
    await page.open(url)
    await page.tab.evaluate("location.hash = '#pod/shop/evil'")
    await page.until("document.querySelector('#inspector-body').textContent.includes('onerror')")
    assert await page.tab.evaluate("document.querySelectorAll('img, main script').length") == 0


async def test_search_leads_to_an_explanation(page: Page, url: str) -> None:
    await page.open(url)
    await page.press("/")
    assert await page.tab.evaluate("document.activeElement.id") == "search"
    await page.tab.type("web-2")
    await page.until("document.querySelectorAll('#results [role=option]').length === 1")
    await page.press("Enter")
    await page.until("document.querySelector('#inspector-title').textContent === 'shop/web-2'")
    await page.until("document.querySelector('#inspector-body .answer') !== null")


async def test_keyboard_moves_between_nodes_and_explains(page: Page, url: str) -> None:
    await page.open(url)
    focused = "document.activeElement.dataset.name"
    await page.tab.evaluate("document.querySelector('#heat .cell').focus()")
    first = await page.tab.evaluate(focused)
    await page.press("ArrowRight")
    second = await page.tab.evaluate(focused)
    assert first != second
    await page.press("Enter")
    await page.until(f"document.querySelector('#inspector-title').textContent === {json.dumps(second)}")
    await page.press("Escape")
    await page.until("document.querySelector('#inspector').hidden")
    assert await page.tab.evaluate(focused) == second


async def test_narrow_window_does_not_scroll_sideways(page: Page, url: str) -> None:
    await page.open(url, width=420)
    assert await page.tab.evaluate("document.documentElement.scrollWidth") <= 420
    await page.tab.evaluate("document.querySelector('#heat .cell').click()")
    await page.until("document.querySelector('#inspector-body dl') !== null")
    assert await page.tab.evaluate("document.documentElement.scrollWidth") <= 420


async def test_rows_of_a_narrow_window_contain_their_text(page: Page, url: str) -> None:
    await page.open(url, width=420)
    rows = "[...document.querySelectorAll('#panel .rows .row')]"
    for name in ("pending", "plan", "kept", "history", "policies"):
        await page.tab.evaluate(f"document.querySelector('#tab-{name}').click()")
        assert await page.tab.evaluate(f"{rows}.filter((row) => row.scrollHeight > row.offsetHeight).length") == 0, name


async def test_theme_follows_the_system_and_can_be_chosen(page: Page, url: str) -> None:
    background = "getComputedStyle(document.body).backgroundColor"
    await page.tab.media(prefers_color_scheme="dark")
    await page.open(url)
    assert await page.tab.evaluate(background) == "rgb(17, 22, 29)"
    await page.tab.evaluate("document.querySelector('#theme').click()")
    assert await page.tab.evaluate(background) == "rgb(255, 255, 255)"


async def test_live_page_shows_new_nodes(make_cluster: Callable[..., LocalCluster], tmp_path: Path) -> None:
    cluster = await asyncio.to_thread(make_cluster, nodes=2)
    cells = "document.querySelectorAll('#heat .cell').length"
    async with serving("--kubeconfig", str(cluster.kubeconfig)) as url, browsing(tmp_path / "profile") as tab:
        page = Page(tab)
        await page.open(url)
        assert await tab.evaluate("document.querySelector('#live').textContent") == "Live"
        assert await tab.evaluate(cells) == 2
        await asyncio.to_thread(cluster.up, nodes=4)
        await page.until(f"{cells} === 4")
        assert tab.complaints == []
