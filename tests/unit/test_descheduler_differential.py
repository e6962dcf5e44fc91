"""The comparison with the real descheduler itself: what it draws, what each class proves, that the table has all."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

import pytest

from tests.builders import NOW, Builder, budget, namespace, node, pod
from tests.descheduler_differential import shrinking, theirs
from tests.descheduler_differential.binary import VERSION, at_hand
from tests.descheduler_differential.classes.table import CLASSES, UNSEEN, name_of
from tests.descheduler_differential.clock import THEN, ago, shifted
from tests.descheduler_differential.facts import Case, Difference
from tests.descheduler_differential.generator.cluster import RandomCluster
from tests.descheduler_differential.ours import ours
from tests.descheduler_differential.report import Tally, Unexplained
from tests.descheduler_differential.store import PREFIXES, complete, path
from tests.descheduler_differential.suite import policies_of
from tests.descheduler_differential.theirs import DeschedulerFailed, Eviction
from tests.differential.dropping import dropped
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
    """The name of each difference by pod and side, if the real descheduler evicted those pods."""
    objects = [builder.manifest() for builder in (*builders, namespace("shop"), namespace("kube-system"))]
    values = [decode_object(each) for each in objects]
    snapshot = Snapshot(value for value in values if value is not None)
    strategy = under["profiles"][0]["pluginConfig"][1]["name"]
    said = {name: Eviction(name, strategy, snapshot.pods[name].node, "p") for name in evicted}
    case = Case(objects, under, ours(snapshot, THEN.timestamp(), under), said)
    return {(each.pod, each.side): name_of(case, each) for each in case.differences}


OLD = policy("PodLifeTime", {"maxPodLifeTimeSeconds": 100})


def old(name: str = "web-1", space: str = "shop", *, owner: str = "web") -> Any:
    made = pod(name, space).on("n1").cpu("1").created(ago(5000)).started(ago(5000)).ready(since=ago(5000))
    return made.owned_by("ReplicaSet", owner)


# ── what is drawn ───────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("seed", range(10))
def test_clusters_and_policies_follow_from_their_seed(seed):
    assert RandomCluster(seed).objects == RandomCluster(seed).objects
    assert policies_of(seed, 3) == policies_of(seed, 3)


@pytest.mark.parametrize("seed", range(10))
def test_all_that_is_drawn_can_be_read_and_kept(seed):
    for manifest in RandomCluster(seed).objects:
        assert manifest["kind"] in PREFIXES
        assert decode_object(manifest) is not None


@pytest.mark.parametrize("seed", range(40))
def test_every_policy_that_is_drawn_is_one_that_we_take(seed):
    for drawn in policies_of(seed, 5):
        assert import_policy(drawn).policies


def test_every_strategy_of_theirs_is_drawn():
    text = str([policies_of(seed, 4) for seed in range(60)])
    for config in ("RemoveDuplicates", "HighNodeUtilization", "RemoveFailedPods", "minReplicas", "maxNoOfPodsToEvict"):
        assert config in text


# ── what is brought there ───────────────────────────────────────────────────────────────────────────────────────────


def test_times_are_moved_to_the_present_all_by_the_same_amount():
    later = THEN.timestamp() + 3600
    moved = shifted({"at": [NOW, ago(60)], "name": "2026", "number": 1}, later)
    assert moved == {"at": ["2026-11-20T13:00:00Z", "2026-11-20T12:59:00Z"], "name": "2026", "number": 1}


def test_objects_are_kept_where_the_api_server_looks_for_them():
    assert path(node("n1").manifest()) == "/registry/minions/n1"
    assert path(budget("b", "shop").manifest()) == "/registry/poddisruptionbudgets/shop/b"


def test_an_object_without_identity_gets_one_that_stays():
    manifest = node("n1").manifest()
    del manifest["metadata"]["uid"]
    assert complete(manifest) == complete(manifest)
    assert complete(manifest)["metadata"]["uid"]


# ── what they say ───────────────────────────────────────────────────────────────────────────────────────────────────


def log(*lines: str) -> io.StringIO:
    return io.StringIO("".join(f"I1121 03:00:00.000000  1 evictions.go:1] {line}\n" for line in lines))


def evicting(name: str, strategy: str = "PodLifeTime") -> str:
    return f'"Evicted pod in dry run mode" pod="{name}" reason="" strategy="{strategy}" node="n1" profile="p"'


END = '"Number of evictions/requests" totalEvicted=1 evictionRequests=0'


def test_the_second_cycle_counts_and_each_pod_once():
    said = theirs._last_cycle(log(evicting("a/x"), END, evicting("a/y"), evicting("a/y", "RemoveDuplicates"), END))
    assert said == (Eviction("a/y", "PodLifeTime", "n1", "p"),)


def test_a_log_that_ends_too_early_is_shown():
    with pytest.raises(DeschedulerFailed, match="unknown plugin"):
        theirs._last_cycle(log(END, "unknown plugin"))


# ── what a class proves ─────────────────────────────────────────────────────────────────────────────────────────────


def test_who_agrees_differs_in_nothing():
    assert compared(node("n1"), old(), under=OLD, evicted=("shop/web-1",)) == {}


def test_a_difference_that_no_fact_explains_has_no_name():
    young = pod("new").on("n1").created(ago(10)).ready().owned_by("ReplicaSet", "web")
    assert compared(node("n1"), node("n2"), young, under=OLD, evicted=("shop/new",)) == {("shop/new", "theirs"): None}
    assert compared(node("n1"), node("n2"), old(), under=OLD) == {("shop/web-1", "ours"): None}


def test_a_pod_without_any_place_is_place_first_and_one_whose_place_is_taken_is_place_reserved():
    low = policy("RemovePodsViolatingNodeTaints")
    there = (node("n1").taint("t"), node("n2").allocatable(cpu="1"))
    two = ("shop/web-1", "shop/web-2")
    assert compared(*there, old(), old("web-2"), under=low, evicted=two) == {(two[1], "theirs"): "PlaceReserved"}
    assert compared(there[0], old(), under=low, evicted=two[:1]) == {(two[0], "theirs"): "PlaceFirst"}


PROTECTED = {
    "system namespace": (old("x", "kube-system"), {}, "SystemNamespacesProtected"),
    "evict is false": (
        old("x").annotations({"descheduler.alpha.kubernetes.io/evict": "false"}),
        {},
        "EvictAnnotationValue",
    ),
    "critical annotation": (
        old("x").annotations({"scheduler.alpha.kubernetes.io/critical-pod": ""}),
        {},
        "CriticalAnnotation",
    ),
    "critical priority given up": (
        old("x").priority(2_000_000_000),
        {"podProtections": {"defaultDisabled": ["SystemCriticalPods"]}},
        "NeverLifted",
    ),
    "critical priority kept": (old("x").priority(2_000_000_000), {}, None),
    "local storage": (old("x").volume("emptyDir"), {}, None),
    "ephemeral claim": (
        old("x").ephemeral("scratch"),
        {"podProtections": {"extraEnabled": ["PodsWithPVC"]}},
        "EphemeralClaims",
    ),
    "plain claim": (old("x").claim("data"), {"podProtections": {"extraEnabled": ["PodsWithPVC"]}}, None),
    "owner that is no controller": (
        pod("x").on("n1").created(ago(5000)).ready().owned_by("ReplicaSet", "web", controller=False),
        {},
        "ControllerNotOwner",
    ),
    "bare": (pod("x").on("n1").created(ago(5000)).ready(), {}, None),
}


@pytest.mark.parametrize(("protected", "evictor", "name"), PROTECTED.values(), ids=PROTECTED)
def test_a_protection_is_a_difference_by_name_only_where_theirs_is_another(protected, evictor, name):
    under = policy("PodLifeTime", {"maxPodLifeTimeSeconds": 100}, **evictor)
    key = f"{protected.manifest()['metadata']['namespace']}/x"
    assert compared(node("n1"), protected, under=under, evicted=(key,)) == {(key, "theirs"): name}


def test_a_budget_explains_a_pod_only_if_it_allows_no_more():
    blocked = budget().selecting(app="web").allowing(0)
    web = old().labels(app="web")
    assert compared(node("n1"), web, blocked, under=OLD, evicted=("shop/web-1",)) == {
        ("shop/web-1", "theirs"): "BudgetRead"
    }


def test_of_one_group_as_many_others_are_the_order_of_victims():
    web = [old(f"web-{number}") for number in (1, 2)]
    said = compared(node("n1"), node("n2"), *web, under=policy("RemoveDuplicates"), evicted=("shop/web-2",))
    assert set(said.values()) <= {"OrderOfVictims"}


def test_no_duplicates_evicted_where_their_own_arithmetic_gives_some_has_no_name():
    web = [old(f"web-{number}") for number in (1, 2)]
    said = compared(node("n1"), node("n2"), *web, under=policy("RemoveDuplicates"))
    assert [*said.values()] == [None]


def test_a_node_that_is_not_ready_is_none_of_theirs():
    there = (node("n1").not_ready(), node("n2"), node("n3"))
    assert compared(*there, old(), under=OLD) == {("shop/web-1", "ours"): "NodesNotReady"}


# ── the table ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_every_class_is_in_the_table_and_every_name_of_the_table_is_a_class_or_cannot_be_seen():
    _, _, rest = TABLE.read_text("utf-8").partition("## Which pods go")
    table = ROW.findall(rest.partition("### OpenShift")[0])
    classes = {named.name for named in CLASSES}
    assert len(set(table)) == len(table)
    assert not classes & UNSEEN.keys()
    assert set(table) == classes | UNSEEN.keys()


def test_the_table_and_the_module_name_the_same_version():
    assert f"(v{VERSION.removeprefix('v').rpartition('.')[0]})" in TABLE.read_text("utf-8")
    module = Path(theirs.__file__).with_name("module") / "go.mod"
    assert f"sigs.k8s.io/descheduler {VERSION}" in module.read_text("utf-8")


def test_a_summary_names_what_was_counted():
    tally = Tally(clusters=1, policies=2, alike=1, both=3)
    tally.named.update({("PlaceFirst", "theirs"): 2, ("NodesNotReady", "ours"): 1})
    told = tally.told()
    assert "pods that only they evict 2" in told
    assert re.search(r"PlaceFirst +2 +0", told)
    assert tally.passed


# ── making cases small ──────────────────────────────────────────────────────────────────────────────────────────────


def test_what_nothing_depends_on_is_left_out():
    objects = [node(f"n{number}").manifest() for number in range(9)]
    needed = [objects[2], objects[7]]
    assert dropped(objects, lambda _: True, lambda rest: all(each in rest for each in needed)) == needed


def test_a_case_never_loses_the_node_of_a_pod():
    two = [node("n1").manifest(), node("n2").manifest()]
    assert shrinking._whole([*two, old().manifest()])
    assert not shrinking._whole([two[1], node("n3").manifest(), old().manifest()])


def test_an_unexplained_difference_is_told_as_yaml_with_the_policy_last():
    found = Unexplained(
        7, [node("n1").manifest()], OLD, Difference("shop/web-1", "theirs", "PodLifeTime"), "NoPlace: x"
    )
    told = found.told()
    assert told.startswith("# cluster of seed 7")
    assert "# only the descheduler would evict shop/web-1 (PodLifeTime)\n# we: NoPlace: x\n" in told
    assert told.rindex("kind: DeschedulerPolicy") > told.rindex("kind: Node")


def test_a_binary_that_is_brought_along_is_taken(tmp_path, monkeypatch):
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert at_hand() is None
    file = tmp_path / "descheduler"
    file.write_text("#!/bin/sh\n")
    file.chmod(0o755)
    assert at_hand() == file
