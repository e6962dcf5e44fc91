"""Invalid autoscalers: rejected at admission or reported by a condition; the others continue."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest

from tests import autoscalers
from tests.e2e.conftest import Start
from tests.fixtures.autoscaling import MACHINE_NAMESPACE, Fleet
from trimtab.kube.api import Invalid, NotFound
from trimtab.kube.resources import CLUSTER_AUTOSCALERS, MACHINE_AUTOSCALERS

pytestmark = pytest.mark.core

SIZES = "machine.openshift.io/cluster-api-autoscaler-node-group"
OWNER = "autoscaling.openshift.io/machineautoscaler"


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


def test_invalid_node_group_blocks_no_other(fleet: Fleet, operate: Start) -> None:
    fleet.group("bad", limited=False, annotations={f"{SIZES}-min-size": "few", f"{SIZES}-max-size": "10"})
    fleet.group("good")
    fleet.autoscale()
    operate()

    fleet.deploy("web", 2)

    fleet.until_running("web", 2)
    assert fleet.sizes("bad", "good") == {"bad": 0, "good": 1}
    fleet.until(lambda: "bad" in str(fleet.status().get("conditions")), "a condition names the set")


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
