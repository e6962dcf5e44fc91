"""kill -9 at any point of a scale-down: the next process leaves nothing behind, breaks no budget, forgets no time."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable

from examples.demo.workloads import avoids
from tests.e2e.conftest import Start
from tests.fixtures.audit import OPERATOR, Asked, broken_budgets, pods_lost
from tests.fixtures.autoscaling import ORDER, SHORT, TO_BE_DELETED, UNNEEDED_SINCE, Fleet

SEED = 6
MINIMUM = 2
APPS = [f"app-{number}" for number in range(6)]
LONGEST = 15.0
"""Seconds that a process lives, even if it does not get to where it was to be killed."""


def lives(asked: Asked) -> bool:
    return asked.verb in ("get", "list")


def taints(asked: Asked) -> bool:
    return asked.what == "nodes" and TO_BE_DELETED in str(asked.request_object)


def evicts(asked: Asked) -> bool:
    return asked.what == "pods/eviction"


def marks(asked: Asked) -> bool:
    return asked.what == "machines" and "delete-machine" in str(asked.request_object)


def scales(asked: Asked) -> bool:
    return asked.what == "machinesets/scale" and asked.verb == "patch"


POINTS: tuple[Callable[[Asked], bool], ...] = (lives, taints, evicts, marks, scales)
"""What has been seen of a process when it is killed, a random moment later."""


def test_killed_at_ten_points_of_a_scale_down_it_leaves_nothing_behind(fleet: Fleet, operate: Start) -> None:
    """Two sets with a pod or none on each node; of each application's two pods one may be missing at a time."""
    fleet.group("a", replicas=9, maximum=9)
    fleet.group("b", replicas=5, minimum=MINIMUM, maximum=5)
    for app in APPS:
        fleet.deploy(app, 2, cpu="300m", **avoids({"app": app}))
        fleet.budget(app, minAvailable=1)
    fleet.until_running("", 2 * len(APPS))
    fleet.autoscale()
    chance = random.Random(SEED)
    points = [*POINTS, *POINTS]
    chance.shuffle(points)

    reached = {point.__name__ for point in points if live_until(fleet, operate, point, chance.uniform(0.0, 0.4))}

    assert reached == {point.__name__ for point in POINTS}
    operate()
    fleet.until_sizes(a=0, b=MINIMUM, seconds=120)
    fleet.until_running("", 2 * len(APPS))
    fleet.until(lambda: not left_behind(fleet), "no taint, no cordon, no mark is left")
    assert not broken_budgets(fleet.audit, fleet.pods_namespace)
    assert not pods_lost(fleet.audit, fleet.pods_namespace)
    assert not fleet.audit.ours("pods", verbs=("delete", "deletecollection"))
    assert min(fleet.audit.scales("b"), default=MINIMUM) == MINIMUM
    for each in fleet.audit.ours("pods/eviction"):
        assert each.request_object["deleteOptions"]["preconditions"]["uid"]


def live_until(fleet: Fleet, operate: Start, point: Callable[[Asked], bool], longer: float) -> bool:
    """Run a process up to a point and some moments longer, and kill it; whether it got there."""
    tail = fleet.audit.tail()
    process = operate(ready=False)
    deadline = time.monotonic() + LONGEST
    reached = False
    while not reached and time.monotonic() < deadline:
        time.sleep(0.02)
        reached = any(point(each) for each in tail.read() if each.user.username == OPERATOR)
    time.sleep(longer)
    assert process.running(), process.log.read_text()[-2000:]
    process.stop(signal.SIGKILL)
    return reached


def left_behind(fleet: Fleet) -> list[str]:
    """What should not be there once nothing goes: since when a node is unneeded may be told of one that stays."""
    found = [f"{name}: {each}" for name, each in fleet.leftovers().items() if set(each) - {UNNEEDED_SINCE}]
    return found + fleet.marked_machines()


def test_since_when_nodes_are_unneeded_outlives_the_process(fleet: Fleet, operate: Start) -> None:
    fleet.group("a", replicas=3)
    fleet.autoscale(scaleDown={**SHORT, "unneededTime": "10m"})
    first = operate()
    before = fleet.until(lambda: len(found := fleet.status().get("unneeded", ())) == 3 and found, "the status says it")

    first.stop(signal.SIGKILL)
    time.sleep(1.1)  # times are written in whole seconds
    operate()

    fleet.pass_twice()
    assert fleet.status()["unneeded"] == before
    fleet.change(scaleDown=SHORT)
    fleet.until_sizes(a=0)


def test_which_sets_failed_outlives_the_process(fleet: Fleet, operate: Start) -> None:
    fleet.group("a", cpu="4", annotations={f"{ORDER}/quota": "0"})
    fleet.group("b", cpu="8", memory="32Gi")
    fleet.autoscale()
    first = operate()
    fleet.deploy("web", 2)
    fleet.until_running("web", 2)
    fleet.until(lambda: fleet.told("a").get("backoffUntil"), "the status says until when the set is left alone")
    before = fleet.told("a")["backoffUntil"]

    first.stop(signal.SIGKILL)
    fleet.audit.mark()
    operate()
    fleet.resize("web", 8)

    fleet.until_running("web", 8)
    assert fleet.pools("web") == {"b": 8}
    assert not fleet.audit.scales("a")
    assert fleet.told("a")["backoffUntil"] == before
