"""MachineAutoscalers: their limits on their targets, and what becomes of these."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.unit.autoscaling.owning import CAPACITY, JSON_PATCH, MAX, MIN, NS, OWNER, World
from trimtab.autoscaling.machine_autoscalers.controller import LIST_EVERY, SIZES_SETTLE
from trimtab.kube import verbs
from trimtab.kube.api import Forbidden, Invalid, NotFound, ServerError
from trimtab.kube.resources import (
    CLUSTER_MACHINE_SETS,
    MACHINE_AUTOSCALERS,
    MACHINE_DEPLOYMENTS,
    MACHINE_POOLS,
    MACHINE_SETS,
    Resource,
)

pytestmark = pytest.mark.looptime(start=0)

READY = ("True", "LimitsSet")


async def test_the_target_gets_the_limits_and_the_status_says_so() -> None:
    async with World() as world:
        target, path = world.make_set(replicas=2), world.make(low=1, high=5)
        await world.settled()

        assert world.limits(target) == ("1", "5", f"{NS}/ma")
        assert world.ready(path) == READY
        assert world.message(path) == f"MachineSet {NS}/a has the limits 1 to 5"
        status = world.status(path)
        assert (status["observedGeneration"], status["replicas"]) == (1, 2)
        assert status["lastTargetRef"] == {
            "apiVersion": "machine.openshift.io/v1beta1",
            "kind": "MachineSet",
            "name": "a",
        }
        assert world.has_finalizer(path)


async def test_three_requests_are_all_and_then_there_is_silence() -> None:
    async with World() as world:
        target, path = world.make_set(vCPU="4", memoryMb="16384"), world.make()
        await world.settled(60)

        assert [(call.method, call.path) for call in world.writes()] == [
            ("PATCH", path),
            ("PATCH", target),
            ("PATCH", f"{path}/status"),
        ]
        assert world.recorder.reasons() == ["SuccessfulUpdate"]
        assert not [call for call in world.server.calls if call.method == "GET" and call.path in (target, path)]


async def test_a_limit_that_changes_is_one_patch_of_what_differs() -> None:
    async with World() as world:
        target, path = world.make_set(), world.make(low=1, high=5)
        await world.settled()
        world.server.calls.clear()

        world.edit(path, maxReplicas=7)
        await world.settled()

        assert world.limits(target)[:2] == ("1", "7")
        [patch] = world.writes(target)
        assert patch.content_type == JSON_PATCH
        assert {each["path"] for each in patch.body if each["op"] == "add"} == {
            f"/metadata/annotations/{MAX.replace('/', '~1')}"
        }
        assert {each["op"] for each in patch.body} == {"test", "add"}
        assert world.status(path)["observedGeneration"] == 2


@pytest.mark.parametrize(
    ("resource", "version"),
    [
        (MACHINE_DEPLOYMENTS, "cluster.x-k8s.io/v1beta2"),
        (MACHINE_DEPLOYMENTS, "cluster.x-k8s.io/v1beta1"),
        (CLUSTER_MACHINE_SETS, "cluster.x-k8s.io/v1beta2"),
        (MACHINE_POOLS, "cluster.x-k8s.io/v1beta2"),
    ],
    ids=lambda value: value if isinstance(value, str) else value.kind,
)
async def test_kinds_of_cluster_api_get_the_limits_below_its_prefix(resource: Resource, version: str) -> None:
    """In the version that the server has, whichever of the two the MachineAutoscaler says."""
    async with World() as world:
        target = world.put(resource, "md", {"replicas": 3}, annotations={"machine.openshift.io/vCPU": "4"})
        path = world.make(kind=resource.kind, version=version, target="md")
        await world.settled()

        prefix = "cluster.x-k8s.io/cluster-api-autoscaler-node-group"
        assert world.annotations(target) == {
            "machine.openshift.io/vCPU": "4",
            f"{prefix}-min-size": "1",
            f"{prefix}-max-size": "5",
            OWNER: f"{NS}/ma",
        }
        assert world.ready(path) == READY


async def test_limits_that_somebody_changes_by_hand_are_put_back_and_told() -> None:
    async with World() as world:
        target, path = world.make_set(), world.make()
        await world.settled()

        world.annotate(target, {MAX: "50", MIN: None})
        await world.settled()

        assert world.limits(target) == ("1", "5", f"{NS}/ma")
        name, reason, note = world.recorder.events[-1]
        assert (name, reason) == ("ma", "SuccessfulUpdate")
        assert note == f"MachineSet {NS}/a, which somebody had changed: {MAX}=5 (was 50), {MIN}=1"
        assert world.ready(path) == READY


async def test_who_keeps_changing_limits_is_not_answered_for_ever() -> None:
    async with World() as world:
        target, _ = world.make_set(), world.make()
        await world.settled()
        world.server.calls.clear()

        for _ in range(50):
            world.annotate(target, {MAX: "50"})
            await asyncio.sleep(0.5)

        assert len(world.writes(target)) == 5
        await asyncio.sleep(60)
        assert world.limits(target)[1] == "5"
        assert len(world.writes(target)) == 6


@pytest.mark.parametrize(
    ("size", "ready", "words"),
    [
        (1, "LimitsSet", "has the limits 1 to 5"),
        (7, "AboveMaximum", "a size of 7, above maxReplicas: only nodes that nobody needs go, none for that"),
        (0, "BelowMinimum", "a size of 0, below minReplicas: it is raised to that only where"),
        (None, "LimitsSet", "has the limits 1 to 5"),
    ],
)
async def test_a_target_outside_of_its_limits_is_told_and_left(size: int | None, ready: str, words: str) -> None:
    async with World() as world:
        target, path = world.make_set(replicas=size), world.make(low=1, high=5)
        await world.settled()

        assert world.ready(path) == ("True", ready)
        assert words in world.message(path)
        assert world.status(path)["replicas"] == (1 if size is None else size)
        assert world.server.objects[target]["spec"]["replicas"] == size


async def test_sizes_are_told_when_they_have_settled() -> None:
    async with World() as world:
        target, path = world.make_set(replicas=1), world.make(low=0, high=50)
        await world.settled(SIZES_SETTLE)
        world.server.calls.clear()

        for size in range(2, 22):
            world.edit(target, replicas=size)
            await asyncio.sleep(1)
        await world.settled(SIZES_SETTLE)

        assert world.status(path)["replicas"] == 21
        assert len(world.writes()) <= 4


async def test_a_target_that_is_not_there_is_told_once_and_taken_when_it_appears() -> None:
    async with World() as world:
        path = world.make()
        await world.settled(60)

        assert world.ready(path) == ("False", "TargetNotFound")
        wanted = f"spec.scaleTargetRef: there is no MachineSet a of machine.openshift.io in the namespace {NS}"
        assert world.message(path) == wanted
        assert world.recorder.events == [("ma", "FailedGetTarget", wanted)]
        assert len(world.writes()) == 1
        assert not world.has_finalizer(path), "there is nothing to clean up"

        target = world.make_set()
        await world.settled()
        assert world.limits(target) == ("1", "5", f"{NS}/ma")
        assert world.ready(path) == READY


async def test_a_target_that_is_made_anew_gets_its_limits_again() -> None:
    async with World() as world:
        target, path = world.make_set(), world.make()
        await world.settled()

        world.server.vanish(target)
        await world.settled()
        assert world.ready(path) == ("False", "TargetNotFound")
        assert "replicas" not in world.status(path)
        assert world.status(path)["lastTargetRef"]["name"] == "a"
        world.make_set()
        await world.settled()

        assert world.limits(target) == ("1", "5", f"{NS}/ma")
        assert world.ready(path) == READY


async def test_nothing_is_decided_on_a_picture_that_is_not_complete() -> None:
    world = World()
    world.stale = "waiting for machinesets"
    path = world.make()
    async with world:
        assert not world.writes()
        world.stale = None
        await world.settled()
        assert world.ready(path) == ("False", "TargetNotFound")


async def test_nothing_is_asked_by_a_process_that_does_not_lead() -> None:
    world = World()
    world.lead = False
    target, path = world.make_set(), world.make()
    async with world:
        assert not world.server.calls
        assert [each.key for each in world.controller.autoscalers.all] == [f"{NS}/ma"]
        world.lead = True
        await world.settled()
        assert (world.limits(target)[0], world.ready(path)) == ("1", READY)


async def test_the_lease_may_be_lost_between_two_requests() -> None:
    async with World() as world:

        async def lose(call: Any) -> None:
            if call.method == "PATCH":
                world.lead = False

        world.server.after = lose
        target, path = world.make_set(), world.make()
        await world.settled()

        assert [call.path for call in world.writes()] == [path]
        assert world.limits(target) == (None, None, None)


async def test_after_its_deletion_nothing_of_it_is_left_on_the_target() -> None:
    async with World() as world:
        target, path = world.make_set(vCPU="4", memoryMb="8192", somebody="else's"), world.make()
        await world.settled()
        world.server.calls.clear()

        world.server.vanish(path)
        await world.settled()

        assert path not in world.server.objects
        assert set(world.annotations(target)) == {
            f"machine.openshift.io/{key}" for key in ("vCPU", "memoryMb", "somebody")
        }
        assert [call.path for call in world.writes()] == [target, path]
        assert world.controller.autoscalers.all == ()


@pytest.mark.parametrize("others", [(), ("foregroundDeletion",)], ids=["alone", "beside another's"])
async def test_only_our_finalizer_is_taken_away(others: tuple[str, ...]) -> None:
    async with World() as world:
        world.make_set()
        path = world.make(finalizers=others)
        await world.settled()
        assert world.server.objects[path]["metadata"]["finalizers"] == [
            *others,
            "machinetarget.autoscaling.openshift.io",
        ]

        world.server.vanish(path)
        await world.settled()

        if others:
            assert world.server.objects[path]["metadata"]["finalizers"] == list(others)
        else:
            assert path not in world.server.objects


async def test_limits_that_are_somebody_elses_by_then_stay_after_its_deletion() -> None:
    async with World() as world:
        target, path = world.make_set(), world.make()
        await world.settled()
        await world.killed()
        world.annotate(target, {OWNER: f"{NS}/other", MAX: "9"})
        world.server.vanish(path)
        world.make("other", high=9)

        async with World(server=world.server) as after:
            assert path not in world.server.objects
            assert world.limits(target) == ("1", "9", f"{NS}/other")
            assert not after.recorder.events


async def test_one_that_went_by_force_leaves_nothing_either() -> None:
    """Its finalizer was taken away by hand, while we looked on or were not there."""
    async with World() as world:
        seen, unseen = world.make_set("a"), world.make_set("b")
        paths = world.make("one", target="a"), world.make("two", target="b")
        await world.settled()
        del world.server.objects[paths[0]]["metadata"]["finalizers"]
        world.server.vanish(paths[0])
        await world.settled()
        assert world.limits(seen) == (None, None, None)
        await world.killed()
        del world.server.objects[paths[1]]

        async with World(server=world.server):
            assert world.limits(unseen) == (None, None, None)


async def test_a_list_that_nobody_can_make_sense_of_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    found, asked = verbs.list_objects, []

    async def list_objects(*words: Any, **more: Any) -> Any:
        asked.append(1)
        if len(asked) < 3:
            raise ValueError("what nobody has foreseen")
        return await found(*words, **more)

    monkeypatch.setattr(verbs, "list_objects", list_objects)
    async with World() as world:
        await asyncio.sleep(5)
        assert world.controller.synced


async def test_what_no_watch_tells_is_found_by_the_next_list() -> None:
    async with World() as world:
        target, path = world.make_set(), world.make()
        await world.settled()

        del world.server.objects[path]  # without a word
        await asyncio.sleep(LIST_EVERY)

        assert world.controller.autoscalers.all == ()
        assert world.limits(target) == (None, None, None)


async def test_another_target_gets_the_limits_and_the_former_loses_them() -> None:
    async with World() as world:
        old, new = world.make_set("a", vCPU="2"), world.make_set("b")
        path = world.make(target="a")
        await world.settled()

        ref = {"apiVersion": "machine.openshift.io/v1beta1", "kind": "MachineSet", "name": "b"}
        world.edit(path, scaleTargetRef=ref)
        await world.settled()

        assert world.annotations(old) == {"machine.openshift.io/vCPU": "2"}
        assert world.limits(new) == ("1", "5", f"{NS}/ma")
        assert world.status(path)["lastTargetRef"]["name"] == "b"


async def test_a_target_that_was_changed_while_nobody_looked_is_cleaned_up_all_the_same() -> None:
    """From a to b, the process killed before its status said so, then to c: the annotations of both tell."""
    async with World() as world:
        sets = [world.make_set(name) for name in "abc"]
        path = world.make(target="a")
        await world.settled()
        await world.killed()
    world.annotate(sets[1], {MIN: "1", MAX: "5", OWNER: f"{NS}/ma"})
    ref = {"apiVersion": "machine.openshift.io/v1beta1", "kind": "MachineSet", "name": "c"}
    world.edit(path, scaleTargetRef=ref)

    async with World(server=world.server) as after:
        assert [after.limits(each)[2] for each in sets] == [None, None, f"{NS}/ma"]


async def test_the_second_that_wants_a_target_is_refused_and_told_who_has_it() -> None:
    async with World() as world:
        target, first = world.make_set(), world.make("first")
        await world.settled()
        second = world.make("second", low=2, high=9, created="2026-01-01T00:00:00Z")
        await world.settled(60)

        assert world.limits(target) == ("1", "5", f"{NS}/first")
        assert world.ready(first) == READY
        assert world.ready(second) == ("False", "TargetAlreadyOwned")
        words = f"spec.scaleTargetRef: the MachineAutoscaler {NS}/first already has MachineSet a"
        assert world.message(second) == words
        assert world.recorder.events[-1] == ("second", "FailedSetOwner", words)
        assert world.recorder.reasons("second") == ["FailedSetOwner"]


async def test_the_second_has_the_target_once_the_first_is_gone_or_wants_another() -> None:
    async with World() as world:
        target, other = world.make_set("a"), world.make_set("b")
        first = world.make("first")
        await world.settled()
        second = world.make("second", low=2, high=9)
        await world.settled()

        ref = {"apiVersion": "machine.openshift.io/v1beta1", "kind": "MachineSet", "name": "b"}
        world.edit(first, scaleTargetRef=ref)
        await world.settled()
        assert world.limits(target) == ("2", "9", f"{NS}/second")
        assert world.limits(other) == ("1", "5", f"{NS}/first")
        assert world.ready(second) == ("True", "BelowMinimum")

        third = world.make("third", target="a")
        await world.settled()
        assert world.ready(third) == ("False", "TargetAlreadyOwned")
        world.server.vanish(second)
        await world.settled()
        assert second not in world.server.objects
        assert world.limits(target) == ("1", "5", f"{NS}/third")
        assert world.ready(third) == READY


@pytest.mark.parametrize(
    ("created", "winner"),
    [
        (("2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"), "one"),
        (("2026-01-02T00:00:00Z", "2026-01-01T00:00:00Z"), "two"),
        (("2026-01-01T00:00:00Z", "2026-01-01T00:00:00Z"), "one"),
    ],
    ids=["the older", "the older, whatever its name", "by name"],
)
async def test_of_two_that_were_there_before_the_older_has_it(created: tuple[str, str], winner: str) -> None:
    world = World()
    target = world.make_set()
    world.make("two", created=created[1])
    world.make("one", created=created[0])
    async with world:
        assert world.limits(target)[2] == f"{NS}/{winner}"


async def test_an_owner_that_there_is_not_keeps_nobody_out() -> None:
    world = World()
    target = world.make_set()
    world.annotate(target, {OWNER: f"{NS}/long-gone", MIN: "3", MAX: "4"})
    path = world.make()
    async with world:
        assert world.limits(target) == ("1", "5", f"{NS}/ma")
        assert world.ready(path) == READY


async def test_a_set_that_something_else_governs_is_refused() -> None:
    async with World() as world:
        owners = [{"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "MachineDeployment", "name": "md", "uid": "u"}]
        path = CLUSTER_MACHINE_SETS.path("md-1", namespace=NS)
        metadata = {"name": "md-1", "namespace": NS, "ownerReferences": owners}
        kind = {"apiVersion": CLUSTER_MACHINE_SETS.api_version, "kind": "MachineSet"}
        world.server.put(path, {**kind, "metadata": metadata, "spec": {"replicas": 1}})
        refused = world.make(target="md-1", version="cluster.x-k8s.io/v1beta2")
        await world.settled()

        assert world.ready(refused) == ("False", "TargetUnsupported")
        assert f"MachineDeployment {NS}/md sets its size" in world.message(refused)
        assert world.recorder.reasons() == ["FailedGetTarget"]
        assert not world.annotations(path)


async def test_a_set_whose_authority_comes_back_gets_its_limits() -> None:
    async with World() as world:
        target = world.put(MACHINE_SETS, "a", {"replicas": 1}, status={"authoritativeAPI": "ClusterAPI"})
        path = world.make()
        await world.settled()
        assert world.ready(path) == ("False", "TargetUnsupported")

        obj = world.server.objects[target]
        world.server.put(target, {**obj, "status": {"authoritativeAPI": "MachineAPI"}})
        await world.settled()
        assert world.ready(path) == READY


@pytest.mark.parametrize(
    ("given", "reason", "event", "words"),
    [
        ({"low": 6, "high": 5}, "InvalidMachineAutoscaler", "FailedValidation", "spec.maxReplicas: must be at least"),
        ({"low": -1}, "InvalidMachineAutoscaler", "FailedValidation", "spec.minReplicas"),
        (
            {"kind": "Deployment", "version": "apps/v1"},
            "TargetUnsupported",
            "FailedGetTarget",
            "spec.scaleTargetRef: must be a MachineSet of machine.openshift.io/v1beta1",
        ),
    ],
    ids=["less at most than at least", "negative", "of no such kind"],
)
async def test_a_bad_one_that_the_definition_let_through_is_told_and_stops_no_other(
    given: dict[str, Any], reason: str, event: str, words: str
) -> None:
    """As OpenShift's own definition does."""
    async with World() as world:
        target, good, bad = world.make_set(), world.make("good"), world.make("bad", **given)
        await world.settled()

        assert world.ready(bad) == ("False", reason)
        assert words in world.message(bad)
        assert world.recorder.reasons("bad") == [event]
        assert world.limits(target)[2] == f"{NS}/good"
        assert world.ready(good) == READY
        assert list(world.controller.autoscalers.invalid) == [f"{NS}/bad"]
        assert [each.metadata.name for each in world.controller.autoscalers.all] == ["good"]


async def test_the_last_good_limits_hold_while_a_spec_is_bad() -> None:
    async with World() as world:
        target, path = world.make_set(), world.make()
        await world.settled()

        world.edit(path, minReplicas=9)
        await world.settled()
        assert world.limits(target) == ("1", "5", f"{NS}/ma")
        assert world.ready(path) == ("False", "InvalidMachineAutoscaler")

        world.edit(path, maxReplicas=10)
        await world.settled()
        assert world.limits(target)[:2] == ("9", "10")
        assert world.ready(path) == ("True", "BelowMinimum")


async def test_a_bad_one_can_be_deleted() -> None:
    async with World() as world:
        target, path = world.make_set(), world.make()
        await world.settled()
        world.edit(path, minReplicas=9)
        await world.settled()

        world.server.vanish(path)
        await world.settled()

        assert path not in world.server.objects
        assert world.limits(target) == (None, None, None)


async def test_what_the_server_refuses_is_told_and_tried_again_and_stops_no_other() -> None:
    async with World() as world:
        refused, other = world.make_set("a"), world.make_set("b")
        no = Forbidden("may not patch machinesets", status=403, reason="Forbidden")
        world.server.fail(no, times=3, method="PATCH", path="machinesets/a")
        one, two = world.make("one", target="a"), world.make("two", target="b")
        await asyncio.sleep(0.3)

        assert world.ready(one) == ("False", "LimitsNotSet")
        assert world.message(one) == "may not patch machinesets (403)"
        assert ("one", "FailedUpdateTarget", "may not patch machinesets (403)") in world.recorder.events
        assert (world.limits(other)[0], world.ready(two)) == ("1", READY)
        await world.settled(60)
        assert (world.limits(refused)[0], world.ready(one)) == ("1", READY)


async def test_a_webhook_that_refuses_is_not_taken_for_a_change_in_between() -> None:
    async with World() as world:
        target = world.make_set(vCPU="1")
        no = Invalid("admission webhook denied the request", status=422, reason="Invalid")
        world.server.fail(no, times=1000, method="PATCH", path="machinesets/a")
        path = world.make()
        await world.settled(60)

        assert world.message(path) == "admission webhook denied the request (422)"
        assert len(world.writes(target)) < 12


@pytest.mark.parametrize("error", [ServerError("later", status=503), None], ids=["trouble", "no answer"])
async def test_trouble_of_the_server_is_waited_out(error: Exception | None) -> None:
    async with World() as world:
        target, path = world.make_set(), world.make()
        if error is None:
            world.server.down = True
        else:
            world.server.fail(error, times=4, method="PATCH")
        await world.settled()
        world.server.down = False
        await world.settled(30)

        assert world.limits(target)[0] == "1"
        assert world.ready(path) == READY


async def test_a_server_that_cannot_be_asked_at_the_start_is_asked_again() -> None:
    world = World()
    target = world.make_set()
    world.make()
    world.server.fail(NotFound("no such resource", status=404), times=3, path=MACHINE_AUTOSCALERS.plural)
    async with world:
        await world.settled(30)
        assert world.limits(target)[0] == "1"


async def test_an_edit_between_reading_and_writing_is_not_overwritten() -> None:
    async with World() as world:
        target = world.make_set(vCPU="4")
        edited = []

        async def meanwhile(call: Any) -> None:
            if call.method == "PATCH" and call.path == target and not edited:
                edited.append(call)
                world.annotate(target, {"capacity.cluster-autoscaler.kubernetes.io/cpu": "3"})

        world.server.before = meanwhile
        path = world.make()
        await world.settled()

        assert world.annotations(target)["capacity.cluster-autoscaler.kubernetes.io/cpu"] == "3"
        assert world.limits(target) == ("1", "5", f"{NS}/ma")
        assert world.ready(path) == READY


async def test_annotations_that_nobody_reads_are_kept_too() -> None:
    """They are not in the picture: the first patch takes the object for one without any."""
    async with World() as world:
        target = world.put(MACHINE_SETS, "a", {"replicas": 1}, annotations={"example.com/note": "mine"})
        world.make()
        await world.settled()

        assert world.annotations(target)["example.com/note"] == "mine"
        assert world.limits(target) == ("1", "5", f"{NS}/ma")
        assert len(world.writes(target)) == 2


@pytest.mark.parametrize("lag", [0.0, 3.0], ids=["at once", "late"])
async def test_what_watches_show_late_changes_nothing(lag: float) -> None:
    async with World(lag=lag) as world:
        target, path = world.make_set(), world.make()
        await world.settled(30)
        world.annotate(target, {MAX: "50"})
        await world.settled(30)
        world.edit(path, maxReplicas=6)
        await world.settled(30)
        assert world.limits(target) == ("1", "6", f"{NS}/ma")
        assert [call.path for call in world.writes()].count(target) == 3

        world.server.vanish(path)
        await world.settled(30)
        assert path not in world.server.objects
        assert world.limits(target) == (None, None, None)


@pytest.mark.parametrize("after", range(1, 9))
async def test_a_process_that_is_killed_anywhere_is_gone_on_from(after: int) -> None:
    """Made, given another target, deleted: after so many writes the process dies, and the next one goes on."""
    server = World().server
    count = 0

    def killing(world: World) -> None:
        async def kill(call: Any) -> None:
            nonlocal count
            count += call.method == "PATCH"
            if count == after and call.method == "PATCH":
                world.lead = False  # it may write no more

        world.server.after = kill

    async with World(server=server) as world:
        killing(world)
        sets = [world.make_set(name) for name in "ab"]
        path = world.make(target="a")
        await world.settled()
        ref = {"apiVersion": "machine.openshift.io/v1beta1", "kind": "MachineSet", "name": "b"}
        world.edit(path, scaleTargetRef=ref)
        await world.settled()
        if world.lead:
            world.server.vanish(path)
            await world.settled()
        await world.killed()
    server.after = None

    async with World(server=server) as world:
        await world.settled()
        if path in server.objects:
            assert [world.limits(each)[2] for each in sets] == [None, f"{NS}/ma"]
            assert world.ready(path) == READY
            world.server.vanish(path)
            await world.settled()
        assert path not in server.objects
        assert [world.annotations(each) for each in sets] == [{}, {}]


async def test_a_successor_has_nothing_to_write_and_tells_nothing_again() -> None:
    async with World() as world:
        world.make_set()
        world.make("good")
        world.make("second")
        world.make("lost", target="nowhere")
        await world.settled()
        await world.killed()
    world.server.calls.clear()

    async with World(server=world.server) as successor:
        await successor.settled(60)
        assert not successor.writes()
        assert successor.recorder.events == []


async def test_what_openshifts_operator_has_left_is_taken_over_without_a_change_of_the_target() -> None:
    world = World()
    target = world.make_set()
    world.annotate(target, {MIN: "1", MAX: "5", OWNER: f"{NS}/ma"})
    last = {"apiVersion": "machine.openshift.io/v1beta1", "kind": "MachineSet", "name": "a"}
    path = world.make(finalizers=("machinetarget.autoscaling.openshift.io",), status={"lastTargetRef": last})
    async with world:
        assert [call.path for call in world.writes()] == [f"{path}/status"]
        assert world.ready(path) == READY
        world.server.vanish(path)
        await world.settled()
        assert path not in world.server.objects
        assert world.annotations(target) == {}


async def test_under_openshifts_own_definition_nothing_is_told_twice() -> None:
    """Its server drops all of the status but lastTargetRef; what else was told is in the events."""
    world = World()
    world.server.is_openshifts = True
    target, other = world.make_set("a"), world.make_set("b")
    good, second = world.make("good"), world.make("second", created="2026-11-21T12:00:00Z")
    bad = world.make("bad", low=6, target="b")
    async with world:
        world.server.calls.clear()
        assert sorted(world.recorder.reasons()) == ["FailedSetOwner", "FailedValidation", "SuccessfulUpdate"]
        for _ in range(3):
            world.annotate(target, {"example.com/x": str(world.clock.now())})
            world.annotate(other, {"example.com/x": str(world.clock.now())})
            await asyncio.sleep(LIST_EVERY)
        assert not world.writes()
        assert len(world.recorder.events) == 3
        world.annotate(target, {MAX: "50"})
        await world.settled()
        assert "which somebody had changed" in world.recorder.events[-1][2]
        assert world.status(good)["lastTargetRef"]["name"] == "a"
        assert not world.status(second)
        assert not world.status(bad)


async def test_copies_that_openshifts_operator_has_made_are_kept_right_from_then_on() -> None:
    """It leaves them as they were when the machines become larger; those that it did not make stay what they are."""
    cpu, memory = f"{CAPACITY}/cpu", f"{CAPACITY}/memory"
    world = World()
    target = world.make_set(vCPU="4", memoryMb="8192")
    world.annotate(target, {MIN: "1", MAX: "5", OWNER: f"{NS}/ma", cpu: "4", memory: "1Gi"})
    last = {"apiVersion": "machine.openshift.io/v1beta1", "kind": "MachineSet", "name": "a"}
    world.make(status={"lastTargetRef": last})
    async with world:
        world.annotate(target, {"machine.openshift.io/vCPU": "8", "machine.openshift.io/memoryMb": "16384"})
        await world.settled()
        assert (world.annotations(target)[cpu], world.annotations(target)[memory]) == ("8", "1Gi")


async def test_a_capacity_that_somebody_set_is_never_taken_for_a_copy_though_it_says_the_same() -> None:
    cpu = f"{CAPACITY}/cpu"
    async with World() as world:
        target = world.make_set(vCPU="4")
        world.annotate(target, {cpu: "4"})
        path = world.make()
        await world.settled()
        world.annotate(target, {"machine.openshift.io/vCPU": "8"})
        await world.settled()
        world.server.vanish(path)
        await world.settled()
        assert world.annotations(target) == {"machine.openshift.io/vCPU": "8", cpu: "4"}


async def test_larger_machines_are_copied_without_a_change_of_limits() -> None:
    async with World() as world:
        target, path = world.make_set(vCPU="4"), world.make()
        await world.settled()
        world.server.calls.clear()
        world.annotate(target, {"machine.openshift.io/vCPU": "8"})
        await world.settled()
        assert world.annotations(target)[f"{CAPACITY}/cpu"] == "8"
        assert [call.path for call in world.writes()] == [target]
        assert world.recorder.events[-1][2] == f"MachineSet {NS}/a: {CAPACITY}/cpu=8 (was 4)"
        assert world.ready(path) == READY


async def test_five_hundred_are_done_with_three_requests_each() -> None:
    world = World()
    for number in range(500):
        world.make_set(f"set-{number}")
        world.make(f"ma-{number}", target=f"set-{number}")
    async with world:
        assert len(world.writes()) == 1500
        assert len([call for call in world.server.calls if call.method == "GET"]) == 1


async def test_planners_are_woken_by_what_they_read_and_by_nothing_else() -> None:
    async with World() as world:
        world.make_set()
        path = world.make()
        await world.settled()
        assert world.changes == 1  # not by the finalizer, not by the status

        world.edit(path, maxReplicas=6)
        await world.settled()
        assert world.changes == 2
        world.server.vanish(path)
        await world.settled()
        assert world.changes == 4  # being deleted, and gone


async def test_at_the_end_a_request_that_is_under_way_is_waited_for() -> None:
    world = World()
    target = world.make_set()
    path = world.make()

    async def slow(call: Any) -> None:
        if call.path == target:
            await asyncio.sleep(3)

    world.server.before = slow
    async with world:
        await asyncio.sleep(0)
    assert world.limits(target) == ("1", "5", f"{NS}/ma")
    assert world.ready(path) == READY
