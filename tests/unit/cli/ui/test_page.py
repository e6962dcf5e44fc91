"""The page that is kept up to date: what open pages are sent, and when one is closed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from tests.builders import machine_set, node, pod
from tests.fakes.cluster import FakeCluster
from tests.unit.cli.ui.test_sources import until
from tests.unit.descheduling.planning import NOW, built
from trimtab.api.plan import rfc3339
from trimtab.cli.ui import page as module
from trimtab.cli.ui.page import QUEUE, LivePage, plan_of
from trimtab.cli.ui.sources import LiveSource
from trimtab.cluster.snapshot import Snapshot
from trimtab.inspection.cluster import ClusterInput
from trimtab.kube.resources import NODES


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    monkeypatch.setattr(module, "VIEW_PERIOD", 0.02)
    monkeypatch.setattr(module, "TICK", 0.01)
    server = FakeCluster()
    server.add(NODES, node("n1"))
    return server


@pytest.fixture
async def page(server: FakeCluster) -> AsyncIterator[LivePage]:
    page = LivePage(LiveSource(server, "https://example.com"), plan_period=0.01)
    task = asyncio.create_task(page.run())
    yield page
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_page_that_is_open_early_is_told_why_it_is_empty(server: FakeCluster, page: LivePage) -> None:
    server.down = True
    queue = page.subscribe()
    assert (await queue.get() or b"").startswith(b'{"loading"')

    server.down = False
    sent = b'{"loading"'
    while sent.startswith(b'{"loading"'):
        sent = await queue.get() or b""
    assert sent.startswith(b'{"kind":"state"')


async def test_changes_of_nodes_are_sent_and_planned(server: FakeCluster, page: LivePage) -> None:
    await until(lambda: page.plan is not None)
    queue = page.subscribe()
    assert b'"n1"' in (await queue.get() or b"")
    server.add(NODES, node("n2"))
    await until(lambda: page.view is not None and "n2" in page.view.nodes)
    sent = b""
    while b'"n2"' not in sent:
        sent = await queue.get() or b""
    assert sent.startswith(b'{"kind":"change"')
    assert b'"n1"' not in sent


async def test_page_that_does_not_read_is_closed_and_others_stay(server: FakeCluster, page: LivePage) -> None:
    await until(lambda: page.view is not None)
    slow, reading = page.subscribe(), page.subscribe()
    for number in range(QUEUE + 2):
        name = f"more-{number}"
        server.add(NODES, node(name))
        await until(lambda name=name: page.view is not None and name in page.view.nodes)  # type: ignore[misc]
        while not reading.empty():
            assert reading.get_nowait() is not None

    assert slow.get_nowait() is None
    server.add(NODES, node("last"))
    sent = b""
    while b'"last"' not in sent:
        sent = await reading.get() or b""


def cluster() -> ClusterInput:
    group = machine_set("pool").replicas(1).limits(1, 5)
    things = [node("n1"), group, group.machine("pool-1").on("n1"), pod("web-1").on("n1")]
    return ClusterInput(snapshot=Snapshot(built(things)), now=NOW, source="test")


def test_node_groups_are_rows_and_known_by_node() -> None:
    result = plan_of(cluster())

    assert (result.error, result.omitted) == ("", ())
    assert result.plan is not None
    [group] = result.groups
    assert (group["minimum"], group["maximum"], group["target"]) == (1, 5, 1)
    assert result.group_of == {"n1": group["name"]}


def test_upcoming_nodes_are_those_of_the_status() -> None:
    """One machine has no node, the node of another starts, and that of a third starts and is not linked to it yet."""
    new = rfc3339(NOW - 60)
    group = machine_set("pool").replicas(3).limits(1, 5)
    things = [
        group,
        *(group.machine(f"pool-{number}").provider_id(f"x://{number}") for number in (1, 2, 3)),
        group.machine("pool-4").on("n4"),
    ]
    things += [node(name).not_ready().merge(metadata={"creationTimestamp": new}) for name in ("n3", "n4")]
    things[-2].provider_id("x://3")

    [row] = plan_of(ClusterInput(snapshot=Snapshot(built(things)), now=NOW, source="test")).groups

    assert row["upcoming"] == 3


def test_planner_that_fails_is_reported_on_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: ClusterInput) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(module, "joint_plan", fail)

    result = plan_of(cluster())

    assert result.plan is None
    assert result.error == "ZeroDivisionError: a bug"
