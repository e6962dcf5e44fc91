"""Who stands in whose way, as policies come, change and go."""

from __future__ import annotations

from typing import Any

import pytest

from tests.fakes.api import FakeApi
from tests.policies import DUPLICATES, high_node, low_node, manifest
from tests.unit.descheduling.planning import packing, policy, utilization
from tests.unit.descheduling.test_low_node_utilization import with_params
from trimtab.cluster.usage.measurement import Usage
from trimtab.descheduling.planning.node_usage import metrics_utilization_of
from trimtab.descheduling.policy_conflicts import PolicyRegistry
from trimtab.kube.api import Unreachable

EVEN = policy(utilization({"cpu": 20}, {"cpu": 50}), "even")
FILL = policy(packing({"cpu": 20}), "fill")
PATH = "/apis/trimtab.dev/v1alpha1/deschedulerpolicies"


def stored(api: FakeApi, name: str, spec: str, **metadata: Any) -> None:
    body = manifest(spec, name=name)
    body["metadata"] |= {"uid": f"uid-{name}", **metadata}
    api.put(f"{PATH}/{name}", body)


def cluster() -> FakeApi:
    """A policy that levels nodes and one that fills them."""
    api = FakeApi()
    stored(api, "even", low_node("thresholds: {cpu: 20}, targetThresholds: {cpu: 50}"))
    stored(api, "fill", high_node("thresholds: {cpu: 20}"))
    return api


def opposed(peers: PolicyRegistry) -> set[str]:
    return {name for name in ("even", "fill") if peers.conflicts_of(name)}


def test_only_conflicting_policies_are_blocked():
    peers = PolicyRegistry()
    peers.update("even", "1", EVEN)
    assert opposed(peers) == set()
    peers.update("fill", "2", FILL)
    assert opposed(peers) == {"even", "fill"}
    assert peers.conflicts_of("third") == ()


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda peers: peers.forget("fill", "2"), id="the other is deleted"),
        pytest.param(lambda peers: peers.update("fill", "2", None), id="the other can no longer be used"),
        pytest.param(
            lambda peers: peers.update("fill", "2", policy(packing({"cpu": 20}), "fill", suspend=True)),
            id="the other is suspended",
        ),
    ],
)
def test_resolved_conflict_notifies_both_policies(change):
    peers, recorded = PolicyRegistry(), []
    for name in ("even", "fill", "third"):
        peers.listen(name, lambda name=name: recorded.append(name))
    peers.update("even", "1", EVEN)
    peers.update("fill", "2", FILL)
    assert recorded == ["even", "fill"]
    change(peers)
    assert opposed(peers) == set()
    assert recorded == ["even", "fill", "even"] or recorded == ["even", "fill", "even", "fill"]


def test_unchanged_conflicts_notify_no_policy():
    peers, recorded = PolicyRegistry(), []
    peers.update("even", "1", EVEN)
    peers.update("fill", "2", FILL)
    peers.listen("even", lambda: recorded.append("even"))
    peers.update("fill", "2", FILL)
    peers.update("third", "3", policy({"RemoveDuplicates": {}}, "third"))
    assert recorded == []


def test_late_removal_keeps_recreated_policy():
    peers = PolicyRegistry()
    peers.update("even", "1", EVEN)
    peers.update("fill", "2", FILL)
    peers.update("fill", "3", FILL)
    peers.forget("fill", "2")
    assert opposed(peers) == {"even", "fill"}
    peers.forget("fill", "3")
    assert opposed(peers) == set()


async def test_policies_without_loop_are_listed():
    peers, api = PolicyRegistry(), cluster()
    await peers.list_existing(api)
    assert opposed(peers) == {"even", "fill"}
    await peers.list_existing(api)
    assert len(api.calls) == 1


async def test_listed_policy_does_not_replace_registered_one():
    peers = PolicyRegistry()
    peers.update("fill", "uid-fill", policy({"RemoveDuplicates": {}}, "fill"))
    await peers.list_existing(cluster())
    assert opposed(peers) == set()


async def test_terminating_and_invalid_policies_cause_no_conflict():
    api = FakeApi()
    stored(api, "even", low_node("thresholds: {cpu: 20}, targetThresholds: {cpu: 50}"))
    stored(api, "going", high_node("thresholds: {cpu: 20}"), deletionTimestamp="2026-11-20T12:00:00Z")
    stored(api, "wrong", high_node("thresholds: {cpu: 200}"))
    stored(api, "other", f"{{{DUPLICATES}}}")
    peers = PolicyRegistry()
    await peers.list_existing(api)
    assert opposed(peers) == set()


async def test_failed_list_is_retried():
    peers, api = PolicyRegistry(), cluster()
    api.fail(Unreachable("not now"))
    with pytest.raises(Unreachable):
        await peers.list_existing(api)
    await peers.list_existing(api)
    assert opposed(peers) == {"even", "fill"}


@pytest.mark.parametrize(
    ("spec", "there"),
    [
        pytest.param({"mode": "Act"}, True, id="one that acts"),
        pytest.param({"mode": "Approve"}, True, id="a policy in mode Approve"),
        pytest.param(
            {"mode": "Act", "windows": [{"schedule": "0 3 * * *", "duration": "1h"}]}, True, id="one that acts at night"
        ),
        pytest.param({}, False, id="one that simulates"),
        pytest.param({"mode": "Act", "suspend": True}, False, id="one that is suspended"),
    ],
)
def test_active_peers_may_act(spec, there):
    peers = PolicyRegistry()
    other = policy({"RemoveDuplicates": {}}, "other", **spec)
    peers.update("own", "1", policy(packing({"cpu": 20}), "own", mode="Act"))
    peers.update("other", "2", other)
    assert peers.active_peers("own") == ((other,) if there else ())
    peers.update("other", "2", None)
    assert peers.active_peers("own") == ()


def test_conflicting_policies_are_no_active_peers():
    peers = PolicyRegistry()
    for name, strategies in (("even", utilization({"cpu": 20}, {"cpu": 50})), ("fill", packing({"cpu": 20}))):
        peers.update(name, name, policy(strategies, name, mode="Act"))
    assert peers.active_peers("third") == ()
    peers.forget("fill", "fill")
    assert [each.name for each in peers.active_peers("third")] == ["even"]


def test_scheduler_scoring_applies_to_every_policy():
    peers = PolicyRegistry("LeastAllocated")
    peers.update("even", "1", EVEN)
    peers.update("fill", "2", policy(packing({"cpu": 20}), "fill", nodeSelector={"matchLabels": {"pool": "x"}}))
    assert {each.reason for each in peers.conflicts_of("fill")} == {"PolicyConflict", "SchedulerConflict"}
    assert {each.reason for each in peers.conflicts_of("even")} == {"PolicyConflict"}


def test_measurement_is_shared_until_query_changes():
    by_use = with_params(utilization({"cpu": 20}, {"cpu": 50}), metricsUtilization={"source": "KubernetesMetrics"})
    asks = {"metricsUtilization": {"source": "Prometheus", "prometheus": {"query": "load"}}}
    queried = policy(with_params(utilization({"MetricResource": 20}, {"MetricResource": 50}), **asks), "even")
    usage, wanted = Usage(nodes={"n1": {"cpu": 1, "memory": 1}}), metrics_utilization_of(policy(by_use, "even"))
    assert wanted is not None
    peers = PolicyRegistry()
    peers.update("even", "1", policy(by_use, "even"))
    peers.record_usage("even", wanted, usage)
    assert peers.usages() == {"even": usage}
    peers.update("even", "1", queried)  # nothing of it can be read by what is asked now
    assert peers.usages() == {}
    peers.update("even", "1", policy(by_use, "even", suspend=True))
    assert peers.usages() == {"even": usage}
    peers.forget("even", "1")
    peers.record_usage("even", wanted, usage)  # by a cycle that ends late
    assert peers.usages() == {}
