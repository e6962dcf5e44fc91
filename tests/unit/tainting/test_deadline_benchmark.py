"""The benchmark of deadlines runs, on a cluster small enough for a test."""

from __future__ import annotations

from benchmarks import deadlines, run
from benchmarks.clusters import Shape


def test_benchmark_reports_all_results() -> None:
    result = deadlines.recompute(Shape(nodes=20, pods=600), due=50, lead=0.0)

    assert result["params"].items() >= {"nodes": 20, "pods": 600, "due_in_a_second": 50}.items()
    assert 0 < result["params"]["deadlines"] < 600
    assert result["params"].keys() >= {"late_p99_ms", "again_ms", "pod_us", "node_us"}
    assert "deadline-150k" in run.BENCHMARKS
