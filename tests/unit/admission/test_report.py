"""The status of the PlacementAdmission: counts of several replicas, lost responses, conditions, stale replicas."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.fakes.api import Call, FakeApi
from tests.fakes.clock import START, LoopClock
from tests.fakes.recorder import FakeRecorder
from tests.placement_admissions import placement_admission
from trimtab.admission.report import (
    HEARTBEAT,
    WRITE_PERIOD,
    AdmissionReporter,
    Health,
    RequestOutcome,
    configured_rules,
    read_placement_status,
)
from trimtab.api import reasons
from trimtab.api.conditions import DEGRADED, READY, find_condition
from trimtab.api.decode import decode_placement_admission
from trimtab.api.placement_admission import MAX_REFUSALS, REPLICA_TIMEOUT, PlacementAdmissionStatus, Result, RuleName
from trimtab.kube.api import Forbidden, ServerError, Unreachable
from trimtab.kube.resources import PLACEMENT_ADMISSIONS

pytestmark = pytest.mark.looptime(start=0)

PATH = PLACEMENT_ADMISSIONS.path("default")
FINE = Health(registered=True, certificate_expires=START + 86400)
SPEC = "{podNodeConstraints: {}, podNodeSelector: {}}"


def outcome(
    results: Mapping[RuleName, Result], refusals: tuple[tuple[RuleName, str], ...] = (), **values: Any
) -> RequestOutcome:
    named = {"kind": "Pod", "namespace": "shop", "name": "web"} | values
    return RequestOutcome(results=results, refusals=refusals, **named)


ALLOWED = outcome(results={"PodNodeConstraints": "Allowed", "PodNodeSelector": "Allowed"})
CHANGED = outcome(results={"PodNodeSelector": "Mutated"})
REFUSED = outcome(
    results={"PodNodeConstraints": "Refused", "PodNodeSelector": "Allowed"},
    refusals=(("PodNodeConstraints", "node selection by nodeName is prohibited by policy for your role"),),
)
WARNED = outcome(results={"PodNodeConstraints": "Warned"}, refusals=(("PodNodeConstraints", "prohibited"),))


class Setup:
    """An API server with a PlacementAdmission, and replicas that report to it."""

    def __init__(self, spec: str = SPEC) -> None:
        self.api = FakeApi()
        self.recorder = FakeRecorder()
        self.clock = LoopClock()
        self.health: dict[str, Health] = {}
        self.store(spec)

    def store(self, spec: str, *, generation: int = 1) -> None:
        kept = {key: self.api.objects[PATH][key] for key in ("metadata", "status") if PATH in self.api.objects}
        manifest = {**placement_admission(spec), **kept}
        manifest["metadata"] = {**manifest["metadata"], "generation": generation}
        self.api.put(PATH, manifest)

    @asynccontextmanager
    async def replica(self, name: str = "a") -> AsyncIterator[AdmissionReporter]:
        self.health.setdefault(name, FINE)
        reporter = AdmissionReporter(
            self.api, self.recorder, self.clock, replica=name, health=lambda: self.health[name]
        )
        task = asyncio.create_task(reporter.run())
        yield reporter
        reporter.close()
        await task
        await reporter.stop()

    @property
    def status(self) -> PlacementAdmissionStatus:
        return read_placement_status(self.api.objects[PATH].get("status", {}))

    @property
    def counts(self) -> dict[tuple[str, str], int]:
        return {(each.rule, each.result): each.count for each in self.status.counts}

    def condition(self, type_: str) -> tuple[str, str, str]:
        found = find_condition(self.status.conditions, type_)
        assert found is not None
        return found.status, found.reason, found.message

    @property
    def writes(self) -> int:
        return len(self.api.sent("PATCH"))


async def test_counts_and_totals_are_added_up() -> None:
    setup = Setup()
    async with setup.replica() as reporter:
        for outcome in (ALLOWED, ALLOWED, CHANGED, REFUSED, WARNED):
            reporter.record(outcome)
        await asyncio.sleep(WRITE_PERIOD + 1)

        assert setup.counts == {
            ("PodNodeConstraints", "Allowed"): 2,
            ("PodNodeConstraints", "Refused"): 1,
            ("PodNodeConstraints", "Warned"): 1,
            ("PodNodeSelector", "Allowed"): 3,
            ("PodNodeSelector", "Mutated"): 1,
        }
        assert (setup.status.mutated, setup.status.refused) == (1, 1)
        [refusal] = setup.status.recent_refusals
        assert (refusal.rule, refusal.kind, refusal.namespace, refusal.name) == (
            "PodNodeConstraints",
            "Pod",
            "shop",
            "web",
        )
        assert refusal.message == REFUSED.refusals[0][1]


async def test_replicas_add_to_the_same_counts_without_losing_any() -> None:
    setup = Setup()
    async with setup.replica("a") as a, setup.replica("b") as b:

        async def interleave(call: Call) -> None:
            if call.method == "GET":
                await asyncio.sleep(0.01)  # the other replica writes between the read and the write

        setup.api.before = interleave
        for _ in range(20):
            for reporter in (a, b):
                for _ in range(5):
                    reporter.record(CHANGED)
                reporter.wake()
            await asyncio.sleep(1.5)
        assert {each.name for each in setup.status.replicas} == {"a", "b"}
    assert setup.counts == {("PodNodeSelector", "Mutated"): 200}
    assert setup.status.mutated == 200
    assert setup.status.replicas == ()


@pytest.mark.parametrize("written", [False, True])
@pytest.mark.parametrize(
    "error", [Unreachable("lost"), ServerError("gone", status=504)], ids=lambda e: type(e).__name__
)
async def test_lost_response_counts_no_request_twice_and_loses_none(error: Exception, *, written: bool) -> None:
    setup = Setup()
    async with setup.replica() as reporter:
        await asyncio.sleep(2)
        lost = False

        async def lose(call: Call) -> None:
            nonlocal lost
            if call.method == "PATCH" and not lost:
                lost = True
                raise error

        if written:
            setup.api.after = lose
        else:
            setup.api.before = lose
        reporter.record(CHANGED)
        await asyncio.sleep(WRITE_PERIOD)
        assert lost
        reporter.record(CHANGED)
        reporter.record(REFUSED)
        await asyncio.sleep(2 * WRITE_PERIOD)

        assert setup.counts["PodNodeSelector", "Mutated"] == 2
        assert (setup.status.mutated, setup.status.refused, len(setup.status.recent_refusals)) == (2, 1, 1)


async def test_counts_survive_an_outage_of_the_api_server() -> None:
    setup = Setup()
    async with setup.replica() as reporter:
        await asyncio.sleep(2)
        setup.api.down = True
        for _ in range(100):
            reporter.record(CHANGED)
            await asyncio.sleep(7)
        setup.api.down = False
        await asyncio.sleep(70)
        assert setup.counts == {("PodNodeSelector", "Mutated"): 100}


async def test_missing_permission_does_not_end_the_loop() -> None:
    setup = Setup()
    setup.api.fail(Forbidden("no", status=403), times=3, method="PATCH")
    async with setup.replica() as reporter:
        reporter.record(CHANGED)
        await asyncio.sleep(120)
        assert setup.counts == {("PodNodeSelector", "Mutated"): 1}


async def test_busy_replica_writes_at_most_once_in_ten_seconds() -> None:
    setup = Setup()
    async with setup.replica() as reporter:
        for _ in range(1000):
            reporter.record(CHANGED)
            await asyncio.sleep(0.1)
        assert setup.writes <= 100 / WRITE_PERIOD + 1


async def test_idle_replica_only_writes_its_heartbeat() -> None:
    setup = Setup()
    async with setup.replica():
        await asyncio.sleep(10 * HEARTBEAT)
        assert 8 <= setup.writes <= 11
        [replica] = setup.status.replicas
        assert setup.clock.now() - replica.last_seen.timestamp() <= HEARTBEAT + WRITE_PERIOD


async def test_only_the_last_refusals_are_kept_the_latest_first() -> None:
    setup = Setup()
    async with setup.replica() as reporter:
        for number in range(3 * MAX_REFUSALS):
            reporter.record(
                outcome(
                    results={"DedicatedNodes": "Refused"}, refusals=(("DedicatedNodes", "m" * 5000),), name=f"p{number}"
                )
            )
            await asyncio.sleep(1)
        await asyncio.sleep(WRITE_PERIOD)
        names = [each.name for each in setup.status.recent_refusals]
        assert names == [f"p{number}" for number in range(3 * MAX_REFUSALS - 1, 2 * MAX_REFUSALS - 1, -1)]
        assert len(setup.status.recent_refusals[0].message) <= 1024


async def test_replica_that_stops_leaves_and_one_that_is_killed_is_removed_later() -> None:
    setup = Setup()
    async with setup.replica("a"):
        killed = AdmissionReporter(setup.api, setup.recorder, setup.clock, replica="b", health=lambda: FINE)
        task = asyncio.create_task(killed.run())
        async with setup.replica("c"):
            await asyncio.sleep(5)
            assert [each.name for each in setup.status.replicas] == ["a", "b", "c"]
        assert [each.name for each in setup.status.replicas] == ["a", "b"]
        task.cancel()
        await asyncio.sleep(REPLICA_TIMEOUT - HEARTBEAT)
        assert [each.name for each in setup.status.replicas] == ["a", "b"]
        await asyncio.sleep(2 * HEARTBEAT)
        assert [each.name for each in setup.status.replicas] == ["a"]


async def test_last_replica_that_stops_reports_that_none_is_left() -> None:
    setup = Setup()
    async with setup.replica("a"):
        async with setup.replica("b"):
            await asyncio.sleep(5)
        assert setup.condition(READY)[0] == "True"
    assert setup.condition(READY)[:2] == ("False", reasons.NO_REPLICA)
    assert setup.condition(DEGRADED)[:2] == ("True", reasons.NO_REPLICA)
    assert setup.status.replicas == ()
    assert setup.recorder.take() == [], "a shutdown is no reason for an event"
    async with setup.replica("c"):
        await asyncio.sleep(1)
        assert setup.condition(READY)[:2] == ("True", reasons.ENFORCING)
        assert setup.condition(DEGRADED)[:2] == ("False", reasons.ALL_WELL)


async def test_replica_that_stops_after_another_was_killed_is_the_last_one() -> None:
    setup = Setup()
    async with setup.replica("a"):
        killed = AdmissionReporter(setup.api, setup.recorder, setup.clock, replica="b", health=lambda: FINE)
        task = asyncio.create_task(killed.run())
        await asyncio.sleep(5)
        task.cancel()
        await asyncio.sleep(REPLICA_TIMEOUT)
    assert setup.condition(READY)[:2] == ("False", reasons.NO_REPLICA)


async def test_valid_and_registered_rules_are_ready() -> None:
    setup = Setup()
    async with setup.replica():
        await asyncio.sleep(1)
        assert setup.condition(READY) == ("True", reasons.ENFORCING, "PodNodeConstraints, PodNodeSelector")
        assert setup.condition(DEGRADED)[:2] == ("False", reasons.ALL_WELL)
        assert setup.status.observed_generation == 1
        assert setup.status.replicas[0].certificate_expires is not None
        setup.store("{mode: Warn, podNodeConstraints: {}}", generation=2)
        await asyncio.sleep(HEARTBEAT + WRITE_PERIOD)
        assert setup.condition(READY)[:2] == ("True", reasons.WARNING_ONLY)
        assert setup.status.observed_generation == 2
    assert setup.recorder.take() == []


async def test_missing_webhooks_are_reported_within_a_second() -> None:
    setup = Setup()
    setup.health["a"] = Health(registered=False, not_registered="no certificate")
    async with setup.replica() as reporter:
        await asyncio.sleep(1)
        assert setup.condition(READY) == ("False", reasons.WEBHOOKS_NOT_REGISTERED, "no certificate")
        setup.health["a"] = FINE
        reporter.wake()
        await asyncio.sleep(1.1)
        assert setup.condition(READY)[0] == "True"


async def test_problem_of_one_replica_is_reported_by_all_and_as_one_event() -> None:
    setup = Setup()
    setup.health["b"] = Health(registered=True, problem="Secret certificate: tls.key does not match")
    async with setup.replica("a") as a, setup.replica("b"):
        await asyncio.sleep(5)
        a.wake()
        await asyncio.sleep(2 * HEARTBEAT)
        expected = ("True", reasons.REPLICA_DEGRADED, "replica b: Secret certificate: tls.key does not match")
        assert setup.condition(DEGRADED) == expected
        assert setup.condition(READY)[0] == "True"
        [(about, reason, note)] = setup.recorder.take()
        assert (reason, note) == expected[1:]
        assert "PlacementAdmission" in about
        setup.health["b"] = FINE
        await asyncio.sleep(WRITE_PERIOD + 1)
        assert setup.condition(DEGRADED)[0] == "False"


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ("{dedicatedNodes: {pools: [{name: a, taint: {key: a}}]}}", "spec.dedicatedNodes.pools[0]"),
        ("{mode: Audit}", "spec.mode"),
    ],
)
async def test_invalid_object_is_reported_with_its_field_and_as_one_event(spec: str, field: str) -> None:
    setup = Setup(spec)
    async with setup.replica("a"), setup.replica("b"):
        await asyncio.sleep(2 * HEARTBEAT)
        for type_, status in ((READY, "False"), (DEGRADED, "True")):
            found = setup.condition(type_)
            assert found[:2] == (status, reasons.INVALID_PLACEMENT_ADMISSION)
            assert field in found[2]
        assert [reason for _, reason, _ in setup.recorder.take()] == [reasons.INVALID_PLACEMENT_ADMISSION]
        setup.store(SPEC, generation=2)
        await asyncio.sleep(HEARTBEAT + WRITE_PERIOD)
        assert setup.condition(READY)[0] == "True"


async def test_counts_of_a_deleted_object_are_not_added_to_the_next_one() -> None:
    setup = Setup()
    async with setup.replica() as reporter:
        reporter.record(CHANGED)
        await asyncio.sleep(WRITE_PERIOD + 1)
        del setup.api.objects[PATH]
        reporter.record(CHANGED)
        await asyncio.sleep(WRITE_PERIOD + 1)
        setup.store(SPEC)
        reporter.record(REFUSED)
        await asyncio.sleep(2 * HEARTBEAT)
        assert setup.counts == {("PodNodeConstraints", "Refused"): 1, ("PodNodeSelector", "Allowed"): 1}


async def test_invalid_status_is_replaced() -> None:
    setup = Setup()
    setup.api.objects[PATH]["status"] = {"counts": 3}
    async with setup.replica() as reporter:
        reporter.record(CHANGED)
        await asyncio.sleep(WRITE_PERIOD + 1)
        assert setup.counts == {("PodNodeSelector", "Mutated"): 1}


def test_configured_rules_are_those_of_the_api() -> None:
    from tests.placement_admissions import EVERYTHING

    spec = decode_placement_admission(placement_admission(EVERYTHING)).spec
    assert configured_rules(spec) == (
        "PodNodeConstraints",
        "PodNodeSelector",
        "DefaultTolerationSeconds",
        "PodTolerationRestriction",
        "ExtendedResourceToleration",
        "DedicatedNodes",
        "SpecialHardware",
    )
    assert configured_rules(decode_placement_admission(placement_admission("{}")).spec) == ()
