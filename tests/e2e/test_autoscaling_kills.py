"""kill -9 at any point of a scale-down: the next process leaves no orphans, exceeds no budget and loses no time."""

from __future__ import annotations

import json
import random
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from click.testing import CliRunner

from examples.demo.workloads import avoids
from tests.e2e.conftest import Start
from tests.fixtures.audit import OPERATOR, AuditEvent, broken_budgets, pods_lost, require_none
from tests.fixtures.autoscaling import ORDER, TO_BE_DELETED, UNNEEDED_SINCE, Fleet
from tests.fixtures.waiting import eventually
from trimtab.cli.main import cli
from trimtab.kube.resources import DESCHEDULER_POLICIES, DESCHEDULING_RUNS, HISTORY_RECORDS
from trimtab_local.client import Client
from trimtab_local.install import apply

SEED = 6
MINIMUM = 2
APPS = [f"app-{number}" for number in range(6)]
LONGEST = 40.0
"""Seconds that a process lives, even if it does not get to where it was to be killed."""


def lives(asked: AuditEvent) -> bool:
    return asked.verb in ("get", "list")


def taints(asked: AuditEvent) -> bool:
    return asked.what == "nodes" and TO_BE_DELETED in str(asked.request_object)


def evicts(asked: AuditEvent) -> bool:
    return asked.what == "pods/eviction"


def marks(asked: AuditEvent) -> bool:
    return asked.what == "machines" and "delete-machine" in str(asked.request_object)


def scales(asked: AuditEvent) -> bool:
    return asked.what == "machinesets/scale" and asked.verb == "patch"


POINTS: tuple[Callable[[AuditEvent], bool], ...] = (lives, taints, evicts, marks, scales)
"""What has been seen of a process when it is killed, a random moment later."""


def test_ten_kills_during_scale_down_leave_no_orphans(fleet: Fleet, operate: Start) -> None:
    """Two MachineSets with at most one pod a node; budgets allow one unavailable pod of two."""
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
    fleet.until_sizes(a=0, b=MINIMUM, seconds=240)
    fleet.until_running("", 2 * len(APPS))
    fleet.until(lambda: not left_behind(fleet), "no taint, no cordon, no mark is left")
    require_none(broken_budgets(fleet.audit, fleet.pods_namespace))
    assert not pods_lost(fleet.audit, fleet.pods_namespace)
    assert not fleet.audit.ours("pods", verbs=("delete", "deletecollection"))
    assert min(fleet.audit.scales("b"), default=MINIMUM) == MINIMUM
    for each in fleet.audit.ours("pods/eviction"):
        assert each.request_object["deleteOptions"]["preconditions"]["uid"]


def live_until(fleet: Fleet, operate: Start, point: Callable[[AuditEvent], bool], longer: float) -> bool:
    """Run a process until a condition holds and a moment longer, and kill it; returns whether it held."""
    tail = fleet.audit.tail()
    process = operate(ready=False)
    reached = False

    def there() -> bool:
        nonlocal reached
        reached = any(point(each) for each in tail.read() if each.user.username == OPERATOR)
        return reached

    with suppress(AssertionError):  # the point may be in a later process
        eventually(there, "the point is reached", seconds=LONGEST, pause=0.02)
    time.sleep(longer)
    assert process.running(), process.log.read_text()[-2000:]
    process.stop(signal.SIGKILL)
    return reached


def left_behind(fleet: Fleet) -> list[str]:
    """Taints, cordons and annotations after all removals; unneeded-since may remain on a node that is kept."""
    found = [f"{name}: {each}" for name, each in fleet.leftovers().items() if set(each) - {UNNEEDED_SINCE}]
    return found + fleet.marked_machines()


def test_node_group_backoff_survives_a_restart(fleet: Fleet, operate: Start) -> None:
    fleet.group("a", cpu="4", annotations={f"{ORDER}/quota": "0"})
    fleet.group("b", cpu="8", memory="32Gi")
    fleet.autoscale()
    first = operate()
    fleet.deploy("web", 2)
    fleet.until_running("web", 2)
    fleet.until(lambda: fleet.group_status("a").get("backoffUntil"), "the status says until when the set is left alone")
    before = fleet.group_status("a")["backoffUntil"]

    first.stop(signal.SIGKILL)
    fleet.audit.mark()
    operate()
    fleet.resize("web", 8)

    fleet.until_running("web", 8)
    assert fleet.pools("web") == {"b": 8}
    assert not fleet.audit.scales("a")
    assert fleet.group_status("a")["backoffUntil"] == before


def test_history_survives_a_kill_of_the_leader(fleet: Fleet, operate: Start) -> None:
    """The next leader waits for the Lease to expire, and appends to the record of the killed one."""
    both = "--controllers=descheduler,autoscaler"
    fleet.group("a", minimum=1)
    fleet.autoscale(scaleDown={"enabled": False})
    first = operate(both, elect=True)
    write_policy(fleet)
    fleet.deploy("web", 2, cpu="1")
    fleet.until_running("web", 2, seconds=120)
    fleet.deploy("db", 1, cpu="3")
    fleet.until_sizes(a=2, seconds=120)
    fleet.until_running("db", 1, seconds=120)
    fleet.resize("db", 0)
    fleet.until(lambda: {"ScaleUp", "Evict"} <= actions(fleet), "a scale-up and an eviction", seconds=120)
    fleet.until(lambda: len(set(fleet.where("web"))) == 2, "the pods to be spread", seconds=120)

    first.stop(signal.SIGKILL)
    entries, stored, run_names = history(fleet), records(fleet), names(fleet.client, DESCHEDULING_RUNS.path())
    killed = time.monotonic()
    second = operate(both, elect=True)
    sys.stdout.write(f"the second process was ready {time.monotonic() - killed:.1f} s after the kill\n")
    assert history(fleet)[: len(entries)] == entries
    assert names(fleet.client, DESCHEDULING_RUNS.path()) >= run_names

    fleet.deploy("queue", 2, cpu="3")
    fleet.until_running("queue", 2, seconds=180)
    fleet.until(lambda: len(history(fleet)) > len(entries), "a further entry", seconds=120)
    assert history(fleet)[: len(entries)] == entries
    assert {each["action"] for each in history(fleet)[len(entries) :]} >= {"ScaleUp"}
    after = records(fleet)
    assert set(after) == set(stored)
    for name, before in stored.items():
        assert after[name][: len(before)] == before
    assert second.running()


def write_policy(fleet: Fleet) -> None:
    """Apply a DeschedulerPolicy that spreads the pods of the test."""
    manifest = {
        "apiVersion": DESCHEDULER_POLICIES.api_version,
        "kind": DESCHEDULER_POLICIES.kind,
        "metadata": {"name": "spread"},
        "spec": {
            "mode": "Act",
            "interval": "5s",
            "namespaces": {"include": [fleet.pods_namespace]},
            "strategies": {"RemoveDuplicates": {"enabled": True}},
        },
    }
    apply(fleet.client, DESCHEDULER_POLICIES.path(), manifest)


def history(fleet: Fleet) -> list[dict[str, Any]]:
    """The entries of `trimtab history`, the oldest first."""
    arguments = ["history", "--since=1h", f"--kubeconfig={fleet.cluster.kubeconfig}", "-o", "json"]
    made = CliRunner().invoke(cli, arguments, catch_exceptions=False)
    assert made.exit_code == 0, made.output
    entries: list[dict[str, Any]] = json.loads(made.stdout)["entries"]
    return entries


def actions(fleet: Fleet) -> set[str]:
    return {each["action"] for each in history(fleet)}


def records(fleet: Fleet) -> dict[str, list[Any]]:
    """The entries of each HistoryRecord."""
    items = fleet.client.request("GET", HISTORY_RECORDS.path())["items"]
    return {each["metadata"]["name"]: each["spec"]["entries"] for each in items}


def names(client: Client, path: str) -> set[str]:
    return {each["metadata"]["name"] for each in client.request("GET", path)["items"]}
