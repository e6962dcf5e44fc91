"""The permissions that a TaintManager needs in each mode."""

from __future__ import annotations

import pytest

from trimtab.api.taint_manager import KeyPolicy, TaintManagerSpec
from trimtab.tainting.permissions import required_permissions

EVICT_PODS = {"get pods", "delete pods", "patch pods/status", "patch nodes"}
TAINT = {
    "get nodes",
    "patch nodes/status",
    "get leases.coordination.k8s.io in kube-node-lease",
    "create configmaps in here",
    "get configmaps trimtab-taint-manager in here",
    "patch configmaps trimtab-taint-manager in here",
}
EVICTING = (KeyPolicy(key="a", policy="Evict"),)


def texts(spec: TaintManagerSpec) -> set[str]:
    return {each.permission.text for each in required_permissions(spec, namespace="here")}


@pytest.mark.parametrize(
    ("spec", "more"),
    [
        (TaintManagerSpec(taints=EVICTING), set()),
        (TaintManagerSpec(mode="EvictPods"), EVICT_PODS),
        (TaintManagerSpec(mode="EvictPods", taints=EVICTING), {*EVICT_PODS, "create pods/eviction"}),
        (TaintManagerSpec(mode="TaintAndEvict"), EVICT_PODS | TAINT),
    ],
)
def test_required_permissions_by_mode(spec: TaintManagerSpec, more: set[str]) -> None:
    assert texts(spec) - texts(TaintManagerSpec()) == more
