"""Columns of resources and labels: only for what nodes have, given back afterwards, whatever pods name."""

from __future__ import annotations

import sys
import tracemalloc

import numpy as np

from trimtab.cluster.node_table import NodeTable
from trimtab.cluster.resources import UNKNOWN
from trimtab.cluster.snapshot import Snapshot
from trimtab.kube.frozen import Labels, ResourceList
from trimtab.kube.objects import LabelSelector, Node, Pod, PodAffinityTerm, PodSpec
from trimtab.kube.objects.pod import Affinity
from trimtab.placement.placer import Placer

GPU = "example.com/gpu"
MIB = 2**20


def node(name: str, labels: dict[str, str] | None = None, **more: int) -> Node:
    amounts = ResourceList(
        {"cpu": 8000, "memory": 2**35, "pods": 110, **{GPU if k == "gpu" else k: v for k, v in more.items()}}
    )
    return Node(name=name, uid=name, allocatable=amounts, labels=Labels(labels or {}))


def pod(name: str, where: str = "", **requests: int) -> Pod:
    spec = PodSpec(requests=ResourceList({GPU if key == "gpu" else key: amount for key, amount in requests.items()}))
    return Pod(namespace="tenant", name=name, uid=name, spec=spec, node=where, phase="Running" if where else "Pending")


def wide(number: int, where: str = "n0", names: int = 10_000) -> Pod:
    spec = PodSpec(requests=ResourceList({f"x.io/p{number}-{each}": 1 for each in range(names)}))
    return Pod(namespace="tenant", name=f"wide-{number}", uid=f"w{number}", spec=spec, node=where, phase="Running")


def requested(snapshot: Snapshot, name: str, resource: str) -> int:
    table = snapshot.nodes
    return int(table.requested[table.slot_of[name], table.axis.column[resource]])


def test_requests_for_unknown_resources_add_no_columns():
    """The review's width.py: two pods took 868 MiB on 1,000 nodes with 1,500 templates."""
    snapshot = Snapshot(node(f"n{number}") for number in range(1000))
    specs = [PodSpec(requests=ResourceList({"cpu": 100 + each, "memory": 2**27})) for each in range(1500)]
    for number, spec in enumerate(specs):
        snapshot.put(Pod(f"ns{number % 50}", f"p{number}", str(number), spec=spec, node=f"n{number % 1000}"))
    width, attack = snapshot.nodes.axis.width, [wide(number) for number in range(5)]
    tracemalloc.start()
    try:
        for each in attack:
            snapshot.put(each)
        for spec in specs:
            snapshot.amounts(spec)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert snapshot.nodes.axis.width == width == 8
    assert len(snapshot.nodes.axis.column) == 4
    assert peak < 5 * MIB


def test_pod_requesting_a_resource_of_no_node_fits_on_no_node():
    snapshot = Snapshot([node("a"), node("b", gpu=2)])
    placer = Placer(snapshot)
    asking = pod("asking", cpu=9000, **{"x.io/b": 1, GPU: 1, "x.io/a": 2})
    assert placer.choose(asking, placer.feasible(asking)) is None
    reasons = {each.node: each.reasons for each in placer.node_verdicts(asking)}
    invented = ("Insufficient x.io/a", "Insufficient x.io/b")
    assert reasons == {
        "a": ("Insufficient cpu", "Insufficient example.com/gpu", *invented),
        "b": ("Insufficient cpu", *invented),
    }


def test_zero_request_for_an_unknown_resource_is_ignored():
    snapshot = Snapshot([node("a")])
    placer = Placer(snapshot)
    asking = pod("asking", **{"x.io/a": 0})
    assert placer.feasible(asking)[snapshot.nodes.slot_of["a"]]


def test_bound_pods_are_counted_when_a_node_adds_the_resource():
    snapshot = Snapshot([node("a"), pod("early", "a", gpu=1), pod("waiting", gpu=1)])
    assert GPU not in snapshot.nodes.axis.column
    snapshot.put(node("a", gpu=2))
    assert requested(snapshot, "a", GPU) == 1
    assert snapshot.nodes.requested[snapshot.nodes.slot_of["a"], UNKNOWN] == 0
    placer = Placer(snapshot)
    assert placer.feasible(snapshot.pods["tenant/waiting"])[snapshot.nodes.slot_of["a"]]
    snapshot.remove(snapshot.pods["tenant/early"])
    assert requested(snapshot, "a", GPU) == 0


def test_node_with_a_new_resource_can_be_tried_in_a_fork():
    snapshot = Snapshot([node("a"), pod("placed", "a", gpu=1, cpu=100), pod("waiting", gpu=1)])
    placer, waiting = Placer(snapshot), snapshot.pods["tenant/waiting"]
    before = snapshot.nodes.requested[:, :UNKNOWN].copy()
    with snapshot.fork():
        snapshot.put(node("template", gpu=1))
        slot = placer.choose(waiting, placer.feasible(waiting))
        assert slot == snapshot.nodes.slot_of["template"]
        snapshot.move(waiting, "template")
        assert requested(snapshot, "template", GPU) == 1
    assert np.array_equal(snapshot.nodes.requested[: len(before), :UNKNOWN], before)
    assert placer.choose(waiting, placer.feasible(waiting)) is None
    snapshot.remove(snapshot.pods["tenant/placed"])
    assert not snapshot.nodes.taken.any()


def test_columns_are_released_after_the_last_node_with_the_resource():
    snapshot = Snapshot([node("a"), pod("placed", "a", gpu=1)])
    for number in range(100):
        snapshot.put(node("b", **{f"x.io/device-{number}": 1, f"x.io/other-{number}": 1}))
        snapshot.put(pod("changing", "b", **{f"x.io/device-{number}": 1}))
        with snapshot.fork():
            assert requested(snapshot, "b", f"x.io/device-{number}") == 1
    axis = snapshot.nodes.axis
    assert len(axis.names) <= 32
    assert snapshot.nodes.allocatable.shape[1] == axis.width <= 32
    snapshot.remove(snapshot.nodes.node(snapshot.nodes.slot_of["b"]))
    snapshot.put(node("a", gpu=4))
    with snapshot.fork():
        pass
    assert requested(snapshot, "a", GPU) == 1
    placer = Placer(snapshot)
    for amount, fits in ((3, True), (4, False)):
        assert placer.feasible(pod("more", gpu=amount))[snapshot.nodes.slot_of["a"]] == fits


def test_verdicts_are_correct_after_a_column_is_reused():
    """Arrays are kept by column: what was true of the old resource must not be said of the new one."""
    snapshot = Snapshot([node("a"), node("b", **{f"x.io/d-{number}": 8 for number in range(20)})])
    placer, slot = Placer(snapshot), snapshot.nodes.slot_of["b"]
    assert all(placer.feasible(pod("p", **{f"x.io/d-{number}": 1}))[slot] for number in range(20))
    snapshot.put(node("b"))
    with snapshot.fork():
        pass
    snapshot.put(node("b", **{f"x.io/e-{number}": 0 for number in range(20)}))
    assert not any(placer.feasible(pod("p", **{f"x.io/e-{number}": 1}))[slot] for number in range(20))
    assert not any(placer.feasible(pod("p", **{f"x.io/d-{number}": 1}))[slot] for number in range(20))


# Topology keys


def repelling(number: int, keys: range, where: str = "") -> Pod:
    terms = tuple(PodAffinityTerm(f"key-{key}", LabelSelector(Labels({"app": "x"}))) for key in keys)
    spec = PodSpec(affinity=Affinity(anti_required=terms))
    return Pod(
        "tenant", f"r{number}", f"r{number}", labels=Labels({"app": "x"}), spec=spec, node=where, phase="Running"
    )


def test_unknown_topology_keys_share_an_array_and_are_released():
    snapshot = Snapshot(node(f"n{number}", {"zone": "a"}) for number in range(2000))
    pods = [repelling(number, range(100 * number, 100 * number + 100), "n0") for number in range(50)]
    assert not snapshot.affinity.carriers_against(pods[0])
    tracemalloc.start()
    try:
        for each in pods:
            snapshot.put(each)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    columns = snapshot.nodes._columns
    assert len(columns) >= 5000
    assert all(column.ids is snapshot.nodes.no_domain for key, column in columns.items() if key != "zone")
    assert peak < 20 * MIB  # 5,000 terms; an array for each key would add 80
    for each in pods:
        snapshot.remove(each)
    snapshot._accounting.forget_affinity()
    with snapshot.fork():
        assert len(columns) <= 64


def test_table_of_columns_shrinks() -> None:
    nodes = Snapshot([node("n1")]).nodes
    small = sys.getsizeof(nodes._columns)
    for each in range(1000):
        nodes.column(f"l{each}")

    nodes.release_columns()

    assert sys.getsizeof(nodes._columns) == small


def test_table_of_columns_is_not_copied_if_all_are_in_use() -> None:
    nodes = Snapshot([node("n1")]).nodes
    held = [nodes.column(f"l{each}") for each in range(1000)]
    columns = nodes._columns

    nodes.release_columns()

    assert nodes._columns is columns
    assert len(columns) >= len(held)


def test_counters_of_an_unknown_key_count_after_a_node_gets_the_label():
    snapshot = Snapshot([node("a"), node("b")])
    placer = Placer(snapshot)
    assert not snapshot.affinity.carriers_against(repelling(0, range(1)))
    snapshot.put(repelling(1, range(1), "a"))
    other = repelling(2, range(0))
    assert placer.feasible(other)[snapshot.nodes.slot_of["a"]]
    snapshot.put(node("a", {"key-0": "x"}))
    snapshot.put(node("b", {"key-0": "x"}))
    assert not placer.feasible(other)[[snapshot.nodes.slot_of[name] for name in "ab"]].any()
    snapshot.put(node("b", {"key-0": "y"}))
    assert placer.feasible(other)[snapshot.nodes.slot_of["b"]]


def test_label_of_a_node_in_a_fork_is_visible():
    snapshot = Snapshot([node("a")])
    column = snapshot.nodes.column("pool")
    assert not column.known
    with snapshot.fork():
        snapshot.put(node("new", {"pool": "gpu"}))
        assert column.values[column.ids[snapshot.nodes.slot_of["new"]]] == "gpu"
    assert (column.ids == -1).all()
    assert "pool" not in snapshot.nodes.label_keys


def test_label_keys_match_the_nodes():
    table = NodeTable()
    table.put(node("a", {"x": "1", "y": "1"}))
    table.put(node("b", {"x": "1"}))
    table.put(node("a", {"x": "2"}))
    assert dict(table.label_keys) == {"x": 2}
    table.drop("a")
    table.drop("b")
    assert not table.label_keys
