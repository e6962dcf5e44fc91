"""The comparison with the real descheduler: random generation, classes of differences, and the documented table."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

import pytest

from tests.builders import NOW, Builder, budget, namespace, node, pod
from tests.descheduler_differential import descheduler, shrinking
from tests.descheduler_differential.binary import VERSION, existing_binary
from tests.descheduler_differential.case import Case, Difference
from tests.descheduler_differential.classes.table import CLASSES, UNOBSERVABLE, class_of
from tests.descheduler_differential.clock import REFERENCE_TIME, ago, shifted
from tests.descheduler_differential.descheduler import DeschedulerFailed, Eviction
from tests.descheduler_differential.generator.cluster import RandomCluster
from tests.descheduler_differential.report import Tally, Unexplained
from tests.descheduler_differential.store import PREFIXES, complete, path
from tests.descheduler_differential.suite import policies_of
from tests.descheduler_differential.trimtab_plan import plan_with_trimtab
from tests.differential.delta_debugging import minimize
from tests.fixtures.golden import Golden
from trimtab.cluster.snapshot import Snapshot
from trimtab.descheduling.imports.v1alpha2 import import_policy
from trimtab.kube.wire.decode import decode_object

TABLE = Path(__file__).parents[2] / "docs" / "compatibility.md"
ROW = re.compile(r"^\| `(\w+)` \|", re.MULTILINE)


def policy(strategy: str, args: dict[str, Any] | None = None, **evictor: Any) -> dict[str, Any]:
    point = "balance" if strategy in ("RemoveDuplicates", "LowNodeUtilization") else "deschedule"
    config = [{"name": "DefaultEvictor", "args": evictor}, {"name": strategy, "args": args or {}}]
    profile = {"name": "p", "pluginConfig": config, "plugins": {point: {"enabled": [strategy]}}}
    return {"apiVersion": "descheduler/v1alpha2", "kind": "DeschedulerPolicy", "profiles": [profile]}


def compared(*builders: Builder, under: dict[str, Any], evicted: tuple[str, ...] = ()) -> dict[tuple[str, str], Any]:
    """The class of each difference by pod and side, if the descheduler evicted ``evicted``."""
    objects = [builder.manifest() for builder in (*builders, namespace("shop"), namespace("kube-system"))]
    values = [decode_object(each) for each in objects]
    snapshot = Snapshot(value for value in values if value is not None)
    strategy = under["profiles"][0]["pluginConfig"][1]["name"]
    evictions = {name: Eviction(name, strategy, snapshot.pods[name].node, "p") for name in evicted}
    case = Case(objects, under, plan_with_trimtab(snapshot, REFERENCE_TIME.timestamp(), under), evictions)
    return {(each.pod, each.side): class_of(case, each) for each in case.differences}


OLD = policy("PodLifeTime", {"maxPodLifeTimeSeconds": 100})


def old(name: str = "web-1", space: str = "shop", *, owner: str = "web") -> Any:
    made = pod(name, space).on("n1").cpu("1").created(ago(5000)).started(ago(5000)).ready(since=ago(5000))
    return made.owned_by("ReplicaSet", owner)


# ── generators ─────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("seed", range(10))
def test_the_same_seed_generates_the_same_cluster_and_policies(seed):
    assert RandomCluster(seed).objects == RandomCluster(seed).objects
    assert policies_of(seed, 3) == policies_of(seed, 3)


@pytest.mark.parametrize("seed", range(10))
def test_generated_objects_are_valid_and_have_a_resource(seed):
    for manifest in RandomCluster(seed).objects:
        assert manifest["kind"] in PREFIXES
        assert decode_object(manifest) is not None


def test_generated_policies_are_valid():
    generated = [(seed, policy) for seed in range(40) for policy in policies_of(seed, 5)]
    assert [(seed, policy) for seed, policy in generated if not import_policy(policy).policies] == []


def test_every_upstream_strategy_is_generated():
    text = str([policies_of(seed, 4) for seed in range(60)])
    for config in ("RemoveDuplicates", "HighNodeUtilization", "RemoveFailedPods", "minReplicas", "maxNoOfPodsToEvict"):
        assert config in text


# ── loading ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_all_times_are_shifted_by_the_same_amount():
    later = REFERENCE_TIME.timestamp() + 3600
    moved = shifted({"at": [NOW, ago(60)], "name": "2026", "number": 1}, later)
    assert moved == {"at": ["2026-11-20T13:00:00Z", "2026-11-20T12:59:00Z"], "name": "2026", "number": 1}


def test_objects_are_stored_under_the_api_servers_keys():
    assert path(node("n1").manifest()) == "/registry/minions/n1"
    assert path(budget("b", "shop").manifest()) == "/registry/poddisruptionbudgets/shop/b"


def test_object_without_uid_gets_a_stable_one():
    manifest = node("n1").manifest()
    del manifest["metadata"]["uid"]
    assert complete(manifest) == complete(manifest)
    assert complete(manifest)["metadata"]["uid"]


# ── the descheduler's log ──────────────────────────────────────────────────────────────────────────────────────────


def log(*lines: str) -> io.StringIO:
    return io.StringIO("".join(f"I1121 03:00:00.000000  1 evictions.go:1] {line}\n" for line in lines))


def evicting(name: str, strategy: str = "PodLifeTime") -> str:
    return f'"Evicted pod in dry run mode" pod="{name}" reason="" strategy="{strategy}" node="n1" profile="p"'


END = '"Number of evictions/requests" totalEvicted=1 evictionRequests=0'


def test_only_the_second_cycle_counts_and_each_pod_once():
    evictions = descheduler._last_cycle(
        log(evicting("a/x"), END, evicting("a/y"), evicting("a/y", "RemoveDuplicates"), END)
    )
    assert evictions == (Eviction("a/y", "PodLifeTime", "n1", "p"),)


def test_truncated_log_is_shown():
    with pytest.raises(DeschedulerFailed, match="unknown plugin"):
        descheduler._last_cycle(log(END, "unknown plugin"))


# ── classes of differences ─────────────────────────────────────────────────────────────────────────────────────────


def test_equal_plans_have_no_differences():
    assert compared(node("n1"), old(), under=OLD, evicted=("shop/web-1",)) == {}


def test_unexplained_difference_has_no_class():
    young = pod("new").on("n1").created(ago(10)).ready().owned_by("ReplicaSet", "web")
    assert compared(node("n1"), node("n2"), young, under=OLD, evicted=("shop/new",)) == {
        ("shop/new", "descheduler"): None
    }
    assert compared(node("n1"), node("n2"), old(), under=OLD) == {("shop/web-1", "trimtab"): None}


def test_place_first_and_place_reserved_are_distinguished():
    low = policy("RemovePodsViolatingNodeTaints")
    nodes = (node("n1").taint("t"), node("n2").allocatable(cpu="1"))
    two = ("shop/web-1", "shop/web-2")
    assert compared(*nodes, old(), old("web-2"), under=low, evicted=two) == {
        (two[1], "descheduler"): "CapacityReserved"
    }
    assert compared(nodes[0], old(), under=low, evicted=two[:1]) == {(two[0], "descheduler"): "FitsElsewhere"}


PROTECTED = {
    "system namespace": (old("x", "kube-system"), {}, "SystemNamespacesProtected"),
    "evict annotation is false": (
        old("x").annotations({"descheduler.alpha.kubernetes.io/evict": "false"}),
        {},
        "EvictAnnotationValue",
    ),
    "critical annotation": (
        old("x").annotations({"scheduler.alpha.kubernetes.io/critical-pod": ""}),
        {},
        "CriticalAnnotation",
    ),
    "critical priority, protection disabled": (
        old("x").priority(2_000_000_000),
        {"podProtections": {"defaultDisabled": ["SystemCriticalPods"]}},
        "PermanentProtections",
    ),
    "critical priority, protection enabled": (old("x").priority(2_000_000_000), {}, None),
    "local storage": (old("x").volume("emptyDir"), {}, None),
    "ephemeral claim": (
        old("x").ephemeral("scratch"),
        {"podProtections": {"extraEnabled": ["PodsWithPVC"]}},
        "EphemeralClaims",
    ),
    "plain claim": (old("x").claim("data"), {"podProtections": {"extraEnabled": ["PodsWithPVC"]}}, None),
    "owner without controller flag": (
        pod("x").on("n1").created(ago(5000)).ready().owned_by("ReplicaSet", "web", controller=False),
        {},
        "ControllerRequired",
    ),
    "bare pod": (pod("x").on("n1").created(ago(5000)).ready(), {}, None),
}


@pytest.mark.parametrize(("protected", "evictor", "name"), PROTECTED.values(), ids=PROTECTED)
def test_protections_are_classes_if_upstream_differs(protected, evictor, name):
    under = policy("PodLifeTime", {"maxPodLifeTimeSeconds": 100}, **evictor)
    key = f"{protected.manifest()['metadata']['namespace']}/x"
    assert compared(node("n1"), protected, under=under, evicted=(key,)) == {(key, "descheduler"): name}


def test_only_an_exhausted_budget_explains_a_pod():
    blocked = budget().selecting(app="web").allowing(0)
    web = old().labels(app="web")
    assert compared(node("n1"), web, blocked, under=OLD, evicted=("shop/web-1",)) == {
        ("shop/web-1", "descheduler"): "BudgetsChecked"
    }


def test_equal_number_of_other_victims_is_a_difference_of_order():
    web = [old(f"web-{number}") for number in (1, 2)]
    evictions = compared(node("n1"), node("n2"), *web, under=policy("RemoveDuplicates"), evicted=("shop/web-2",))
    assert set(evictions.values()) <= {"VictimOrder"}


def test_missing_upstream_duplicates_have_no_class():
    web = [old(f"web-{number}") for number in (1, 2)]
    evictions = compared(node("n1"), node("n2"), *web, under=policy("RemoveDuplicates"))
    assert [*evictions.values()] == [None]


def test_upstream_ignores_nodes_that_are_not_ready():
    nodes = (node("n1").not_ready(), node("n2"), node("n3"))
    assert compared(*nodes, old(), under=OLD) == {("shop/web-1", "trimtab"): "NotReadyNodes"}


# ── docs/compatibility.md ──────────────────────────────────────────────────────────────────────────────────────────


def test_table_of_differences_equals_the_classes():
    _, _, rest = TABLE.read_text("utf-8").partition("## Which pods are evicted")
    table = ROW.findall(rest.partition("### OpenShift")[0])
    classes = {named.name for named in CLASSES}
    assert len(set(table)) == len(table)
    assert not classes & UNOBSERVABLE.keys()
    assert set(table) == classes | UNOBSERVABLE.keys()


def test_docs_and_go_module_name_the_same_version():
    assert f"(v{VERSION.removeprefix('v').rpartition('.')[0]})" in TABLE.read_text("utf-8")
    module = Path(descheduler.__file__).with_name("module") / "go.mod"
    assert f"sigs.k8s.io/descheduler {VERSION}" in module.read_text("utf-8")


def test_summary_lists_the_counts(golden: Golden):
    tally = Tally(clusters=1, policies=2, alike=1, both=3)
    tally.named.update({("FitsElsewhere", "descheduler"): 2, ("NotReadyNodes", "trimtab"): 1})
    recorded = tally.render()
    golden(recorded)
    assert re.search(r"FitsElsewhere +2 +0", recorded)
    assert tally.passed


# ── shrinking ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_shrinking_removes_unrelated_objects():
    objects = [node(f"n{number}").manifest() for number in range(9)]
    needed = [objects[2], objects[7]]
    assert minimize(objects, lambda _: True, lambda rest: all(each in rest for each in needed)) == needed


def test_shrinking_keeps_the_nodes_of_pods():
    two = [node("n1").manifest(), node("n2").manifest()]
    assert shrinking._is_valid([*two, old().manifest()])
    assert not shrinking._is_valid([two[1], node("n3").manifest(), old().manifest()])


def test_unexplained_difference_is_printed_as_yaml(golden: Golden):
    found = Unexplained(
        7, [node("n1").manifest()], OLD, Difference("shop/web-1", "descheduler", "PodLifeTime"), "NoPlace: x"
    )
    recorded = found.render()
    golden("\n".join(line for line in recorded.splitlines() if line.startswith("#")))
    assert recorded.rindex("kind: DeschedulerPolicy") > recorded.rindex("kind: Node")


def test_existing_binary_is_used(tmp_path, monkeypatch):
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert existing_binary() is None
    file = tmp_path / "descheduler"
    file.write_text("#!/bin/sh\n")
    file.chmod(0o755)
    assert existing_binary() == file
