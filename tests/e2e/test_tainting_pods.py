"""NoExecute taints that users add: pods are deleted at their deadlines despite kills, rejections and changes."""

from __future__ import annotations

import itertools
import secrets
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.fixtures.audit import OPERATOR, Audit, credential
from tests.fixtures.clusters import require_local_cluster
from tests.fixtures.taint_scenarios import (
    ATTEMPTS,
    CASES,
    ENDPOINTS,
    EXTENDED_SECONDS,
    KEY,
    LONG_SECONDS,
    MAINTENANCE,
    MARGIN,
    MAXIMUM_WAIT,
    OTHER,
    PATIENT_SECONDS,
    REJECTION,
    REMOVED_SECONDS,
    STATEFUL_SECONDS,
    ScenarioResult,
    attempts,
    run_scenarios,
)
from tests.fixtures.tainting import LATE, TaintStage, at, taint_settings, taint_stage
from tests.fixtures.webhooks import Gate, webhook
from trimtab_local.cluster import LocalCluster
from trimtab_local.versions import APISERVER


@pytest.fixture(scope="module")
def stage(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TaintStage]:
    """A node for each case, and one that the operator ignores."""
    require_local_cluster(request, "these tests need a control plane without the node lifecycle, and its audit log")
    audit = Audit(tmp_path_factory.mktemp("audit"))
    cluster: LocalCluster = request.getfixturevalue("make_cluster")(taint_settings(audit), nodes=0)
    with taint_stage(cluster, f"pods-{secrets.token_hex(4)}", audit, tmp_path_factory.mktemp("logs")) as stage:
        for name in (*CASES, "server", "two"):
            stage.nodes("zone-a", name, labels={"case": name})
        stage.nodes("zone-b", "untainted")
        stage.write(taints=[{"key": MAINTENANCE, "policy": "Evict", "maximumWait": f"{MAXIMUM_WAIT}s"}])
        stage.operate()
        stage.until_ready()
        yield stage


@pytest.fixture(scope="module")
def result(stage: TaintStage) -> ScenarioResult:
    """All cases, run concurrently in 40 seconds."""
    return run_scenarios(stage)


def assert_in_time(moment: float, due: float) -> None:
    assert due <= moment <= due + LATE, f"due {due:.3f}, went {moment - due:+.3f} s"


def test_pod_without_toleration_is_deleted_at_once(result: ScenarioResult) -> None:
    assert_in_time(result.end("kill-at-once"), result.since["kill"])


@pytest.mark.parametrize("pod", ["kill", "no-time-added"])
def test_restarted_operator_reports_the_same_deadline(pod: str, result: ScenarioResult) -> None:
    """Times in the status and in the annotation of a node are whole seconds."""
    before, after = result.deadlines
    assert abs(after[pod] - before[pod]) <= 2.0
    assert result.restarted - result.since[pod] > 2.0, "a deadline that counts from the restart would be later"


def test_deadline_survives_a_kill(result: ScenarioResult) -> None:
    assert_in_time(result.end("kill"), max(result.since["kill"] + LONG_SECONDS, result.restarted))


def test_deadline_of_a_taint_without_time_added_survives_a_kill(stage: TaintStage, result: ScenarioResult) -> None:
    assert KEY in result.annotation
    assert_in_time(result.end("no-time-added"), max(result.since["no-time-added"] + LONG_SECONDS, result.restarted))


def test_extended_toleration_applies(result: ScenarioResult) -> None:
    assert_in_time(result.end("lengthen"), result.since["lengthen"] + EXTENDED_SECONDS)


def test_shortened_toleration_applies(result: ScenarioResult) -> None:
    """The toleration may be changed later than it ends by then."""
    end = result.end("shorten")
    assert result.since["shorten"] + 6 <= end < result.since["shorten"] + PATIENT_SECONDS


def test_second_taint_with_shorter_toleration_applies(result: ScenarioResult) -> None:
    assert_in_time(result.end("second"), result.since["second-taint"] + 4)


def test_removing_the_second_taint_restores_the_first_deadline(result: ScenarioResult) -> None:
    assert_in_time(result.end("removed"), result.since["removed"] + REMOVED_SECONDS)


def test_taint_with_a_future_time_counts_from_its_observation(result: ScenarioResult) -> None:
    assert_in_time(result.end("ahead"), result.since["ahead"] + 5)


def test_taint_with_a_past_time_is_overdue_at_once(result: ScenarioResult) -> None:
    """The pod was on the node for longer than its toleration lasts."""
    assert_in_time(result.end("behind"), result.since["behind"])


@pytest.mark.parametrize("pod", ["kill-never", "order-finite-first", "order-infinite-first", "cancel", "untainted"])
def test_tolerating_pod_is_not_deleted(pod: str, result: ScenarioResult) -> None:
    """It tolerates the taint without limit, or the taint was removed in time, or it is on another node."""
    assert pod not in result.ends
    assert result.remaining[pod]["metadata"]["uid"] == result.initial_uids[pod]


def test_succeeded_pod_is_not_deleted(result: ScenarioResult) -> None:
    assert result.remaining["succeeded"]["status"]["phase"] == "Succeeded"


def test_recreated_node_of_the_same_name_has_no_deadlines(result: ScenarioResult) -> None:
    """The deletion of the node ended its taints."""
    assert "recreated-node" not in result.ends
    assert "recreated-node" in result.remaining


def test_recreated_pod_of_the_same_name_has_its_own_deadline(stage: TaintStage, result: ScenarioResult) -> None:
    """A StatefulSet creates it on the node that is still tainted."""
    ends = result.ends["statefulset-0"]
    assert len(ends) >= 2
    assert len({each.uid for each in ends}) == len(ends)
    assert_in_time(ends[0].at, result.since["statefulset"] + STATEFUL_SECONDS)
    for before, after in itertools.pairwise(ends):
        assert before.at + STATEFUL_SECONDS <= after.at + 1.0, "times of pods are whole seconds"
        assert after.at <= before.at + STATEFUL_SECONDS + LATE, "the pod ends and is recreated in between"
    last = result.remaining["statefulset-0"]["metadata"]["uid"]
    assert last not in {each.uid for each in ends}


def test_deletion_rejected_by_a_webhook_is_retried_until_granted(result: ScenarioResult) -> None:
    [end] = result.ends["refused"]
    assert result.opened <= end.at


def test_status_names_the_rejecting_webhook(result: ScenarioResult) -> None:
    [reported] = [each for each in result.status["refused"] if each["pod"] == "refused"]
    assert "rejecter.test.trimtab.dev" in reported["message"]
    assert REJECTION in reported["message"]
    assert reported["attempts"] >= 2


def test_rejected_deletions_are_retried_with_backoff(stage: TaintStage, result: ScenarioResult) -> None:
    tried = [at(each) for each in attempts(stage) if at(each) < result.opened]
    assert len(tried) >= ATTEMPTS
    # The longest pause is 5 s. Both processes begin with short ones.
    assert len(tried) <= 20 + (max(tried) - min(tried)) / 2


def test_evict_policy_respects_the_budget_until_maximum_wait(result: ScenarioResult) -> None:
    due = result.since["evict"] + 3
    tried = [moment for moment, pod, granted in result.evictions if pod == "evict-held" and not granted]
    assert tried
    assert_in_time(min(tried), due)
    [end] = result.ends["evict-held"]
    assert end.how == "delete"
    assert_in_time(end.at, due + MAXIMUM_WAIT)


def test_pod_without_budget_is_evicted_at_its_deadline(result: ScenarioResult) -> None:
    [end] = result.ends["evict-free"]
    assert end.how == "evict"
    assert_in_time(end.at, result.since["evict"] + 3)


def test_every_pod_is_deleted_once_and_by_uid(result: ScenarioResult) -> None:
    assert {pod: ends for pod, ends in result.ends.items() if pod != "statefulset-0" and len(ends) > 1} == {}
    assert [each for ends in result.ends.values() for each in ends if not each.uid] == []
    assert {
        pod
        for pod, ends in result.ends.items()
        if pod in result.initial_uids and ends[0].uid != result.initial_uids[pod]
    } == set()


def test_deletion_sets_disruption_target_and_emits_an_event(stage: TaintStage, result: ScenarioResult) -> None:
    reasons = {
        (asked.object_ref.name, condition["reason"])
        for asked in stage.audit.ours("pods/status", granted=True)
        for condition in conditions(asked.request_object)
        if condition.get("type") == "DisruptionTarget"
    }
    assert ("kill", "DeletionByTaintManager") in reasons
    assert stage.events("TaintManagerEviction", about="kill")


def conditions(body: Any) -> list[dict[str, Any]]:
    """The conditions that a status patch of any format writes."""
    if isinstance(body, dict):
        return list(body.get("status", {}).get("conditions") or ())
    values = [each.get("value") for each in body or () if each["op"] == "add"]
    return [
        each for value in values for each in (value if isinstance(value, list) else [value]) if isinstance(each, dict)
    ]


def test_node_annotation_is_removed_with_its_taint(stage: TaintStage, result: ScenarioResult) -> None:
    stage.untaint("no-time-added", KEY)
    stage.until(lambda: not stage.taint_times("no-time-added"), "the annotation is removed")


def test_observe_mode_pauses_deletions_and_keeps_taint_times(stage: TaintStage, result: ScenarioResult) -> None:
    """From TaintAndEvict to Observe during a toleration, and back."""
    stage.untaint("succeeded", KEY)
    stage.pod("time-added-2", "succeeded", {KEY: MARGIN})
    stage.pod("no-time-added-2", "recreated-node", {OTHER: MARGIN})
    stage.until_running()
    stage.taint("succeeded", KEY)
    stage.taint("recreated-node", OTHER, with_time=False)
    try:
        stage.until(lambda: stage.taint_times("recreated-node"), "the annotation is written")
        stage.change(mode="Observe")
        stage.until(lambda: not stage.taint_times("recreated-node"), "the annotation is removed")
        stage.until(lambda: reported_overdue(stage, "time-added-2", "no-time-added-2"), "both pods are overdue")
        assert {"time-added-2", "no-time-added-2"} <= set(stage.pods())
        stage.tolerate("no-time-added-2", OTHER, 3)
        back = time.time()
    finally:
        stage.change(mode="TaintAndEvict")
    for pod in ("time-added-2", "no-time-added-2"):
        stage.until(lambda pod=pod: stage.ends(pod, by=OPERATOR), f"{pod} is deleted")  # type: ignore[misc]
    [with_time], [without_time] = stage.ends("time-added-2", by=OPERATOR), stage.ends("no-time-added-2", by=OPERATOR)
    assert_in_time(with_time.at, back)
    assert back <= without_time.at


def reported_overdue(stage: TaintStage, *pods: str) -> bool:
    """Whether the status counts pods as overdue whose deadlines passed three seconds ago."""
    status = stage.status()
    deadlines = stage.next_deadlines(status)
    passed = all(pod in deadlines and deadlines[pod] < time.time() - 3.0 for pod in pods)
    return passed and status["counts"]["overdue"] >= len(pods)


def test_user_taint_rates_delay_deletions(stage: TaintStage, result: ScenarioResult) -> None:
    names = [f"rated-{number}" for number in range(6)]
    for name in names:
        stage.pod(name, "cancel", {KEY: 2})
    stage.until_running()
    stage.change(userTaintRates={"total": 1})
    try:
        generation = stage.generation()
        stage.until(lambda: stage.status()["observedGeneration"] == generation, "the rates are known")
        since = stage.taint("cancel", KEY)
        stage.until(lambda: not {*names} & set(stage.pods()), "all pods are deleted")
    finally:
        stage.change(userTaintRates={"total": None})

    ends = [end.at for end in stage.ends(by=OPERATOR) if end.pod in names]
    assert len(ends) == len(names)
    ends.sort()
    assert ends[0] >= since + 2
    assert ends[-1] - ends[0] >= len(names) / 2, "without a rate all go at once; a request may be delayed"
    assert ends[-1] <= since + 2 + len(names) + LATE


def test_slow_webhook_of_one_namespace_delays_no_other(stage: TaintStage, result: ScenarioResult) -> None:
    slow = [f"slow-{number}" for number in range(40)]
    stage.untaint("removed", KEY)  # or pods that take longer than two seconds to create are deleted
    with stage.another_namespace() as namespace:
        for name in slow:
            stage.pod(name, "removed", {KEY: 2}, namespace=namespace)
        for number in range(4):
            stage.pod(f"quick-{number}", "removed", {KEY: 3})
        stage.until(lambda: set(slow) == stage.running_in(namespace), "all pods run", seconds=180)
        stage.until_running()
        gate = Gate(lambda request: request["namespace"] == namespace)
        with webhook(stage.client, ca=stage.cluster.ca, name="slow", rules=[ENDPOINTS], judge=gate):
            time.sleep(1.0)
            since = stage.taint("removed", KEY)
            quick = [f"quick-{number}" for number in range(4)]
            stage.until(lambda: len(gate.asked) >= 10, "many requests wait")
            stage.until(lambda: all(stage.ends(name, by=OPERATOR) for name in quick), "the quick pods are deleted")
            gate.open()
            stage.until(lambda: not stage.running_in(namespace), "the others go, too")

    answered = min(
        each.stage_timestamp.timestamp()
        for each in stage.audit.ours("pods", verbs=("delete",))
        if each.object_ref.namespace == namespace
    )
    for name in quick:
        [end] = stage.ends(name, by=OPERATOR)
        assert since + 3 <= end.at < answered, "it is deleted while the others wait"


AWAY = LATE
"""Seconds after the API server is back in which the operator has found that out and knows the cluster again."""
LATER = 30


def test_api_server_restart_delays_deletions_and_loses_none(stage: TaintStage, result: ScenarioResult) -> None:
    stage.pod("in-between", "server", {KEY: 6})
    stage.pod("after", "server", {KEY: LATER})
    stage.pod("stays", "server", {KEY: 300})
    stage.until_running()
    stage.audit.mark()
    begun = stage.taint("server", KEY)
    time.sleep(2.0)

    stage.kill(APISERVER)
    time.sleep(max(0.0, begun + 7 - time.time()))
    stage.cluster.up()
    back = time.time()
    for pod in ("in-between", "after"):
        stage.until(lambda pod=pod: stage.ends(pod, by=OPERATOR), f"{pod} goes", seconds=90)  # type: ignore[misc]

    [first], [second] = stage.ends("in-between", by=OPERATOR), stage.ends("after", by=OPERATOR)
    assert first.at <= back + AWAY
    assert begun + LATER <= second.at <= max(begun + LATER, back) + LATE
    assert "stays" in stage.pods()


def test_follower_takes_over_pending_deletions(stage: TaintStage, result: ScenarioResult) -> None:
    stage.operator.stop()
    first, second = (stage.operate(elect=True, ready=False) for _ in range(2))
    tokens = {credential(each.kubeconfig): each for each in (first, second)}
    for number in range(6):
        stage.pod(f"first-{number}", "two", {KEY: number})
        stage.pod(f"second-{number}", "two", {KEY: 25 + number})
    stage.until_running()
    stage.until(lambda: first.ready() or second.ready(), "one of them is ready")
    stage.audit.mark()
    stage.taint("two", KEY)

    stage.until(lambda: gone(stage, "first", 6), "the first pods go")
    actors = {asked.token for asked in stage.audit.ours("pods", verbs=("delete",))}
    assert len(actors) == 1
    leader = tokens[actors.pop()]
    leader.stop()
    stage.until(lambda: gone(stage, "second", 6), "the others go", seconds=60)

    actors = {asked.token for asked in stage.audit.ours("pods", verbs=("delete",)) if "second" in asked.object_ref.name}
    assert [tokens[token] is not leader for token in actors] == [True]
    ends = stage.ends(by=OPERATOR)
    assert len({each.pod for each in ends}) == len(ends) == 12


def gone(stage: TaintStage, prefix: str, count: int) -> bool:
    return sum(each.pod.startswith(prefix) for each in stage.ends(by=OPERATOR)) == count
