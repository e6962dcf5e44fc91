"""Who stands in whose way, as policies come, change and go."""

from __future__ import annotations

from typing import Any

import pytest

from tests.fakes.api import FakeApi
from tests.policies import DUPLICATES, high_node, low_node, manifest
from tests.unit.descheduling.planning import packing, policy, utilization
from tests.unit.descheduling.test_low_node_utilization import with_params
from trimtab.cluster.usage import Usage
from trimtab.descheduling.burden import measured_by
from trimtab.descheduling.peers import Peers
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


def opposed(peers: Peers) -> set[str]:
    return {name for name in ("even", "fill") if peers.against(name)}


def test_both_of_a_conflict_are_held_and_nobody_else():
    peers = Peers()
    peers.put("even", "1", EVEN)
    assert opposed(peers) == set()
    peers.put("fill", "2", FILL)
    assert opposed(peers) == {"even", "fill"}
    assert peers.against("third") == ()


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda peers: peers.forget("fill", "2"), id="the other is deleted"),
        pytest.param(lambda peers: peers.put("fill", "2", None), id="the other can no longer be used"),
        pytest.param(
            lambda peers: peers.put("fill", "2", policy(packing({"cpu": 20}), "fill", suspend=True)),
            id="the other is suspended",
        ),
    ],
)
def test_a_conflict_ends_with_one_of_its_policies_and_both_are_told(change):
    peers, told = Peers(), []
    for name in ("even", "fill", "third"):
        peers.listen(name, lambda name=name: told.append(name))
    peers.put("even", "1", EVEN)
    peers.put("fill", "2", FILL)
    assert told == ["even", "fill"]
    change(peers)
    assert opposed(peers) == set()
    assert told == ["even", "fill", "even"] or told == ["even", "fill", "even", "fill"]


def test_nobody_is_told_of_what_does_not_change_who_is_held():
    peers, told = Peers(), []
    peers.put("even", "1", EVEN)
    peers.put("fill", "2", FILL)
    peers.listen("even", lambda: told.append("even"))
    peers.put("fill", "2", FILL)
    peers.put("third", "3", policy({"RemoveDuplicates": {}}, "third"))
    assert told == []


def test_a_predecessor_that_ends_late_does_not_take_its_successor_with_it():
    peers = Peers()
    peers.put("even", "1", EVEN)
    peers.put("fill", "2", FILL)
    peers.put("fill", "3", FILL)
    peers.forget("fill", "2")
    assert opposed(peers) == {"even", "fill"}
    peers.forget("fill", "3")
    assert opposed(peers) == set()


async def test_policies_whose_loops_have_not_begun_are_known_from_a_list():
    peers, api = Peers(), cluster()
    await peers.take_up(api)
    assert opposed(peers) == {"even", "fill"}
    await peers.take_up(api)
    assert len(api.calls) == 1


async def test_what_a_loop_has_told_is_not_older_than_the_list():
    peers = Peers()
    peers.put("fill", "uid-fill", policy({"RemoveDuplicates": {}}, "fill"))
    await peers.take_up(cluster())
    assert opposed(peers) == set()


async def test_policies_on_their_way_out_and_those_that_cannot_be_used_stand_in_nobodys_way():
    api = FakeApi()
    stored(api, "even", low_node("thresholds: {cpu: 20}, targetThresholds: {cpu: 50}"))
    stored(api, "going", high_node("thresholds: {cpu: 20}"), deletionTimestamp="2026-11-20T12:00:00Z")
    stored(api, "wrong", high_node("thresholds: {cpu: 200}"))
    stored(api, "other", f"{{{DUPLICATES}}}")
    peers = Peers()
    await peers.take_up(api)
    assert opposed(peers) == set()


async def test_a_list_that_fails_is_tried_again():
    peers, api = Peers(), cluster()
    api.fail(Unreachable("not now"))
    with pytest.raises(Unreachable):
        await peers.take_up(api)
    await peers.take_up(api)
    assert opposed(peers) == {"even", "fill"}


@pytest.mark.parametrize(
    ("spec", "there"),
    [
        pytest.param({"mode": "Act"}, True, id="one that acts"),
        pytest.param({"mode": "Approve"}, True, id="one that somebody may approve"),
        pytest.param(
            {"mode": "Act", "windows": [{"schedule": "0 3 * * *", "duration": "1h"}]}, True, id="one that acts at night"
        ),
        pytest.param({}, False, id="one that simulates"),
        pytest.param({"mode": "Act", "suspend": True}, False, id="one that is suspended"),
    ],
)
def test_beside_a_policy_are_those_that_may_act(spec, there):
    peers = Peers()
    other = policy({"RemoveDuplicates": {}}, "other", **spec)
    peers.put("own", "1", policy(packing({"cpu": 20}), "own", mode="Act"))
    peers.put("other", "2", other)
    assert peers.beside("own") == ((other,) if there else ())
    peers.put("other", "2", None)
    assert peers.beside("own") == ()


def test_whoever_is_held_by_a_conflict_stands_beside_nobody():
    peers = Peers()
    for name, strategies in (("even", utilization({"cpu": 20}, {"cpu": 50})), ("fill", packing({"cpu": 20}))):
        peers.put(name, name, policy(strategies, name, mode="Act"))
    assert peers.beside("third") == ()
    peers.forget("fill", "fill")
    assert [each.name for each in peers.beside("third")] == ["even"]


def test_what_is_said_of_the_scheduler_holds_for_every_policy():
    peers = Peers("LeastAllocated")
    peers.put("even", "1", EVEN)
    peers.put("fill", "2", policy(packing({"cpu": 20}), "fill", nodeSelector={"matchLabels": {"pool": "x"}}))
    assert {each.reason for each in peers.against("fill")} == {"PolicyConflict", "SchedulerConflict"}
    assert {each.reason for each in peers.against("even")} == {"PolicyConflict"}


def test_what_a_policy_has_measured_is_known_as_long_as_it_asks_the_same():
    by_use = with_params(utilization({"cpu": 20}, {"cpu": 50}), metricsUtilization={"source": "KubernetesMetrics"})
    asks = {"metricsUtilization": {"source": "Prometheus", "prometheus": {"query": "load"}}}
    queried = policy(with_params(utilization({"MetricResource": 20}, {"MetricResource": 50}), **asks), "even")
    usage, wanted = Usage(nodes={"n1": {"cpu": 1, "memory": 1}}), measured_by(policy(by_use, "even"))
    assert wanted is not None
    peers = Peers()
    peers.put("even", "1", policy(by_use, "even"))
    peers.measured("even", wanted, usage)
    assert peers.usages() == {"even": usage}
    peers.put("even", "1", queried)  # nothing of it can be read by what is asked now
    assert peers.usages() == {}
    peers.put("even", "1", policy(by_use, "even", suspend=True))
    assert peers.usages() == {"even": usage}
    peers.forget("even", "1")
    peers.measured("even", wanted, usage)  # by a cycle that ends late
    assert peers.usages() == {}
