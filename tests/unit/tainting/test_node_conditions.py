"""Which taints conditions ask for, and that nothing else is touched."""

import pytest

from tests.fixtures.golden import Golden
from tests.unit.tainting.nodes import START, a_node, written
from trimtab.kube.objects import Taint
from trimtab.tainting.lifecycle.planner import no_schedule_changes

NOW = START + 100.0
K = "node.kubernetes.io/"


def recorded(node, ready=None):
    """``+key`` for what is put on, ``-key`` for what is taken off."""
    changes = no_schedule_changes(node, ready if ready is not None else node.ready_status, now=NOW)
    assert all(change.taint.effect == "NoSchedule" for change in changes)
    return [f"{'+' if change.add else '-'}{change.taint.key.removeprefix(K)}" for change in changes]


def taints(*keys, effect="NoSchedule"):
    return [Taint(key if "/" in key else K + key, effect) for key in keys]


@pytest.mark.parametrize(
    ("node", "changes"),
    [
        (a_node(), []),
        (a_node(ready="False"), ["+not-ready"]),
        (a_node(ready="Unknown"), ["+unreachable"]),
        (a_node(ready=None), ["+not-ready"]),
        (a_node(ready=None, taints=taints("not-ready")), []),
        (a_node(taints=taints("not-ready")), ["-not-ready"]),
        (a_node(ready="Unknown", taints=taints("not-ready")), ["-not-ready", "+unreachable"]),
        (a_node(ready="False", taints=taints("unreachable")), ["+not-ready", "-unreachable"]),
        (a_node(conditions={"MemoryPressure": "True"}), ["+memory-pressure"]),
        (a_node(conditions={"DiskPressure": "True"}), ["+disk-pressure"]),
        (a_node(conditions={"PIDPressure": "True"}), ["+pid-pressure"]),
        (a_node(conditions={"NetworkUnavailable": "True"}), ["+network-unavailable"]),
        (a_node(conditions={"OutOfDisk": "True"}), ["+out-of-disk"]),
        (a_node(conditions={"OutOfDisk": "False"}, taints=taints("out-of-disk")), ["-out-of-disk"]),
        (a_node(conditions={"MemoryPressure": "Unknown"}), []),
        (a_node(taints=taints("memory-pressure")), ["-memory-pressure"]),
        (a_node(unschedulable=True), ["+unschedulable"]),
        (a_node(taints=taints("unschedulable")), ["-unschedulable"]),
        (a_node(unschedulable=True, taints=taints("unschedulable")), []),
        (
            a_node(ready="False", unschedulable=True, conditions={"DiskPressure": "True", "PIDPressure": "True"}),
            ["+disk-pressure", "+not-ready", "+pid-pressure", "+unschedulable"],
        ),
        (a_node(taints=taints("example.com/gpu", "out-of-service")), []),
        (a_node(taints=taints("memory-pressure", "unschedulable", effect="PreferNoSchedule")), []),
        (a_node(taints=taints("not-ready", effect="NoExecute")), []),
    ],
    ids=[
        "all is well",
        "not ready",
        "not heard of",
        "first joined, before it says anything",
        "first joined, with the API server's own taint",
        "ready: the API server's taint goes",
        "from not ready to not heard of",
        "heard of again and not ready",
        "memory",
        "disk",
        "processes",
        "network",
        "an old kubelet without disk",
        "an old kubelet with disk again",
        "pressure Unknown",
        "pressure that is over",
        "cordoned",
        "uncordoned",
        "cordoned and tainted",
        "several",
        "others' taints stay",
        "our keys with an effect that is not ours stay",
        "the other of a pair is not this one's to take",
    ],
)
def test_conditions_require_taints(node, changes):
    assert recorded(node) == changes


def test_assessed_status_takes_precedence_over_the_object():
    assert recorded(a_node(ready="True"), "Unknown") == ["+unreachable"]


def test_added_taints_have_a_time(golden: Golden):
    [deleted, put] = no_schedule_changes(a_node(ready="Unknown", taints=taints("not-ready")), "Unknown", now=NOW)
    assert (put.taint.time_added, deleted.taint.time_added) == (NOW, None)
    golden(put.message)


@pytest.mark.parametrize(
    "node",
    [
        a_node(ready="Unknown"),
        a_node(ready="Unknown", taints=taints("not-ready")),
        a_node(ready="False", taints=[*taints("a.example/x", "not-ready", "b.example/y", "memory-pressure")]),
        a_node(ready="True", taints=taints("not-ready", "memory-pressure", "unschedulable")),
        a_node(conditions={"DiskPressure": "True"}, taints=taints("z.example/z", effect="NoExecute")),
    ],
    ids=["none", "one", "among others", "all away", "other effects"],
)
def test_applied_changes_leave_nothing_to_do(node):
    changes = no_schedule_changes(node, node.ready_status, now=NOW)
    after = written(node, changes) if changes else node
    assert recorded(after) == []
    assert [taint for taint in after.taints if not taint.key.startswith(K)] == [
        taint for taint in node.taints if not taint.key.startswith(K)
    ]
