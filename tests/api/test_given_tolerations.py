"""The tolerations that Kubernetes adds to pods, and the deadlines that follow from them."""

from __future__ import annotations

import math
from typing import Any

import pytest

from tests.fixtures.machine_sets import MachineSets
from tests.fixtures.waiting import eventually
from trimtab.kube.api import NotFound
from trimtab.kube.objects import Pod, Taint
from trimtab.kube.resources import DAEMON_SETS, PODS
from trimtab.kube.rules import taints
from trimtab.kube.rules.taints import NO_EXECUTE, NO_SCHEDULE, tolerates
from trimtab.kube.wire.decode import decode_object
from trimtab.tainting.deadlines import TolerationRule, tolerance

SECONDS = 300
AWAY = [Taint(key, NO_EXECUTE) for key in (taints.NOT_READY, taints.UNREACHABLE)]
PRESSED = [
    Taint(key, NO_SCHEDULE)
    for key in (taints.MEMORY_PRESSURE, taints.DISK_PRESSURE, taints.PID_PRESSURE, taints.UNSCHEDULABLE)
]
NO_NETWORK = Taint(taints.NETWORK_UNAVAILABLE, NO_SCHEDULE)


def toleration(key: str, **more: Any) -> dict[str, Any]:
    return {"key": key, "operator": "Exists", "effect": "NoExecute", **more}


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ([], {taints.NOT_READY: SECONDS, taints.UNREACHABLE: SECONDS}),
        ([toleration(taints.UNREACHABLE, tolerationSeconds=60)], {taints.NOT_READY: SECONDS, taints.UNREACHABLE: 60}),
        ([toleration(taints.UNREACHABLE)], {taints.NOT_READY: SECONDS, taints.UNREACHABLE: None}),
        ([{"operator": "Exists"}], {taints.NOT_READY: None, taints.UNREACHABLE: None}),
        ([{"operator": "Exists", "effect": "NoSchedule"}], {taints.NOT_READY: SECONDS, taints.UNREACHABLE: SECONDS}),
        ([toleration(taints.NOT_READY, tolerationSeconds=0)], {taints.NOT_READY: 0, taints.UNREACHABLE: SECONDS}),
    ],
    ids=["nothing", "a minute", "for ever", "everything", "scheduling", "not at all"],
)
def test_default_tolerations_of_300_seconds_are_added_per_taint(
    sets: MachineSets, asked: list[dict[str, Any]], expected: dict[str, int | None]
) -> None:
    eventually(lambda: _account(sets), what="the account is there")
    manifest = {
        "metadata": {"name": "web"},
        "spec": {"containers": [{"name": "main", "image": "none"}], "tolerations": asked},
    }
    params = {"dryRun": "All"}
    made = sets.client.request("POST", PODS.path(namespace=sets.namespace), manifest, params=params)

    assert {taint.key: goes_after(read(made), taint) for taint in AWAY} == expected


@pytest.mark.parametrize("host_network", [False, True], ids=["of its own", "the host's"])
def test_daemon_set_pods_tolerate_node_condition_taints(sets: MachineSets, host_network: bool) -> None:
    eventually(lambda: _account(sets), what="the account is there")
    sets.make("a", 1)
    sets.running("a", 1)
    labels = {"app": "agent"}
    spec = {
        "hostNetwork": host_network,
        "nodeSelector": {"pool": "a"},
        "tolerations": [{"key": "only", "operator": "Exists"}],
        "containers": [{"name": "main", "image": "none"}],
    }
    manifest = {
        "metadata": {"name": "agent"},
        "spec": {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": spec}},
    }
    sets.client.request("POST", DAEMON_SETS.path(namespace=sets.namespace), manifest)
    pods = PODS.path(namespace=sets.namespace)
    [made] = eventually(lambda: sets.client.request("GET", pods)["items"], what="its pod is made")
    pod = read(made)

    assert [goes_after(pod, taint) for taint in AWAY] == [None, None]
    assert all(any(tolerates(each, taint) for each in pod.spec.tolerations) for taint in PRESSED)
    assert any(tolerates(each, NO_NETWORK) for each in pod.spec.tolerations) is host_network
    assert any(tolerates(each, Taint("only", NO_SCHEDULE, "a")) for each in pod.spec.tolerations)
    sets.client.request("DELETE", DAEMON_SETS.path("agent", namespace=sets.namespace))


def goes_after(pod: Pod, taint: Taint) -> float | None:
    """Seconds between the taint and the deletion, by the pod's tolerations; ``None`` for never."""
    seconds = tolerance(pod.spec.tolerations, taint, TolerationRule()).seconds
    return None if seconds == math.inf else seconds


def read(manifest: dict[str, Any]) -> Pod:
    value = decode_object({"apiVersion": "v1", "kind": "Pod", **manifest})
    assert isinstance(value, Pod)
    return value


def _account(sets: MachineSets) -> bool:
    try:
        return bool(sets.client.request("GET", f"/api/v1/namespaces/{sets.namespace}/serviceaccounts/default"))
    except NotFound:
        return False
