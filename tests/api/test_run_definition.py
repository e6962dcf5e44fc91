"""DeschedulingRun on a real API server: who may change which field when, and the printer columns."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from tests.fixtures.crds import MERGE, table_rows
from tests.fixtures.crds import client as client
from tests.unit.descheduling.runs.runs import NOW, kept, made, move, policy
from trimtab.api.base import status_patch
from trimtab.api.descheduling_run import DeschedulingRunStatus
from trimtab.descheduling.runs import lifecycle
from trimtab.descheduling.runs.lifecycle import RunEnding, read_run
from trimtab.descheduling.runs.record import manifest, run_plan
from trimtab.disruption.outcome import EVICTED, Outcome
from trimtab.kube.api import Invalid
from trimtab.kube.resources import DESCHEDULING_RUNS as RUNS
from trimtab_local.client import Client

NAME = "default-20261120-120000"


def body(mode: str = "Approve", moves: int = 2) -> dict[str, Any]:
    actions = [move(f"web-{index}") for index in range(moves)]
    plan = run_plan(policy(mode), made(*actions, kept=[kept("db-0")]), nodes=2, pods=9)
    document = manifest(NAME, plan)
    # The garbage collector would take a run away whose policy is not there.
    return {"apiVersion": RUNS.api_version, "kind": RUNS.kind, **document, "metadata": {"name": NAME}}


class Run:
    """A run in the API server."""

    def __init__(self, client: Client, document: dict[str, Any]) -> None:
        self.client = client
        self.created = client.request("POST", RUNS.path(), document, params={"fieldValidation": "Strict"})

    def report(self, status: DeschedulingRunStatus) -> Any:
        path = RUNS.path(NAME, subresource="status")
        return self.client.request("PATCH", path, {"status": status_patch(status)}, content_type=MERGE)

    def first(self) -> DeschedulingRunStatus:
        run = read_run(self.created)
        assert run is not None
        return lifecycle.initial_status(run.plan, now=NOW)

    def patch(self, spec: dict[str, Any]) -> Any:
        return self.client.request("PATCH", RUNS.path(NAME), {"spec": spec}, content_type=MERGE)


@pytest.fixture
def write(client: Client) -> Iterator[Any]:
    yield lambda *arguments, **fields: Run(client, body(*arguments, **fields))
    client.request("DELETE", RUNS.path(NAME))


def test_run_round_trips(write: Any) -> None:
    run = write()
    found = read_run(run.created)
    assert found is not None
    sent, stored = (msgspec.convert(each["spec"]["plan"], type(found.plan)) for each in (body(), run.created))
    assert stored == sent
    assert found.plan == msgspec.structs.replace(sent, kept_pods=())  # the operator does not read them again
    assert not found.approved
    assert found.status == DeschedulingRunStatus()


def test_pending_run_can_be_approved_once(write: Any) -> None:
    run = write()
    run.report(run.first())
    assert run.patch({"approved": True})["spec"]["approved"] is True
    with pytest.raises(Invalid, match="an approval cannot be taken back"):
        run.patch({"approved": False})
    with pytest.raises(Invalid, match="cannot be taken back"):
        run.patch({"approved": None})


def test_run_cannot_be_created_approved(client: Client) -> None:
    document = body()
    document["spec"]["approved"] = True
    document["status"] = {"phase": "Pending"}
    with pytest.raises(Invalid, match="cannot be approved before"):
        client.request("POST", RUNS.path(), document)


@pytest.mark.parametrize("phase", ["Acting", "Completed", "Expired", "Interrupted", "Simulated", None])
def test_only_a_pending_run_can_be_approved(write: Any, phase: str | None) -> None:
    run = write()
    if phase is not None:
        run.report(DeschedulingRunStatus(phase=phase))  # type: ignore[arg-type]
    with pytest.raises(Invalid, match=r"can(not)? be approved"):
        run.patch({"approved": True})


@pytest.mark.parametrize(("mode", "moves"), [("Simulate", 1), ("Act", 1), ("Approve", 0)])
def test_run_without_actions_cannot_be_approved(write: Any, mode: str, moves: int) -> None:
    run = write(mode, moves=moves)
    run.report(DeschedulingRunStatus(phase="Pending"))
    with pytest.raises(Invalid, match="there is nothing to approve"):
        run.patch({"approved": True})


CHANGES = {
    "an action more": lambda plan: plan["actions"].append({**plan["actions"][0], "pod": "bank-0"}),
    "an action less": lambda plan: plan["actions"].pop(),
    "no actions": lambda plan: plan.pop("actions"),
    "another pod": lambda plan: plan["actions"][0].update(uid="other"),
    "a later deadline": lambda plan: plan.update(approveUntil="2030-01-01T00:00:00Z"),
    "no deadline": lambda plan: plan.pop("approveUntil"),
    "another policy": lambda plan: plan.update(policyUid="other"),
    "another mode": lambda plan: plan.update(mode="Act"),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
@pytest.mark.parametrize("approving", [False, True], ids=["alone", "with an approval"])
def test_plan_of_a_run_is_immutable(write: Any, change: Any, approving: bool) -> None:
    run = write()
    document = copy.deepcopy(run.report(run.first()))
    change(document["spec"]["plan"])
    document["spec"]["approved"] = approving
    with pytest.raises(Invalid, match="a plan cannot be changed"):
        run.client.request("PUT", RUNS.path(NAME), document)


def test_plan_of_a_run_cannot_be_removed(write: Any) -> None:
    run = write()
    with pytest.raises(Invalid, match=r"spec\.plan: Required"):
        run.patch({"plan": None})


def test_approval_cannot_change_the_status(write: Any) -> None:
    run = write()
    run.report(run.first())
    patch = {"spec": {"approved": True}, "status": {"phase": "Completed", "evicted": 9}}
    response = run.client.request("PATCH", RUNS.path(NAME), patch, content_type=MERGE)
    assert (response["status"]["phase"], response["status"]["evicted"]) == ("Pending", 0)


def test_status_of_an_approved_run_can_change(write: Any) -> None:
    run = write()
    status = run.first()
    run.report(status)
    run.patch({"approved": True})
    status = lifecycle.mark_approved(status, now=NOW + 60)
    outcome = Outcome(move("web-0"), EVICTED, "Evicted", "granted", NOW + 61)
    for step in (
        status,
        noted := lifecycle.add_outcomes(status, [outcome], shown={"uid-web-0", "uid-web-1"}),
        lifecycle.mark_ended(noted, RunEnding("Expired", "Superseded", "run x is newer"), now=NOW + 70),
        lifecycle.mark_completed(noted, now=NOW + 70),
    ):
        written = run.report(step)
        assert msgspec.convert(written["status"], DeschedulingRunStatus) == step
        assert written["spec"]["approved"] is True


def test_run_of_maximum_size_is_accepted(client: Client) -> None:
    long = "x" * 250
    moves = [
        move(f"{index:03}{long}", node=long, target=long, message="ü" * 900, uid=f"{index:064}") for index in range(800)
    ]
    plan = run_plan(policy(), made(*moves, kept=[kept(long, message="ü" * 900)] * 800), nodes=1, pods=1)
    document = {**body(), "spec": manifest(NAME, plan)["spec"]}
    run = Run(client, document)
    known = [Outcome(action, "Skipped", "R" * 128, "ü" * 900, NOW) for action in moves]
    shown = {action.uid for action in plan.actions}
    status = lifecycle.add_outcomes(lifecycle.mark_approved(run.first(), now=NOW), known, shown=shown)
    run.report(run.first())
    run.patch({"approved": True})
    written = run.report(status)
    assert len(written["status"]["outcomes"]) == len(plan.actions)
    assert written["status"]["skipped"] == 800
    client.request("DELETE", RUNS.path(NAME))


def test_printer_columns_show_policy_mode_phase_and_counts(write: Any) -> None:
    run = write()
    run.report(lifecycle.add_outcomes(run.first(), [Outcome(move("web-0"), EVICTED, "Evicted", "", NOW)], shown=set()))
    [row] = table_rows(run.client, RUNS.path(NAME))
    assert list(row) == ["Name", "Policy", "Mode", "Phase", "Actions", "Evicted", "Kept", "Age"]
    assert list(row.values())[:7] == [NAME, "default", "Approve", "Pending", 2, 1, 1]


def test_the_short_name_is_dr(client: Client) -> None:
    resources = client.request("GET", "/apis/trimtab.dev/v1alpha1")["resources"]
    [found] = [each for each in resources if each["name"] == "deschedulingruns"]
    assert (found["shortNames"], found["categories"]) == (["dr"], ["trimtab"])
