from __future__ import annotations

import pytest

from tests.unit.local.machines.objects import NOW, machine
from trimtab.local.machines.joining import node_of
from trimtab.local.machines.live import FINALIZER
from trimtab.local.machines.orders import BOOT_TIME, FAIL, NEVER_JOIN
from trimtab.local.machines.steps import Depart, Join, Wait, Write, next_step, running

BORN = {"providerID": "trimtab-local:///openshift-machine-api/workers-a"}
HOOKS = {"lifecycleHooks": {"preDrain": [{"name": "x", "owner": "y"}]}}


def status(**fields: object) -> Write:
    return Write({"status": fields}, "status")


@pytest.mark.parametrize(
    ("given", "step"),
    [
        (
            {"finalizers": ["other"]},
            Write({"metadata": {"finalizers": ["other", FINALIZER], "resourceVersion": "11"}}),
        ),
        ({"annotations": {BOOT_TIME: "2m"}}, status(phase="Provisioning")),
        ({"annotations": {BOOT_TIME: "2m"}, "phase": "Provisioning"}, Wait(60.0)),
        ({"annotations": {BOOT_TIME: "1m"}, "phase": "Provisioning"}, Write({"spec": BORN})),
        ({}, Write({"spec": BORN})),
        ({"spec": BORN}, Join()),
        ({"spec": BORN, "annotations": {NEVER_JOIN: "false"}}, Join()),
        ({"spec": BORN, "annotations": {NEVER_JOIN: "true"}}, status(phase="Provisioned")),
        ({"spec": BORN, "annotations": {NEVER_JOIN: "true"}, "phase": "Provisioned"}, None),
        ({"phase": "Running", "node": "n"}, None),
        ({"phase": "Failed"}, None),
        ({"deleting": True, "node": "n"}, status(phase="Deleting")),
        ({"deleting": True, "node": "n", "phase": "Deleting"}, Depart("n", drain=True)),
        ({"deleting": True, "phase": "Deleting", "spec": HOOKS}, None),
        (
            {"deleting": True, "phase": "Deleting", "annotations": {"machine.openshift.io/exclude-node-draining": ""}},
            Depart("workers-a", drain=False),
        ),
        ({"deleting": True, "finalizers": []}, None),
    ],
    ids=[
        "made-by-hand", "begins", "boots", "has-booted", "boots-at-once", "joins", "joins-after-all", "never-joins",
        "has-not-joined", "runs", "failed", "going", "departs", "hooked", "departs-undrained", "not-ours",
    ],
)  # fmt: skip
def test_one_step_follows_another(given, step) -> None:
    assert next_step(machine(**given), now=NOW) == step


@pytest.mark.parametrize(
    ("annotations", "reason"),
    [({FAIL: "CreateError"}, "CreateError"), ({BOOT_TIME: "soon"}, "InvalidConfiguration")],
    ids=["ordered", "order-that-cannot-be-read"],
)
def test_a_machine_fails_at_once(annotations: dict[str, str], reason: str) -> None:
    step = next_step(machine(annotations=annotations), now=NOW)

    assert isinstance(step, Write)
    assert (step.patch["status"]["phase"], step.patch["status"]["errorReason"]) == ("Failed", reason)


def test_a_machine_that_has_joined_names_its_node() -> None:
    patch = running("n", "uid-n").patch["status"]
    assert (patch["phase"], patch["nodeRef"]) == ("Running", {"kind": "Node", "name": "n", "uid": "uid-n"})


CAPACITY = "capacity.cluster-autoscaler.kubernetes.io"


@pytest.mark.parametrize(
    ("annotations", "capacity", "allocatable"),
    [
        ({}, {"cpu": "8", "memory": "32Gi", "pods": "110"}, {"cpu": "8"}),
        ({f"{CAPACITY}/cpu": "4", f"{CAPACITY}/maxPods": "20"}, {"cpu": "4", "pods": "20"}, {"cpu": "4"}),
        (
            {"machine.openshift.io/vCPU": "2", "machine.openshift.io/memoryMb": "8192"},
            {"cpu": "2", "memory": "8192Mi"},
            {},
        ),
        ({"machine.openshift.io/vCPU": "2", f"{CAPACITY}/cpu": "4"}, {"cpu": "4"}, {}),
        ({f"{CAPACITY}/gpu-count": "2", f"{CAPACITY}/gpu-type": "amd.com/gpu"}, {"amd.com/gpu": "2"}, {}),
        ({f"{CAPACITY}/cpu": "many"}, {"cpu": "8"}, {}),
        ({f"{CAPACITY}/cpu": "4", "trimtab.dev/reserved": "cpu=500m,memory=1Gi"}, {"cpu": "4"}, {"cpu": "3500m"}),
    ],
    ids=["none", "upstream", "openshift-old", "newer-wins", "gpu", "unreadable", "reserved"],
)
def test_capacity_is_what_annotations_say(annotations, capacity, allocatable) -> None:
    node = node_of(machine(annotations=annotations), None)["status"]

    assert capacity.items() <= node["capacity"].items()
    assert allocatable.items() <= node["allocatable"].items()


def test_a_node_has_the_labels_and_taints_of_machine_and_annotations() -> None:
    live = machine(
        labels={"machine.openshift.io/zone": "z1", "machine.openshift.io/instance-type": "m5"},
        annotations={
            f"{CAPACITY}/labels": "a=1,b=2",
            f"{CAPACITY}/taints": "gpu=yes:NoSchedule,only:NoExecute,own=other:NoSchedule",
        },
        spec={"metadata": {"labels": {"a": "0", "c": "3"}}, "taints": [{"key": "own", "effect": "NoSchedule"}]},
    )

    node = node_of(live, None)

    labels = {
        "a": "0",
        "b": "2",
        "c": "3",
        "topology.kubernetes.io/zone": "z1",
        "node.kubernetes.io/instance-type": "m5",
    }
    assert labels.items() <= node["metadata"]["labels"].items()
    assert node["spec"]["taints"] == [
        {"key": "own", "effect": "NoSchedule"},
        {"key": "gpu", "effect": "NoSchedule", "value": "yes"},
        {"key": "only", "effect": "NoExecute"},
    ]
