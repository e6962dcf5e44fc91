"""The autoscaler's main task, a restart, and autoscalers that are rejected at admission or reported by a condition."""

from __future__ import annotations

import signal
import time
from contextlib import suppress
from typing import Any

import pytest

from tests import autoscalers
from tests.e2e.conftest import Start
from tests.fixtures.audit import broken_budgets, pods_lost, require_none
from tests.fixtures.autoscaling import MACHINE_NAMESPACE, SHORT, Fleet
from trimtab.kube.api import Invalid, NotFound
from trimtab.kube.resources import CLUSTER_AUTOSCALERS, MACHINE_AUTOSCALERS

SIZES = "machine.openshift.io/cluster-api-autoscaler-node-group"
OWNER = "autoscaling.openshift.io/machineautoscaler"
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


@pytest.mark.core
def test_unneeded_since_survives_a_restart(fleet: Fleet, operate: Start) -> None:
    fleet.group("a", replicas=3)
    fleet.autoscale(scaleDown={**SHORT, "unneededTime": "10m"})
    first = operate()
    before = fleet.until(lambda: len(found := fleet.status().get("unneeded", ())) == 3 and found, "the status says it")

    first.stop(signal.SIGKILL)
    time.sleep(1.1)  # times are written in whole seconds
    operate()

    fleet.iterate_twice()
    assert fleet.status()["unneeded"] == before
    fleet.change(scaleDown=SHORT)
    fleet.until_sizes(a=0)


@pytest.mark.core
@pytest.mark.parametrize(
    ("name", "spec", "words"),
    [
        ("other", "{}", "metadata.name must be default"),
        ("default", "resourceLimits: {cores: {min: 9, max: 8}}", "spec.resourceLimits.cores"),
        ("default", "resourceLimits: {maxNodesTotal: -1}", "spec.resourceLimits.maxNodesTotal"),
        ("default", "scaleDown: {enabled: true, unneededTime: soon}", "spec.scaleDown.unneededTime"),
        ("default", "scaleDown: {enabled: true, delayAfterAdd: -5m}", "spec.scaleDown.delayAfterAdd"),
        ("default", "scaleDown: {enabled: true, uneededTime: 5m}", "uneededTime"),
        ("default", 'scaleDown: {enabled: true, utilizationThreshold: "1.5"}', "spec.scaleDown.utilizationThreshold"),
    ],
    ids=["name", "max below min", "negative", "no duration", "negative duration", "misspelt field", "threshold"],
)
def test_invalid_cluster_autoscaler_is_rejected_with_its_field(fleet: Fleet, name: str, spec: str, words: str) -> None:
    manifest = autoscalers.cluster_autoscaler(spec, name=name)
    with pytest.raises(Invalid, match=words):
        fleet.client.request("POST", CLUSTER_AUTOSCALERS.path(), manifest)


@pytest.mark.core
@pytest.mark.parametrize(
    ("minimum", "maximum", "reference", "words"),
    [
        (3, 2, {}, "must be at least minReplicas"),
        (-1, 2, {}, "spec.minReplicas"),
        (0, 0, {}, "spec.maxReplicas"),
        (0, 2, {"kind": "Deployment", "api_version": "apps/v1"}, "spec.scaleTargetRef"),
    ],
    ids=["max below min", "negative", "no maximum", "kind"],
)
def test_invalid_machine_autoscaler_is_rejected_with_its_field(
    fleet: Fleet, minimum: int, maximum: int, reference: dict[str, str], words: str
) -> None:
    with pytest.raises(Invalid, match=words):
        fleet.limit("any", minimum=minimum, maximum=maximum, **reference)


def ready(fleet: Fleet, name: str) -> tuple[str, str]:
    found = fleet.limited(name)
    return found.get("status", ""), found.get("reason", "")


def annotations(fleet: Fleet, name: str) -> dict[str, Any]:
    return fleet.get(name)["metadata"].get("annotations") or {}


@pytest.mark.core
def test_missing_target_is_reported_until_it_exists(fleet: Fleet, operate: Start) -> None:
    fleet.autoscale()
    fleet.limit("late", minimum=0, maximum=4)
    operate()
    fleet.until(lambda: ready(fleet, "late") == ("False", "TargetNotFound"), "the condition")
    message = fleet.limited("late")["message"]
    assert all(word in message for word in ("MachineSet", "late", MACHINE_NAMESPACE))

    fleet.group("late", limited=False)

    fleet.until(lambda: ready(fleet, "late")[0] == "True", "the target is found")
    fleet.deploy("web", 2)
    fleet.until_running("web", 2)
    assert fleet.size("late") == 1
    found = annotations(fleet, "late")
    assert (found[f"{SIZES}-min-size"], found[f"{SIZES}-max-size"]) == ("0", "4")
    assert found[OWNER] == f"{MACHINE_NAMESPACE}/late"


@pytest.mark.core
def test_second_owner_is_reported_and_takes_over_after_deletion_of_the_first(fleet: Fleet, operate: Start) -> None:
    fleet.autoscale()
    fleet.group("a", maximum=2)
    operate()
    fleet.until(lambda: ready(fleet, "a")[0] == "True", "the first has its target")
    fleet.limit("a", name="second", minimum=0, maximum=9)

    fleet.until(lambda: ready(fleet, "second") == ("False", "TargetAlreadyOwned"), "the condition")

    assert f"{MACHINE_NAMESPACE}/a" in fleet.limited("second")["message"]
    assert annotations(fleet, "a")[f"{SIZES}-max-size"] == "2"
    delete(fleet, "a")
    fleet.until(lambda: ready(fleet, "second")[0] == "True", "the second takes over")
    fleet.until(lambda: annotations(fleet, "a").get(f"{SIZES}-max-size") == "9", "its limits hold")


def delete(fleet: Fleet, name: str) -> None:
    fleet.client.request("DELETE", MACHINE_AUTOSCALERS.path(name, namespace=fleet.namespace))


@pytest.mark.core
def test_deleting_a_machine_autoscaler_removes_its_annotations(fleet: Fleet, operate: Start) -> None:
    fleet.autoscale()
    fleet.group("a")
    operate()
    fleet.until(lambda: OWNER in annotations(fleet, "a"), "the target is marked")

    delete(fleet, "a")

    fleet.until(lambda: not _exists(fleet, "a"), "it is gone, finalizer and all")
    assert not {key for key in annotations(fleet, "a") if key == OWNER or key.startswith(SIZES)}
    fleet.deploy("web", 1)
    fleet.until(lambda: fleet.status().get("pending"), "nothing can grow for the pod any more")
    assert fleet.status()["pending"][0]["reason"] == "NoNodeGroups"
    assert fleet.size("a") == 0


def _exists(fleet: Fleet, name: str) -> bool:
    with suppress(NotFound):
        fleet.client.request("GET", MACHINE_AUTOSCALERS.path(name, namespace=fleet.namespace))
        return True
    return False


@pytest.mark.core
def test_invalid_node_group_blocks_no_other(fleet: Fleet, operate: Start) -> None:
    fleet.group("bad", limited=False, annotations={f"{SIZES}-min-size": "few", f"{SIZES}-max-size": "10"})
    fleet.group("good")
    fleet.autoscale()
    operate()

    fleet.deploy("web", 2)

    fleet.until_running("web", 2)
    assert fleet.sizes("bad", "good") == {"bad": 0, "good": 1}
    fleet.until(lambda: "bad" in str(fleet.status().get("conditions")), "a condition names the set")


@pytest.mark.core
def test_nothing_is_scaled_without_a_cluster_autoscaler(fleet: Fleet, operate: Start) -> None:
    fleet.group("a")
    operate()
    fleet.until(lambda: OWNER in annotations(fleet, "a"), "the MachineAutoscaler works alone")
    fleet.deploy("web", 1)
    fleet.autoscale()
    fleet.until_running("web", 1)

    fleet.client.request("DELETE", CLUSTER_AUTOSCALERS.path("default"))
    fleet.until(lambda: not fleet.client.request("GET", CLUSTER_AUTOSCALERS.path())["items"], "it is gone")
    fleet.audit.mark()
    fleet.resize("web", 3)

    fleet.until(lambda: len(fleet.pods("web")) == 3, "two more wait")
    assert not fleet.audit.scales()
    assert fleet.size("a") == 1
