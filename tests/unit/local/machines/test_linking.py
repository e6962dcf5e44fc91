"""A machine's labels and taints are on its node, and nothing that others put there goes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import node as node_builder
from tests.fakes.api import FakeApi
from tests.unit.local.machines.objects import NAMESPACE, machine
from trimtab.kube.api import Conflict
from trimtab.kube.objects import Node
from trimtab.kube.resources import NODES
from trimtab.kube.wire.decode import decode_object
from trimtab.local.machines.controller import Controller
from trimtab.local.machines.joining import NODES_MACHINE
from trimtab.local.machines.linking import lacks, link
from trimtab.local.machines.live import Live


def taint(key: str, value: str = "", effect: str = "NoSchedule") -> dict[str, str]:
    return {"key": key, "effect": effect} | ({"value": value} if value else {})


def wanting(*taints: dict[str, str], **labels: str) -> Live:
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
def test_taints_are_added_and_never_taken(live: Live, there: dict[str, Any], after: list[Any] | None) -> None:
    patch = link(live, there)

    assert (None if patch is None else patch["spec"]["taints"]) == after
    assert lacks(live, read(there)) == (patch is not None)


def test_labels_of_the_machine_hold_and_others_stay() -> None:
    patch = link(wanting(pool="new"), node(pool="old", zone="a"))

    assert patch == {"metadata": {"resourceVersion": "7", "labels": {"pool": "new"}}}


def test_what_is_written_names_the_version_that_it_was_made_of() -> None:
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
def test_once_is_enough_and_nothing_is_lost_whatever_is_there(wanted: list[Any], there: list[Any]) -> None:
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


async def linked(api: FakeApi, live: Live, *, seen: dict[str, Any]) -> list[dict[str, str]]:
    """The node's taints after the controller has looked at the machine once."""
    controller = Controller(api)
    controller._nodes.apply(read(seen))
    await controller._link(live)
    return list(api.objects[NODES.path("n")]["spec"].get("taints", []))


async def test_the_controller_adds_to_what_is_there_now_and_not_to_what_it_saw_last() -> None:
    api = FakeApi()
    stored = api.put(NODES.path("n"), node(OTHERS))
    seen = node() | {"metadata": stored["metadata"]}

    assert await linked(api, wanting(A), seen=seen) == [OTHERS, A]


async def test_a_node_that_has_all_is_not_even_asked_for() -> None:
    api = FakeApi()
    stored = api.put(NODES.path("n"), node(A))

    assert await linked(api, wanting(A), seen=stored) == [A]
    assert not api.calls


@pytest.mark.parametrize(
    "other", [{"annotations": {NODES_MACHINE: "x/y"}}, {"uid": "another"}], ids=["other", "former"]
)
async def test_a_node_of_another_machine_is_left_alone(other: dict[str, Any]) -> None:
    api = FakeApi()
    stored = api.put(NODES.path("n"), node())
    seen = node() | {"metadata": stored["metadata"] | other}

    assert await linked(api, wanting(A), seen=seen) == []


async def test_who_writes_in_between_is_not_overwritten() -> None:
    api = FakeApi()
    stored = api.put(NODES.path("n"), node())
    api.fail(Conflict("the object has been modified"), method="PATCH")

    with pytest.raises(Conflict):  # the queue looks at the machine again
        await linked(api, wanting(A), seen=stored)
