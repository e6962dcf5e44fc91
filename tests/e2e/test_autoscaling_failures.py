"""Machines that are not provisioned, a provider API that fails, hangs or lies, and concurrent manual changes."""

from __future__ import annotations

import itertools
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.e2e.conftest import Start
from tests.fixtures.audit import OPERATOR, AuditEvent, credential, pods_lost
from tests.fixtures.autoscaling import ORDER, TO_BE_DELETED, Fleet, marks
from tests.fixtures.waiting import patiently, wait_for
from tests.fixtures.webhooks import SCALING, Gate, webhook

SNUG = {"cpu": "4"}
"""Two pods of 1500m fill its 3500m best, so that it is chosen first."""
PROVISION_TIME = f"{patiently(10):.0f}s"
"""Longer than machines need that are provisioned, on a busy machine, too."""
ROOMY = {"cpu": "8", "memory": "32Gi"}


def test_out_of_stock_node_group_falls_back_to_another(fleet: Fleet, operate: Start) -> None:
    fleet.group("a", **SNUG, annotations={f"{ORDER}/quota": "0"})
    fleet.group("b", **ROOMY)
    fleet.autoscale()
    operate()

    fleet.deploy("web", 2)

    fleet.until_running("web", 2)
    assert fleet.pools("web") == {"b": 2}
    fleet.until_sizes(a=0, b=1)
    fleet.until(lambda: not fleet.machines("a"), "the machine that failed is taken away")
    reported = fleet.group_status("a")
    assert reported["lastError"]["reason"] == "InsufficientResources"
    assert reported["backoffUntil"]
    assert reported["failures"] >= 1
    assert fleet.audit.scales("a")[0] == 1, "it was asked first"
    fleet.until(lambda: fleet.events("MachineFailed"), "the failure is reported")


def test_partial_scale_up_is_completed_by_another_node_group(fleet: Fleet, operate: Start) -> None:
    fleet.group("a", **SNUG, annotations={f"{ORDER}/fail": "InsufficientResources:2"})
    fleet.group("b", **ROOMY)
    fleet.autoscale()
    operate()

    fleet.deploy("web", 8)

    fleet.until_running("web", 8)
    fleet.until_sizes(a=2, b=1)
    assert fleet.pools("web") == {"a": 4, "b": 4}
    assert fleet.group_status("a")["backoffUntil"]


def test_unprovisioned_machines_time_out(fleet: Fleet, operate: Start) -> None:
    fleet.group("a", **SNUG, annotations={f"{ORDER}/hold": "true"})
    fleet.group("b", **ROOMY)
    fleet.autoscale(maxNodeProvisionTime=PROVISION_TIME)
    operate()

    fleet.deploy("web", 2)

    fleet.until_running("web", 2, seconds=90)
    assert fleet.pools("web") == {"b": 2}
    fleet.until(lambda: fleet.size("a") == 0, "nothing is asked of the hanging set any more")
    assert fleet.group_status("a")["backoffUntil"]
    fleet.until(lambda: fleet.events("ScaleUpTimedOut"), "it is reported")


def test_machines_without_nodes_are_deleted_after_the_timeout(fleet: Fleet, operate: Start) -> None:
    fleet.group("a", **SNUG, annotations={f"{ORDER}/never-join": "1"})
    fleet.group("b", **ROOMY)
    fleet.autoscale(maxNodeProvisionTime=PROVISION_TIME)
    operate()

    fleet.deploy("web", 2)

    fleet.until_running("web", 2, seconds=90)
    assert fleet.pools("web") == {"b": 2}
    fleet.until(lambda: not fleet.machines("a") and fleet.size("a") == 0, "the machine without a node is gone")
    assert not fleet.marked_machines()


def by_operator(name: str) -> Any:
    """The operator's writes of one MachineSet."""
    return lambda request: request["userInfo"]["username"] == OPERATOR and request["name"] == name


@contextmanager
def gated(fleet: Fleet, gate: Gate) -> Iterator[Gate]:
    with webhook(fleet.client, ca=fleet.cluster.ca, name="scaling", rules=[SCALING], judge=gate):
        try:
            yield gate
        finally:
            gate.open()


def test_failing_node_group_blocks_no_other(fleet: Fleet, operate: Start) -> None:
    fleet.group("a", **SNUG)
    fleet.group("b", **ROOMY)
    fleet.autoscale()
    with gated(fleet, Gate(by_operator("a"), refuse="the cloud is out of order")) as gate:
        operate()

        fleet.deploy("only-b", 4, nodeSelector={"pool": "b"})
        fleet.deploy("web", 2)

        fleet.until_running("only-b", 4)
        fleet.until_running("web", 2)
        assert gate.asked
        assert fleet.size("a") == 0
        fleet.until(
            lambda: "out of order" in str(fleet.group_status("a").get("lastError", {}).get("message")),
            "the status has why",
        )


def test_hung_node_group_api_delays_no_iteration(fleet: Fleet, operate: Start) -> None:
    fleet.group("a", **SNUG)
    fleet.group("b", **ROOMY)
    fleet.autoscale()
    with gated(fleet, Gate(by_operator("a"))) as gate:
        operate()
        fleet.deploy("only-a", 1, nodeSelector={"pool": "a"})
        fleet.until(lambda: gate.asked, "the set is asked")

        fleet.deploy("only-b", 1, nodeSelector={"pool": "b"})

        fleet.until_running("only-b", 1)
        gate.open()
        fleet.until_running("only-a", 1)
        fleet.iterate_twice()
        assert fleet.sizes("a", "b") == {"a": 1, "b": 1}, "what came late counts once"
        [first, *_], [other, *_] = sizings(fleet, "a"), sizings(fleet, "b")
        assert other.stage_timestamp < first.stage_timestamp, "the request for b was answered while that for a hung"


def test_false_replica_count_is_ignored(fleet: Fleet, operate: Start) -> None:
    fleet.group("a", **SNUG, replicas=1, minimum=1, annotations={f"{ORDER}/status-replicas": "7"})
    fleet.autoscale()
    operate()

    fleet.deploy("web", 6)

    fleet.until_running("web", 6)
    assert fleet.size("a") == 3
    fleet.resize("web", 0)
    fleet.until_sizes(a=1)
    assert set(fleet.audit.scales("a")) <= {3, 2, 1}


def test_manual_scale_up_during_scale_up_wins(fleet: Fleet, operate: Start) -> None:
    fleet.group("a", **SNUG, boot="3s")
    fleet.autoscale(scaleDown={"enabled": False})
    operate()
    fleet.deploy("web", 2)
    fleet.until(lambda: fleet.size("a") == 1, "it grows")

    fleet.scale("a", 3)

    fleet.until_running("web", 2)
    fleet.until_sizes(a=3)
    fleet.iterate_twice()
    assert fleet.size("a") == 3
    assert fleet.audit.scales("a") == [1]
    assert not fleet.group_status("a").get("backoffUntil")


def test_manual_scale_up_during_scale_down_removes_the_chosen_nodes(fleet: Fleet, operate: Start) -> None:
    fleet.group("a", **SNUG, replicas=4, minimum=1, maximum=8)
    fleet.deploy("web", 1)
    [busy] = fleet.until_running("web", 1)
    fleet.autoscale()
    operate()
    fleet.until(lambda: any(TO_BE_DELETED in each for each in fleet.leftovers().values()), "nodes are to go")

    fleet.scale("a", 6)

    fleet.until_sizes(a=1, seconds=90)
    assert set(fleet.nodes("a")) == {busy}
    assert fleet.where("web") == {busy: 1}
    assert not pods_lost(fleet.audit, fleet.pods_namespace)
    assert not fleet.marked_machines()
    assert min(fleet.audit.scales("a")) >= 1


def test_manual_scale_down_during_scale_down_respects_the_minimum(fleet: Fleet, operate: Start) -> None:
    fleet.group("a", **SNUG, replicas=5, minimum=2, maximum=8)
    fleet.autoscale()
    operate()
    fleet.until(lambda: any(TO_BE_DELETED in each for each in fleet.leftovers().values()), "nodes are to go")

    fleet.scale("a", 3)

    fleet.until_sizes(a=2, seconds=90)
    fleet.iterate_twice()
    assert fleet.size("a") == 2
    assert all(size >= 2 for size in fleet.audit.scales("a"))
    fleet.until(lambda: not any(TO_BE_DELETED in marks(each) for each in fleet.nodes("a").values()), "no taint stays")
    assert not fleet.marked_machines()


def test_only_the_leader_scales_and_the_follower_takes_over(fleet: Fleet, operate: Start) -> None:
    fleet.group("a", **SNUG, maximum=6)
    fleet.autoscale()
    first, second = operate(elect=True), operate(elect=True)
    tokens = {credential(each.kubeconfig): each for each in (first, second)}
    fleet.deploy("web", 4)
    fleet.until_running("web", 4)
    fleet.resize("web", 2)
    fleet.until_sizes(a=1)

    acting, *former = [token for token, _ in itertools.groupby(each.token for each in reversed(writes(fleet)))]
    assert len({acting, *former}) == 1 + len(former), "no two processes act at the same time"

    leader = tokens.pop(acting)
    [(follower, other)] = tokens.items()
    leader.stop(signal.SIGKILL)
    fleet.audit.mark()
    fleet.deploy("more", 4)
    wait_for(lambda: "trimtab_leader 1.0" in (other.get("/metrics") or ""), "the other one to lead")
    fleet.until_running("more", 4)
    assert {each.token for each in writes(fleet)} == {follower}


def sizings(fleet: Fleet, name: str) -> list[AuditEvent]:
    """The operator's requests for the size of a MachineSet, in the order in which they were received."""
    asked = fleet.audit.ours("machinesets/scale", "machinesets", verbs=("patch", "update"))
    found = [each for each in asked if each.object_ref.name == name]
    return sorted(found, key=lambda each: each.request_received_timestamp)


def writes(fleet: Fleet) -> list[AuditEvent]:
    """The granted writes of all operators."""
    return fleet.audit.ours(verbs=("create", "patch", "update", "delete"), granted=True)
