"""``trimtab plan`` with NodePressurePolicies."""

from __future__ import annotations

import json
import random
from typing import Any

import msgspec
import pytest

from tests.builders import budget, node, pod
from tests.fixtures.golden import Golden
from tests.node_summaries import GI, MI, summary
from tests.unit.cli.report.pages import read

NOW = "2026-11-20T12:00:00Z"
POLICY = """\
apiVersion: trimtab.dev/v1alpha1
kind: NodePressurePolicy
metadata: {name: workers}
spec:
  evictionHard: {memory.available: 500Mi}
  evictionSoft: {memory.available: 1Gi}
  evictionSoftGracePeriod: {memory.available: 30s}
"""
DESCHEDULER = """\
apiVersion: trimtab.dev/v1alpha1
kind: DeschedulerPolicy
metadata: {name: default}
spec:
  strategies: {RemoveDuplicates: {}}
"""


def node_of_10gi(name: str, since: str = "") -> Any:
    made = node(name).allocatable(memory="9Gi").capacity(memory="10Gi")
    if since:
        state = {"firstMet": {"soft/memory.available": since}}
        made.annotations({"pressure.trimtab.dev/state": json.dumps(state)})
    return made


def web(name: str, on: str, memory: str = "1Gi") -> Any:
    return pod(name).on(on).memory(memory).owned_by("ReplicaSet", "web").ready()


def planned(run: Any, write: Any, path: Any, items: list[Any], *more: str) -> Any:
    result = run("plan", "--cluster", write("c.json", *items), "--policy", path, "--now", NOW, "-o", "json", *more)
    assert (result.exit_code, result.stderr) == (0, "")
    return msgspec.json.decode(result.stdout)


def kept(document: Any) -> set[tuple[str, str, str]]:
    return {(each["kind"], each["name"], each["reason"]) for each in document["kept"]}


def test_hard_threshold_evicts_the_pod_furthest_above_its_request(run, write, policy) -> None:
    items = [
        node_of_10gi("n1"),
        web("a", "n1"),
        web("b", "n1"),
        summary("n1", 400 * MI, {"shop/a": 2 * GI, "shop/b": 3 * GI}),
    ]
    document = planned(run, write, policy(POLICY), items)

    [action] = document["actions"]
    assert {key: action[key] for key in ("action", "policy", "strategy", "pod", "node", "target", "reason")} == {
        "action": "Evict",
        "policy": "workers",
        "strategy": "NodePressure",
        "pod": "b",
        "node": "n1",
        "target": "",
        "reason": "HardThresholdMet",
    }
    assert action["gracePeriod"] == 1
    assert document["summary"] == {"Evict": 1, "kept": 0}
    [of_node] = document["nodePressure"]
    assert (of_node["conditions"], of_node["tainted"]) == (["MemoryPressure"], True)
    assert [(each["pod"], each["usage"], each["request"]) for each in of_node["pods"]] == [
        ("shop/b", 3 * GI, GI),
        ("shop/a", 2 * GI, GI),
    ]


def test_soft_threshold_without_a_recorded_time_only_begins_its_grace_period(run, write, policy) -> None:
    items = [node_of_10gi("n1"), web("a", "n1"), summary("n1", 900 * MI, {"shop/a": 2 * GI})]
    document = planned(run, write, policy(POLICY), items)

    assert document["actions"] == []
    [only] = document["kept"]
    assert (only["name"], only["node"], only["reason"]) == ("a", "n1", "SoftGracePeriod")
    [_, soft, _] = document["nodePressure"][0]["signals"][0]["thresholds"]
    assert (soft["since"], soft["due"]) == (NOW, "2026-11-20T12:00:30Z")


@pytest.mark.parametrize(("since", "evicted"), [("2026-11-20T11:59:30Z", True), ("2026-11-20T11:59:31Z", False)])
def test_soft_threshold_counts_from_the_time_in_the_annotation(run, write, policy, since, evicted) -> None:
    items = [node_of_10gi("n1", since), web("a", "n1"), summary("n1", 900 * MI, {"shop/a": 2 * GI})]
    document = planned(run, write, policy(POLICY), items)

    assert [each["reason"] for each in document["actions"]] == (["SoftThresholdMet"] if evicted else [])


def test_pods_and_nodes_that_are_not_acted_on_have_reasons(run, write, policy) -> None:
    items = [
        node_of_10gi("calm"),
        node_of_10gi("kubelet").condition("MemoryPressure", "True"),
        node_of_10gi("unread"),
        node_of_10gi("protected"),
        web("c", "calm"),
        web("k", "kubelet"),
        pod("agent").on("protected").owned_by("DaemonSet", "agent"),
        pod("static").on("protected").mirror(),
        pod("critical").on("protected").priority(2_000_000_000, "system-cluster-critical"),
        summary("calm", 5 * GI, {"shop/c": GI}),
        summary("kubelet", 90 * MI, {"shop/k": 8 * GI}),
        summary("protected", 90 * MI, {"shop/agent": 8 * GI, "shop/static": GI, "shop/critical": GI}),
    ]
    document = planned(run, write, policy(POLICY), items)

    assert document["actions"] == []
    assert kept(document) == {
        ("Node", "kubelet", "KubeletEvicts"),
        ("Node", "unread", "StatsUnknown"),
        ("Node", "protected", "NoEvictablePod"),
        ("Pod", "agent", "DaemonSetPod"),
        ("Pod", "static", "MirrorPod"),
        ("Pod", "critical", "CriticalPod"),
    }
    assert [each["node"] for each in document["nodePressure"]] == ["calm", "kubelet", "protected", "unread"]


def test_disruption_budget_leads_to_the_next_pod(run, write, policy) -> None:
    items = [
        node_of_10gi("n1"),
        web("first", "n1").labels(app="db"),
        web("second", "n1"),
        budget().selecting(app="db").allowing(0),
        summary("n1", 400 * MI, {"shop/first": 4 * GI, "shop/second": 3 * GI}),
    ]
    document = planned(run, write, policy(POLICY), items)

    assert [each["pod"] for each in document["actions"]] == ["second"]
    [only] = document["kept"]
    assert (only["name"], only["reason"]) == ("first", "DisruptionBudget")


def test_any_number_of_pods_of_a_disruption_budget_lead_to_the_next_pod(run, write, policy) -> None:
    guarded = [f"db-{number}" for number in range(9)]
    items = [
        node_of_10gi("n1"),
        *(web(name, "n1", "100Mi").labels(app="db") for name in guarded),
        web("other", "n1", "100Mi"),
        budget().selecting(app="db").allowing(0),
        summary("n1", 400 * MI, {f"shop/{name}": GI for name in guarded} | {"shop/other": 200 * MI}),
    ]
    document = planned(run, write, policy(POLICY), items)

    assert [each["pod"] for each in document["actions"]] == ["other"]
    assert kept(document) == {("Pod", name, "DisruptionBudget") for name in guarded}


def test_unknown_signals_are_reported(run, write, policy) -> None:
    text = POLICY.replace("{memory.available: 500Mi}", "{memory.available: 500Mi, nodefs.available: 20%}")
    wrong = {"availableBytes": 200 * GI, "capacityBytes": 100 * GI}
    items = [node_of_10gi("n1"), node_of_10gi("n2"), summary("n1", 5 * GI, fs=wrong), summary("n2", 5 * GI)]
    document = planned(run, write, policy(text), items)

    assert kept(document) == {("Node", "n1", "SignalUnknown"), ("Node", "n2", "SignalUnknown")}
    first, second = document["nodePressure"]
    assert "implausible" in first["unknown"]["nodefs.available"]
    assert list(second["unknown"]) == ["nodefs.available"]


def test_several_summaries_of_a_node_show_its_trend(run, write, policy) -> None:
    items = [
        node_of_10gi("n1"),
        *(summary("n1", (30 - step) * 100 * MI, measured=f"2026-11-20T11:59:{10 * step:02}Z") for step in range(5)),
    ]
    [of_node] = planned(run, write, policy(POLICY), items)["nodePressure"]

    [memory] = of_node["signals"]
    assert memory["available"] == 2600 * MI
    assert memory["perSecond"] == -10 * MI
    assert [each["secondsTo"] for each in memory["thresholds"]] == [210, 157, 250]


def test_metrics_replace_summaries_for_the_memory(run, write, policy) -> None:
    def metrics(kind: str, name: str, memory: int) -> dict[str, Any]:
        usage = {"cpu": "1", "memory": str(memory)}
        head = {"apiVersion": "metrics.k8s.io/v1beta1", "kind": kind}
        if kind == "NodeMetrics":
            return {**head, "metadata": {"name": name}, "usage": usage}
        return {**head, "metadata": {"name": name, "namespace": "shop"}, "containers": [{"name": "m", "usage": usage}]}

    items = [
        node_of_10gi("n1"),
        web("a", "n1"),
        web("b", "n1"),
        metrics("NodeMetrics", "n1", 10 * GI - 400 * MI),
        metrics("PodMetrics", "a", 4 * GI),
        metrics("PodMetrics", "b", 5 * GI),
    ]
    document = planned(run, write, policy(POLICY), items)

    assert [each["pod"] for each in document["actions"]] == ["b"]
    assert document["nodePressure"][0]["source"] == "Metrics"


def test_first_policy_by_name_plans_a_node_and_the_other_is_in_conflict(run, write, policy) -> None:
    other = POLICY.replace("workers", "all").replace("500Mi", "90Mi")
    items = [node_of_10gi("n1"), web("a", "n1"), summary("n1", 400 * MI, {"shop/a": 2 * GI})]
    document = planned(run, write, policy(POLICY, other), items)

    assert [each["policy"] for each in document["nodePressure"]] == ["all"]
    assert kept(document) >= {
        ("NodePressurePolicy", "workers", "NodesHandledByOtherPolicy"),
        ("NodePressurePolicy", "all", "ThresholdNotAboveKubelet"),
    }


def test_evicted_pods_are_cleaned_up(run, write, policy) -> None:
    def failed(name: str) -> Any:
        return (
            web(name, "n1")
            .phase("Failed", "Evicted")
            .started("2026-11-20T09:00:00Z")
            .condition("Ready", "False", since="2026-11-20T10:00:00Z")
        )

    text = POLICY + "  failedPods: {after: 1h, keepPerOwner: 1}\n"
    document = planned(run, write, policy(text), [node_of_10gi("n1"), failed("a"), failed("b"), summary("n1", 5 * GI)])

    assert [(each["pod"], each["reason"]) for each in document["actions"]] == [("b", "FailedPodCleanup")]


def test_other_policies_leave_an_evicted_pod_and_its_node_alone(run, write, policy) -> None:
    """RemoveDuplicates would evict the second of three pods on n1, and n2 is the only other node."""
    items = [
        node_of_10gi("n1"),
        node_of_10gi("n2"),
        *(web(name, "n1", "1Mi") for name in ("a", "b")),
        summary("n1", 5 * GI),
        summary("n2", 400 * MI),
    ]
    calm = planned(run, write, policy(DESCHEDULER), items)
    under_pressure = planned(run, write, policy(DESCHEDULER, POLICY), items)

    assert [each["target"] for each in calm["actions"]] == ["n2"]
    assert under_pressure["actions"] == []


def test_plan_is_independent_of_object_order(run, write, policy) -> None:
    items = [
        node_of_10gi("n1"),
        node_of_10gi("n2"),
        web("a", "n1"),
        web("b", "n2"),
        web("c", "n2"),
        summary("n1", 400 * MI, {"shop/a": 2 * GI}),
        summary("n2", 400 * MI, {"shop/b": 2 * GI, "shop/c": 2 * GI}),
    ]
    found = set()
    for seed in range(3):
        cluster = write("c.json", *random.Random(seed).sample(items, len(items)))
        for form in ("json", "html"):
            found.add(run("plan", "--cluster", cluster, "--policy", policy(POLICY), "--now", NOW, "-o", form).stdout)

    assert len(found) == 2


def test_policies_in_the_cluster_are_planned_without_the_option(run, write) -> None:
    own = msgspec.yaml.decode(POLICY)
    items = [node_of_10gi("n1"), web("a", "n1"), summary("n1", 400 * MI, {"shop/a": 2 * GI})]
    found = run("plan", "--cluster", write("c.json", *items, own), "--now", NOW, "-o", "json")
    none = run("plan", "--cluster", write("d.json", *items), "--now", NOW)

    assert [each["pod"] for each in msgspec.json.decode(found.stdout)["actions"]] == ["a"]
    assert none.exit_code == 2
    assert "contains no policy" in none.stderr


def test_policies_must_be_given_with_a_cluster_from_standard_input(run, golden: Golden) -> None:
    result = run("plan", "--cluster", "-", "--now", NOW, stdin=b"{}")

    assert result.exit_code == 2
    golden(result.stderr)


def test_summary_with_an_invalid_field_is_a_one_line_error(run, write, policy, golden: Golden) -> None:
    broken = summary("n1", 5 * GI)
    broken["node"]["memory"]["availableBytes"] = "much"
    cluster = write("c.json", node_of_10gi("n1"), broken)
    result = run("plan", "--cluster", cluster, "--policy", policy(POLICY), "--now", NOW)
    skipped = run("plan", "--cluster", cluster, "--policy", policy(POLICY), "--now", NOW, "--skip-invalid")

    assert result.exit_code == 2
    assert len(result.stderr.splitlines()) == 1
    golden(result.stderr.replace(str(cluster), "c.json"))
    assert skipped.exit_code == 0
    assert "trimtab: skipped:" in skipped.stderr


def test_table_shows_the_nodes_closest_to_their_thresholds(run, write, policy, golden: Golden) -> None:
    names = [f"n{number}" for number in range(8)]
    items = [
        *map(node_of_10gi, names),
        *(web(f"web-{number}", "n0") for number in range(7)),
        summary("n0", 700 * MI, {f"shop/web-{number}": (number + 1) * 100 * MI for number in range(7)}),
        *(summary(name, (number + 2) * GI) for number, name in enumerate(names[1:])),
    ]
    arguments = ("plan", "--cluster", write("c.json", *items), "--policy", policy(POLICY), "--now", NOW)

    golden(run(*arguments).stdout)
    assert run(*arguments, "--all").stdout.count("Node pressure of") == 8


def test_page_shows_node_pressure(run, write, policy, golden: Golden) -> None:
    items = [node_of_10gi("n1"), web("a", "n1"), summary("n1", 400 * MI, {"shop/a": 2 * GI})]
    arguments = ("--policy", policy(POLICY), "--now", NOW, "-o", "html")
    page = read(run("plan", "--cluster", write("c.json", *items), *arguments).stdout)
    calm = read(run("plan", "--cluster", write("d.json", node_of_10gi("n1"), summary("n1", 5 * GI)), *arguments).stdout)

    assert ("a", {"href": "#pressure"}) in page.tags
    assert "HardThresholdMet" in page.sections["pressure"]
    assert "NodePressurePolicy workers" in page.text
    assert "HardThresholdMet" not in calm.sections["pressure"]
    golden(page.sections["pressure"], "pressure")
    golden(calm.sections["pressure"], "no pressure")
