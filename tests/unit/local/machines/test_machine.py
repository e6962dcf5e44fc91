from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import node as node_builder
from tests.fakes.api import FakeApi
from tests.unit.local.machines.objects import NAMESPACE, NOW, machine
from trimtab.kube.api import Conflict
from trimtab.kube.objects import Node
from trimtab.kube.resources import NODES
from trimtab.kube.wire.decode import decode_object
from trimtab_local.machines.controller import Controller
from trimtab_local.machines.machine import (
    FINALIZER,
    NODES_MACHINE,
    CreateNode,
    LiveObject,
    RemoveNode,
    Wait,
    Write,
    lacks,
    link,
    next_step,
    node_of,
    running,
)
from trimtab_local.machines.orders import BOOT_TIME, FAIL, NEVER_JOIN

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
        ({"spec": BORN}, CreateNode()),
        ({"spec": BORN, "annotations": {NEVER_JOIN: "false"}}, CreateNode()),
        ({"spec": BORN, "annotations": {NEVER_JOIN: "true"}}, status(phase="Provisioned")),
        ({"spec": BORN, "annotations": {NEVER_JOIN: "true"}, "phase": "Provisioned"}, None),
        ({"phase": "Running", "node": "n"}, None),
        ({"phase": "Failed"}, None),
        ({"deleting": True, "node": "n"}, status(phase="Deleting")),
        ({"deleting": True, "node": "n", "phase": "Deleting"}, RemoveNode("n", drain=True)),
        ({"deleting": True, "phase": "Deleting", "spec": HOOKS}, None),
        (
            {"deleting": True, "phase": "Deleting", "annotations": {"machine.openshift.io/exclude-node-draining": ""}},
            RemoveNode("workers-a", drain=False),
        ),
        ({"deleting": True, "finalizers": []}, None),
    ],
    ids=[
        "made-by-hand", "begins", "boots", "has-booted", "boots-at-once", "joins", "joins-after-all", "never-joins",
        "has-not-joined", "runs", "failed", "going", "departs", "hooked", "departs-undrained", "not-ours",
    ],
)  # fmt: skip
def test_steps_of_a_machine_in_order(given, step) -> None:
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
def test_capacity_is_read_from_annotations(annotations, capacity, allocatable) -> None:
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


def taint(key: str, value: str = "", effect: str = "NoSchedule") -> dict[str, str]:
    return {"key": key, "effect": effect} | ({"value": value} if value else {})


def wanting(*taints: dict[str, str], **labels: str) -> LiveObject:
    spec = {"taints": list(taints), "metadata": {"labels": labels}}
    return machine("m", phase="Running", node="n", spec=spec)


def node(*taints: dict[str, str], **labels: str) -> dict[str, Any]:
    manifest = node_builder("n").labels(labels).annotations({NODES_MACHINE: f"{NAMESPACE}/m"}).manifest()
    manifest["metadata"] |= {"resourceVersion": "7"}
    manifest["spec"] = {"taints": list(taints)} if taints else {}
    return manifest


A, B, OTHERS = taint("a", "1"), taint("b", effect="NoExecute"), taint("others")


@pytest.mark.parametrize(
    ("live", "there", "after"),
    [
        (wanting(), node(OTHERS), None),
        (wanting(A), node(), [A]),
        (wanting(A, B), node(OTHERS, A), [OTHERS, A, B]),
        (wanting(A), node(taint("a", "2")), None),
        (wanting(A), node(taint("a", "1", "NoExecute")), [taint("a", "1", "NoExecute"), A]),
        (wanting(), node(A), None),
    ],
    ids=[
        "nothing is wanted",
        "the first taint",
        "those of others stay, in their places",
        "another value of the same key and effect stays",
        "the same key with another effect is another taint",
        "a taint that the machine has no more stays",
    ],
)
def test_taints_are_added_and_never_removed(live: LiveObject, there: dict[str, Any], after: list[Any] | None) -> None:
    patch = link(live, there)

    assert (None if patch is None else patch["spec"]["taints"]) == after
    assert lacks(live, read(there)) == (patch is not None)


def test_machine_labels_are_set_and_others_kept() -> None:
    patch = link(wanting(pool="new"), node(pool="old", zone="a"))

    assert patch == {"metadata": {"resourceVersion": "7", "labels": {"pool": "new"}}}


def test_patch_contains_the_resource_version() -> None:
    patch = link(wanting(A), node())
    assert patch is not None
    assert patch["metadata"]["resourceVersion"] == "7"


TAINTS = st.lists(
    st.builds(
        taint, st.sampled_from("abc"), st.sampled_from(["", "1", "2"]), st.sampled_from(["NoSchedule", "NoExecute"])
    ),
    unique_by=lambda each: (each["key"], each["effect"]),
    max_size=5,
)


@given(TAINTS, TAINTS)
def test_link_is_idempotent_and_keeps_existing_fields(wanted: list[Any], there: list[Any]) -> None:
    live, before = wanting(*wanted), node(*there)
    patch = link(live, before)
    if patch is not None:
        before["spec"]["taints"] = patch["spec"]["taints"]

    after = before["spec"].get("taints", [])
    assert after[: len(there)] == there
    assert {(each["key"], each["effect"]) for each in after} == {(t["key"], t["effect"]) for t in [*there, *wanted]}
    assert link(live, before) is None
    assert not lacks(live, read(before))


def read(manifest: dict[str, Any]) -> Node:
    value = decode_object(manifest)
    assert isinstance(value, Node)
    return value


async def linked(api: FakeApi, live: LiveObject, *, seen: dict[str, Any]) -> list[dict[str, str]]:
    """The node's taints after the controller has looked at the machine once."""
    controller = Controller(api)
    controller._nodes.apply(read(seen))
    await controller._link(live)
    return list(api.objects[NODES.path("n")]["spec"].get("taints", []))


async def test_controller_patches_the_current_node() -> None:
    api = FakeApi()
    stored = api.put(NODES.path("n"), node(OTHERS))
    observed = node() | {"metadata": stored["metadata"]}

    assert await linked(api, wanting(A), seen=observed) == [OTHERS, A]


async def test_complete_node_causes_no_request() -> None:
    api = FakeApi()
    stored = api.put(NODES.path("n"), node(A))

    assert await linked(api, wanting(A), seen=stored) == [A]
    assert not api.calls


@pytest.mark.parametrize(
    "other", [{"annotations": {NODES_MACHINE: "x/y"}}, {"uid": "another"}], ids=["other", "former"]
)
async def test_node_of_another_machine_is_not_changed(other: dict[str, Any]) -> None:
    api = FakeApi()
    stored = api.put(NODES.path("n"), node())
    observed = node() | {"metadata": stored["metadata"] | other}

    assert await linked(api, wanting(A), seen=observed) == []


async def test_concurrent_write_is_not_overwritten() -> None:
    api = FakeApi()
    stored = api.put(NODES.path("n"), node())
    api.fail(Conflict("the object has been modified"), method="PATCH")

    with pytest.raises(Conflict):  # the queue looks at the machine again
        await linked(api, wanting(A), seen=stored)
