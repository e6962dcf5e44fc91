"""The controller of MachineAutoscalers: limits on targets, status and events."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.fixtures.golden import Golden
from tests.unit.autoscaling.machine_autoscaler_world import CAPACITY, JSON_PATCH, MAX, MIN, NS, OWNER, World
from trimtab.autoscaling.machine_autoscalers.controller import RELIST_PERIOD, SIZE_WRITE_PERIOD
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


async def test_target_gets_the_limits_and_the_status_is_ready(golden: Golden) -> None:
    async with World() as world:
        target, path = world.make_set(replicas=2), world.make(low=1, high=5)
        await world.settled()

        assert world.limits(target) == ("1", "5", f"{NS}/ma")
        assert world.ready(path) == READY
        golden(world.message(path))
        status = world.status(path)
        assert (status["observedGeneration"], status["replicas"]) == (1, 2)
        assert status["lastTargetRef"] == {
            "apiVersion": "machine.openshift.io/v1beta1",
            "kind": "MachineSet",
            "name": "a",
        }
        assert world.has_finalizer(path)


async def test_three_requests_suffice() -> None:
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


async def test_changed_limit_is_one_patch() -> None:
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
async def test_cluster_api_targets_get_annotations_with_its_prefix(resource: Resource, version: str) -> None:
    """In the version that the API server serves, whichever version the MachineAutoscaler names."""
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


async def test_manually_changed_limits_are_restored_with_an_event(golden: Golden) -> None:
    async with World() as world:
        target, path = world.make_set(), world.make()
        await world.settled()

        world.annotate(target, {MAX: "50", MIN: None})
        await world.settled()

        assert world.limits(target) == ("1", "5", f"{NS}/ma")
        name, reason, note = world.recorder.events[-1]
        assert (name, reason) == ("ma", "SuccessfulUpdate")
        golden(note)
        assert world.ready(path) == READY


async def test_restores_are_rate_limited() -> None:
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
        (7, "AboveMaximum", "its size 7 is above maxReplicas"),
        (0, "BelowMinimum", "its size 0 is below minReplicas"),
        (None, "LimitsSet", "has the limits 1 to 5"),
    ],
)
async def test_target_outside_of_its_limits_is_reported(size: int | None, ready: str, words: str) -> None:
    async with World() as world:
        target, path = world.make_set(replicas=size), world.make(low=1, high=5)
        await world.settled()

        assert world.ready(path) == ("True", ready)
        assert words in world.message(path)
        assert world.status(path)["replicas"] == (1 if size is None else size)
        assert world.server.objects[target]["spec"]["replicas"] == size


async def test_size_changes_are_written_once_settled() -> None:
    async with World() as world:
        target, path = world.make_set(replicas=1), world.make(low=0, high=50)
        await world.settled(SIZE_WRITE_PERIOD)
        world.server.calls.clear()

        for size in range(2, 22):
            world.edit(target, replicas=size)
            await asyncio.sleep(1)
        await world.settled(SIZE_WRITE_PERIOD)

        assert world.status(path)["replicas"] == 21
        assert len(world.writes()) <= 4


async def test_missing_target_is_reported_once_and_used_when_it_appears() -> None:
    async with World() as world:
        path = world.make()
        await world.settled(60)

        assert world.ready(path) == ("False", "TargetNotFound")
        wanted = f'spec.scaleTargetRef: MachineSet.machine.openshift.io "a" not found in namespace {NS}'
        assert world.message(path) == wanted
        assert world.recorder.events == [("ma", "FailedGetTarget", wanted)]
        assert len(world.writes()) == 1
        assert not world.has_finalizer(path), "there is nothing to clean up"

        target = world.make_set()
        await world.settled()
        assert world.limits(target) == ("1", "5", f"{NS}/ma")
        assert world.ready(path) == READY


async def test_recreated_target_gets_the_limits() -> None:
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


async def test_stale_caches_prevent_decisions() -> None:
    world = World()
    world.stale = "waiting for machinesets"
    path = world.make()
    async with world:
        assert not world.writes()
        world.stale = None
        await world.settled()
        assert world.ready(path) == ("False", "TargetNotFound")


async def test_follower_sends_no_requests() -> None:
    world = World()
    world.lead = False
    target, path = world.make_set(), world.make()
    async with world:
        assert not world.server.calls
        assert [each.key for each in world.controller.autoscalers.all] == [f"{NS}/ma"]
        world.lead = True
        await world.settled()
        assert (world.limits(target)[0], world.ready(path)) == ("1", READY)


async def test_losing_the_lease_between_requests_stops_writes() -> None:
    async with World() as world:

        async def lose(call: Any) -> None:
            if call.method == "PATCH":
                world.lead = False

        world.server.after = lose
        target, path = world.make_set(), world.make()
        await world.settled()

        assert [call.path for call in world.writes()] == [path]
        assert world.limits(target) == (None, None, None)


async def test_deletion_removes_the_annotations() -> None:
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


@pytest.mark.parametrize("others", [(), ("foregroundDeletion",)], ids=["only finalizer", "with another finalizer"])
async def test_only_trimtabs_finalizer_is_removed(others: tuple[str, ...]) -> None:
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


async def test_deletion_keeps_limits_of_another_owner() -> None:
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


async def test_forced_deletion_removes_the_annotations() -> None:
    """Its finalizer was removed by hand while the operator was running or not."""
    async with World() as world:
        observed, unseen = world.make_set("a"), world.make_set("b")
        paths = world.make("one", target="a"), world.make("two", target="b")
        await world.settled()
        del world.server.objects[paths[0]]["metadata"]["finalizers"]
        world.server.vanish(paths[0])
        await world.settled()
        assert world.limits(observed) == (None, None, None)
        await world.killed()
        del world.server.objects[paths[1]]

        async with World(server=world.server):
            assert world.limits(unseen) == (None, None, None)


async def test_list_is_retried_after_an_unexpected_error(monkeypatch: pytest.MonkeyPatch) -> None:
    found, requested = verbs.list_objects, []

    async def list_objects(*words: Any, **more: Any) -> Any:
        requested.append(1)
        if len(requested) < 3:
            raise ValueError("an unexpected value")
        return await found(*words, **more)

    monkeypatch.setattr(verbs, "list_objects", list_objects)
    async with World() as world:
        await asyncio.sleep(5)
        assert world.controller.synced


async def test_relist_finds_missed_deletions() -> None:
    async with World() as world:
        target, path = world.make_set(), world.make()
        await world.settled()

        del world.server.objects[path]  # without a word
        await asyncio.sleep(RELIST_PERIOD)

        assert world.controller.autoscalers.all == ()
        assert world.limits(target) == (None, None, None)


async def test_changed_target_moves_the_limits() -> None:
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


async def test_target_changed_while_not_running_is_cleaned_up() -> None:
    """From a to b, with a kill before the status write, then to c: the annotations tell the former targets."""
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


async def test_second_claim_is_refused_and_names_the_owner() -> None:
    async with World() as world:
        target, first = world.make_set(), world.make("first")
        await world.settled()
        second = world.make("second", low=2, high=9, created="2026-01-01T00:00:00Z")
        await world.settled(60)

        assert world.limits(target) == ("1", "5", f"{NS}/first")
        assert world.ready(first) == READY
        assert world.ready(second) == ("False", "TargetAlreadyOwned")
        words = f"spec.scaleTargetRef: the MachineAutoscaler {NS}/first already scales MachineSet a"
        assert world.message(second) == words
        assert world.recorder.events[-1] == ("second", "FailedSetOwner", words)
        assert world.recorder.reasons("second") == ["FailedSetOwner"]


async def test_second_claim_succeeds_after_deletion_of_the_first() -> None:
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
    ids=["older", "older regardless of name", "by name"],
)
async def test_older_of_two_existing_claims_wins(created: tuple[str, str], winner: str) -> None:
    world = World()
    target = world.make_set()
    world.make("two", created=created[1])
    world.make("one", created=created[0])
    async with world:
        assert world.limits(target)[2] == f"{NS}/{winner}"


async def test_annotation_of_a_missing_owner_is_ignored() -> None:
    world = World()
    target = world.make_set()
    world.annotate(target, {OWNER: f"{NS}/long-gone", MIN: "3", MAX: "4"})
    path = world.make()
    async with world:
        assert world.limits(target) == ("1", "5", f"{NS}/ma")
        assert world.ready(path) == READY


async def test_target_governed_by_another_object_is_refused(golden: Golden) -> None:
    async with World() as world:
        owners = [{"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "MachineDeployment", "name": "md", "uid": "u"}]
        path = CLUSTER_MACHINE_SETS.path("md-1", namespace=NS)
        metadata = {"name": "md-1", "namespace": NS, "ownerReferences": owners}
        kind = {"apiVersion": CLUSTER_MACHINE_SETS.api_version, "kind": "MachineSet"}
        world.server.put(path, {**kind, "metadata": metadata, "spec": {"replicas": 1}})
        refused = world.make(target="md-1", version="cluster.x-k8s.io/v1beta2")
        await world.settled()

        assert world.ready(refused) == ("False", "TargetUnsupported")
        golden(world.message(refused))
        assert world.recorder.reasons() == ["FailedGetTarget"]
        assert not world.annotations(path)


async def test_target_gets_the_limits_once_it_is_authoritative_again() -> None:
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
    ids=["maximum below minimum", "negative", "unknown kind"],
)
async def test_invalid_object_is_reported_and_blocks_no_other(
    given: dict[str, Any], reason: str, event: str, words: str
) -> None:
    """As OpenShift's CRD does."""
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


async def test_last_valid_limits_hold_while_a_spec_is_invalid() -> None:
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


async def test_invalid_object_can_be_deleted() -> None:
    async with World() as world:
        target, path = world.make_set(), world.make()
        await world.settled()
        world.edit(path, minReplicas=9)
        await world.settled()

        world.server.vanish(path)
        await world.settled()

        assert path not in world.server.objects
        assert world.limits(target) == (None, None, None)


async def test_refusal_of_the_api_server_is_reported_and_retried(golden: Golden) -> None:
    async with World() as world:
        refused, other = world.make_set("a"), world.make_set("b")
        no = Forbidden("may not patch machinesets", status=403, reason="Forbidden")
        world.server.fail(no, times=3, method="PATCH", path="machinesets/a")
        one, two = world.make("one", target="a"), world.make("two", target="b")
        await asyncio.sleep(0.3)

        assert world.ready(one) == ("False", "LimitsNotSet")
        golden(world.message(one))
        assert ("one", "FailedUpdateTarget", f"{no.message} ({no.status})") in world.recorder.events
        assert (world.limits(other)[0], world.ready(two)) == ("1", READY)
        await world.settled(60)
        assert (world.limits(refused)[0], world.ready(one)) == ("1", READY)


async def test_refusal_of_a_webhook_is_no_conflict(golden: Golden) -> None:
    async with World() as world:
        target = world.make_set(vCPU="1")
        no = Invalid("admission webhook denied the request", status=422, reason="Invalid")
        world.server.fail(no, times=1000, method="PATCH", path="machinesets/a")
        path = world.make()
        await world.settled(60)

        golden(world.message(path))
        assert len(world.writes(target)) < 12


@pytest.mark.parametrize("error", [ServerError("later", status=503), None], ids=["server error", "no answer"])
async def test_server_errors_are_retried(error: Exception | None) -> None:
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


async def test_failed_first_list_is_retried() -> None:
    world = World()
    target = world.make_set()
    world.make()
    world.server.fail(NotFound("no such resource", status=404), times=3, path=MACHINE_AUTOSCALERS.plural)
    async with world:
        await world.settled(30)
        assert world.limits(target)[0] == "1"


async def test_concurrent_change_is_not_overwritten() -> None:
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


async def test_unknown_annotations_are_kept() -> None:
    """The cache lacks them, so the first patch assumes an object without annotations."""
    async with World() as world:
        target = world.put(MACHINE_SETS, "a", {"replicas": 1}, annotations={"example.com/note": "mine"})
        world.make()
        await world.settled()

        assert world.annotations(target)["example.com/note"] == "mine"
        assert world.limits(target) == ("1", "5", f"{NS}/ma")
        assert len(world.writes(target)) == 2


@pytest.mark.parametrize("lag", [0.0, 3.0], ids=["at once", "late"])
async def test_late_watch_events_are_ignored(lag: float) -> None:
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
async def test_next_process_continues_after_a_kill_at_any_request(after: int) -> None:
    """Created, given another target, deleted: the process dies after some writes, and the next one continues."""
    server = World().server
    count = 0

    def killing(world: World) -> None:
        async def kill(call: Any) -> None:
            nonlocal count
            count += call.method == "PATCH"
            if count == after and call.method == "PATCH":
                world.lead = False  # it may not write any more

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


async def test_restart_writes_and_announces_nothing() -> None:
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


async def test_objects_of_openshifts_operator_are_adopted_without_a_target_change() -> None:
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


async def test_pruned_status_is_not_announced_twice(golden: Golden) -> None:
    """The API server prunes all of the status except lastTargetRef; events must not be repeated."""
    world = World()
    world.server.managed_by_openshift = True
    target, other = world.make_set("a"), world.make_set("b")
    good, second = world.make("good"), world.make("second", created="2026-11-21T12:00:00Z")
    bad = world.make("bad", low=6, target="b")
    async with world:
        world.server.calls.clear()
        assert sorted(world.recorder.reasons()) == ["FailedSetOwner", "FailedValidation", "SuccessfulUpdate"]
        for _ in range(3):
            world.annotate(target, {"example.com/x": str(world.clock.now())})
            world.annotate(other, {"example.com/x": str(world.clock.now())})
            await asyncio.sleep(RELIST_PERIOD)
        assert not world.writes()
        assert len(world.recorder.events) == 3
        world.annotate(target, {MAX: "50"})
        await world.settled()
        golden(world.recorder.events[-1][2])
        assert world.status(good)["lastTargetRef"]["name"] == "a"
        assert not world.status(second)
        assert not world.status(bad)


async def test_copies_of_openshifts_operator_are_kept_up_to_date() -> None:
    """OpenShift's operator does not update its copies when machines become larger; other annotations are kept."""
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


async def test_manual_capacity_is_not_adopted_as_a_copy() -> None:
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


async def test_capacity_change_is_copied_with_one_write() -> None:
    async with World() as world:
        target, path = world.make_set(vCPU="4"), world.make()
        await world.settled()
        world.server.calls.clear()
        world.annotate(target, {"machine.openshift.io/vCPU": "8"})
        await world.settled()
        assert world.annotations(target)[f"{CAPACITY}/cpu"] == "8"
        assert [call.path for call in world.writes()] == [target]
        assert world.recorder.events[-1][2] == f"changed annotations of MachineSet {NS}/a: {CAPACITY}/cpu=8 (was 4)"
        assert world.ready(path) == READY


async def test_500_objects_take_three_requests_each() -> None:
    world = World()
    for number in range(500):
        world.make_set(f"set-{number}")
        world.make(f"ma-{number}", target=f"set-{number}")
    async with world:
        assert len(world.writes()) == 1500
        assert len([call for call in world.server.calls if call.method == "GET"]) == 1


async def test_only_changes_that_planners_read_wake_them() -> None:
    async with World() as world:
        world.make_set()
        path = world.make()
        await world.settled()
        assert world.changes == 1  # neither by the finalizer nor by the status

        world.edit(path, maxReplicas=6)
        await world.settled()
        assert world.changes == 2
        world.server.vanish(path)
        await world.settled()
        assert world.changes == 4  # being deleted, then deleted


async def test_shutdown_waits_for_outstanding_requests() -> None:
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
