"""``trimtab plan`` with a TaintManager among the policies."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest

from tests.builders import node, pod
from tests.fixtures.golden import Golden
from tests.unit.cli.report.pages import read
from trimtab.cli.redaction import redact

NOW = "2026-11-20T12:00:00Z"
MANAGER = """\
apiVersion: trimtab.dev/v1alpha1
kind: TaintManager
metadata: {name: default}
spec:
  taints: [{key: example.com/maintenance, policy: Evict}]
"""
TAINT_AND_EVICT = """\
apiVersion: trimtab.dev/v1alpha1
kind: TaintManager
metadata: {name: default}
spec: {mode: TaintAndEvict}
"""
POLICY = """\
apiVersion: trimtab.dev/v1alpha1
kind: DeschedulerPolicy
metadata: {name: default}
spec:
  strategies: {RemoveDuplicates: {}}
"""


def objects() -> list[Any]:
    started = "2026-11-20T10:00:00Z"
    return [
        node("n1").taint("node.kubernetes.io/unreachable", "", "NoExecute", added="2026-11-20T11:58:00Z"),
        node("n2").taint("example.com/maintenance", "", "NoExecute", added="2026-11-20T11:00:00Z"),
        node("n3"),
        pod("web-1")
        .on("n1")
        .started(started)
        .tolerates("node.kubernetes.io/unreachable", "", "NoExecute", seconds=300),
        pod("agent").on("n1").started(started).tolerates("node.kubernetes.io/unreachable", "", "NoExecute"),
        pod("web-2").on("n2").started(started),
        pod("web-3").on("n3").started(started),
    ]


def planned(result: Any) -> Any:
    assert (result.exit_code, result.stderr) == (0, "")
    return msgspec.json.decode(result.stdout)


@pytest.mark.parametrize("documents", [(MANAGER,), (POLICY, MANAGER)], ids=["alone", "beside a policy"])
def test_pods_on_tainted_nodes_have_deadlines_or_reasons(run, write, policy, documents) -> None:
    cluster = write("c.json", *objects())
    document = planned(run("plan", "--cluster", cluster, "--policy", policy(*documents), "--now", NOW, "-o", "json"))

    assert [(each["action"], each["pod"], each["due"], each.get("how")) for each in document["actions"]] == [
        ("Delete", "web-2", NOW, "Evict"),
        ("Delete", "web-1", "2026-11-20T12:03:00Z", None),
    ]
    assert document["summary"]["Delete"] == 2
    (kept,) = [each for each in document["kept"] if each["strategy"] == "TaintManager"]
    assert (kept["name"], kept["node"], kept["reason"]) == ("agent", "n1", "ToleratesTaints")


def test_taints_are_ignored_without_a_taint_manager(run, write, policy) -> None:
    cluster = write("c.json", *objects())
    document = planned(run("plan", "--cluster", cluster, "--policy", policy(POLICY), "--now", NOW, "-o", "json"))

    assert "Delete" not in document["summary"]


def test_taint_plan_is_independent_of_object_order(run, write, policy) -> None:
    printed = set()
    for seed in range(3):
        cluster = write("c.json", *random.Random(seed).sample(objects(), len(objects())))
        for form in ("json", "html"):
            result = run("plan", "--cluster", cluster, "--policy", policy(MANAGER), "--now", NOW, "-o", form)
            assert result.exit_code == 0
            printed.add(result.stdout)

    assert len(printed) == 2


def test_table_shows_earliest_deadlines_first(run, write, policy, golden: Golden) -> None:
    many = [pod(f"more-{number:02}").on("n2").started("2026-11-20T10:00:00Z") for number in range(30)]
    cluster = write("c.json", *objects(), *many)
    shown = run("plan", "--cluster", cluster, "--policy", policy(MANAGER), "--now", NOW)
    whole = run("plan", "--cluster", cluster, "--policy", policy(MANAGER), "--now", NOW, "--all")

    assert "32 Delete" in shown.stdout
    assert "shop/web-1" not in shown.stdout
    assert "shop/more-00 (evict)" in shown.stdout
    assert "node.kubernetes.io/unreachable:NoExecute since 2026-11-20T11:58:00Z, tolerated for 300s" in whole.stdout
    assert "--all" not in whole.stdout
    golden("\n".join(line for line in shown.stdout.splitlines() if "--all" in line))


def test_page_shows_deadlines(run, write, policy, golden: Golden) -> None:
    arguments = ("--policy", policy(MANAGER), "--now", NOW, "-o", "html")
    page = read(run("plan", "--cluster", write("c.json", *objects()), *arguments).stdout)
    calm = read(run("plan", "--cluster", write("c.json", node("n1"), pod("web").on("n1")), *arguments).stdout)

    assert ("a", {"href": "#taints"}) in page.tags
    assert "taints" not in calm.tables
    golden(page.sections["summary"], "summary")
    golden(page.sections["taints"], "taints")
    golden(calm.sections["taints"], "no taints")


@pytest.mark.parametrize(
    ("documents", "words"),
    [
        ((MANAGER, MANAGER), "TaintManager/default: is defined twice"),
        ((MANAGER.replace("Evict", "Drain"),), "TaintManager/default: spec.taints[0].policy: must be Delete or Evict"),
        ((MANAGER.replace("default", "other"),), "there is one TaintManager for the whole cluster"),
        (("{apiVersion: v1, kind: Pod, metadata: {name: a}}",), "TaintManager of trimtab.dev/v1alpha1"),
    ],
    ids=["twice", "a policy that is none", "another name", "no policy at all"],
)
def test_invalid_taint_manager_is_a_one_line_error(run, write, policy, documents, words) -> None:
    result = run("plan", "--cluster", write("c.json", node("n1")), "--policy", policy(*documents), "--now", NOW)

    assert result.exit_code == 2
    assert words in result.stderr
    assert len(result.stderr.splitlines()) == 1


def failing() -> list[Any]:
    """Two nodes that have failed, one that has recovered, and three that are well; a pod on each of the first three."""
    started, taint = "2026-11-20T10:00:00Z", "node.kubernetes.io/unreachable"
    well = [node(name).condition("Ready", "True") for name in ("n4", "n5", "n6")]
    return [
        node("n1").condition("Ready", "Unknown", since="2026-11-20T11:58:00Z"),
        node("n2").condition("Ready", "Unknown", since="2026-11-20T11:59:00Z"),
        node("n3").condition("Ready", "True").taint(taint, "", "NoExecute", added="2026-11-20T10:30:00Z"),
        *well,
        *[
            pod(f"web-{number}").on(f"n{number}").started(started).tolerates(taint, "", "NoExecute", seconds=300)
            for number in (1, 2, 3)
        ],
    ]


def test_mode_taint_and_evict_plans_taint_changes(run, write, policy, golden: Golden) -> None:
    cluster = write("c.json", *failing())
    document = planned(
        run("plan", "--cluster", cluster, "--policy", policy(TAINT_AND_EVICT), "--now", NOW, "-o", "json")
    )

    key = "node.kubernetes.io/unreachable"
    taint, delete = document["actions"][0], document["actions"][-1]
    assert {name: taint[name] for name in ("action", "node", "taint", "reason")} == {
        "action": "Taint",
        "node": "n1",
        "taint": {"key": key, "effect": "NoExecute"},
        "reason": "NodeUnreachable",
    }
    golden(taint["message"])
    assert [(each["action"], each["node"], each["taint"]["effect"]) for each in document["actions"][1:-1]] == [
        ("Taint", "n1", "NoSchedule"),
        ("Taint", "n2", "NoSchedule"),
        ("Untaint", "n3", "NoExecute"),
    ]
    assert (delete["action"], delete["pod"], delete["due"]) == ("Delete", "web-1", "2026-11-20T12:05:00Z")
    [kept] = document["kept"]
    assert (kept["kind"], kept["name"], kept["reason"]) == ("Node", "n2", "EvictionRateLimited")
    assert "due at 2026-11-20T12:00:10Z" in kept["message"]
    assert document["summary"] == {"Delete": 1, "Evict": 0, "Taint": 3, "Untaint": 1, "kept": 1}


def test_taints_are_not_planned_alongside_kube_controller_manager(run, write, policy) -> None:
    cluster = write("c.json", *failing())
    document = planned(run("plan", "--cluster", cluster, "--policy", policy(MANAGER), "--now", NOW, "-o", "json"))

    assert not {"Taint", "Untaint"} & document["summary"].keys()
    assert [each["pod"] for each in document["actions"]] == ["web-3"]


def test_yaml_equals_json(run, write, policy) -> None:
    arguments = (
        "plan",
        "--cluster",
        write("c.json", *failing()),
        "--policy",
        policy(TAINT_AND_EVICT),
        "--now",
        NOW,
        "-o",
    )

    assert msgspec.yaml.decode(run(*arguments, "yaml").stdout) == planned(run(*arguments, "json"))


def test_table_shows_taint_changes(run, write, policy, golden: Golden) -> None:
    many = [
        node(f"more-{number:02}").condition("Ready", "True").condition("PIDPressure", "True") for number in range(20)
    ]
    cluster = write("c.json", *failing(), *many)
    shown = run("plan", "--cluster", cluster, "--policy", policy(TAINT_AND_EVICT), "--now", NOW)
    whole = run("plan", "--cluster", cluster, "--policy", policy(TAINT_AND_EVICT), "--now", NOW, "--all")

    assert "1 Delete, 23 Taint, 1 Untaint; 1 kept" in shown.stdout
    assert "node.kubernetes.io/pid-pressure:NoSchedule   NodeCondition" in shown.stdout
    assert "Node n2" in shown.stdout
    assert "Untaint" in whole.stdout
    assert "--all" not in whole.stdout
    golden("\n".join(line for line in shown.stdout.splitlines() if "--all" in line))


def test_page_shows_taint_changes_and_the_taint_manager(run, write, policy, golden: Golden) -> None:
    arguments = ("--policy", policy(TAINT_AND_EVICT), "--now", NOW, "-o", "html")
    page = read(run("plan", "--cluster", write("c.json", *failing()), *arguments).stdout)
    well = [node("n1").condition("Ready", "True"), pod("web").on("n1")]
    calm = read(run("plan", "--cluster", write("c.json", *well), *arguments).stdout)

    for name in ("summary", "taints", "policies"):
        golden(page.sections[name], name)
    for name in ("summary", "taints"):
        golden(calm.sections[name], f"no {name}")


def test_plan_of_a_snapshot_equals_plan_of_the_cluster(run, write, policy) -> None:
    arguments = ("--policy", policy(TAINT_AND_EVICT), "--now", NOW, "-o", "json")
    whole = run("plan", "--cluster", write("c.json", *failing()), *arguments)
    kept = [redact(manifest["kind"], manifest) for manifest in (each.manifest() for each in failing())]

    assert planned(run("plan", "--cluster", write("d.json", *kept), *arguments)) == planned(whole)
