"""The benchmarks run, on clusters small enough for a test."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import explaining, live, run
from benchmarks.clusters import Shape, cluster
from trimtab.cli.policies import load_policies
from trimtab.cluster.snapshot import Snapshot
from trimtab.placement.explanation import explanation
from trimtab.placement.placer import Placer

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


def test_pods_are_explained_that_fit_and_that_do_not(monkeypatch):
    monkeypatch.setattr("benchmarks.explaining.Shape", lambda: Shape(nodes=20, pods=600))
    result = run.measure("explain-5k")
    assert set(result) == {"name", "seconds", "peak_rss_mb", "params"}
    assert result["params"]["nodes"] == 20
    snapshot = Snapshot(cluster(Shape(nodes=20, pods=600)))
    pods = explaining.kinds(next(iter(snapshot.pods.values())))
    assert set(result["params"]["milliseconds"]) == set(pods)
    for name, asked in pods.items():
        snapshot.put(asked)
        document = explanation(Placer(snapshot), asked)
        assert bool(document["fits"]) == (name in {"fits", "fits spread", "is on a node"})
        assert bool(document["fits"]) == (document["remedy"] is None)


def test_an_unknown_benchmark_is_refused_with_those_there_are():
    done = subprocess.run([sys.executable, SCRIPT, "nothing"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "no benchmark is called nothing; there are snapshot-5k, place-plain" in done.stderr
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
