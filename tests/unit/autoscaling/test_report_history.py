"""Size changes and removals of the autoscaler in the history."""

from __future__ import annotations

import pytest

from tests.fakes.history import FakeHistory
from tests.unit.autoscaling.iteration_reports import NAMESPACE, group, grown, id_of, removal, removed, report, scale_up
from trimtab.autoscaling.actuation.removal import RemovalResult
from trimtab.autoscaling.providers import ScaleFailure, ScaleResult
from trimtab.autoscaling.report.history import MAX_PODS, AutoscalerHistory

GROUP = f"{NAMESPACE}/a"


def test_scale_ups_are_recorded_with_sizes_and_pods() -> None:
    history, pods = FakeHistory(), tuple(f"shop/web-{number:03}" for number in range(50))
    failure = next(iter(ScaleFailure))
    outcomes = [grown(scale_up(pods=pods)), grown(scale_up(), failure=failure, message="quota")]
    AutoscalerHistory(history).report(report(group(), scale_up_outcomes=outcomes))
    first, second = history.entries
    assert (first.action, first.result, first.reason) == ("ScaleUp", "Succeeded", "PendingPods")
    assert (first.node_group, first.from_size, first.to_size) == (GROUP, 2, 4)
    assert first.pods == pods[:MAX_PODS]
    assert (second.result, second.result_reason, second.result_message) == ("Failed", str(failure), "quota")


@pytest.mark.parametrize(("to", "action"), [(1, "ScaleDown"), (3, "ScaleUp")])
def test_corrections_of_sizes_are_recorded(to: int, action: str) -> None:
    history = FakeHistory()
    AutoscalerHistory(history).report(report(group(), size_corrections=[ScaleResult(id_of("a"), 2, to)]))
    [entry] = history.entries
    assert (entry.action, entry.node_group, entry.from_size, entry.to_size) == (action, GROUP, 2, to)


def test_removals_are_recorded_when_they_start_and_end() -> None:
    history = FakeHistory()
    recorded = AutoscalerHistory(history)
    recorded.report(report(group()))
    recorded.began(removal())
    recorded.began(removal(resumed=True))
    recorded.ended(removed(evicted={"shop/web-1": "uid"}))
    started, ended = history.entries
    assert (started.action, started.result, started.reason) == ("RemoveNode", "Started", "Underutilized")
    assert (ended.result, ended.node, ended.node_group, ended.pods) == ("Succeeded", "a-0", GROUP, ("shop/web-1",))


def test_cordon_of_a_removal_is_recorded_after_its_start() -> None:
    history = FakeHistory()
    AutoscalerHistory(history).began(removal(cordoned=True))
    started, cordon = history.entries
    assert started.action == "RemoveNode"
    assert (cordon.action, cordon.reason, cordon.result) == ("Cordon", "Underutilized", "Succeeded")
    assert (cordon.node, cordon.uid, cordon.time) == (started.node, started.uid, started.time)


@pytest.mark.parametrize(("result", "expected"), [(RemovalResult.FAILED, "Failed"), (RemovalResult.ABORTED, "Refused")])
def test_nodes_that_are_kept_have_the_reason(result: RemovalResult, expected: str) -> None:
    history = FakeHistory()
    AutoscalerHistory(history).ended(removed(result=result, reason="NotEnoughPdb", message="pod shop/web-1"))
    [entry] = history.entries
    assert (entry.result, entry.reason, entry.result_reason) == (expected, "Underutilized", "NotEnoughPdb")


def test_nodes_that_were_cleaned_up_are_recorded() -> None:
    history = FakeHistory()
    AutoscalerHistory(history).report(report(group(), cleaned_nodes={"a-0": "uid-of-a-0"}))
    [entry] = history.entries
    assert (entry.action, entry.node, entry.uid) == ("Untaint", "a-0", "uid-of-a-0")
