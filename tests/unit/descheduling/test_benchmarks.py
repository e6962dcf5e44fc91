"""The benchmarks run, on clusters small enough for a test."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import adding, explaining, live, removing, run
from benchmarks.clusters import Shape, cluster
from tests.fixtures.golden import Golden
from trimtab.cli.policies import load_policies
from trimtab.cluster.snapshot import Snapshot
from trimtab.placement.explanation import explanation
from trimtab.placement.placer import Placer

pytestmark = pytest.mark.live

SCRIPT = Path(run.__file__)


def test_a_generated_cluster_is_the_same_every_time():
    shape = Shape(nodes=20, pods=600, picky=3)
    assert list(cluster(shape)) == list(cluster(shape))
    snapshot = Snapshot(cluster(shape))
    assert (len(snapshot.nodes), len(snapshot.pods), len(snapshot.owners())) == (20, 600, 30)
    assert snapshot.any_anti_affinity


@pytest.mark.parametrize(
    "name",
    [
        "plan-5k",
        "plan-5k-anti-affinity",
        "plan-5k-full",
        "plan-steady-5k",
        "plan-spread-5k",
        "plan-taints-5k",
        "plan-leaning-5k",
        "plan-empty-5k",
    ],
)
def test_plans_of_benchmarks_act(monkeypatch, name):
    monkeypatch.setattr("benchmarks.clusters.Shape", lambda **shape: Shape(nodes=60, pods=1800, **shape))
    result = run.measure(name)
    assert result["name"] == name
    assert set(result) == {"name", "seconds", "peak_rss_mb", "params"}
    assert result["params"]["evictions"]


def test_the_benchmark_of_scale_down_removes_nodes_or_fails(monkeypatch, golden: Golden):
    monkeypatch.setattr(removing, "NODES", 20)
    monkeypatch.setattr(removing, "REMOVED", 12)
    params = run.measure("scale-down-2000")["params"]
    assert (params["removed"], params["moved"]) == (12, 12 * removing.PODS)
    monkeypatch.setattr(removing, "REMOVED", 13)
    with pytest.raises(SystemExit) as raised:
        run.measure("scale-down-2000")
    golden(str(raised.value))


@pytest.mark.parametrize("name", ["affinity-surge", "affinity-surge-zone"])
def test_the_benchmarks_of_surges_add_nodes_or_fail(monkeypatch, name):
    monkeypatch.setattr(adding, "_NODES", 100)
    monkeypatch.setattr(adding, "_SURGE", 10)
    assert run.measure(name)["params"]["added"] == 10
    monkeypatch.setattr(adding, "_SIZE", "example.com/none")
    with pytest.raises(SystemExit, match="did not do what it measures: added is 0"):
        run.measure(name)


def test_fitting_and_unschedulable_pods_are_explained(monkeypatch):
    monkeypatch.setattr("benchmarks.explaining.Shape", lambda: Shape(nodes=20, pods=600))
    result = run.measure("explain-5k")
    assert set(result) == {"name", "seconds", "peak_rss_mb", "params"}
    assert result["params"]["nodes"] == 20
    snapshot = Snapshot(cluster(Shape(nodes=20, pods=600)))
    pods = explaining.kinds(next(iter(snapshot.pods.values())))
    assert set(result["params"]["milliseconds"]) == set(pods)
    for name, requested in pods.items():
        snapshot.put(requested)
        document = explanation(Placer(snapshot), requested)
        assert bool(document["fits"]) == (name in {"fits", "fits spread", "is on a node"})
        assert bool(document["fits"]) == (document["remedy"] is None)


def test_unknown_benchmark_is_rejected_with_known_names():
    done = subprocess.run([sys.executable, SCRIPT, "nothing"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert all(name in done.stderr for name in ("nothing", "snapshot-5k", "place-plain"))
    listed = subprocess.run([sys.executable, SCRIPT, "--help"], capture_output=True, text=True, check=True)
    assert "plan-5k" in listed.stdout


@pytest.mark.parametrize("node_fit", ["true", "false"])
def test_both_contestants_of_the_live_benchmark_get_a_policy_that_we_can_read(tmp_path, node_fit):
    file = tmp_path / "policy.yaml"
    file.write_text(live.POLICY.replace("NODE_FIT", node_fit))
    (policy,) = load_policies([str(file)], skip_invalid=False)
    assert len(list(policy.spec.strategies.enabled())) == 5


@pytest.mark.parametrize(
    ("said", "planned", "evictions"),
    [
        ("""print('{"summary": {"Evict": 7, "kept": 1}}')""", live.planned_by_trimtab, 7),
        ("""print('{"summary": {"kept": 1}}')""", live.planned_by_trimtab, 0),
        ("import sys; print('totalEvicted=3 totalEvicted=20', file=sys.stderr)", live.planned_by_peer, 20),
        ("import sys; print('nothing', file=sys.stderr)", live.planned_by_peer, 0),
    ],
    ids=["trimtab", "trimtab, none", "the peer", "the peer, none"],
)
def test_a_run_of_the_live_benchmark_is_measured(tmp_path, said, planned, evictions):
    measured = live.run(live.Contestant("x", [sys.executable, "-c", said], planned), tmp_path / "output")
    assert measured.evictions == evictions
    assert measured.wall > 0
    assert measured.peak > 0
    assert "x: median" in live.table([measured, measured])


def test_a_contestant_that_fails_ends_the_live_benchmark(tmp_path):
    broken = live.Contestant("x", [sys.executable, "-c", "raise SystemExit('no cluster')"], live.planned_by_peer)
    with pytest.raises(SystemExit, match="x failed:\nno cluster"):
        live.run(broken, tmp_path / "output")
