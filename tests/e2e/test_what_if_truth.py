"""Forecasts compared with what happens when the nodes are really deleted.

Thirty random clusters are node pools of one control plane: each has its own nodes, zones, namespace and workloads,
which select only its nodes. All are forecast, then the nodes are deleted. kube-controller-manager deletes the pods,
controllers recreate them, kube-scheduler places them, and in ten pools the autoscaler adds nodes.

Every difference must have one of these causes, which the output names:

- QueueOrder: controllers recreate pods concurrently, so pods of equal priority are scheduled in random order. If not
  all of them fit, others stay pending.
- SlowControllers: the scheduler has placed pods before a controller has recreated a pod of higher priority.
- Choice: the scheduler chooses at random among equally good nodes or victims, which leaves room for other pods.
- BackOff: the autoscaler backs off from a group whose machine has failed, and adds the node minutes later.

A recording of all changes proves them: the planners might have made each of the recorded decisions, only their order
and choices among equals distinguish the outcome from the forecast, and a forecast of the final cluster is that nothing
more happens. How many pods are affected is random, so the share with exactly the forecast outcome is not bounded.
"""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any

import pytest
from msgspec import Struct

from examples.demo.workloads import avoids, budget, deployment, pod_spec
from tests.e2e.conftest import Start
from tests.fixtures.autoscaling import MACHINE_NAMESPACE, Fleet
from tests.fixtures.recording import recorded
from tests.fixtures.replay import Decision, forecast_in_order, replay
from tests.fixtures.tainting import make_namespace
from tests.fixtures.waiting import eventually
from trimtab.api import reasons
from trimtab.cli.cluster_input import ClusterSource, load_cluster_input, read_policy_set
from trimtab.inspection.cluster import ClusterInput
from trimtab.inspection.forecast import what_if
from trimtab.inspection.scenario import Scenario, parse_selection
from trimtab.kube.api import NotFound
from trimtab.kube.resources import (
    BUDGETS,
    MACHINE_SETS,
    MACHINES,
    NAMESPACES,
    NODES,
    PODS,
    PRIORITY_CLASSES,
)
from trimtab_local.nodes import node

SEED = int(os.environ.get("TRIMTAB_WHATIF_SEED", "1"))
STATIC, AUTOSCALED = 20, 10
AGREEMENT = 0.9
"""The least share of pods with the forecast outcome, by priority, in one run of about 110 pods."""
ZONE = "topology.kubernetes.io/zone"
PRIORITIES = {"low": 10, "high": 1000}
MERGE = "application/merge-patch+json"
RECORDED = (PODS, NODES, BUDGETS, MACHINES, MACHINE_SETS)
UNEXPLAINED = "Unexplained"

Outcomes = dict[str, Counter[str]]
"""Number of pods by outcome (``placed``, ``new node``, ``pending``), by owner."""


class Pool(Struct):
    """One random cluster: its nodes, and the selection of those that fail."""

    name: str
    namespace: str
    zones: dict[str, str]
    fails: str
    autoscaled: bool = False

    @property
    def failed(self) -> set[str]:
        kind, _, value = self.fails.partition("/") if self.fails.startswith("node/") else ("zone", "", self.fails[5:])
        return {name for name, zone in self.zones.items() if (name if kind == "node" else zone) == value}


@pytest.fixture
def attempt(fleet: Fleet) -> Iterator[str]:
    """Create two PriorityClasses. All objects of this attempt whose names a repeated one would use end with it."""
    prefix = fleet.pods_namespace
    paths = [PRIORITY_CLASSES.path(f"{prefix}-{name}") for name in PRIORITIES]
    for name, value in PRIORITIES.items():
        fleet.client.request(
            "POST", PRIORITY_CLASSES.path(), {"metadata": {"name": f"{prefix}-{name}"}, "value": value}
        )
    yield prefix
    namespaces = [each["metadata"]["name"] for each in fleet.client.request("GET", NAMESPACES.path())["items"]]
    paths += [NAMESPACES.path(name) for name in namespaces if name.startswith(f"{prefix}-")]
    for path in paths:
        with suppress(NotFound):
            fleet.client.request("DELETE", path)


def test_forecast_agrees_with_the_outcome(fleet: Fleet, operate: Start, attempt: str) -> None:
    made = random.Random(SEED)
    fleet.autoscale(scaleDown={"enabled": False})
    operate()
    pools = [make_static_pool(fleet, made, f"p{number}") for number in range(STATIC)]
    pools += [make_autoscaled_pool(fleet, made, f"p{number}") for number in range(STATIC, STATIC + AUTOSCALED)]
    fleet.all_ready()
    for pool in pools:
        make_workloads(fleet, made, pool)
    before = settled(fleet, pools)
    for pool in pools:  # the autoscaler may have added nodes for the first pods
        if pool.autoscaled:
            pool.zones = dict.fromkeys(fleet.nodes(pool.name), f"{pool.name}-a")
            pool.fails = f"node/{made.choice(sorted(pool.zones))}"

    cluster = read_cluster(fleet)
    forecasts = {
        pool.name: what_if(cluster, Scenario(without=(parse_selection(pool.fails),)), descheduling=False)
        for pool in pools
    }
    with recorded(fleet.cluster, *RECORDED) as changes:
        fail(fleet, pools)
        priority_of = priorities(fleet, pools)
        after = settled(fleet, pools, gone=set().union(*(pool.failed for pool in pools)), seconds=240)
    final = what_if(read_cluster(fleet), Scenario(), descheduling=False)
    for pool in pools:  # otherwise PodDisruptionBudgets delay the removal of the machines
        fleet.client.request("DELETE", NAMESPACES.path(pool.namespace))

    decisions = replay(cluster, changes)
    affected = strictly = differing = same_node = chosen = 0
    problems = []
    causes: Counter[str] = Counter()
    for pool in pools:
        document = forecasts[pool.name]
        expected = expected_outcomes(pool, document, before[pool.name])
        actual = actual_outcomes(pool, after[pool.name])
        number = sum(document["summary"][key] for key in ("rescheduled", "scheduled", "pending", "lost"))
        wrong = differences(expected, actual)
        by_priority = differences(grouped(expected, priority_of, pool), grouped(actual, priority_of, pool))
        affected += number
        strictly += sum(wrong.values())
        differing += sum(by_priority.values())
        cause = cause_of(cluster, pool, decisions, final, expected, actual) if wrong else ""
        causes.update({cause: sum(wrong.values())} if wrong else {})
        problems += [f"{pool.name} without {pool.fails}: {cause}: {what}" for what in sorted(wrong)]
        same, all_ = node_choices(document, before[pool.name], after[pool.name])
        same_node += same
        chosen += all_
    share = 1 - differing / affected
    print(f"\nseed {SEED}: {affected} pods affected, {differing} differ: {share:.1%} agree")
    print(f"{strictly} differ if pods of equal priority may not be exchanged: {1 - strictly / affected:.1%} agree")
    print(f"the same node was chosen for {same_node} of {chosen} pods (the scheduler chooses at random among equals)")
    print(f"{sum(decision.expected for decision in decisions)} of {len(decisions)} decisions are as expected")
    print(f"pods that differ by cause: {dict(causes)}")
    print("\n".join(problems))
    assert affected > 100
    assert UNEXPLAINED not in causes, problems
    assert share >= AGREEMENT, problems


# --- making clusters --------------------------------------------------------------------------------------------------


def read_cluster(fleet: Fleet) -> ClusterInput:
    """Read the cluster as ``trimtab what-if`` does."""
    source = ClusterSource(kubeconfig=str(fleet.cluster.kubeconfig))
    return load_cluster_input(source, read_policy_set(source), machines=True)


def make_static_pool(fleet: Fleet, made: random.Random, name: str) -> Pool:
    """Create three to six nodes in two or three zones."""
    zones = [f"{name}-{letter}" for letter in "abc"[: made.choice((2, 3))]]
    nodes = {}
    for number in range(made.randint(3, 6)):
        zone = zones[number % len(zones)]
        labels = {"pool": name} | ({"disk": "ssd"} if made.random() < 0.6 else {})
        cpu = str(made.choice((2, 4, 4, 8)))
        capacity = {"cpu": cpu, "memory": f"{int(cpu) * 2}Gi", "ephemeral-storage": "100Gi", "pods": "110"}
        full = f"{name}-n{number}"
        fleet.client.request("POST", NODES.path(), node(full, zone=zone, capacity=capacity, labels=labels))
        nodes[full] = zone
    fails = f"zone={made.choice(zones)}" if made.random() < 0.5 else f"node/{made.choice(sorted(nodes))}"
    return Pool(name, namespace_of(fleet, name), nodes, fails)


def make_autoscaled_pool(fleet: Fleet, made: random.Random, name: str) -> Pool:
    """Create a MachineSet with a MachineAutoscaler."""
    size = made.randint(2, 3)
    fleet.group(name, maximum=size + made.randint(0, 2), replicas=size, cpu="4", labels={ZONE: f"{name}-a"})
    return Pool(name, namespace_of(fleet, name), {}, "", autoscaled=True)


def namespace_of(fleet: Fleet, pool: str) -> str:
    """Return the namespace of a pool, which differs in a repeated attempt."""
    return f"{fleet.pods_namespace}-{pool}"


def make_workloads(fleet: Fleet, made: random.Random, pool: Pool) -> None:
    """Create two to five random Deployments, and sometimes a DaemonSet, a bare pod and a PodDisruptionBudget."""
    namespace = pool.namespace
    make_namespace(fleet.client, namespace)
    for number in range(made.randint(2, 5)):
        app = f"app{number}"
        spec: dict[str, Any] = {"nodeSelector": {"pool": pool.name}, "terminationGracePeriodSeconds": 0}
        feature = made.choice(("", "", "anti", "hard", "soft", "disk", "low", "high"))
        selector = {"matchLabels": {"app": app}}
        if feature == "anti":
            spec |= avoids({"app": app})
        elif feature in ("hard", "soft"):
            when = "DoNotSchedule" if feature == "hard" else "ScheduleAnyway"
            constraint = {"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": when, "labelSelector": selector}
            spec["topologySpreadConstraints"] = [constraint]
        elif feature == "disk" and not pool.autoscaled:
            spec["nodeSelector"] = {**spec["nodeSelector"], "disk": "ssd"}
        elif feature in ("low", "high"):
            spec["priorityClassName"] = f"{fleet.pods_namespace}-{feature}"
        cpu = made.choice(("250m", "500m", "1", "1500m"))
        manifest = deployment(app, namespace=namespace, replicas=made.randint(1, 6), cpu=cpu, pod=spec)
        fleet.client.request("POST", f"/apis/apps/v1/namespaces/{namespace}/deployments", manifest)
    template = {"metadata": {"labels": {"app": "agent"}}, "spec": {**pod_spec(), "nodeSelector": {"pool": pool.name}}}
    if made.random() < 0.3:
        body = {
            "metadata": {"name": "agent"},
            "spec": {"selector": {"matchLabels": {"app": "agent"}}, "template": template},
        }
        fleet.client.request("POST", f"/apis/apps/v1/namespaces/{namespace}/daemonsets", body)
    if made.random() < 0.3:
        bare = {"metadata": {"name": "bare", "labels": {"app": "bare"}}, "spec": template["spec"]}
        fleet.client.request("POST", PODS.path(namespace=namespace), bare)
    if made.random() < 0.5:
        pdb = budget("app0", namespace=namespace, app="app0", min_available=1)
        fleet.client.request("POST", f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets", pdb)


def fail(fleet: Fleet, pools: Iterable[Pool]) -> None:
    """Delete the failing nodes. As the Machine API does, mark a machine without its instance as failed."""
    for pool in pools:
        for name in pool.failed:
            if pool.autoscaled:
                status = {"phase": "Failed", "errorReason": "InstanceMissing", "errorMessage": "the instance is gone"}
                live = fleet.client.request("GET", NODES.path(name))
                _, _, machine = live["metadata"]["annotations"]["machine.openshift.io/machine"].partition("/")
                path = f"{MACHINES.path(machine, namespace=fleet.namespace)}/status"
                fleet.client.request("PATCH", path, {"status": status}, content_type=MERGE)
            fleet.client.request("DELETE", NODES.path(name))


# --- comparing --------------------------------------------------------------------------------------------------------


def settled(
    fleet: Fleet, pools: Iterable[Pool], *, gone: Iterable[str] = (), seconds: float = 120
) -> dict[str, list[tuple[str, str, str]]]:
    """Return owner, name and node of each pod by pool, once nothing has changed for twelve seconds."""
    absent = set(gone)
    name_of = {pool.namespace: pool.name for pool in pools}
    last: Any = None
    since = time.monotonic()

    def unchanged() -> dict[str, list[tuple[str, str, str]]] | None:
        nonlocal last, since
        pods = fleet.client.request("GET", PODS.path())["items"]
        found: dict[str, list[tuple[str, str, str]]] = {pool.name: [] for pool in pools}
        ending = False
        for each in pods:
            name = name_of.get(each["metadata"]["namespace"])
            if name is None or owner_of(each) == "agent":
                continue
            where = each["spec"].get("nodeName", "")
            ending |= "deletionTimestamp" in each["metadata"] or where in absent
            found[name].append((owner_of(each), each["metadata"]["name"], where))
        found = {name: sorted(rows) for name, rows in found.items()}
        now = time.monotonic()
        if found != last or ending:
            last, since = found, now
        return found if now - since > 12 else None

    rows = eventually(unchanged, "the pods do not change any more", seconds=seconds, pause=1)
    assert rows is not None
    return rows


def owner_of(pod: dict[str, Any]) -> str:
    """Return the app of a pod, which is the name of its Deployment."""
    return str(pod["metadata"]["labels"]["app"])


def expected_outcomes(pool: Pool, document: dict[str, Any], before: list[tuple[str, str, str]]) -> Outcomes:
    """Return the outcomes that a forecast implies for all pods of a pool."""
    owner = {f"{pool.namespace}/{name}": app for app, name, _ in before}
    moved = {each["pod"] for key in ("rescheduled", "pending", "lost", "preempted") for each in document[key]}
    found: Outcomes = {app: Counter() for app in owner.values()}
    for app, name, where in before:
        if where and f"{pool.namespace}/{name}" not in moved:
            found[app]["placed"] += 1
    for each in (*document["rescheduled"], *document["scheduled"]):
        if each["pod"] in owner:
            found[owner[each["pod"]]]["placed"] += 1
    for each in (*document["pending"], *document["stillPending"]):
        if each["pod"] in owner:
            found[owner[each["pod"]]]["new node" if "nodeGroup" in each else "pending"] += 1
    return found


def actual_outcomes(pool: Pool, after: list[tuple[str, str, str]]) -> Outcomes:
    """Return the outcomes of all pods of a pool."""
    found: Outcomes = {}
    for app, _, where in after:
        outcome = "pending" if not where else "placed" if where in pool.zones else "new node"
        found.setdefault(app, Counter())[outcome] += 1
    return found


def differences(expected: Outcomes, actual: Outcomes) -> Counter[str]:
    """Return the number of pods with another outcome, by owner and both outcomes."""
    found: Counter[str] = Counter()
    for app in sorted(expected.keys() | actual.keys()):
        mine, real = expected.get(app, Counter()), actual.get(app, Counter())
        more, less = dict(mine - real), dict(real - mine)
        number = max(sum(more.values()), sum(less.values()))
        if number:
            found[f"{app} forecast {more or 'none'}, was {less or 'none'}"] = number
    return found


def priorities(fleet: Fleet, pools: Iterable[Pool]) -> dict[tuple[str, str], str]:
    """Return the priority of the pods of each app, by pool and app."""
    return {
        (pool.name, owner_of(each)): f"priority {each['spec'].get('priority', 0)}"
        for pool in pools
        for each in fleet.client.request("GET", PODS.path(namespace=pool.namespace))["items"]
    }


def grouped(outcomes: Outcomes, priority_of: dict[tuple[str, str], str], pool: Pool) -> Outcomes:
    """Return the outcomes by priority instead of by owner."""
    found: Outcomes = {}
    for app, counts in outcomes.items():
        found.setdefault(priority_of[pool.name, app], Counter()).update(counts)
    return found


def cause_of(
    cluster: ClusterInput,
    pool: Pool,
    decisions: Iterable[Decision],
    final: dict[str, Any],
    expected: Outcomes,
    actual: Outcomes,
) -> str:
    """Return the cause of the differences in a pool.

    Args:
        cluster: the cluster before the nodes failed.
        pool: the pool.
        decisions: the recorded decisions in all pools.
        final: the forecast for the final cluster without any change.
        expected: the forecast outcomes.
        actual: the real outcomes.
    """
    group = f"{MACHINE_NAMESPACE}/{pool.name}"
    mine = [each for each in decisions if (each.pod.namespace if each.pod else each.node) in (pool.namespace, group)]
    open_ = [each for key in ("scheduled", "preempted", "scaleUp") for each in final[key] if concerns(each, pool)]
    if open_ or not all(each.expected for each in mine):
        return UNEXPLAINED
    for order, outcome in (((), expected), (mine, actual)):
        if differences(outcomes_in_order(cluster, pool, order), without_new_nodes(outcome)):
            return UNEXPLAINED
    if not differences(without_new_nodes(expected), without_new_nodes(actual)):
        backs_off = any(
            concerns(each, pool) and each.get("scaleUp", {}).get("reason") == reasons.GROUP_BACKS_OFF
            for each in final["stillPending"]
        )
        return "BackOff" if backs_off else UNEXPLAINED
    if not all(each.first for each in mine):
        return "Choice"
    placed = [(each.revision, each.created, each.pod.priority) for each in mine if each.pod is not None]
    if any(created > revision and high > low for revision, _, low in placed for _, created, high in placed):
        return "SlowControllers"
    return "QueueOrder"


def outcomes_in_order(cluster: ClusterInput, pool: Pool, decisions: Iterable[Decision]) -> Outcomes:
    """Return the outcomes in the order of recorded decisions, or in that of a forecast if there are none."""
    found: Outcomes = {}
    for pod in forecast_in_order(cluster, pool.failed, decisions, pool.namespace):
        if pod.labels["app"] != "agent":
            found.setdefault(pod.labels["app"], Counter())["placed" if pod.node else "pending"] += 1
    return found


def concerns(entry: dict[str, Any], pool: Pool) -> bool:
    """Return whether an entry of a forecast is about a pod or the node group of a pool."""
    return bool(
        entry.get("pod", "").startswith(f"{pool.namespace}/")
        or entry.get("nodeGroup") == f"{MACHINE_NAMESPACE}/{pool.name}"
    )


def without_new_nodes(outcomes: Outcomes) -> Outcomes:
    """Return the outcomes before the autoscaler has added nodes."""
    return {
        app: Counter({"placed": counts["placed"], "pending": counts["pending"] + counts["new node"]})
        for app, counts in outcomes.items()
    }


def node_choices(
    document: dict[str, Any], before: list[tuple[str, str, str]], after: list[tuple[str, str, str]]
) -> tuple[int, int]:
    """Return for how many rescheduled pods the scheduler chose the forecast node, and the number of such pods."""
    app_of = {name: app for app, name, _ in before}
    expected = Counter(
        (app_of[name], each["to"])
        for each in document["rescheduled"]
        if (name := each["pod"].partition("/")[2]) in app_of
    )
    stayed = {name for _, name, _ in before}
    actual = Counter((app, where) for app, name, where in after if where and name not in stayed)
    return sum((expected & actual).values()), sum(expected.values())
