"""The only scheduler of a cluster: pods that wait, victims, budgets, nominations, a thousand preemptors at once."""

from __future__ import annotations

import itertools
import signal
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
import yaml
from click.testing import CliRunner

from examples.demo.workloads import pod_spec
from tests.fixtures.audit import Audit, AuditEvent
from tests.fixtures.clusters import require_local_cluster
from tests.fixtures.custom_resources import served
from tests.fixtures.invariants import is_end
from tests.fixtures.machine_sets import MERGE
from tests.fixtures.tainting import make_namespace
from tests.fixtures.waiting import patiently, wait_for
from trimtab.cli.main import cli
from trimtab.kube.api import NotFound
from trimtab.kube.resources import BUDGETS, NODES, PODS, SCHEDULER_POLICIES
from trimtab_local.client import Client
from trimtab_local.cluster import LocalCluster
from trimtab_local.components import DEFAULT_COMPONENTS, Settings
from trimtab_local.install import OperatorProcess, apply, install
from trimtab_local.nodes import node, ready
from trimtab_local.versions import SCHEDULER

PRIORITIES: Final = {"high": 1000, "middle": 500, "low": 1}
CLASSES: Final = "/apis/scheduling.k8s.io/v1/priorityclasses"
EVENTS: Final = "/apis/events.k8s.io/v1/namespaces/{}/events"
REPLICA_SETS: Final = "/apis/apps/v1/namespaces/{}/replicasets"
POLICY: Final = {
    "apiVersion": SCHEDULER_POLICIES.api_version,
    "kind": SCHEDULER_POLICIES.kind,
    "metadata": {"name": "policy"},
    "spec": {"schedulerName": "policy"},
}
ENDING: Final = min(25, 5 + round(patiently(5)))
"""Seconds for which victims terminate, so that the test can look at them meanwhile. Their grace period is 30."""
PREEMPTION: Final = ("DisruptionTarget", "True", "PreemptionByScheduler")


class PreemptionStage:
    """A cluster whose only scheduler is the operator's. Each test has nodes and a namespace of its own."""

    def __init__(self, cluster: LocalCluster, audit: Audit, operator: OperatorProcess) -> None:
        self.cluster = cluster
        self.client: Client = cluster.client
        self.audit = audit
        self.operator = operator
        self.name = ""
        self._names = itertools.count()

    def begin(self, name: str, *, nodes: int, cpu: str = "2") -> list[str]:
        """Create a namespace and nodes that only the pods of the test use; return the names of the nodes."""
        self.name = f"{name}-{next(self._names)}"
        make_namespace(self.client, self.name)
        names = [f"{self.name}-{number}" for number in range(nodes)]
        capacity = {"cpu": cpu, "memory": "8Gi", "pods": "50"}
        with ThreadPoolExecutor(8) as pool:
            made = [node(each, zone="a", capacity=capacity, labels={"test": self.name}) for each in names]
            list(pool.map(lambda each: self.client.request("POST", NODES.path(), each), made))
        wait_for(lambda: all(map(ready, self.nodes())), f"{nodes} nodes to be ready")
        self.audit.mark()
        return names

    def nodes(self) -> list[dict[str, Any]]:
        found = self.client.request("GET", NODES.path(), params={"labelSelector": f"test={self.name}"})["items"]
        return [dict(each) for each in found]

    def create(self, name: str, priority: str, *, cpu: str = "2", on: str = "", **spec: Any) -> None:
        """Create a pod of a PriorityClass; ``on`` binds it at once."""
        body = {
            "metadata": {"name": name, "labels": {"app": name}},
            "spec": {
                **pod_spec(cpu=cpu, memory="16Mi"),
                "schedulerName": "policy",
                "priorityClassName": priority,
                "nodeSelector": {"test": self.name},
                **({"nodeName": on} if on else {}),
                **spec,
            },
        }
        self.client.request("POST", PODS.path(namespace=self.name), body)

    def create_many(self, pods: list[tuple[str, str, str]], *, cpu: str) -> None:
        """Create pods: name, PriorityClass, node or ``""``."""
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda each: self.create(each[0], each[1], cpu=cpu, on=each[2]), pods))

    def pod(self, name: str) -> dict[str, Any] | None:
        try:
            return dict(self.client.request("GET", PODS.path(name, namespace=self.name)))
        except NotFound:
            return None

    def pods(self) -> list[dict[str, Any]]:
        return list(self.client.request("GET", PODS.path(namespace=self.name))["items"])

    def node_of(self, name: str) -> str:
        return str(((self.pod(name) or {}).get("spec") or {}).get("nodeName", ""))

    def runs(self, *names: str) -> bool:
        running = {each["metadata"]["name"] for each in self.pods() if each["status"].get("phase") == "Running"}
        return running >= set(names)

    def running(self, *names: str) -> None:
        wait_for(lambda: self.runs(*names), f"{names} to run", alive=self.operator.running)

    def condition(self, name: str, type_: str) -> dict[str, Any]:
        conditions = ((self.pod(name) or {}).get("status") or {}).get("conditions", ())
        return next((each for each in conditions if each["type"] == type_), {})

    def unschedulable(self, name: str) -> bool:
        return self.condition(name, "PodScheduled").get("reason") == "Unschedulable"

    def guard(self, name: str) -> None:
        """A budget that allows no disruption of a pod, known to the disruption controller."""
        selector = {"matchLabels": {"app": name}}
        body = {"metadata": {"name": name}, "spec": {"minAvailable": 1, "selector": selector}}
        self.client.request("POST", BUDGETS.path(namespace=self.name), body)
        path = BUDGETS.path(name, namespace=self.name)
        wait_for(lambda: self.client.request("GET", path)["status"].get("currentHealthy") == 1, "the budget's status")

    def ends(self) -> list[AuditEvent]:
        """The operator's granted evictions and deletions of the test's pods."""
        asked = self.audit.ours("pods", "pods/eviction", granted=True)
        return [each for each in asked if is_end(each) and each.object_ref.namespace == self.name]

    def victims(self) -> list[tuple[str, str]]:
        """How each victim was removed (``evict`` or ``delete``), and its name."""
        return [("evict" if each.object_ref.subresource else "delete", each.object_ref.name) for each in self.ends()]


@pytest.fixture(scope="module")
def stages(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PreemptionStage]:
    """The cluster, with the SchedulerPolicy ``policy`` and three PriorityClasses."""
    require_local_cluster(request, "these tests need a control plane without kube-scheduler, and its audit log")
    audit = Audit(tmp_path_factory.mktemp("audit"))
    components = tuple(each for each in DEFAULT_COMPONENTS if each != SCHEDULER)
    settings = Settings(components=components, apiserver_args=audit.arguments)
    cluster: LocalCluster = request.getfixturevalue("make_cluster")(settings, nodes=0)
    client = cluster.client
    install(cluster, "controllers.scheduler.enabled=true")
    wait_for(lambda: served(client, SCHEDULER_POLICIES.path()), "SchedulerPolicies to be served")
    for name, value in PRIORITIES.items():
        client.request("POST", CLASSES, {"metadata": {"name": name}, "value": value})
    polite = {"metadata": {"name": "polite"}, "value": 2000, "preemptionPolicy": "Never"}
    client.request("POST", CLASSES, polite)
    apply(client, SCHEDULER_POLICIES.path(), POLICY)
    directory = tmp_path_factory.mktemp("operator")
    operator = OperatorProcess(cluster, directory, "--controllers=scheduler", "--no-leader-elect")
    operator.start()
    yield PreemptionStage(cluster, audit, operator)
    assert operator.running()
    operator.stop()
    assert "Traceback" not in operator.log.read_text()


@pytest.mark.core
def test_graceful_victim_ends_before_its_preemptor_is_bound(stages: PreemptionStage) -> None:
    [only] = stages.begin("graceful", nodes=1)
    sleeping = [{**pod_spec(cpu="2")["containers"][0], "lifecycle": {"preStop": {"sleep": {"seconds": ENDING}}}}]
    stages.create("victim", "low", containers=sleeping)
    stages.running("victim")
    stages.create("preemptor", "high")
    wait_for(lambda: "deletionTimestamp" in (stages.pod("victim") or {})["metadata"], "the victim to terminate")
    wait_for(lambda: (stages.pod("preemptor") or {})["status"].get("nominatedNodeName") == only, "the nomination")
    waiting = stages.pod("preemptor")
    assert waiting is not None
    assert "nodeName" not in waiting["spec"]
    wait_for(lambda: stages.condition("victim", "DisruptionTarget").get("reason") == PREEMPTION[2], "the condition")
    stages.create("later", "middle")  # of lower priority than the nominated pod, but of a higher one than the victim
    stages.running("preemptor")
    assert stages.pod("victim") is None
    assert stages.node_of("preemptor") == only
    wait_for(lambda: stages.unschedulable("later"), "the later pod to be unschedulable")
    assert stages.victims() == [("evict", "victim")]
    [event] = [
        each
        for each in stages.client.request("GET", EVENTS.format(stages.name))["items"]
        if each["reason"] == "Preempted"
    ]
    assert event["note"] == f"Preempted by pod {waiting['metadata']['uid']} on node {only}"
    assert (event["regarding"]["name"], event["related"]["name"]) == ("victim", "preemptor")


@pytest.mark.core
def test_victim_whose_budget_allows_no_disruption_is_spared(stages: PreemptionStage) -> None:
    stages.begin("spared", nodes=2)
    stages.create("guarded", "low")
    stages.create("free", "low")
    stages.running("guarded", "free")
    stages.guard("guarded")
    stages.create("preemptor", "high")
    stages.running("preemptor", "guarded")
    assert stages.victims() == [("evict", "free")]


@pytest.mark.core
def test_budget_is_violated_where_no_other_victim_helps(stages: PreemptionStage) -> None:
    stages.begin("violated", nodes=1)
    stages.create("guarded", "low")
    stages.running("guarded")
    stages.guard("guarded")
    stages.create("preemptor", "high")
    stages.running("preemptor")
    assert stages.victims() == [("delete", "guarded")]
    asked = [each for each in stages.audit.ours("pods/status") if each.object_ref.name == "guarded"]
    [condition] = asked[0].request_object["status"]["conditions"]
    assert (condition["type"], condition["status"], condition["reason"]) == PREEMPTION


@pytest.mark.core
def test_unschedulable_and_gated_pods_are_bound_once_they_can_be(stages: PreemptionStage) -> None:
    late = stages.begin("late", nodes=2)[1]
    label = {"example.com/late": stages.name}
    for number in range(3):
        stages.create(f"choosy-{number}", "low", cpu="100m", nodeSelector=label)
        stages.create(f"gated-{number}", "low", cpu="100m", schedulingGates=[{"name": "example.com/quota"}])

    def reasons() -> set[str]:
        return {
            f"{each['metadata']['name'].split('-')[0]} {condition['reason']}"
            for each in stages.pods()
            for condition in each["status"].get("conditions") or ()
            if condition["type"] == "PodScheduled" and condition["status"] == "False"
        }

    wait_for(lambda: reasons() == {"choosy Unschedulable", "gated SchedulingGated"}, "the conditions")
    stages.client.request("PATCH", NODES.path(late), {"metadata": {"labels": label}}, content_type=MERGE)
    for number in range(3):
        path = PODS.path(f"gated-{number}", namespace=stages.name)
        stages.client.request("PATCH", path, {"spec": {"schedulingGates": None}}, content_type=MERGE)
    stages.running(*(f"{kind}-{number}" for kind in ("choosy", "gated") for number in range(3)))
    assert {stages.node_of(f"choosy-{number}") for number in range(3)} == {late}
    assert not stages.victims()


def test_pod_with_preemption_policy_never_waits(stages: PreemptionStage) -> None:
    stages.begin("never", nodes=1)
    stages.create("holder", "low")
    stages.running("holder")
    stages.create("polite", "polite")
    wait_for(lambda: stages.unschedulable("polite"), "the pod to be unschedulable")
    time.sleep(3.0)
    assert stages.runs("holder")
    assert stages.victims() == []
    stages.client.request("DELETE", PODS.path("holder", namespace=stages.name), {"gracePeriodSeconds": 0})
    stages.running("polite")


def test_nominated_pod_of_lower_priority_makes_way(stages: PreemptionStage) -> None:
    [only] = stages.begin("displaced", nodes=1)
    sleeping = [{**pod_spec(cpu="2")["containers"][0], "lifecycle": {"preStop": {"sleep": {"seconds": ENDING}}}}]
    stages.create("victim", "low", containers=sleeping)
    stages.running("victim")
    stages.create("first", "middle")
    wait_for(lambda: (stages.pod("first") or {})["status"].get("nominatedNodeName") == only, "the nomination")
    stages.create("second", "high")
    wait_for(lambda: (stages.pod("second") or {})["status"].get("nominatedNodeName") == only, "the nomination")
    wait_for(lambda: not (stages.pod("first") or {})["status"].get("nominatedNodeName"), "it to be cleared")
    stages.running("second")
    assert stages.victims() == [("evict", "victim")]
    assert stages.node_of("first") == ""


def test_plan_names_the_victims_that_are_removed_afterwards(stages: PreemptionStage, tmp_path: Path) -> None:
    nodes = stages.begin("planned", nodes=6, cpu="4")
    # No two nodes are equally good for a preemptor, so that the victims do not depend on which pods share a batch.
    there = {
        "whole": ("low", nodes[0], "4"),
        **{f"half-{number}": ("low", nodes[1], "2") for number in range(2)},
        "lower": ("low", nodes[2], "2"),
        "upper": ("middle", nodes[2], "2"),
        **{f"middle-{number}": ("middle", nodes[3], "2") for number in range(2)},
        "guarded": ("low", nodes[4], "4"),
        **{f"quarter-{number}": ("low", nodes[5], "1") for number in range(4)},
    }
    for name, (priority, on, cpu) in there.items():
        stages.create(name, priority, cpu=cpu, on=on)
    stages.running(*there)
    stages.guard("guarded")
    stages.operator.stop()
    preemptors = [f"high-{number}" for number in range(6)]
    for name, cpu in zip(preemptors, ("4", "4", "2", "4", "4", "4"), strict=True):
        stages.create(name, "high", cpu=cpu)
    stages.create("waiting", "middle", cpu="4")
    stages.audit.mark()
    (tmp_path / "schedulerpolicy.yaml").write_text(yaml.safe_dump(POLICY))
    command = ["plan", "--kubeconfig", str(stages.cluster.kubeconfig), "-o", "json"]
    result = CliRunner().invoke(
        cli, [*command, "--policy", str(tmp_path / "schedulerpolicy.yaml")], prog_name="trimtab"
    )
    assert result.exit_code == 0, result.stderr
    plan = msgspec.json.decode(result.stdout)
    own = [each for each in plan["actions"] if each["namespace"] == stages.name]
    assert {each["action"] for each in own} == {"Preempt"}
    assert not stages.ends()
    stages.operator.start()
    stages.running(*preemptors)
    wait_for(lambda: stages.unschedulable("waiting"), "the pod of the middle class to be unschedulable")
    planned = {each["pod"]: (each["for"], each["node"]) for each in own}
    assert planned.keys() == there.keys() - {"upper"}
    assert sorted(stages.victims()) == sorted(("delete" if each == "guarded" else "evict", each) for each in planned)
    for victim, (preemptor, on) in planned.items():
        assert (there[victim][1], stages.node_of(preemptor.partition("/")[2])) == (on, on)


def test_thousand_preemptors_remove_exactly_the_victims_that_they_replace(stages: PreemptionStage) -> None:
    names = stages.begin("many", nodes=500, cpu="4")
    low = [(f"low-{number}", "low", names[number // 4]) for number in range(2000)]
    stages.create_many(low, cpu="1")
    wait_for(lambda: stages.runs(*(name for name, _, _ in low)), "2,000 pods to run", timeout=180, interval=2.0)
    before = {name: on for name, _, on in low}
    stages.audit.mark()
    began = time.monotonic()
    stages.create_many([(f"high-{number}", "high", "") for number in range(1000)], cpu="1")
    created = time.monotonic()
    wait_for(
        lambda: stages.runs(*(f"high-{number}" for number in range(1000))),
        "1,000 preemptors to run",
        timeout=240,
        interval=2.0,
        alive=stages.operator.running,
    )
    print(f"created in {created - began:.1f} s, all run {time.monotonic() - created:.1f} s later")
    time.sleep(5.0)
    victims = stages.victims()
    assert len(victims) == len(set(victims)) == 1000
    lost = Counter(before[name] for _, name in victims)
    won = Counter(
        stages_node
        for stages_node in (
            each["spec"].get("nodeName") for each in stages.pods() if each["metadata"]["name"].startswith("high-")
        )
    )
    assert lost == won, "each victim's node runs a preemptor in its place"


def test_thousand_preemptors_of_different_sizes_against_owned_graceful_pods(stages: PreemptionStage) -> None:
    """The owners create the victims again: these pods stay pending, and no preemption is repeated for them."""
    nodes = stages.begin("owned", nodes=320, cpu="4")
    sizes = {f"high-{number}": (500, 1000, 1500)[number % 3] for number in range(1000)}
    for number in range(6):  # a sixth of the pods ends at once, the others later
        made = pod_spec(cpu="1", memory="16Mi")["containers"][0]
        if number:
            made["lifecycle"] = {"preStop": {"sleep": {"seconds": number}}}
        labels, replicas = {"app": f"low-{number}"}, 214 if number < 2 else 213
        selecting = {"test": stages.name}
        spec = {"schedulerName": "policy", "priorityClassName": "low", "nodeSelector": selecting, "containers": [made]}
        body = {
            "metadata": {"name": f"low-{number}"},
            "spec": {
                "replicas": replicas,
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": spec},
            },
        }
        stages.client.request("POST", REPLICA_SETS.format(stages.name), body)

    def low() -> dict[str, str]:
        found = [each for each in stages.pods() if each["metadata"]["name"].startswith("low-")]
        return {each["metadata"]["name"]: each["spec"].get("nodeName", "") for each in found}

    wait_for(
        lambda: len(before := low()) == 1280 and all(before.values()), "1,280 pods to run", timeout=180, interval=2.0
    )
    before = low()
    stages.audit.mark()
    began = time.monotonic()
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda each: stages.create(each[0], "high", cpu=f"{each[1]}m"), sizes.items()))
    created = time.monotonic()
    wait_for(
        lambda: stages.runs(*sizes), "1,000 preemptors to run", timeout=240, interval=2.0, alive=stages.operator.running
    )
    print(f"created in {created - began:.1f} s, all run {time.monotonic() - created:.1f} s later")
    time.sleep(5.0)
    victims = [name for _, name in stages.victims()]
    assert len(victims) == len(set(victims))
    assert set(victims) <= before.keys(), "no pod that an owner created again became a victim"
    lost = Counter(before[name] for name in victims)
    won: Counter[str] = Counter()
    for each in stages.pods():
        if each["metadata"]["name"] in sizes:
            won[each["spec"]["nodeName"]] += sizes[each["metadata"]["name"]]
    assert lost == {on: -(-won[on] // 1000) for on in nodes if won[on]}, "no node has lost a pod that could have stayed"


def test_kills_during_fifty_preemptions_cost_no_further_victim(stages: PreemptionStage, tmp_path: Path) -> None:
    """Each preemptor needs a whole node, so a process that forgets a nomination leaves a node half emptied."""
    preemptors = [f"high-{number}" for number in range(50)]
    nodes = stages.begin("killed", nodes=100, cpu="2")
    before = {f"low-{number}": nodes[number // 2] for number in range(200)}

    def create(name: str) -> None:
        # When a process is killed, some victims have terminated, some are terminating, and some are not evicted yet.
        container = pod_spec(cpu="1", memory="16Mi")["containers"][0]
        if int(name.removeprefix("low-")) % 3 == 0:
            container["lifecycle"] = {"preStop": {"sleep": {"seconds": 3}}}
        stages.create(name, "low", on=before[name], containers=[container])

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(create, before))
    wait_for(lambda: stages.runs(*before), "200 pods to run", timeout=120, interval=1.0)
    stages.operator.stop()
    stages.create_many([(name, "high", "") for name in preemptors], cpu="2")
    stages.audit.mark()
    arguments = ("--controllers=scheduler", "--no-leader-elect", "--max-concurrent-evictions=2")
    process = OperatorProcess(stages.cluster, tmp_path, *arguments)
    try:
        for number in (10, 60):
            process.start(ready=False)
            wait_for(
                lambda number=number: len(stages.ends()) >= number,
                f"{number} victims",
                interval=0.01,
                alive=process.running,
            )
            process.stop(signal.SIGKILL)
            assert len(stages.ends()) < 100, "the kill came too late"
        process.start()
        wait_for(
            lambda: stages.runs(*preemptors), "50 preemptors to run", timeout=180, interval=1.0, alive=process.running
        )
        process.stop()
    finally:
        process.stop(signal.SIGKILL)
        stages.operator.start()
    assert "Traceback" not in process.log.read_text()
    victims = [name for _, name in stages.victims()]
    assert len(victims) == len(set(victims)) == 100
    won = [stages.node_of(name) for name in preemptors]
    assert Counter(before[name] for name in victims) == dict.fromkeys(won, 2)
    assert len(set(won)) == 50
