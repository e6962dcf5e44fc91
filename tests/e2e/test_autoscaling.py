"""The autoscaler's main task: node groups scale up for unschedulable pods, and down afterwards."""

from __future__ import annotations

import pytest

from tests import autoscalers
from tests.e2e.conftest import Start
from tests.fixtures.audit import broken_budgets, pods_lost, require_none
from tests.fixtures.autoscaling import SHORT, Fleet

GPU_ONLY = ({"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"},)


def control_plane(fleet: Fleet) -> None:
    """Control plane nodes of thirty cores, which accept no ordinary pods but count for the limits."""
    for number in range(3):
        fleet.static(f"master-{number}", cpu="10")


def told_pods(fleet: Fleet, reason: str) -> set[str]:
    return {event["regarding"]["name"] for event in fleet.events(reason, "Pod")}


@pytest.mark.core
def test_thirty_pods_scale_up_and_their_end_scales_down(fleet: Fleet, operate: Start) -> None:
    control_plane(fleet)
    fleet.group("workers", minimum=1, maximum=12, cpu="8", memory="32Gi")
    fleet.group("tiny", maximum=12, cpu="1", memory="2Gi")
    fleet.group("gpu", maximum=4, cpu="8", memory="32Gi", taints=GPU_ONLY)
    fleet.autoscale(autoscalers.seed())
    operate()

    fleet.deploy("web", 30)

    fleet.until_running("web", 30)
    assert fleet.sizes("workers", "tiny", "gpu") == {"workers": 6, "tiny": 0, "gpu": 0}
    assert fleet.pools("web") == {"workers": 30}
    _growth_is_told(fleet)

    fleet.budget("web", maxUnavailable=2)
    fleet.change(scaleDown=SHORT)
    fleet.resize("web", 5)
    fleet.until_sizes(workers=1, seconds=120)
    fleet.until_running("web", 5)
    fleet.resize("web", 0)
    _shrinking_is_told(fleet)
    require_none(broken_budgets(fleet.audit, fleet.pods_namespace))
    assert not pods_lost(fleet.audit, fleet.pods_namespace)
    assert min(fleet.audit.scales("workers")) == 1
    assert not fleet.audit.scales("tiny") + fleet.audit.scales("gpu")
    assert not fleet.audit.ours("pods", verbs=("delete", "deletecollection"))


def _growth_is_told(fleet: Fleet) -> None:
    """Events of pending pods name the node group, and the status has its new size.

    Not all of them: those for which an earlier pass had left room need no node.
    """
    fleet.until(lambda: 5 <= len(told_pods(fleet, "TriggeredScaleUp")) <= 25, "pods are reported")
    assert all("workers" in event["note"] for event in fleet.events("TriggeredScaleUp", "Pod"))
    fleet.until(lambda: fleet.events("ScaledUpGroup"), "the growth is reported")
    fleet.until(lambda: fleet.group_status("workers").get("ready") == 6, "the status counts six ready nodes")
    reported = fleet.group_status("workers")
    assert (reported["target"], reported["minSize"], reported["maxSize"]) == (6, 1, 12)
    fleet.until(lambda: not fleet.group_status("workers").get("upcoming"), "no node is on its way any more")
    assert fleet.condition("Ready")["status"] == "True"
    status = fleet.status()
    assert status["lastScaleUp"]
    fleet.until(lambda: counted(fleet) == (9, 30 + 6 * 8), "the status counts all nodes and cores")


def counted(fleet: Fleet) -> tuple[int, int]:
    """The numbers of nodes and cores in the last iteration."""
    last = fleet.status()["lastIteration"]
    return last["nodes"], last["cores"]


def removed(fleet: Fleet) -> set[str]:
    """The nodes that were removed, by events. An event is sent after the node is gone."""
    events = fleet.events("ScaleDown", "Node") + fleet.events("ScaleDownEmpty", "Node")
    return {event["regarding"]["name"] for event in events}


def _shrinking_is_told(fleet: Fleet) -> None:
    """Events name the removed nodes and the evicted pods, and the status why the last node is kept."""
    fleet.until(lambda: len(removed(fleet)) >= 5, "five removed nodes are reported")
    assert len(removed(fleet)) == 5
    assert not removed(fleet) & set(fleet.all_nodes())
    fleet.until(lambda: fleet.status().get("lastScaleDown"), "the status says when")
    [last] = fleet.nodes("workers")
    fleet.until(lambda: fleet.kept().get(last, {}).get("reason") == "NodeGroupMinSizeReached", "the last node's reason")
    fleet.until(lambda: masters(fleet) == {"NotAutoscaled"}, "the reason of the control plane's nodes")
    assert not any("ToBeDeletedByClusterAutoscaler" in marks for marks in fleet.leftovers().values())


def masters(fleet: Fleet) -> set[str]:
    """The reasons for which nodes of the control plane are kept."""
    return {each["reason"] for name, each in fleet.kept().items() if name.startswith("master")}


def test_limits_hold_and_waiting_pods_are_reported(fleet: Fleet, operate: Start) -> None:
    """OpenShift's own example: 30 cores and a limit of 64 leave room for four machines of 8, which makes 62."""
    control_plane(fleet)
    fleet.group("workers", maximum=12, cpu="8", memory="32Gi")
    fleet.autoscale(resourceLimits={"cores": {"min": 8, "max": 64}, "maxNodesTotal": 24})
    operate()

    fleet.deploy("web", 30)

    fleet.until_sizes(workers=4)
    fleet.until_running("web", 20)
    fleet.until(lambda: _pending(fleet) == {("MaxCoresReached", 10)}, "the status says why ten pods wait")
    fleet.until(lambda: still_waiting(fleet) <= told_pods(fleet, "NotTriggerScaleUp"), "the ten that wait are reported")
    assert all("workers" in event["note"] for event in fleet.events("NotTriggerScaleUp", "Pod"))
    fleet.iterate_twice()
    assert fleet.size("workers") == 4

    fleet.change(resourceLimits={"cores": {"min": 8, "max": 128}, "maxNodesTotal": 8})
    fleet.until_sizes(workers=5)
    fleet.until(lambda: _pending(fleet) == {("MaxNodesTotalReached", 5)}, "the status says why five pods wait")

    fleet.change(resourceLimits={"maxNodesTotal": 24})
    fleet.until_running("web", 30)
    assert fleet.size("workers") == 6
    assert max(fleet.audit.scales()) == 6
    fleet.until(lambda: not _pending(fleet), "nobody waits any more")


def still_waiting(fleet: Fleet) -> set[str]:
    return {pod["metadata"]["name"] for pod in fleet.pods() if not pod["spec"].get("nodeName")}


def _pending(fleet: Fleet) -> set[tuple[str, int]]:
    return {(each["reason"], each["count"]) for each in fleet.status().get("pending", ())}


def test_unhelpable_pod_event_names_the_node_groups(fleet: Fleet, operate: Start) -> None:
    fleet.group("small", maximum=3, cpu="2", memory="4Gi")
    fleet.group("gpu", maximum=3, cpu="16", memory="64Gi", taints=GPU_ONLY)
    fleet.autoscale()
    operate()

    fleet.deploy("huge", 2, cpu="6")
    fleet.deploy("fits", 1, cpu="1")

    fleet.until_running("fits", 1)  # whose growth silences nobody
    assert fleet.sizes("small", "gpu") == {"small": 1, "gpu": 0}
    fleet.until(lambda: _pending(fleet) == {("NoGroupFits", 2)}, "the status says why two pods wait")
    [waiting] = fleet.status()["pending"]
    assert "small" in waiting["message"]
    assert "gpu" in waiting["message"]
    fleet.until(lambda: still_waiting(fleet) <= told_pods(fleet, "NotTriggerScaleUp"), "they are reported")
    for event in fleet.events("NotTriggerScaleUp", "Pod"):
        assert all(word in event["note"] for word in ("small", "Insufficient cpu", "gpu", "untolerated taint"))


def test_pod_below_the_priority_cutoff_neither_adds_nor_keeps_nodes(fleet: Fleet, operate: Start) -> None:
    fleet.client.request(
        "POST",
        "/apis/scheduling.k8s.io/v1/priorityclasses",
        {"metadata": {"name": "leftover"}, "value": -20, "globalDefault": False},
    )
    fleet.group("workers", maximum=3, replicas=1)
    fleet.autoscale()
    fleet.deploy("batch", 3, cpu="3", priorityClassName="leftover")
    fleet.until_running("batch", 1)
    operate()

    fleet.until_sizes(workers=0)

    fleet.iterate_twice()
    assert fleet.size("workers") == 0
    assert max(fleet.audit.scales()) == 0
    fleet.client.request("DELETE", "/apis/scheduling.k8s.io/v1/priorityclasses/leftover")
