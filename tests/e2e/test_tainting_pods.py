"""NoExecute taints that somebody puts on nodes: when pods go, over kills, refusals, new names and changes by hand."""

from __future__ import annotations

import itertools
import secrets
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.fixtures.audit import OPERATOR, Audit, credential
from tests.fixtures.taint_course import (
    AGAIN,
    CASES,
    ENDPOINTS,
    KEY,
    LONG,
    MAINTENANCE,
    OTHER,
    REFUSAL,
    WAIT,
    Course,
    run_course,
)
from tests.fixtures.tainting import LATE, TaintStage, taint_settings, taint_stage
from tests.fixtures.webhooks import Gate, webhook
from trimtab.local.cluster import LocalCluster
from trimtab.local.versions import APISERVER


@pytest.fixture(scope="module")
def stage(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TaintStage]:
    """A node for each case, and one for pods that the operator has nothing to do with."""
    if request.config.getoption("--cluster") != "local":
        pytest.skip("these tests need a control plane without the node lifecycle, and its audit log")
    audit = Audit(tmp_path_factory.mktemp("audit"))
    cluster: LocalCluster = request.getfixturevalue("make_cluster")(taint_settings(audit), nodes=0)
    with taint_stage(cluster, f"pods-{secrets.token_hex(4)}", audit, tmp_path_factory.mktemp("logs")) as stage:
        for name in (*CASES, "server", "two"):
            stage.nodes("zone-a", name, labels={"case": name})
        stage.nodes("zone-b", "well")
        stage.write(taints=[{"key": MAINTENANCE, "policy": "Evict", "maximumWait": f"{WAIT}s"}])
        stage.operate()
        stage.until_ready()
        yield stage


@pytest.fixture(scope="module")
def course(stage: TaintStage) -> Course:
    """All cases that go side by side, in some 40 seconds."""
    return run_course(stage)


def assert_in_time(moment: float, due: float, *, more: float = 0.0) -> None:
    assert due <= moment <= due + LATE + more, f"due {due:.3f}, went {moment - due:+.3f} s"


def test_a_pod_without_a_toleration_goes_at_once(course: Course) -> None:
    assert course.since["kill"] <= course.end("kill-at-once") <= course.since["kill"] + 2 * LATE


def test_killed_in_the_middle_of_a_toleration_it_keeps_the_pods_time(course: Course) -> None:
    assert_in_time(course.end("kill"), max(course.since["kill"] + LONG, course.restarted))


def test_so_it_does_where_the_taint_tells_no_time_as_those_of_kubectl(stage: TaintStage, course: Course) -> None:
    assert KEY in course.noted
    assert_in_time(course.end("untold"), max(course.since["untold"] + LONG, course.restarted))


def test_a_toleration_lengthened_in_the_last_second_counts(course: Course) -> None:
    assert_in_time(course.end("lengthen"), course.since["lengthen"] + 10)


def test_a_toleration_shortened_to_one_more_second_counts(course: Course) -> None:
    assert_in_time(course.end("shorten"), course.since["shorten"] + 6)


def test_a_second_taint_that_is_borne_for_less_counts(course: Course) -> None:
    assert_in_time(course.end("second"), course.since["worse"] + 4)


def test_with_the_taint_gone_that_was_borne_for_less_the_other_counts_again(course: Course) -> None:
    assert_in_time(course.end("removed"), course.since["removed"] + 13)


def test_a_taint_of_a_clock_that_is_ahead_counts_from_when_it_was_seen(course: Course) -> None:
    assert_in_time(course.end("ahead"), course.since["ahead"] + 5, more=1.0)


def test_a_taint_of_long_ago_gives_a_pod_its_time_from_when_it_came_to_the_node(course: Course) -> None:
    """It was there for longer than it bears the taint."""
    assert_in_time(course.end("behind"), course.since["behind"], more=1.0)


@pytest.mark.parametrize("pod", ["kill-never", "order-finite-first", "order-infinite-first", "cancel", "well"])
def test_who_may_stay_stays(pod: str, course: Course) -> None:
    """With a toleration for ever, in whatever place of its list; with the taint gone in time; on another node."""
    assert pod not in course.ends
    assert course.there[pod]["metadata"]["uid"] == course.started[pod]


def test_a_pod_that_has_ended_keeps_its_logs(course: Course) -> None:
    assert course.there["settled"]["status"]["phase"] == "Succeeded"


def test_a_node_of_the_same_name_begins_anew(course: Course) -> None:
    """Its taints went with the node that was deleted."""
    assert "reborn" not in course.ends
    assert "reborn" in course.there


def test_each_pod_of_a_name_has_its_own_time(stage: TaintStage, course: Course) -> None:
    """A StatefulSet makes it anew on the node that is still tainted."""
    ends = course.ends["again-0"]
    assert len(ends) >= 2
    assert len({each.uid for each in ends}) == len(ends)
    assert_in_time(ends[0].at, course.since["again"] + AGAIN)
    for before, after in itertools.pairwise(ends):
        assert before.at + AGAIN <= after.at + 1.0, "times of pods are whole seconds"
        assert after.at <= before.at + AGAIN + 3.0, "the pod has to end and to be made anew in between"
    last = course.there["again-0"]["metadata"]["uid"]
    assert last not in {each.uid for each in ends}


def test_what_a_webhook_refuses_is_tried_until_it_lets_the_pod_go(course: Course) -> None:
    [end] = course.ends["refused"]
    assert course.opened <= end.at <= course.opened + 15.0


def test_who_refuses_is_told_in_the_status(course: Course) -> None:
    [told] = [each for each in course.status["refused"] if each["pod"] == "refused"]
    assert "refuser.test.trimtab.dev" in told["message"]
    assert REFUSAL in told["message"]
    assert told["attempts"] >= 2


def test_refusals_are_not_tried_without_end_in_a_moment(stage: TaintStage, course: Course) -> None:
    path = f"/api/v1/namespaces/{stage.namespace}/pods/refused"
    tried = [each for each in stage.audit.ours("pods", verbs=("delete",)) if each.request_u_r_i.startswith(path)]
    assert 5 <= len(tried) <= 60


def test_a_policy_of_eviction_heeds_a_budget_for_as_long_as_it_says(course: Course) -> None:
    due = course.since["evict"] + 3
    tried = [moment for moment, pod, granted in course.evictions if pod == "evict-held" and not granted]
    assert tried
    assert_in_time(min(tried), due)
    [end] = course.ends["evict-held"]
    assert end.how == "delete"
    assert_in_time(end.at, due + WAIT)


def test_a_pod_without_a_budget_is_evicted_at_its_time(course: Course) -> None:
    [end] = course.ends["evict-free"]
    assert end.how == "evict"
    assert_in_time(end.at, course.since["evict"] + 3)


def test_nobody_goes_twice_and_each_is_meant_by_uid(course: Course) -> None:
    assert {pod: ends for pod, ends in course.ends.items() if pod != "again-0" and len(ends) > 1} == {}
    assert [each for ends in course.ends.values() for each in ends if not each.uid] == []
    assert {
        pod for pod, ends in course.ends.items() if pod in course.started and ends[0].uid != course.started[pod]
    } == set()


def test_pods_are_told_why_they_go(stage: TaintStage, course: Course) -> None:
    reasons = {
        (asked.object_ref.name, condition["reason"])
        for asked in stage.audit.ours("pods/status", granted=True)
        for condition in conditions(asked.request_object)
        if condition.get("type") == "DisruptionTarget"
    }
    assert ("kill", "DeletionByTaintManager") in reasons
    assert stage.events("TaintManagerEviction", about="kill")


def conditions(body: Any) -> list[dict[str, Any]]:
    """Those that a patch of a status writes, whatever its form."""
    if isinstance(body, dict):
        return list(body.get("status", {}).get("conditions") or ())
    values = [each.get("value") for each in body or () if each["op"] == "add"]
    return [
        each for value in values for each in (value if isinstance(value, list) else [value]) if isinstance(each, dict)
    ]


def test_what_was_noted_on_a_node_is_taken_off_with_its_taint(stage: TaintStage, course: Course) -> None:
    stage.untaint("untold", KEY)
    stage.until(lambda: not stage.noted("untold"), "the note is gone", seconds=10)


def test_who_is_not_to_act_lets_pods_be_and_who_acts_again_knows_what_taints_tell(
    stage: TaintStage, course: Course
) -> None:
    """From Own to Observe in the middle of a toleration, and back."""
    stage.pod("told-2", "settled", {KEY: 4})
    stage.pod("untold-2", "reborn", {OTHER: 6})
    stage.until_running()
    stage.untaint("settled", KEY)
    since = stage.taint("settled", KEY)
    stage.taint("reborn", OTHER, told=False)
    stage.until(lambda: stage.noted("reborn"), "the time is noted", seconds=10)
    stage.change(mode="Observe")
    stage.until(lambda: not stage.noted("reborn"), "the note is gone", seconds=10)
    time.sleep(max(0.0, since + 7 - time.time()))
    assert {"told-2", "untold-2"} <= set(stage.pods())

    back = time.time()
    stage.change(mode="Own")
    stage.until(lambda: stage.ends("untold-2", by=OPERATOR), "both go", seconds=20)
    [told], [untold] = stage.ends("told-2", by=OPERATOR), stage.ends("untold-2", by=OPERATOR)
    assert back <= told.at <= back + 2 * LATE
    assert back <= untold.at


def test_rates_hold_pods_back_and_never_forward(stage: TaintStage, course: Course) -> None:
    names = [f"rated-{number}" for number in range(9)]
    for name in names:
        stage.pod(name, "cancel", {KEY: 2})
    stage.until_running()
    stage.change(userTaintRates={"total": 3})
    stage.until(lambda: stage.status()["observedGeneration"] == stage.generation(), "the rates are known", seconds=10)
    since = stage.taint("cancel", KEY)
    stage.until(lambda: not {*names} & set(stage.pods()), "all go", seconds=20)
    stage.change(userTaintRates={"total": None})

    ends = [end.at for end in stage.ends(by=OPERATOR) if end.pod in names]
    assert len(ends) == len(names)
    ends.sort()
    assert ends[0] >= since + 2
    for first, fourth in zip(ends, ends[3:], strict=False):
        assert fourth - first >= 1.0 - 0.3, "requests take some moments more or less"
    assert ends[-1] <= since + 2 + len(names) / 3 + LATE


def test_a_webhook_that_takes_its_time_in_one_namespace_holds_up_no_other(stage: TaintStage, course: Course) -> None:
    slow = [f"slow-{number}" for number in range(40)]
    with stage.another_namespace() as namespace:
        for name in slow:
            stage.pod(name, "removed", {KEY: 2}, namespace=namespace)
        for number in range(4):
            stage.pod(f"quick-{number}", "removed", {KEY: 3})
        stage.untaint("removed", KEY)
        stage.until(lambda: set(slow) == stage.running_in(namespace), "all pods run")
        stage.until_running()
        gate = Gate(lambda request: request["namespace"] == namespace)
        with webhook(stage.client, ca=stage.cluster.ca, name="slow", rules=[ENDPOINTS], judge=gate, timeout=10):
            time.sleep(1.0)
            since = stage.taint("removed", KEY)
            time.sleep(5.0)
            waiting = len(gate.asked)
            gate.open()
            stage.until(lambda: not stage.running_in(namespace), "the others go, too", seconds=20)

    assert waiting >= 10, "many requests were waiting"
    for number in range(4):
        [end] = stage.ends(f"quick-{number}", by=OPERATOR)
        assert_in_time(end.at, since + 3)


AWAY = 10.0
"""Seconds after the API server is back in which the operator has found that out and knows the cluster again."""
LATER = 18


def test_an_api_server_that_restarts_holds_up_what_is_due_and_loses_nothing(stage: TaintStage, course: Course) -> None:
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
        stage.until(lambda pod=pod: stage.ends(pod, by=OPERATOR), f"{pod} goes", seconds=45)  # type: ignore[misc]

    [first], [second] = stage.ends("in-between", by=OPERATOR), stage.ends("after", by=OPERATOR)
    assert first.at <= back + AWAY
    assert begun + LATER <= second.at <= max(begun + LATER + LATE, back + AWAY)
    assert "stays" in stage.pods()


def test_of_two_operators_one_acts_and_the_other_takes_over(stage: TaintStage, course: Course) -> None:
    stage.operator.stop()
    first, second = (stage.operate(elect=True, ready=False) for _ in range(2))
    tokens = {credential(each.kubeconfig): each for each in (first, second)}
    for number in range(6):
        stage.pod(f"first-{number}", "two", {KEY: number})
        stage.pod(f"second-{number}", "two", {KEY: 12 + number})
    stage.until_running()
    stage.until(lambda: first.ready() or second.ready(), "one of them is ready")
    stage.audit.mark()
    stage.taint("two", KEY)

    stage.until(lambda: gone(stage, "first", 6), "the first pods go", seconds=20)
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
