"""Filters that only refuse: gated pods and pods with ResourceClaims."""

from __future__ import annotations

import numpy as np

from tests.fixtures.golden import Golden
from tests.unit.placement.volume_worlds import node
from trimtab.cluster.snapshot import Snapshot
from trimtab.kube.objects import Pod, PodSpec
from trimtab.placement.filters.nodes import DynamicResources, SchedulingGates
from trimtab.placement.interface import Filter

SNAPSHOT = Snapshot([node("n1")])


def refusal(kind: type[Filter], spec: PodSpec) -> str | None:
    """What the filter says; it says nothing about nodes."""
    rule, pod = kind(SNAPSHOT), Pod("default", "p", spec=spec)
    assert rule.passing(pod) is None
    assert list(rule.failures(pod, np.array([0]))) == []
    found = rule.refusal(pod)
    assert rule.concerns(pod) is (found is not None)
    return found


def test_gated_pod_has_the_message_of_its_condition() -> None:
    assert refusal(SchedulingGates, PodSpec()) is None
    gated = PodSpec(scheduling_gates=("example.com/a", "example.com/b"))
    assert refusal(SchedulingGates, gated) == "Scheduling is blocked due to non-empty scheduling gates"


def test_resource_claims_are_named_but_not_evaluated(golden: Golden) -> None:
    assert refusal(DynamicResources, PodSpec()) is None
    golden(refusal(DynamicResources, PodSpec(resource_claims=("gpu", "nic"))) or "")
