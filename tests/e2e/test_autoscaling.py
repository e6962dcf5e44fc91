"""The cluster autoscaler's main job: sets of machines grow for pods that find no place, and shrink after them."""

from __future__ import annotations

from tests import autoscalers
from tests.e2e.conftest import Start
from tests.fixtures.audit import broken_budgets, pods_lost
from tests.fixtures.autoscaling import SHORT, Fleet

GPU_ONLY = ({"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"},)


def control_plane(fleet: Fleet) -> None:
    """Thirty cores that take no ordinary pods, and count for the limits."""
    for number in range(3):
        fleet.static(f"master-{number}", cpu="10")


def told_pods(fleet: Fleet, reason: str) -> set[str]:
    return {event["regarding"]["name"] for event in fleet.events(reason, "Pod")}


def test_thirty_pods_get_nodes_under_the_seeds_yaml_and_nodes_go_after_them(fleet: Fleet, operate: Start) -> None:
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
    assert not broken_budgets(fleet.audit, fleet.pods_namespace)
    assert not pods_lost(fleet.audit, fleet.pods_namespace)
    assert min(fleet.audit.scales("workers")) == 1
    assert not fleet.audit.scales("tiny") + fleet.audit.scales("gpu")
    assert not fleet.audit.ours("pods", verbs=("delete", "deletecollection"))


def _growth_is_told(fleet: Fleet) -> None:
    """Pods that waited are told which set grows for them, and the status has the set at its new size.

    Not all of them: those for which an earlier pass had left room need no node.
    """
    fleet.until(lambda: 5 <= len(told_pods(fleet, "TriggeredScaleUp")) <= 25, "pods are told")
    assert all("workers" in event["note"] for event in fleet.events("TriggeredScaleUp", "Pod"))
    fleet.until(lambda: fleet.events("ScaledUpGroup"), "the growth is told")
    fleet.until(lambda: fleet.told("workers").get("ready") == 6, "the status counts six ready nodes")
    told = fleet.told("workers")
    assert (told["target"], told["minSize"], told["maxSize"]) == (6, 1, 12)
    fleet.until(lambda: not fleet.told("workers").get("upcoming"), "no node is on its way any more")
    assert fleet.condition("Ready")["status"] == "True"
    status = fleet.status()
    assert status["lastScaleUp"]
    assert (status["lastPass"]["nodes"], status["lastPass"]["cores"]) == (9, 30 + 6 * 8)


def _shrinking_is_told(fleet: Fleet) -> None:
    """The nodes that went, the pods that moved, and why the last node stays."""
    gone = {event["regarding"]["name"] for event in fleet.events("ScaleDown", "Node")}
    gone |= {event["regarding"]["name"] for event in fleet.events("ScaleDownEmpty", "Node")}
    assert len(gone) == 5
    assert not gone & set(fleet.all_nodes())
    fleet.until(lambda: fleet.status().get("lastScaleDown"), "the status says when")
    [last] = fleet.nodes("workers")
    fleet.until(lambda: fleet.kept().get(last, {}).get("reason") == "NodeGroupMinSizeReached", "the last node's reason")
    assert {each["reason"] for name, each in fleet.kept().items() if name.startswith("master")} == {"NotAutoscaled"}
    assert not any("ToBeDeletedByClusterAutoscaler" in marks for marks in fleet.leftovers().values())


def test_limits_hold_and_who_waits_for_them_is_told(fleet: Fleet, operate: Start) -> None:
    """OpenShift's own example: 30 cores and a limit of 64 leave room for four machines of 8, which makes 62."""
    control_plane(fleet)
    fleet.group("workers", maximum=12, cpu="8", memory="32Gi")
    fleet.autoscale(resourceLimits={"cores": {"min": 8, "max": 64}, "maxNodesTotal": 24})
    operate()

    fleet.deploy("web", 30)

    fleet.until_sizes(workers=4)
    fleet.until_running("web", 20)
    fleet.until(lambda: _pending(fleet) == {("MaxCoresReached", 10)}, "the status says why ten pods wait")
    fleet.until(lambda: still_waiting(fleet) <= told_pods(fleet, "NotTriggerScaleUp"), "the ten that wait are told")
    assert all("workers" in event["note"] for event in fleet.events("NotTriggerScaleUp", "Pod"))
    fleet.pass_twice()
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


def test_pods_that_no_set_can_help_are_told_which_sets_were_asked(fleet: Fleet, operate: Start) -> None:
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
    fleet.until(lambda: still_waiting(fleet) <= told_pods(fleet, "NotTriggerScaleUp"), "they are told")
    for event in fleet.events("NotTriggerScaleUp", "Pod"):
        assert all(word in event["note"] for word in ("small", "Insufficient cpu", "gpu", "untolerated taint"))


def test_a_pod_of_low_priority_adds_no_node_and_keeps_none(fleet: Fleet, operate: Start) -> None:
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

    fleet.pass_twice()
    assert fleet.size("workers") == 0
    assert max(fleet.audit.scales()) == 0
    fleet.client.request("DELETE", "/apis/scheduling.k8s.io/v1/priorityclasses/leftover")
