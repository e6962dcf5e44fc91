"""The namespace of Leases is gone: no kubelet can renew, and all of them live."""

from __future__ import annotations

import asyncio

import pytest

from tests.unit.tainting.lifecycle_world import LEASES, NODES, LivingCluster, Manager, _ready

pytestmark = pytest.mark.looptime(start=0)

POSTS = 300
"""Seconds between two posts of a status in which nothing is new."""


async def _post(cluster: LivingCluster) -> None:
    """A kubelet looks every ten seconds whether the server's word of it is still its own, and posts if not."""
    second = 0
    while True:
        await asyncio.sleep(1)
        second += 1
        for place, path in enumerate(sorted(each for each in cluster.objects if each.startswith(f"{NODES}/"))):
            name = path.rpartition("/")[2]
            wrong = (second + place) % 10 == 0 and _ready(cluster.objects[path]) != "True"
            if name not in cluster.dead and (wrong or (second + 25 * place) % POSTS == 0):
                cluster.post(name)


@pytest.mark.parametrize("zones", [1, 3])
async def test_nodes_without_leases_are_assessed_by_status(zones: int) -> None:
    cluster = LivingCluster()
    for place in range(12):
        cluster.join(f"n{place:02}", zone=f"z{place % zones}")
    async with Manager(cluster) as manager:
        kubelets = asyncio.create_task(_post(cluster))
        await manager.until(30.5)
        for path in [each for each in cluster.objects if each.startswith(LEASES)]:
            cluster.drop(path)
        await manager.until(1000)
        assert (cluster.unknown, cluster.tainted) == ([], [])
        cluster.dead.add("n00")
        stopped = manager.cluster.time
        await manager.until(stopped + 900)
        kubelets.cancel()
    assert [name for name, _ in cluster.unknown] == ["n00"]


async def test_node_with_restored_lease_is_assessed_by_it() -> None:
    cluster = LivingCluster()
    for place in range(12):
        cluster.join(f"n{place:02}")
    async with Manager(cluster) as manager:
        await manager.until(30.5)
        cluster.drop(f"{LEASES}/n03")
        await manager.until(45)
        cluster.renew("n03")
        await manager.until(60)
        cluster.dead.add("n03")
        await manager.until(130)
    [(name, at)] = cluster.unknown
    assert name == "n03"
    assert at < 125
