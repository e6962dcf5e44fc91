"""Machines that do not come, an API that errs, hangs or lies, and somebody else at the same switch."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from examples.demo.install import wait_for
from tests.e2e.conftest import Start
from tests.fixtures.audit import OPERATOR, Asked, credential, pods_lost
from tests.fixtures.autoscaling import ORDER, TO_BE_DELETED, Fleet, marks
from tests.fixtures.webhooks import SCALING, Gate, webhook

SNUG = {"cpu": "4"}
"""Two pods of 1500m fill its 3500m best, so that it is chosen first."""
ROOMY = {"cpu": "8", "memory": "32Gi"}


def test_a_stock_out_in_one_set_is_made_good_by_another_at_once(fleet: Fleet, operate: Start) -> None:
    fleet.group("a", **SNUG, annotations={f"{ORDER}/quota": "0"})
    fleet.group("b", **ROOMY)
    fleet.autoscale()
    operate()

    fleet.deploy("web", 2)

    fleet.until_running("web", 2)
    assert fleet.pools("web") == {"b": 2}
    fleet.until_sizes(a=0, b=1)
    fleet.until(lambda: not fleet.machines("a"), "the machine that failed is taken away")
    told = fleet.told("a")
    assert told["lastError"]["reason"] == "InsufficientResources"
    assert told["backoffUntil"]
    assert told["failures"] >= 1
    assert fleet.audit.scales("a")[0] == 1, "it was asked first"
    fleet.until(lambda: fleet.events("MachineFailed"), "the failure is told")


def test_some_machines_come_and_the_rest_of_the_pods_get_nodes_of_another_set(fleet: Fleet, operate: Start) -> None:
    fleet.group("a", **SNUG, annotations={f"{ORDER}/fail": "InsufficientResources:2"})
    fleet.group("b", **ROOMY)
    fleet.autoscale()
    operate()

    fleet.deploy("web", 8)

    fleet.until_running("web", 8)
    fleet.until_sizes(a=2, b=1)
    assert fleet.pools("web") == {"a": 4, "b": 4}
    assert fleet.told("a")["backoffUntil"]


def test_machines_that_never_come_are_given_up_after_their_time(fleet: Fleet, operate: Start) -> None:
    fleet.group("a", **SNUG, annotations={f"{ORDER}/hold": "true"})
    fleet.group("b", **ROOMY)
    fleet.autoscale(maxNodeProvisionTime="5s")
    operate()

    fleet.deploy("web", 2)

    fleet.until_running("web", 2, seconds=90)
    assert fleet.pools("web") == {"b": 2}
    fleet.until(lambda: fleet.size("a") == 0, "nothing is asked of the hanging set any more")
    assert fleet.told("a")["backoffUntil"]
    fleet.until(lambda: fleet.events("ScaleUpTimedOut"), "it is told")


def test_machines_that_never_become_nodes_are_given_back(fleet: Fleet, operate: Start) -> None:
    fleet.group("a", **SNUG, annotations={f"{ORDER}/never-join": "1"})
    fleet.group("b", **ROOMY)
    fleet.autoscale(maxNodeProvisionTime="5s")
    operate()

    fleet.deploy("web", 2)

    fleet.until_running("web", 2, seconds=90)
    assert fleet.pools("web") == {"b": 2}
    fleet.until(lambda: not fleet.machines("a") and fleet.size("a") == 0, "the machine without a node is gone")
    assert not fleet.marked_machines()


def by_operator(name: str) -> Any:
    """Writes of the operator's about one MachineSet."""
    return lambda request: request["userInfo"]["username"] == OPERATOR and request["name"] == name


@contextmanager
def gated(fleet: Fleet, gate: Gate) -> Iterator[Gate]:
    with webhook(fleet.client, ca=fleet.cluster.ca, name="scaling", rules=[SCALING], judge=gate):
        try:
            yield gate
        finally:
            gate.open()


def test_a_set_that_errs_keeps_no_other_from_growing(fleet: Fleet, operate: Start) -> None:
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
            lambda: "out of order" in str(fleet.told("a").get("lastError", {}).get("message")), "the status has why"
        )


def test_a_set_whose_api_hangs_keeps_no_pass_waiting(fleet: Fleet, operate: Start) -> None:
    fleet.group("a", **SNUG)
    fleet.group("b", **ROOMY)
    fleet.autoscale()
    with gated(fleet, Gate(by_operator("a"))) as gate:
        operate()
        fleet.deploy("only-a", 1, nodeSelector={"pool": "a"})
        fleet.until(lambda: gate.asked, "the set is asked")

        fleet.deploy("only-b", 1, nodeSelector={"pool": "b"})

        fleet.until_running("only-b", 1, seconds=20)
        assert fleet.size("a") == 0, "it still hangs"
        gate.open()
        fleet.until_running("only-a", 1)
        fleet.pass_twice()
        assert fleet.sizes("a", "b") == {"a": 1, "b": 1}, "what came late counts once"


def test_a_set_that_lies_about_its_size_is_not_believed(fleet: Fleet, operate: Start) -> None:
    fleet.group("a", **SNUG, replicas=1, minimum=1, annotations={f"{ORDER}/status-replicas": "7"})
    fleet.autoscale()
    operate()

    fleet.deploy("web", 6)

    fleet.until_running("web", 6)
    assert fleet.size("a") == 3
    fleet.resize("web", 0)
    fleet.until_sizes(a=1)
    assert set(fleet.audit.scales("a")) <= {3, 2, 1}


def test_a_set_raised_by_hand_while_it_grows_is_left_to_that_hand(fleet: Fleet, operate: Start) -> None:
    fleet.group("a", **SNUG, boot="3s")
    fleet.autoscale(scaleDown={"enabled": False})
    operate()
    fleet.deploy("web", 2)
    fleet.until(lambda: fleet.size("a") == 1, "it grows")

    fleet.scale("a", 3)

    fleet.until_running("web", 2)
    fleet.until_sizes(a=3)
    fleet.pass_twice()
    assert fleet.size("a") == 3
    assert fleet.audit.scales("a") == [1]
    assert not fleet.told("a").get("backoffUntil")


def test_a_set_raised_by_hand_while_it_shrinks_loses_the_right_nodes(fleet: Fleet, operate: Start) -> None:
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


def test_a_set_lowered_by_hand_while_it_shrinks_stays_above_its_minimum(fleet: Fleet, operate: Start) -> None:
    fleet.group("a", **SNUG, replicas=5, minimum=2, maximum=8)
    fleet.autoscale()
    operate()
    fleet.until(lambda: any(TO_BE_DELETED in each for each in fleet.leftovers().values()), "nodes are to go")

    fleet.scale("a", 3)

    fleet.until_sizes(a=2, seconds=90)
    fleet.pass_twice()
    assert fleet.size("a") == 2
    assert all(size >= 2 for size in fleet.audit.scales("a"))
    fleet.until(lambda: not any(TO_BE_DELETED in marks(each) for each in fleet.nodes("a").values()), "no taint stays")
    assert not fleet.marked_machines()


def test_of_two_operators_one_acts_and_the_other_follows_it(fleet: Fleet, operate: Start) -> None:
    fleet.group("a", **SNUG, maximum=6)
    fleet.autoscale()
    first, second = operate(elect=True), operate(elect=True)
    tokens = {credential(each.kubeconfig): each for each in (first, second)}
    fleet.deploy("web", 4)
    fleet.until_running("web", 4)
    fleet.resize("web", 2)
    fleet.until_sizes(a=1)

    [acting] = {each.token for each in writes(fleet)}

    leader = tokens.pop(acting)
    [(follower, other)] = tokens.items()
    leader.stop(signal.SIGKILL)
    fleet.audit.mark()
    fleet.deploy("more", 4)
    wait_for(lambda: "trimtab_leader 1.0" in (other.get("/metrics") or ""), "the other one to lead", timeout=30)
    fleet.until_running("more", 4)
    assert {each.token for each in writes(fleet)} == {follower}


def writes(fleet: Fleet) -> list[Asked]:
    """What the operators have changed, so far as it was done."""
    return fleet.audit.ours(verbs=("create", "patch", "update", "delete"), granted=True)
