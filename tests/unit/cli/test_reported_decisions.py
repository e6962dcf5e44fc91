"""Decisions that users of the peers reported as wrong, as small clusters, each with what should happen instead."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.builders import PodBuilder, node, pod

NOW = "2026-11-20T12:00:00Z"
STARTED = "2026-11-20T08:05:00Z"
SLA = "example.com/sla"


def planned(run: Any, write: Any, policy: dict[str, Any], *objects: Any) -> Any:
    api_version = policy.pop("apiVersion", "trimtab.dev/v1alpha1")
    document = {"apiVersion": api_version, "metadata": {"name": "default"}, **policy}
    files = write("policy.yaml", document), write("cluster.json", *objects)
    result = run("plan", "--policy", files[0], "--cluster", files[1], "--now", NOW, "--output", "json")
    assert result.exit_code == 0, result.stderr
    return msgspec.json.decode(result.stdout)


def numeric(name: str, operator: str, value: str, on: str, seconds: int | None = None) -> PodBuilder:
    return pod(name).on(on).started(STARTED).tolerates(SLA, value, "NoExecute", operator=operator, seconds=seconds)


@pytest.mark.parametrize("mode", ["TaintAndEvict", "Own"])
def test_numeric_tolerations_keep_pods(run: Any, write: Any, mode: str) -> None:
    """kubernetes/kubernetes#134665: ``Gt`` tolerates a taint whose value is greater than the toleration's."""
    found = planned(
        run,
        write,
        {"kind": "TaintManager", "spec": {"mode": mode}},
        node("gold").taint(SLA, "950", "NoExecute", added="2026-11-20T11:50:00Z"),
        node("odd").taint(SLA, "high", "NoExecute", added="2026-11-20T11:50:00Z"),
        numeric("gt900", "Gt", "900", "gold"),
        numeric("gt950", "Gt", "950", "gold"),
        numeric("gt990", "Gt", "990", "gold"),
        numeric("lt1000-600s", "Lt", "1000", "gold", 600),
        numeric("lt1000-1200s", "Lt", "1000", "gold", 1200),
        numeric("gt1", "Gt", "1", "odd"),
    )
    assert {each["pod"]: each["due"] for each in found["actions"] if each["action"] == "Delete"} == {
        "gt950": NOW,
        "gt990": NOW,
        "gt1": NOW,
        "lt1000-600s": NOW,
        "lt1000-1200s": "2026-11-20T12:10:00Z",
    }


@pytest.mark.parametrize(
    ("other", "evicted"),
    [
        ({"api_version": "apps.kruise.io/v1beta1"}, 0),
        ({"api_version": "apps/v1beta2"}, 1),
        ({"uid": "created-again"}, 0),
        ({}, 1),
    ],
    ids=["another API group", "another version", "another UID", "the same"],
)
def test_owners_of_one_name_are_told_apart(run: Any, write: Any, other: dict[str, str], evicted: int) -> None:
    """A variation of kubernetes-sigs/descheduler#97: two StatefulSets ``web``, with a pod each on one node."""
    found = planned(
        run,
        write,
        {"kind": "DeschedulerPolicy", "spec": {"strategies": {"RemoveDuplicates": {"enabled": True}}}},
        node("n1"),
        node("n2"),
        pod("web-0").on("n1").ready().started(STARTED).owned_by("StatefulSet", "web"),
        pod("web-1").on("n1").ready().started(STARTED).owned_by("StatefulSet", "web", **other),
    )
    assert len([each for each in found["actions"] if each["action"] == "Evict"]) == evicted
