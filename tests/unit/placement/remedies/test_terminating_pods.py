"""Pods that are being deleted are known by node, whatever happened in between."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.unit.cluster.worlds import worlds
from trimtab.cluster.snapshot import Snapshot
from trimtab.placement.remedies.interface import terminating_pods


def counted(snapshot: Snapshot) -> dict[int, tuple[str, ...]]:
    """The same, pod by pod."""
    found: dict[int, tuple[str, ...]] = {}
    for key in sorted(snapshot.pods):
        pod = snapshot.pods[key]
        slot = snapshot.slot(pod)
        if slot is not None and pod.deleted is not None and not pod.terminal:
            found[slot] = (*found.get(slot, ()), key)
    return found


@given(worlds(pods_least=1), st.data())
def test_terminating_pods_equal_a_scan(world, data):
    snapshot = Snapshot(world)
    assert terminating_pods(snapshot) == counted(snapshot)
    for _ in range(4):
        pod = snapshot.pods[data.draw(st.sampled_from(sorted(snapshot.pods)))]
        node = snapshot.nodes.node(data.draw(st.sampled_from(sorted(snapshot.nodes.slot_of.values()))))
        with snapshot.fork():
            snapshot.remove(node)
            assert terminating_pods(snapshot) == counted(snapshot)
        deleted = data.draw(st.sampled_from([None, 1.0]))
        snapshot.put(replace(pod, deleted=deleted, node=data.draw(st.sampled_from(["", node.name]))))
        assert terminating_pods(snapshot) == counted(snapshot)
