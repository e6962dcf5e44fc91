from __future__ import annotations

from typing import Any

import msgspec
import pytest

from trimtab.kube.objects import Node, Pod, PodSpec
from trimtab_local.kubelets.scenario import Scenario
from trimtab_local.kubelets.server import distorted
from trimtab_local.kubelets.summary import (
    Crossed,
    Measurement,
    condition,
    crossed,
    killed_status,
    measure,
    summary_of,
    victim_of,
)

NOW = 1_000_000.0
MI, GI = 2**20, 2**30
NODE = Node(name="n1", created=NOW - 100, capacity={"memory": 4 * GI})


def pod(name: str, *, request: int = 0, priority: int | None = None, **fields: Any) -> Pod:
    spec = PodSpec(priority=priority, requests={"memory": request} if request else {})
    return Pod("shop", name, uid=f"uid-{name}", labels={"app": name}, created=NOW - 10, node="n1", spec=spec, **fields)


def scenario(**fields: Any) -> Scenario:
    return msgspec.convert(fields, Scenario)


def uses(**memory: str) -> list[dict[str, Any]]:
    return [{"labels": {"app": name}, "memory": {"start": text}} for name, text in memory.items()]


def measured(*pods: Pod, **fields: Any) -> Measurement:
    return measure(NODE, pods, scenario(**fields), NOW)


def test_usage_of_the_node_is_the_systems_plus_that_of_its_pods() -> None:
    found = measured(
        pod("a"),
        pod("b"),
        nodes=[{"memory": {"used": {"start": "1Gi", "perSecond": "1Mi"}}}],
        pods=uses(a="100Mi", b="200Mi"),
    )

    assert found.memory_used == GI + 100 * MI + 300 * MI
    assert found.signals()["memory.available"] == (3 * GI - 400 * MI, 4 * GI)
    assert found.signals()["allocatableMemory.available"] == (4 * GI - 300 * MI, 4 * GI)


def test_evicting_a_pod_frees_its_memory() -> None:
    fields = {"pods": uses(a="1Gi", b="1Gi")}

    before = measured(pod("a"), pod("b"), **fields)
    after = measured(pod("a"), **fields)
    failed = measured(pod("a"), pod("b", phase="Failed"), **fields)

    assert after.memory_available - before.memory_available == GI
    assert failed.memory_available == after.memory_available


def test_capacity_of_the_scenario_takes_precedence() -> None:
    assert measured(nodes=[{"memory": {"capacity": "2Gi"}}]).memory == 2 * GI


@pytest.mark.parametrize(("dedicated", "nodefs", "imagefs"), [(True, 30, 4), (False, 34, None)])
def test_layers_are_on_the_image_file_system_if_there_is_one(dedicated: bool, nodefs: int, imagefs: int | None) -> None:
    disk = {"capacity": 1000, "used": {"start": 0}, "inodes": 100, "inodesUsed": {"start": 0}}
    entry = {"nodefs": disk} | ({"imagefs": disk} if dedicated else {})
    use = {
        "root": {"start": 4},
        "logs": {"start": 10},
        "volumes": {"start": 20},
        "rootInodes": {"start": 1},
        "volumeInodes": {"start": 2},
    }

    found = measured(pod("a"), nodes=[entry], pods=[use])

    assert found.nodefs.used == nodefs
    assert found.nodefs.inodes_used == (2 if dedicated else 3)
    assert (found.imagefs and found.imagefs.used) == imagefs


def test_summary_has_the_fields_that_signals_are_read_from() -> None:
    found = summary_of(measured(pod("a"), pods=uses(a="64Mi"), nodes=[{"memory": {"pressure": {"start": 12}}}]))

    node, (one,) = found["node"], found["pods"]
    assert node["nodeName"] == "n1"
    assert node["memory"]["availableBytes"] + node["memory"]["workingSetBytes"] == 4 * GI
    assert node["memory"]["psi"]["full"] == {"avg10": 12.0, "avg60": 12.0, "avg300": 12.0, "total": 0}
    assert [each["name"] for each in node["systemContainers"]] == ["pods"]
    assert node["rlimit"]["maxpid"] > node["rlimit"]["curproc"] > 0
    assert node["fs"]["time"] == node["memory"]["time"] == "1970-01-12T13:46:40Z"
    assert node["runtime"]["imageFs"] == node["fs"]
    assert one["podRef"] == {"name": "a", "namespace": "shop", "uid": "uid-a"}
    assert one["memory"]["workingSetBytes"] == 64 * MI
    assert one["ephemeral-storage"]["usedBytes"] == 2 * MI


def test_summary_of_cpu_and_memory_has_no_disks_and_no_processes() -> None:
    found = summary_of(measured(pod("a")), only_cpu_and_memory=True)

    assert not {"fs", "runtime", "rlimit"} & found["node"].keys()
    assert not {"ephemeral-storage", "volume", "process_stats"} & found["pods"][0].keys()
    assert "rootfs" not in found["pods"][0]["containers"][0]


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        ({"memory": {"used": {"start": "3997Mi"}}}, [("memory.available", 99 * MI, 100 * MI)]),
        ({"memory": {"used": {"start": "3996Mi"}}}, []),
        ({"nodefs": {"capacity": 100, "used": {"start": 91}}, "imagefs": {}}, [("nodefs.available", 9, 10)]),
        ({"nodefs": {"inodes": 100, "inodesUsed": {"start": 96}}, "imagefs": {}}, [("nodefs.inodesFree", 4, 5)]),
        ({"imagefs": {"capacity": 100, "used": {"start": 86}}}, [("imagefs.available", 14, 15)]),
        (
            {"processes": {"capacity": 100, "used": {"start": 95}}, "evictionHard": {"pid.available": "10%"}},
            [("pid.available", 5, 10)],
        ),
        (
            {
                "memory": {"used": {"start": "4Gi"}},
                "processes": {"capacity": 10, "used": {"start": 10}},
                "evictionHard": {"pid.available": "5", "memory.available": "1Mi", "imagefs.available": "0%"},
            },
            [("memory.available", 0, MI), ("pid.available", 0, 5)],
        ),
    ],
)
def test_thresholds_are_met_below_their_value(node: dict[str, Any], expected: list[tuple[str, int, int]]) -> None:
    made = scenario(nodes=[node])
    found = crossed(measure(NODE, [], made, NOW), made.node(NODE).thresholds())

    assert [(each.signal, each.available, each.limit) for each in found] == expected


MEMORY = Crossed("memory.available", 50 * MI, 100 * MI)


@pytest.mark.parametrize(
    ("pods", "memory", "victim"),
    [
        ([pod("a", request=GI), pod("b", request=MI)], {"a": "512Mi", "b": "2Mi"}, "b"),
        ([pod("a", priority=5), pod("b", priority=-1)], {"a": "2Gi", "b": "1Mi"}, "b"),
        ([pod("a"), pod("b")], {"a": "2Gi", "b": "1Mi"}, "a"),
        ([pod("a", priority=2_000_000_000), pod("b")], {"a": "2Gi", "b": "1Mi"}, "b"),
        ([pod("a", annotations={"kubernetes.io/config.mirror": "x"}), pod("b")], {"a": "2Gi", "b": "1Mi"}, "b"),
        ([pod("a", deleted=NOW), pod("b")], {"a": "2Gi", "b": "1Mi"}, "b"),
        ([pod("a", priority=2_000_000_000)], {"a": "2Gi"}, None),
        ([], {}, None),
    ],
    ids=["above request", "priority", "usage", "critical", "mirror", "terminating", "only critical", "no pods"],
)
def test_kubelet_kills_in_its_order(pods: list[Pod], memory: dict[str, str], victim: str | None) -> None:
    found = victim_of(measured(*pods, pods=uses(**memory)), MEMORY)

    assert (found and found.pod.name) == victim


@pytest.mark.parametrize(
    ("signal", "dedicated", "victim"),
    [
        ("nodefs.available", False, "layers"),
        ("nodefs.available", True, "logs"),
        ("imagefs.available", True, "layers"),
        ("nodefs.inodesFree", True, "files"),
        ("pid.available", False, "forks"),
    ],
)
def test_kubelet_compares_the_usage_of_the_signal(signal: str, dedicated: bool, victim: str) -> None:
    curves = {"layers": {"root": {"start": 900}}, "logs": {"logs": {"start": 500}}}
    curves |= {"files": {"volumeInodes": {"start": 99}}, "forks": {"processes": {"start": 50}}}
    small = {"root": {"start": 1}, "logs": {"start": 1}}
    entries = [{"labels": {"app": name}, **small, **curve} for name, curve in curves.items()]

    found = victim_of(
        measured(*map(pod, curves), pods=entries, nodes=[{"imagefs": {}} if dedicated else {}]), Crossed(signal, 1, 2)
    )

    assert found is not None
    assert found.pod.name == victim


def test_killed_pod_has_the_status_that_the_kubelet_writes() -> None:
    use = measured(pod("a", request=MI), pods=uses(a="64Mi")).pods[0]

    status = killed_status(use, MEMORY, NOW)

    assert (status["phase"], status["reason"]) == ("Failed", "Evicted")
    assert status["message"].startswith(
        "The node was low on resource: memory. Threshold quantity: 100Mi, available: 50Mi. "
    )
    assert status["conditions"][0]["reason"] == "TerminationByKubelet"


@pytest.mark.parametrize(("met", "status", "reason"), [(True, "True", "KubeletHasDiskPressure"), (False, "False", "")])
def test_condition_has_the_kubelets_reason(met: bool, status: str, reason: str) -> None:
    found = condition("DiskPressure", met=met, now=NOW)

    assert (found["status"], found["reason"]) == (status, reason or "KubeletHasNoDiskPressure")


def test_faults_distort_the_summary() -> None:
    def sent(fault: Any) -> bytes:
        return distorted(summary_of(measured(pod("a"))), fault)

    def decoded(fault: Any) -> Any:
        return msgspec.json.decode(sent(fault))

    assert decoded(None) == decoded("Frozen") == summary_of(measured(pod("a")))
    assert decoded("Negative")["node"]["memory"]["availableBytes"] == -1
    assert decoded("Negative")["node"]["fs"]["inodesFree"] == -1
    assert decoded("Absurd")["node"]["fs"]["availableBytes"] > 4 * 2**60
    assert decoded("Absurd")["pods"][0]["memory"]["workingSetBytes"] > 2**63
    assert "memory" not in decoded("NoMemory")["node"]
    assert decoded("OtherNode")["node"]["nodeName"] == "other-n1"
    assert len(sent("Huge")) > 64 * MI
    for fault in ("Garbage", "Truncated", "Nested"):
        with pytest.raises((msgspec.DecodeError, UnicodeDecodeError, RecursionError)):
            decoded(fault)
