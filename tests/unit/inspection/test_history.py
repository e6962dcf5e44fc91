"""Reading the history from HistoryRecords and DeschedulingRuns."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from tests.builders import node
from trimtab.api.history_record import HistoryEntry
from trimtab.cli.cluster_input import ClusterSource, load_cluster_input
from trimtab.inspection.cluster import PolicySet
from trimtab.inspection.history import SAME_OUTCOME, entries_of

NOW = datetime(2026, 11, 23, 9, 0, tzinfo=UTC)


def entry(pod: str = "web-1", *, at: datetime = NOW, **fields: Any) -> HistoryEntry:
    values: dict[str, Any] = {
        "controller": "descheduler",
        "action": "Evict",
        "reason": "DuplicateOnNode",
        "policy": "default",
        "namespace": "shop",
        "uid": f"uid-{pod}",
        "node": "n1",
    }
    return HistoryEntry(time=at, pod=pod, **(values | fields))


def record(name: str, *entries: HistoryEntry) -> dict[str, Any]:
    spec = {"entries": msgspec.to_builtins(entries), "count": len(entries)}
    return {
        "apiVersion": "trimtab.dev/v1alpha1",
        "kind": "HistoryRecord",
        "metadata": {"name": name},
        "spec": spec,
    }


def run(*outcomes: tuple[str, str, datetime]) -> dict[str, Any]:
    """A run of the policy default with the outcomes (pod, result, time)."""
    actions = [
        {
            "namespace": "shop",
            "pod": pod,
            "uid": f"uid-{pod}",
            "node": "n1",
            "strategy": "RemoveDuplicates",
            "reason": "DuplicateOnNode",
            "target": "n4",
            "message": "2 pods on n1",
        }
        for pod, _, _ in outcomes
    ]
    results = [
        {
            "namespace": "shop",
            "pod": pod,
            "uid": f"uid-{pod}",
            "result": result,
            "reason": result,
            "time": at.isoformat(),
        }
        for pod, result, at in outcomes
    ]
    return {
        "apiVersion": "trimtab.dev/v1alpha1",
        "kind": "DeschedulingRun",
        "metadata": {"name": "default-1"},
        "spec": {"plan": {"policy": "default", "actions": actions}},
        "status": {"outcomes": results},
    }


def test_entries_of_all_records_are_in_order_of_time() -> None:
    first, second, third = (entry(f"web-{n}", at=NOW + timedelta(minutes=n)) for n in range(3))
    assert entries_of([record("b", second, third), record("a", first, second)]) == (first, second, third)


@pytest.mark.parametrize(
    ("result", "expected"),
    [("Evicted", "Succeeded"), ("Started", "Started"), ("Refused", "Refused"), ("Failed", "Failed")],
)
def test_outcomes_of_runs_are_entries(result: str, expected: str) -> None:
    [found] = entries_of([run(("web-1", result, NOW))])
    assert (found.pod, found.node, found.target, found.policy) == ("web-1", "n1", "n4", "default")
    assert (found.strategy, found.reason, found.result) == ("RemoveDuplicates", "DuplicateOnNode", expected)
    assert found.result_reason == (result if expected in ("Refused", "Failed") else None)


@pytest.mark.parametrize("result", ["Gone", "Skipped"])
def test_actions_without_a_request_are_no_entries(result: str) -> None:
    assert entries_of([run(("web-1", result, NOW))]) == ()


@pytest.mark.parametrize(("apart", "number"), [(0, 1), (SAME_OUTCOME, 1), (SAME_OUTCOME + 1, 2)])
def test_an_action_in_a_run_and_in_a_record_is_returned_once(apart: float, number: int) -> None:
    recorded = entry(at=NOW + timedelta(seconds=apart))
    assert len(entries_of([record("a", recorded), run(("web-1", "Evicted", NOW))])) == number


@pytest.mark.parametrize(
    "manifest",
    [
        {"kind": "HistoryRecord"},
        {"kind": "HistoryRecord", "spec": {"entries": "x"}},
        {"kind": "HistoryRecord", "spec": {"entries": [{}, None, {"time": "yesterday"}]}},
        {"kind": "DeschedulingRun", "spec": [], "status": {"outcomes": [1]}},
        {"kind": "Pod"},
    ],
)
def test_invalid_entries_are_omitted(manifest: dict[str, Any]) -> None:
    assert entries_of([manifest, record("a", entry())]) == (entry(),)


@pytest.mark.parametrize("form", ["json", "yaml"])
def test_history_of_a_file(tmp_path: Path, form: str) -> None:
    items = [node("n1").manifest(), record("a", entry("web-2", at=NOW)), run(("web-1", "Evicted", NOW))]
    document = {"apiVersion": "v1", "kind": "List", "items": json.loads(msgspec.json.encode(items))}
    path = tmp_path / f"cluster.{form}"
    path.write_text(yaml.safe_dump(document) if form == "yaml" else json.dumps(document))

    source = ClusterSource(cluster=str(path))
    found = load_cluster_input(source, PolicySet(), history=True)
    assert sorted((each.pod, each.time) for each in found.history) == [("web-1", NOW), ("web-2", NOW)]
    assert load_cluster_input(source, PolicySet()).history == ()
