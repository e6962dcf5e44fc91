"""Providers change node groups, against an API server in memory."""

from __future__ import annotations

import asyncio
import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.fakes.api import Call, FakeApi
from tests.fakes.json_patch import patch
from tests.fakes.node_provider import remove_machines
from tests.fixtures.golden import Golden
from trimtab.autoscaling.groups import GroupMachine, MachineState, NodeGroup
from trimtab.autoscaling.providers import (
    DIALECTS,
    MachineRemoval,
    Provider,
    ScaleFailure,
    VerifiedRemoval,
    providers,
    verify_removal,
)
from trimtab.autoscaling.providers.checks import machines_to_delete
from trimtab.autoscaling.providers.dialects import MACHINE_API_DIALECT as DIALECT
from trimtab.autoscaling.providers.outcome import ScaleError
from trimtab.autoscaling.providers.replicas import ReplicasProvider
from trimtab.kube.api import Forbidden, Invalid, NotFound, ServerError, Unreachable

NOW = 1_795_176_000.0
ROOT = "/apis/machine.openshift.io/v1beta1/namespaces/m"
SCALE = f"{ROOT}/machinesets/a/scale"
MARK = "machine.openshift.io/delete-machine"
RUNNING, FAILED, DELETING = MachineState.RUNNING, MachineState.FAILED, MachineState.DELETING


class MachineApi(FakeApi):
    """The fake API server, extended by JSON patches (test, add, remove)."""

    def _patch(self, call: Call) -> Any:
        if call.content_type != "application/json-patch+json":
            return super()._patch(call)
        found = patch(copy.deepcopy(self.objects[self._existing(call.path)]), call.body)
        if found.get("spec", {}).get("replicas") == 0:
            del found["spec"]["replicas"]  # autoscaling/v1 Scale leaves out what is empty
        return self._store(call.path, found)

    def replicas(self) -> int:
        return int(self.objects[SCALE]["spec"].get("replicas", 0))

    def edit(self, replicas: int) -> None:
        self.objects[SCALE]["spec"]["replicas"] = replicas

    def marks(self) -> set[str]:
        return {
            path.rpartition("/")[2]
            for path, each in self.objects.items()
            if "/machines/" in path and MARK in each["metadata"].get("annotations", {})
        }


def node_group(target: int = 3, *, machines: str = "xyz", **given: Any) -> NodeGroup:
    """A group whose machines are letters; capital letters have failed."""
    made = tuple(
        GroupMachine("m", letter, FAILED if letter.isupper() else RUNNING, node=f"n-{letter}") for letter in machines
    )
    known: dict[str, Any] = {"minimum": 0, "maximum": 10, "uid": "u", "machines": made}
    return NodeGroup(
        id="MachineSet/m/a",
        api_version="machine.openshift.io/v1beta1",
        kind="MachineSet",
        namespace="m",
        name="a",
        target=target,
        **{**known, **given},
    )


def served(group: NodeGroup) -> MachineApi:
    api = MachineApi()
    spec = {"replicas": group.target} if group.target else {}
    there = sum(machine.state is not DELETING for machine in group.machines)
    api.put(SCALE, {"metadata": {"name": "a", "uid": "u"}, "spec": spec, "status": {"replicas": there}})
    for machine in group.machines:
        api.put(f"{ROOT}/machines/{machine.name}", {"metadata": {"name": machine.name}})
    return api


def acting(api: FakeApi) -> Provider:
    return providers(api)["machine.openshift.io"]


def chosen(group: NodeGroup, letters: str) -> list[GroupMachine]:
    return [each for each in group.machines if each.name in letters]


@pytest.mark.parametrize(("target", "to"), [(3, 5), (0, 4), (9, 10)], ids=["more", "from-zero", "to-the-maximum"])
async def test_increase_is_one_request(target: int, to: int) -> None:
    api = served(group := node_group(target))

    scaled = await acting(api).increase(group, to)

    assert (scaled.done, scaled.before, scaled.after, scaled.calls) == (True, target, to, 1)
    assert api.replicas() == to
    assert [(call.method, call.path) for call in api.calls] == [("PATCH", SCALE)]


async def test_removal_marks_and_verifies_each_machine_before_lowering_the_size() -> None:
    api = served(group := node_group(3))

    removal = await remove_machines(acting(api), group, chosen(group, "xz"), now=NOW)

    assert (removal.done, removal.after, removal.calls) == (True, 1, 5)
    assert [call.method for call in api.calls] == ["PATCH", "PATCH", "GET", "GET", "PATCH"]
    assert (removal.machines, removal.others) == (("x", "z"), ("y",))
    assert api.marks() == {"x", "z"}
    assert api.objects[f"{ROOT}/machines/x"]["metadata"]["annotations"] == {MARK: "trimtab 2026-11-20T12:00:00Z"}
    assert [call.path for call in api.calls][-1] == SCALE


@pytest.mark.parametrize("edited", [2, 4, 0])
async def test_concurrent_edit_of_the_size_is_never_overwritten(edited: int, golden: Golden) -> None:
    api = served(group := node_group(3))

    async def edit(call: Call) -> None:
        if call.path == SCALE and call.method == "PATCH":
            api.edit(edited)

    api.before = edit
    scaled = await acting(api).increase(group, 5)
    removal = await remove_machines(acting(api), group, chosen(group, "x"), now=NOW)

    for outcome in (scaled, removal):
        assert outcome.failure is ScaleFailure.CONFLICT
        golden(outcome.message)
    assert api.replicas() == edited
    assert not api.marks()


async def test_recreated_object_of_the_same_name_is_not_changed(golden: Golden) -> None:
    api = served(group := node_group(3))
    api.objects[SCALE]["metadata"]["uid"] = "another"

    scaled = await acting(api).increase(group, 5)

    assert scaled.failure == ScaleFailure.NOT_FOUND
    golden(scaled.message)
    assert api.replicas() == 3


@pytest.mark.parametrize(
    ("error", "failure"),
    [
        (Forbidden("no rights", status=403), ScaleFailure.REFUSED),
        (Invalid("spec.replicas: too many", status=422), ScaleFailure.REFUSED),
        (NotFound("no such set", status=404), ScaleFailure.NOT_FOUND),
        (ServerError("broken", status=500), ScaleFailure.UNREACHABLE),
        (Unreachable("cut"), ScaleFailure.UNREACHABLE),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
async def test_failures_have_a_kind_and_marks_are_removed(error: Exception, failure: ScaleFailure) -> None:
    api = served(group := node_group(3))
    api.fail(error, method="PATCH", path="/scale")

    removal = await remove_machines(acting(api), group, chosen(group, "x"), now=NOW)

    assert (removal.failure, removal.doubt) == (failure, failure is ScaleFailure.UNREACHABLE)
    assert str(error) in removal.message
    assert api.replicas() == 3
    # What may still be carried out has to find its machines marked, else others would go.
    assert api.marks() == ({"x"} if removal.doubt else set())


async def test_lost_answer_is_no_failure_if_the_size_is_as_requested() -> None:
    api = served(group := node_group(3))

    async def lose(call: Call) -> None:
        if call.path == SCALE and call.method == "PATCH":
            raise Unreachable("the answer was lost")

    api.after = lose
    scaled = await acting(api).increase(group, 5)

    assert (scaled.done, scaled.calls, api.replicas()) == (True, 2, 5)


async def test_failed_mark_stops_the_removal_and_removes_all_marks(golden: Golden) -> None:
    api = served(group := node_group(3))
    del api.objects[f"{ROOT}/machines/y"]

    removal = await remove_machines(acting(api), group, chosen(group, "xyz"), now=NOW)

    assert removal.failure is ScaleFailure.NOT_FOUND
    golden(removal.message)
    assert (api.marks(), removal.left_marked, api.replicas()) == (set(), (), 3)


async def test_marks_that_cannot_be_removed_are_reported() -> None:
    api = served(group := node_group(3))
    api.fail(Forbidden("no", status=403), method="PATCH", path="/scale")

    async def cut(call: Call) -> None:
        if call.content_type.startswith("application/json-patch") and "/machines/x" in call.path:
            raise Unreachable("cut")

    api.before = cut
    removal = await remove_machines(acting(api), group, chosen(group, "xy"), now=NOW)

    assert removal.left_marked == ("x",)
    api.before = None
    assert await acting(api).unmark(group, ["x"], mark=removal.mark) == ()
    assert not api.marks()


async def test_hanging_group_times_out_and_delays_no_other() -> None:
    api = served(group := node_group(3))
    other = replace(group, id="MachineSet/m/b", name="b")
    api.put(f"{ROOT}/machinesets/b/scale", {"metadata": {"name": "b", "uid": "u"}, "spec": {"replicas": 3}})

    async def hang(call: Call) -> None:
        if "/machinesets/a/" in call.path:
            await asyncio.Event().wait()

    api.before = hang
    provider = ReplicasProvider(api, DIALECT, request_seconds=0.02, seconds=0.05)
    stuck, fine = await asyncio.gather(provider.increase(group, 5), provider.increase(other, 5))

    assert (stuck.failure, stuck.doubt) == (ScaleFailure.TIMED_OUT, True)
    assert fine.done


@pytest.mark.parametrize(
    ("given", "to", "message"),
    [
        ({"paused": "spec.paused is true"}, 5, "the group is not scaled: spec.paused is true"),
        ({}, 3, "target size 3 is not above the current one, 3"),
        ({}, 11, "target size 11 is above the maximum of 10"),
    ],
    ids=["paused", "no-increase", "maximum"],
)
async def test_invalid_increase_sends_no_request(given: dict[str, Any], to: int, message: str) -> None:
    api = served(group := node_group(3, **given))

    scaled = await acting(api).increase(group, to)

    assert (scaled.failure, scaled.message, scaled.calls) == (ScaleFailure.REFUSED, message, 0)
    assert not api.calls


STRAY = GroupMachine("m", "", RUNNING, node="n")
LEAVING = GroupMachine("m", "l", DELETING)
MARKED = GroupMachine("m", "k", RUNNING, node="n-k", marked=True)


@pytest.mark.parametrize(
    ("group", "machines", "message"),
    [
        (node_group(3, paused="p"), "x", "the group is not scaled: p"),
        (node_group(3), "", "these are not deletable machines of the group: none was given"),
        (node_group(1, machines="x", minimum=1), "x", "a target size of 1 less 1 is below the minimum of 1"),
        (
            node_group(3, machines="xyF", minimum=2),
            "x",
            "a target size of 3 less 2 (with F, which failed and might be deleted instead) is below the minimum of 2",
        ),
        (node_group(5), "x", "the group has 3 machines and a target of 5: its controller has not caught up yet"),
        (node_group(1), "x", "the group has 3 machines and a target of 1: its controller has not caught up yet"),
    ],
    ids=["paused", "none", "minimum", "minimum-with-failed", "growing", "shrinking"],
)
def test_invalid_removal_is_refused(group: NodeGroup, machines: str, message: str) -> None:
    with pytest.raises(ScaleError) as caught:
        machines_to_delete(group, chosen(group, machines), failed_tie=True)

    assert caught.value.failure is ScaleFailure.REFUSED
    assert caught.value.message.startswith(message)


def test_undeletable_machines_are_named(golden: Golden) -> None:
    group = node_group(2, machines="x")
    group = replace(group, machines=(*group.machines, LEAVING, STRAY))

    with pytest.raises(ScaleError) as raised:
        machines_to_delete(group, [LEAVING, STRAY], failed_tie=True)
    golden(str(raised.value))


def test_machine_marked_by_another_actor_prevents_the_removal(golden: Golden) -> None:
    group = node_group(2, machines="x")
    group = replace(group, machines=(*group.machines, MARKED))

    with pytest.raises(ScaleError) as raised:
        machines_to_delete(group, chosen(group, "x"), failed_tie=True)
    golden(str(raised.value))
    assert machines_to_delete(group, [MARKED], failed_tie=True) == (MARKED,)


async def test_failed_machines_are_deleted_too_if_they_tie_with_marked_ones() -> None:
    api = served(group := node_group(4, machines="Fxyz"))

    removal = await remove_machines(acting(api), group, chosen(group, "x"), now=NOW)

    assert (removal.machines, removal.added, removal.after) == (("F", "x"), ("F",), 2)
    assert api.marks() == {"F", "x"}


@pytest.mark.parametrize("letters", ["x", "F", "xF"])
def test_machine_whose_node_does_not_confirm_it_is_not_deleted(letters: str) -> None:
    group = node_group(2, machines="xF")
    unconfirmed = replace(group.machines[1], node="", unconfirmed_node="n-F")
    group = replace(group, machines=(group.machines[0], unconfirmed))

    with pytest.raises(ScaleError) as raised:
        machines_to_delete(group, chosen(group, letters), failed_tie=True)

    assert raised.value.failure is ScaleFailure.REFUSED
    assert raised.value.message.startswith("F (n-F): the node exists")


def test_failed_machines_are_kept_if_marked_ones_come_first() -> None:
    group = node_group(4, machines="Fxyz")
    assert [each.name for each in machines_to_delete(group, chosen(group, "x"), failed_tie=False)] == ["x"]


async def test_marks_of_other_actors_stay() -> None:
    api = served(group := node_group(3))
    api.objects[f"{ROOT}/machines/x"]["metadata"]["annotations"] = {MARK: "by an admin"}
    api.objects[f"{ROOT}/machines/y"]["metadata"]["annotations"] = {MARK: "trimtab of old"}

    left = await acting(api).unmark(group, ["x", "y", "deleted"])

    assert (left, api.marks()) == ((), {"x"})


REMOVAL = MachineRemoval("MachineSet/m/a", 4, 2, machines=("w", "x"), others=("y", "z"), mark="trimtab t")


def later(target: int, letters: str, leaving: str = "") -> NodeGroup:
    group = node_group(target, machines=letters)
    going_ = tuple(GroupMachine("m", letter, DELETING) for letter in leaving)
    return replace(group, machines=(*group.machines, *going_))


@pytest.mark.parametrize(
    ("group", "verdict"),
    [
        (later(2, "yz"), VerifiedRemoval(deleted=("w", "x"))),
        (later(2, "yz", "wx"), VerifiedRemoval(deleted=("w", "x"))),
        (later(2, "wxyz"), VerifiedRemoval(pending=("w", "x"), settled=False)),
        (later(2, "xyz", "w"), VerifiedRemoval(deleted=("w",), pending=("x",), settled=False)),
        (later(2, "xy", "w"), VerifiedRemoval(deleted=("w",), kept=("x",), unexpected=("z",))),
        (later(4, "wxyz"), VerifiedRemoval(kept=("w", "x"))),
        (later(3, "xyz"), VerifiedRemoval(deleted=("w",), kept=("x",))),
        (None, VerifiedRemoval(deleted=("w", "x"), unexpected=("y", "z"))),
    ],
    ids=[
        "deleted",
        "deleting",
        "none-deleted-yet",
        "half",
        "wrong-one",
        "lost-request",
        "target-raised",
        "group-deleted",
    ],
)
def test_later_snapshot_shows_which_machines_were_deleted(group: NodeGroup | None, verdict: VerifiedRemoval) -> None:
    assert verify_removal(REMOVAL, group) == verdict


@given(st.sets(st.sampled_from("wxyzuv")), st.sets(st.sampled_from("wxyz")), st.integers(0, 6))
def test_each_chosen_machine_has_one_outcome(alive: set[str], leaving: set[str], target: int) -> None:
    found = verify_removal(REMOVAL, later(target, "".join(sorted(alive - leaving)), "".join(sorted(leaving))))

    assert sorted([*found.deleted, *found.pending, *found.kept]) == ["w", "x"]
    assert found.settled is not bool(found.pending)


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda each: each.api_group)
def test_permissions_cover_sizes_and_marks_only(dialect: Any) -> None:
    scales, machines = dialect.rules()

    assert all(resource.endswith("/scale") for resource in scales["resources"])
    assert machines["resources"] == ["machines"]
    assert {verb for rule in (scales, machines) for verb in rule["verbs"]} == {"get", "patch"}


def nodeless(target: int, *, pending: str = "", failed: str = "", running: str = "", **more: Any) -> NodeGroup:
    """A group with machines with and without nodes."""
    made = [GroupMachine("m", letter, RUNNING, node=f"n-{letter}") for letter in running]
    made += [GroupMachine("m", letter, MachineState.PENDING) for letter in pending]
    made += [GroupMachine("m", letter, FAILED, reason="InsufficientResources") for letter in failed]
    return replace(node_group(target, **more), machines=tuple(made))


async def test_target_is_lowered_by_machines_that_were_never_created() -> None:
    api = served(group := node_group(5))

    scaled = await acting(api).lower(group, 3)

    assert (scaled.done, scaled.before, scaled.after, scaled.calls) == (True, 5, 3, 2)
    assert api.replicas() == 3
    assert not api.marks()


async def test_target_can_be_lowered_to_zero() -> None:
    api = served(group := node_group(2, machines=""))

    assert (await acting(api).lower(group, 0)).done
    assert api.replicas() == 0


@pytest.mark.parametrize(
    ("group", "to", "words"),
    [
        (node_group(5), 5, "target size 5 is not below the current one, 5"),
        (node_group(5), 6, "target size 6 is not below the current one, 5"),
        (node_group(5), 2, "target size 2 is below the number of existing machines, 3: one of them would be deleted"),
        (node_group(5, minimum=4), 3, "target size 3 is below the minimum of 4"),
        (node_group(5, paused="for a reason"), 4, "the group is not scaled: for a reason"),
    ],
    ids=["no decrease", "more", "existing machines", "below the minimum", "paused"],
)
async def test_target_is_not_lowered_if_a_machine_would_be_deleted(group: NodeGroup, to: int, words: str) -> None:
    api = served(group)

    scaled = await acting(api).lower(group, to)

    assert (scaled.failure, scaled.message, scaled.calls) == (ScaleFailure.REFUSED, words, 0)
    assert not api.calls


async def test_target_is_not_lowered_below_the_reported_machines(golden: Golden) -> None:
    api = served(group := node_group(5))
    api.objects[SCALE]["status"]["replicas"] = 4

    scaled = await acting(api).lower(group, 3)

    assert scaled.failure is ScaleFailure.CONFLICT
    golden(scaled.message)
    assert api.replicas() == 5


@pytest.mark.parametrize(("part", "value"), [("status", 5), ("spec", 6)], ids=["a machine is created", "an edit"])
async def test_target_is_not_lowered_if_the_group_changes_concurrently(part: str, value: int, golden: Golden) -> None:
    api = served(group := node_group(5))

    async def change(call: Call) -> None:
        if call.method == "PATCH":
            api.objects[SCALE][part]["replicas"] = value

    api.before = change
    scaled = await acting(api).lower(group, 3)

    assert scaled.failure is ScaleFailure.CONFLICT
    golden(scaled.message)
    assert api.replicas() in (5, 6)


async def test_failed_machines_with_an_error_need_no_mark() -> None:
    api = served(group := nodeless(4, running="xy", failed="AB"))

    removal = await remove_machines(acting(api), group, chosen(group, "AB"), now=NOW)

    assert (removal.done, removal.after, removal.calls, removal.mark) == (True, 2, 1, "")
    assert api.replicas() == 2


async def test_minimum_size_keeps_some_failed_machines() -> None:
    api = served(group := nodeless(4, running="x", failed="ABC", minimum=3))

    removal = await remove_machines(acting(api), group, chosen(group, "A"), now=NOW)

    assert (removal.done, removal.after, removal.machines) == (True, 3, ("A",))


async def test_unregistered_machines_are_marked_and_failed_ones_deleted_too() -> None:
    api = served(group := nodeless(4, running="x", pending="pq", failed="A"))

    removal = await remove_machines(acting(api), group, chosen(group, "pq"), now=NOW)

    assert (removal.done, removal.after, removal.added) == (True, 1, ("A",))
    assert api.marks() == {"p", "q", "A"}


async def test_machine_that_became_a_node_is_kept(golden: Golden) -> None:
    api = served(group := nodeless(4, running="xy", pending="pq"))
    provider = acting(api)
    marked = await provider.mark(group, chosen(group, "pq"), now=NOW)
    api.objects[f"{ROOT}/machines/q"]["status"] = {"nodeRef": {"name": "n-q"}}

    removal = await provider.remove(group, marked)

    assert removal.failure == ScaleFailure.CONFLICT
    golden(removal.message)
    assert api.replicas() == 4
    assert api.marks() == set()


async def test_machine_with_a_node_is_never_deleted_instead_of_one_without(golden: Golden) -> None:
    there = nodeless(3, running="x", failed="A")
    sick = GroupMachine("m", "S", FAILED, node="n-S", reason="Unknown")
    api = served(group := replace(there, machines=(*there.machines, sick)))

    removal = await remove_machines(acting(api), group, chosen(group, "A"), now=NOW)

    assert removal.failure is ScaleFailure.REFUSED
    golden(removal.message)
