"""trimtab's own resources are validated against the other objects of a real API server: messages and warnings."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

from tests.fixtures.placement_admission import VALIDATING, AdmissionCluster
from tests.fixtures.users import Response
from tests.fixtures.waiting import eventually
from trimtab.kube.api import ApiError, Invalid, NotFound
from trimtab.kube.resources import (
    DESCHEDULER_POLICIES,
    DESCHEDULING_RUNS,
    MACHINE_AUTOSCALERS,
    NODE_PRESSURE_POLICIES,
    PRIORITY_CLASSES,
    SCHEDULER_POLICIES,
    Resource,
)

DUPLICATES = {"RemoveDuplicates": {}}
SPREAD = {
    "LowNodeUtilization": {
        "params": {"nodeResourceUtilizationThresholds": {"thresholds": {"cpu": 20}, "targetThresholds": {"cpu": 50}}}
    }
}
PACK = {"HighNodeUtilization": {"params": {"nodeResourceUtilizationThresholds": {"thresholds": {"cpu": 20}}}}}
LIMITED = {"limits": {"perCycle": 10}}
HARD = {"memory.available": "1Gi"}


def named(resource: Resource, name: str, **fields: Any) -> dict[str, Any]:
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {"name": name}, **fields}


def policy(name: str, strategies: Any, **spec: Any) -> dict[str, Any]:
    return named(DESCHEDULER_POLICIES, name, spec={"strategies": strategies, **spec})


def pressure(name: str, **spec: Any) -> dict[str, Any]:
    return named(NODE_PRESSURE_POLICIES, name, spec={"evictionHard": HARD, **spec})


class OwnResources:
    """Creates and updates own resources as a cluster-admin, and deletes them after the test."""

    def __init__(self, cluster: AdmissionCluster) -> None:
        self.cluster = cluster
        self._created: list[str] = []

    def create(self, resource: Resource, manifest: dict[str, Any], namespace: str = "") -> Response:
        answer = self.cluster.ops.create(resource, manifest, namespace=namespace)
        self._created.append(resource.path(manifest["metadata"]["name"], namespace=namespace))
        return answer

    def patch(self, resource: Resource, name: str, **body: Any) -> Response:
        return self.cluster.ops.patch(resource, name, body, namespace="")

    def delete_all(self) -> None:
        for path in reversed(self._created):
            with suppress(NotFound):
                self.cluster.client.request("DELETE", path)


@pytest.fixture
def own(admission_cluster: AdmissionCluster) -> Iterator[OwnResources]:
    cluster = admission_cluster
    missing = policy("canary", DUPLICATES, priorityThreshold={"name": "canary"})

    def validated() -> bool:
        try:
            cluster.ops.create(DESCHEDULER_POLICIES, missing, namespace="", dry_run=True)
        except Invalid:
            return True
        except ApiError:
            pass
        return False

    eventually(validated, what="the API server to call the webhook", seconds=30)
    found = OwnResources(cluster)
    yield found
    found.delete_all()


def refused(request: Callable[[], object]) -> tuple[int, str, str]:
    """Return the code, the reason and the fields of the message with which the webhook refuses a request."""
    with pytest.raises(Invalid) as raised:
        request()
    error = raised.value
    introduction, _, message = error.message.partition("denied the request: ")
    assert "resources.placement.trimtab.dev" in introduction, error.message
    return error.status, error.reason, message.partition(":")[0]


def fields(answer: Response) -> list[str]:
    return [each.partition(":")[0] for each in answer.warnings]


def test_policy_with_a_priority_class_that_does_not_exist(own: OwnResources) -> None:
    gold = policy("gold", DUPLICATES, priorityThreshold={"name": "gold"})
    assert refused(lambda: own.create(DESCHEDULER_POLICIES, gold)) == (422, "Invalid", "spec.priorityThreshold.name")

    own.create(PRIORITY_CLASSES, named(PRIORITY_CLASSES, "gold", value=7))
    assert own.create(DESCHEDULER_POLICIES, gold).warnings == ()


def test_update_is_not_refused_for_an_error_that_the_object_already_has(own: OwnResources) -> None:
    own.create(PRIORITY_CLASSES, named(PRIORITY_CLASSES, "silver", value=7))
    own.create(DESCHEDULER_POLICIES, policy("old", DUPLICATES, priorityThreshold={"name": "silver"}))
    own.cluster.client.request("DELETE", PRIORITY_CLASSES.path("silver"))

    answer = own.patch(DESCHEDULER_POLICIES, "old", spec=LIMITED)
    assert (answer.object["spec"]["limits"]["perCycle"], fields(answer)) == (10, ["spec.priorityThreshold.name"])
    assert own.patch(DESCHEDULER_POLICIES, "old", metadata={"labels": {"a": "b"}}).warnings == ()

    other = {"priorityThreshold": {"name": "bronze"}}
    assert refused(lambda: own.patch(DESCHEDULER_POLICIES, "old", spec=other))[2] == "spec.priorityThreshold.name"
    own.patch(DESCHEDULER_POLICIES, "old", spec={"priorityThreshold": None})


def test_policies_that_undo_each_others_evictions(own: OwnResources) -> None:
    own.create(DESCHEDULER_POLICIES, policy("spread", SPREAD))
    assert refused(lambda: own.create(DESCHEDULER_POLICIES, policy("pack", PACK)))[2] == "spec.strategies"

    own.create(DESCHEDULER_POLICIES, policy("pack", PACK, suspend=True))
    resume = {"suspend": False}
    assert refused(lambda: own.patch(DESCHEDULER_POLICIES, "pack", spec=resume))[2] == "spec.strategies"
    own.patch(DESCHEDULER_POLICIES, "spread", spec={"suspend": True})
    own.patch(DESCHEDULER_POLICIES, "pack", spec=resume)


def test_node_group_that_already_has_a_machine_autoscaler(own: OwnResources) -> None:
    """Tools rename an object by creating the new one before they delete the old one."""
    namespace = own.cluster.namespace(account=False)
    target = {"apiVersion": "machine.openshift.io/v1beta1", "kind": "MachineSet", "name": "workers"}
    spec = {"minReplicas": 0, "maxReplicas": 3, "scaleTargetRef": target}
    others = {**spec, "scaleTargetRef": {**target, "name": "others"}}
    alone = ["there is no ClusterAutoscaler named default, so no node group is scaled"]

    def create(name: str, content: dict[str, Any]) -> list[str]:
        return fields(own.create(MACHINE_AUTOSCALERS, named(MACHINE_AUTOSCALERS, name, spec=content), namespace))

    assert create("a", spec) == alone
    assert create("b", spec) == ["spec.scaleTargetRef", *alone]
    assert create("c", others) == alone


def test_scheduler_name_that_another_policy_has(own: OwnResources) -> None:
    for name, expected in (("old", []), ("new", ["spec.schedulerName"])):
        renamed = named(SCHEDULER_POLICIES, name, spec={"schedulerName": "renamed"})
        assert fields(own.create(SCHEDULER_POLICIES, renamed)) == expected


def test_pressure_policy_whose_nodes_another_one_handles(own: OwnResources) -> None:
    assert own.create(NODE_PRESSURE_POLICIES, pressure("b")).warnings == ()
    assert fields(own.create(NODE_PRESSURE_POLICIES, pressure("c"))) == ["spec.nodeSelector"]

    selector = {"nodeSelector": {"matchLabels": {"pool": "x"}}}
    overlapping = own.create(NODE_PRESSURE_POLICIES, pressure("a", **selector))
    assert fields(overlapping) == ["spec.nodeSelector", "spec.nodeSelector"]


def test_threshold_at_which_the_kubelet_kills_pods_is_a_warning(own: OwnResources) -> None:
    low = pressure("low", evictionHard={"memory.available": "64Mi"})
    assert fields(own.create(NODE_PRESSURE_POLICIES, low)) == ["spec"]


def test_unwise_setting_is_a_warning(own: OwnResources) -> None:
    assert fields(own.create(DESCHEDULER_POLICIES, policy("acting", DUPLICATES, mode="Act"))) == ["spec.limits"]
    assert own.patch(DESCHEDULER_POLICIES, "acting", spec=LIMITED).warnings == ()


def test_runs_are_not_sent_to_the_webhook(own: OwnResources) -> None:
    (webhook,) = (each for each in own.cluster.webhooks(VALIDATING) if each["name"].startswith("resources."))
    registered = {name for rule in webhook["rules"] for name in rule["resources"]}
    assert DESCHEDULING_RUNS.plural not in registered
    assert NODE_PRESSURE_POLICIES.plural in registered
