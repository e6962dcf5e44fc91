"""Acting on node groups, against an API server in memory."""

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
from trimtab.autoscaling.groups import GroupMachine, MachineState, NodeGroup
from trimtab.autoscaling.providers import DIALECTS, Failure, Provider, Removal, Verdict, providers, verify
from trimtab.autoscaling.providers.checks import going
from trimtab.autoscaling.providers.machine_api import DIALECT
from trimtab.autoscaling.providers.outcome import Failed
from trimtab.autoscaling.providers.replicas import Replicas
from trimtab.kube.api import Forbidden, Invalid, NotFound, ServerError, Unreachable

NOW = 1_795_176_000.0
ROOT = "/apis/machine.openshift.io/v1beta1/namespaces/m"
SCALE = f"{ROOT}/machinesets/a/scale"
MARK = "machine.openshift.io/delete-machine"
RUNNING, FAILED, DELETING = MachineState.RUNNING, MachineState.FAILED, MachineState.DELETING


class MachineApi(FakeApi):
    """The fake with what is missing: JSON patches (test, add, remove), as an API server answers them."""

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
    """A group whose machines are letters: capital ones have failed."""
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
async def test_an_increase_is_one_request(target: int, to: int) -> None:
    api = served(group := node_group(target))

    scaled = await acting(api).increase(group, to)

    assert (scaled.done, scaled.before, scaled.after, scaled.calls) == (True, target, to, 1)
    assert api.replicas() == to
    assert [(call.method, call.path) for call in api.calls] == [("PATCH", SCALE)]


async def test_a_removal_takes_a_request_a_machine_and_one_for_the_group() -> None:
    api = served(group := node_group(3))

    removal = await acting(api).remove(group, chosen(group, "xz"), now=NOW)

    assert (removal.done, removal.after, removal.calls) == (True, 1, 3)
    assert (removal.machines, removal.others) == (("x", "z"), ("y",))
    assert api.marks() == {"x", "z"}
    assert api.objects[f"{ROOT}/machines/x"]["metadata"]["annotations"] == {MARK: "trimtab 2026-11-20T12:00:00Z"}
    assert [call.path for call in api.calls][-1] == SCALE


@pytest.mark.parametrize("edited", [2, 4, 0])
async def test_a_size_that_somebody_edits_in_the_middle_is_never_overwritten(edited: int) -> None:
    api = served(group := node_group(3))

    async def edit(call: Call) -> None:
        if call.path == SCALE and call.method == "PATCH":
            api.edit(edited)

    api.before = edit
    scaled = await acting(api).increase(group, 5)
    removal = await acting(api).remove(group, chosen(group, "x"), now=NOW)

    for outcome in (scaled, removal):
        assert outcome.failure is Failure.CONFLICT
        assert outcome.message == f"the plan was made on a target of 3, and it is {edited} by now"
    assert api.replicas() == edited
    assert not api.marks()


async def test_a_set_of_the_same_name_that_was_made_anew_is_left_alone() -> None:
    api = served(group := node_group(3))
    api.objects[SCALE]["metadata"]["uid"] = "another"

    scaled = await acting(api).increase(group, 5)

    assert (scaled.failure, scaled.message) == (Failure.NOT_FOUND, "another object has its name by now")
    assert api.replicas() == 3


@pytest.mark.parametrize(
    ("error", "failure"),
    [
        (Forbidden("no rights", status=403), Failure.REFUSED),
        (Invalid("spec.replicas: too many", status=422), Failure.REFUSED),
        (NotFound("no such set", status=404), Failure.NOT_FOUND),
        (ServerError("broken", status=500), Failure.UNREACHABLE),
        (Unreachable("cut"), Failure.UNREACHABLE),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
async def test_failures_are_told_by_their_kind_and_marks_are_taken_back(error: Exception, failure: Failure) -> None:
    api = served(group := node_group(3))
    api.fail(error, method="PATCH", path="/scale")

    removal = await acting(api).remove(group, chosen(group, "x"), now=NOW)

    assert (removal.failure, removal.doubt) == (failure, failure is Failure.UNREACHABLE)
    assert str(error) in removal.message
    assert api.replicas() == 3
    # What may still be carried out has to find its machines marked, else others would go.
    assert api.marks() == ({"x"} if removal.doubt else set())


async def test_a_lost_answer_is_no_failure_where_the_size_is_as_asked_for() -> None:
    api = served(group := node_group(3))

    async def lose(call: Call) -> None:
        if call.path == SCALE and call.method == "PATCH":
            raise Unreachable("the answer was lost")

    api.after = lose
    scaled = await acting(api).increase(group, 5)

    assert (scaled.done, scaled.calls, api.replicas()) == (True, 2, 5)


async def test_a_machine_that_cannot_be_marked_stops_the_removal_and_all_marks_go() -> None:
    api = served(group := node_group(3))
    del api.objects[f"{ROOT}/machines/y"]

    removal = await acting(api).remove(group, chosen(group, "xyz"), now=NOW)

    assert removal.failure is Failure.NOT_FOUND
    assert removal.message.startswith("machine y was not marked")
    assert (api.marks(), removal.left_marked, api.replicas()) == (set(), (), 3)


async def test_marks_that_cannot_be_taken_back_are_named() -> None:
    api = served(group := node_group(3))
    api.fail(Forbidden("no", status=403), method="PATCH", path="/scale")

    async def cut(call: Call) -> None:
        if call.content_type.startswith("application/json-patch") and "/machines/x" in call.path:
            raise Unreachable("cut")

    api.before = cut
    removal = await acting(api).remove(group, chosen(group, "xy"), now=NOW)

    assert removal.left_marked == ("x",)
    api.before = None
    assert await acting(api).unmark(group, ["x"], mark=removal.mark) == ()
    assert not api.marks()


async def test_a_group_that_hangs_times_out_and_keeps_no_other_one_waiting() -> None:
    api = served(group := node_group(3))
    other = replace(group, id="MachineSet/m/b", name="b")
    api.put(f"{ROOT}/machinesets/b/scale", {"metadata": {"name": "b", "uid": "u"}, "spec": {"replicas": 3}})

    async def hang(call: Call) -> None:
        if "/machinesets/a/" in call.path:
            await asyncio.Event().wait()

    api.before = hang
    provider = Replicas(api, DIALECT, request_seconds=0.02, seconds=0.05)
    stuck, fine = await asyncio.gather(provider.increase(group, 5), provider.increase(other, 5))

    assert (stuck.failure, stuck.doubt) == (Failure.TIMED_OUT, True)
    assert fine.done


@pytest.mark.parametrize(
    ("given", "to", "message"),
    [
        ({"paused": "spec.paused is true"}, 5, "the group is not scaled: spec.paused is true"),
        ({}, 3, "3 is no increase: the target is 3"),
        ({}, 11, "11 is more than the maximum of 10"),
    ],
    ids=["paused", "no-increase", "maximum"],
)
async def test_an_increase_that_cannot_be_right_costs_no_request(given: dict[str, Any], to: int, message: str) -> None:
    api = served(group := node_group(3, **given))

    scaled = await acting(api).increase(group, to)

    assert (scaled.failure, scaled.message, scaled.calls) == (Failure.REFUSED, message, 0)
    assert not api.calls


STRAY = GroupMachine("m", "", RUNNING, node="n")
LEAVING = GroupMachine("m", "l", DELETING)
MARKED = GroupMachine("m", "k", RUNNING, node="n-k", marked=True)


@pytest.mark.parametrize(
    ("group", "machines", "message"),
    [
        (node_group(3, paused="p"), "x", "the group is not scaled: p"),
        (node_group(3), "", "not machines of the group that could go: none was given"),
        (node_group(1, machines="x", minimum=1), "x", "1 less 1 is below the minimum of 1"),
        (
            node_group(3, machines="xyF", minimum=2),
            "x",
            "3 less 2 (with F, which failed and might go instead) is below the minimum of 2",
        ),
        (node_group(5), "x", "the group has 3 machines and wants 5: its controller has yet to catch up"),
        (node_group(1), "x", "the group has 3 machines and wants 1: its controller has yet to catch up"),
    ],
    ids=["paused", "none", "minimum", "minimum-with-failed", "growing", "shrinking"],
)
def test_a_removal_that_cannot_be_right_is_refused(group: NodeGroup, machines: str, message: str) -> None:
    with pytest.raises(Failed) as told:
        going(group, chosen(group, machines), failed_tie=True)

    assert told.value.failure is Failure.REFUSED
    assert told.value.message.startswith(message)


def test_machines_that_cannot_go_are_named() -> None:
    group = node_group(2, machines="x")
    group = replace(group, machines=(*group.machines, LEAVING, STRAY))

    with pytest.raises(Failed, match=r"could go: \(a node without a Machine\), l"):
        going(group, [LEAVING, STRAY], failed_tie=True)


def test_a_machine_that_somebody_else_marked_might_go_instead() -> None:
    group = node_group(2, machines="x")
    group = replace(group, machines=(*group.machines, MARKED))

    with pytest.raises(Failed, match="k: marked by somebody else"):
        going(group, chosen(group, "x"), failed_tie=True)
    assert going(group, [MARKED], failed_tie=True) == (MARKED,)


async def test_failed_machines_go_along_where_they_might_go_instead() -> None:
    api = served(group := node_group(4, machines="Fxyz"))

    removal = await acting(api).remove(group, chosen(group, "x"), now=NOW)

    assert (removal.machines, removal.added, removal.after) == (("F", "x"), ("F",), 2)
    assert api.marks() == {"F", "x"}


def test_failed_machines_stay_where_marked_ones_go_first() -> None:
    group = node_group(4, machines="Fxyz")
    assert [each.name for each in going(group, chosen(group, "x"), failed_tie=False)] == ["x"]


async def test_marks_of_others_stay() -> None:
    api = served(group := node_group(3))
    api.objects[f"{ROOT}/machines/x"]["metadata"]["annotations"] = {MARK: "by an admin"}
    api.objects[f"{ROOT}/machines/y"]["metadata"]["annotations"] = {MARK: "trimtab of old"}

    left = await acting(api).unmark(group, ["x", "y", "gone"])

    assert (left, api.marks()) == ((), {"x"})


REMOVAL = Removal("MachineSet/m/a", 4, 2, machines=("w", "x"), others=("y", "z"), mark="trimtab t")


def later(target: int, letters: str, leaving: str = "") -> NodeGroup:
    group = node_group(target, machines=letters)
    going_ = tuple(GroupMachine("m", letter, DELETING) for letter in leaving)
    return replace(group, machines=(*group.machines, *going_))


@pytest.mark.parametrize(
    ("group", "verdict"),
    [
        (later(2, "yz"), Verdict(gone=("w", "x"))),
        (later(2, "yz", "wx"), Verdict(gone=("w", "x"))),
        (later(2, "wxyz"), Verdict(waiting=("w", "x"), settled=False)),
        (later(2, "xyz", "w"), Verdict(gone=("w",), waiting=("x",), settled=False)),
        (later(2, "xy", "w"), Verdict(gone=("w",), spared=("x",), wrong=("z",))),
        (later(4, "wxyz"), Verdict(spared=("w", "x"))),
        (later(3, "xyz"), Verdict(gone=("w",), spared=("x",))),
        (None, Verdict(gone=("w", "x"), wrong=("y", "z"))),
    ],
    ids=["gone", "going", "nothing-yet", "half", "wrong-one", "never-asked", "raised-since", "group-gone"],
)
def test_a_later_snapshot_tells_which_machines_went(group: NodeGroup | None, verdict: Verdict) -> None:
    assert verify(REMOVAL, group) == verdict


@given(st.sets(st.sampled_from("wxyzuv")), st.sets(st.sampled_from("wxyz")), st.integers(0, 6))
def test_each_machine_that_was_to_go_has_one_verdict(alive: set[str], leaving: set[str], target: int) -> None:
    found = verify(REMOVAL, later(target, "".join(sorted(alive - leaving)), "".join(sorted(leaving))))

    assert sorted([*found.gone, *found.waiting, *found.spared]) == ["w", "x"]
    assert found.settled is not bool(found.waiting)


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda each: each.api_group)
def test_rights_reach_sizes_and_marks_only(dialect: Any) -> None:
    scales, machines = dialect.rules()

    assert all(resource.endswith("/scale") for resource in scales["resources"])
    assert machines["resources"] == ["machines"]
    assert {verb for rule in (scales, machines) for verb in rule["verbs"]} == {"get", "patch"}


def nodeless(target: int, *, pending: str = "", failed: str = "", running: str = "", **more: Any) -> NodeGroup:
    """A group with machines that have no node beside those that have."""
    made = [GroupMachine("m", letter, RUNNING, node=f"n-{letter}") for letter in running]
    made += [GroupMachine("m", letter, MachineState.PENDING) for letter in pending]
    made += [GroupMachine("m", letter, FAILED, reason="InsufficientResources") for letter in failed]
    return replace(node_group(target, **more), machines=tuple(made))


async def test_a_target_is_lowered_by_what_was_never_made() -> None:
    api = served(group := node_group(5))

    scaled = await acting(api).lower(group, 3)

    assert (scaled.done, scaled.before, scaled.after, scaled.calls) == (True, 5, 3, 2)
    assert api.replicas() == 3
    assert not api.marks()


async def test_a_target_is_lowered_to_nothing() -> None:
    api = served(group := node_group(2, machines=""))

    assert (await acting(api).lower(group, 0)).done
    assert api.replicas() == 0


@pytest.mark.parametrize(
    ("group", "to", "words"),
    [
        (node_group(5), 5, "5 is no less: the target is 5"),
        (node_group(5), 6, "6 is no less: the target is 5"),
        (node_group(5), 2, "2 is fewer than the 3 machines that are there: one of them would go"),
        (node_group(5, minimum=4), 3, "3 is below the minimum of 4"),
        (node_group(5, paused="for a reason"), 4, "the group is not scaled: for a reason"),
    ],
    ids=["no less", "more", "machines are there", "below the minimum", "paused"],
)
async def test_a_target_is_not_lowered_where_that_would_harm(group: NodeGroup, to: int, words: str) -> None:
    api = served(group)

    scaled = await acting(api).lower(group, to)

    assert (scaled.failure, scaled.message, scaled.calls) == (Failure.REFUSED, words, 0)
    assert not api.calls


async def test_a_target_is_not_lowered_below_the_machines_that_the_group_tells_of() -> None:
    api = served(group := node_group(5))
    api.objects[SCALE]["status"]["replicas"] = 4

    scaled = await acting(api).lower(group, 3)

    assert scaled.failure is Failure.CONFLICT
    assert scaled.message == "3 is fewer than the 4 machines that it tells of: one of them would go"
    assert api.replicas() == 5


@pytest.mark.parametrize(("part", "value"), [("status", 5), ("spec", 6)], ids=["a machine is made", "an edit"])
async def test_a_target_is_not_lowered_if_something_changes_at_the_last_moment(part: str, value: int) -> None:
    api = served(group := node_group(5))

    async def change(call: Call) -> None:
        if call.method == "PATCH":
            api.objects[SCALE][part]["replicas"] = value

    api.before = change
    scaled = await acting(api).lower(group, 3)

    assert scaled.failure is Failure.CONFLICT
    assert scaled.message == "its target is not 5 any more, or it has not 3 machines"
    assert api.replicas() in (5, 6)


async def test_failed_machines_that_say_why_go_without_marks() -> None:
    api = served(group := nodeless(4, running="xy", failed="AB"))

    removal = await acting(api).remove(group, chosen(group, "AB"), now=NOW)

    assert (removal.done, removal.after, removal.calls, removal.mark) == (True, 2, 1, "")
    assert api.replicas() == 2


async def test_some_of_several_failed_machines_go_where_the_minimum_keeps_the_others() -> None:
    api = served(group := nodeless(4, running="x", failed="ABC", minimum=3))

    removal = await acting(api).remove(group, chosen(group, "A"), now=NOW)

    assert (removal.done, removal.after, removal.machines) == (True, 3, ("A",))


async def test_machines_that_never_joined_are_marked_and_failed_ones_go_along() -> None:
    api = served(group := nodeless(4, running="x", pending="pq", failed="A"))

    removal = await acting(api).remove(group, chosen(group, "pq"), now=NOW)

    assert (removal.done, removal.after, removal.added) == (True, 1, ("A",))
    assert api.marks() == {"p", "q", "A"}


async def test_no_machine_without_a_node_goes_where_one_with_a_node_might_go_instead() -> None:
    there = nodeless(3, running="x", failed="A")
    sick = GroupMachine("m", "S", FAILED, node="n-S", reason="Unknown")
    api = served(group := replace(there, machines=(*there.machines, sick)))

    removal = await acting(api).remove(group, chosen(group, "A"), now=NOW)

    assert removal.failure is Failure.REFUSED
    assert removal.message == "S (n-S): failed as well and might go instead, with what runs on the node"
