"""Fixtures of the end-to-end tests: a cluster per module, the chart's RBAC, and the operator as a process."""

from __future__ import annotations

import secrets
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

from examples.demo.workloads import deployment
from tests.fixtures.audit import Audit
from tests.fixtures.autoscaling import ARGUMENTS, Fleet, delete_all, fleet_of, install_autoscaler, machine_settings
from tests.fixtures.clusters import MACHINES_AND_AUDIT, create_nodes, remove_namespace, require_local_cluster
from tests.fixtures.machine_sets import MERGE
from tests.fixtures.tainting import make_namespace
from tests.fixtures.waiting import patiently, wait_for
from trimtab.kube.api import NotFound
from trimtab.kube.resources import PODS
from trimtab_local.client import Client
from trimtab_local.cluster import LocalCluster
from trimtab_local.install import RELEASE, OperatorProcess, apply, install
from trimtab_local.nodes import node

POLICIES = "/apis/trimtab.dev/v1alpha1/deschedulerpolicies"
RUNS = "/apis/trimtab.dev/v1alpha1/deschedulingruns"
BINDINGS = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
NODES = ("a", "b", "c")


class Stage:
    """A cluster with the operator, and a namespace of the test: helpers to create, change and read objects."""

    def __init__(self, cluster: LocalCluster, namespace: str) -> None:
        self.cluster = cluster
        self.namespace = namespace

    @property
    def client(self) -> Client:
        """A client with the admin's permissions."""
        return self.cluster.client

    def deploy_on(self, name: str, replicas: int, on: str, **pod: Any) -> None:
        """Cordon all other nodes, create a Deployment and wait until its pods run; then uncordon the nodes."""
        self.open_only(on)
        path = f"/apis/apps/v1/namespaces/{self.namespace}/deployments"
        manifest = deployment(name, namespace=self.namespace, replicas=replicas, pod=pod)
        self.client.request("POST", path, manifest)

        def there() -> bool:
            for pod, place in self._nodes_of(name).items():
                if place not in ("", on):  # the scheduler had not seen the cordons
                    with suppress(NotFound):
                        self.client.request("DELETE", PODS.path(pod, namespace=self.namespace))
            return list(self.running(name).values()) == [on] * replicas

        wait_for(there, f"{name} to run on {on}")
        self.open_only(*NODES)

    def _nodes_of(self, app: str) -> dict[str, str]:
        """The node by name of each pod of a Deployment that is not being deleted, empty if it is not bound."""
        path = PODS.path(namespace=self.namespace)
        pods = self.client.request("GET", path, params={"labelSelector": f"app={app}"})["items"]
        live = [pod for pod in pods if not pod["metadata"].get("deletionTimestamp")]
        return {pod["metadata"]["name"]: pod["spec"].get("nodeName", "") for pod in live}

    def running(self, app: str) -> dict[str, str]:
        """The running pods of a Deployment that are not being deleted: node by pod UID."""
        path = f"/api/v1/namespaces/{self.namespace}/pods"
        pods = self.client.request("GET", path, params={"labelSelector": f"app={app}"})["items"]
        return {
            pod["metadata"]["uid"]: pod["spec"]["nodeName"]
            for pod in pods
            if pod["status"].get("phase") == "Running" and not pod["metadata"].get("deletionTimestamp")
        }

    def spread(self, app: str, replicas: int) -> bool:
        """Whether all replicas run, each on a different node."""
        nodes = list(self.running(app).values())
        return len(nodes) == replicas == len(set(nodes))

    def write_policy(self, name: str, **spec: Any) -> None:
        """Apply a policy that selects the namespace of the test only."""
        manifest = {
            "apiVersion": "trimtab.dev/v1alpha1",
            "kind": "DeschedulerPolicy",
            "metadata": {"name": name},
            "spec": {
                "interval": "5s",
                "namespaces": {"include": [self.namespace]},
                "strategies": {"RemoveDuplicates": {"enabled": True}},
                **spec,
            },
        }
        apply(self.client, POLICIES, manifest)

    def policy(self, name: str) -> dict[str, Any]:
        """Read the policy."""
        answer: dict[str, Any] = self.client.request("GET", f"{POLICIES}/{name}")
        return answer

    def status(self, name: str) -> dict[str, Any]:
        """The policy's status, empty before the first report."""
        found: dict[str, Any] = self.policy(name).get("status") or {}
        return found

    def condition(self, name: str, type_: str) -> Mapping[str, Any]:
        """One condition of the policy, empty where there is none."""
        conditions = self.status(name).get("conditions", ())
        return next((condition for condition in conditions if condition["type"] == type_), {})

    def remove_policy(self, name: str) -> None:
        """Delete the policy and wait until its finalizer is removed."""
        self.client.request("DELETE", f"{POLICIES}/{name}")
        wait_for(lambda: not self._exists(f"{POLICIES}/{name}"), f"policy {name} to be gone", timeout=30)

    def runs(self, policy: str) -> list[dict[str, Any]]:
        """The DeschedulingRuns of a policy, oldest first."""
        items = self.client.request("GET", RUNS)["items"]
        found = [run for run in items if run["spec"]["plan"]["policy"] == policy]
        return sorted(found, key=lambda run: (run["spec"]["plan"]["time"], run["metadata"]["name"]))

    def phases(self, policy: str) -> list[str]:
        """The phase of each run of a policy, oldest first."""
        return [run.get("status", {}).get("phase", "") for run in self.runs(policy)]

    def pending_run(self, policy: str) -> str:
        """Wait for a run that waits for approval; returns its name."""
        wait_for(lambda: self.phases(policy)[-1:] == ["Pending"], "a run to approve")
        return str(self.runs(policy)[-1]["metadata"]["name"])

    def events(self, regarding: str) -> list[dict[str, Any]]:
        """The operator's events about objects of a kind, oldest first."""
        items = self.client.request("GET", "/apis/events.k8s.io/v1/events")["items"]
        ours = [
            event
            for event in items
            if event.get("reportingController") == "trimtab.dev/trimtab" and event["regarding"]["kind"] == regarding
        ]
        return sorted(ours, key=lambda event: str(event["eventTime"]))

    def _exists(self, path: str) -> bool:
        try:
            self.client.request("GET", path)
        except NotFound:
            return False
        return True

    def open_only(self, *names: str) -> None:
        """Cordon all other nodes."""
        for name in NODES:
            spec = {"spec": {"unschedulable": None if name in names else True}}
            self.client.request("PATCH", f"/api/v1/nodes/{name}", spec, content_type=MERGE)
        wait_for(lambda: self._open_nodes() == set(names), "the cordons to be seen")

    def _open_nodes(self) -> set[str]:
        nodes = self.client.request("GET", "/api/v1/nodes")["items"]
        return {
            each["metadata"]["name"]
            for each in nodes
            if not any("unschedulable" in taint["key"] for taint in each["spec"].get("taints") or ())
        }


def outcomes(run: dict[str, Any]) -> dict[str, tuple[str, str]]:
    """Result and reason by pod UID."""
    return {each["uid"]: (each["result"], each["reason"]) for each in run["status"].get("outcomes", ())}


def approve(client: Client, name: str) -> None:
    """Approve a run."""
    client.request("PATCH", f"{RUNS}/{name}", {"spec": {"approved": True}}, content_type=MERGE)


def wait_for_cycles(process: OperatorProcess, *policies: str, count: int = 2) -> None:
    """Wait until each policy has completed this many more cycles, to show what these do *not* do."""
    before = {each: cycles(process, each) for each in policies}

    def completed() -> bool:
        return all(cycles(process, each) >= before[each] + count for each in policies)

    wait_for(completed, f"{count} more cycles of {', '.join(policies)}", alive=process.running)


def cycles(process: OperatorProcess, policy: str) -> float:
    """Return how many cycles of a policy a process has completed."""
    start, label = "trimtab_descheduler_cycles_total{", f'policy="{policy}"'
    lines = (process.get("/metrics") or "").splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith(start) and label in line)


@pytest.fixture(scope="module")
def stage_cluster(request: pytest.FixtureRequest) -> LocalCluster:
    """Three nodes, and the chart's CRDs and RBAC installed."""
    require_local_cluster(request)
    cluster: LocalCluster = request.getfixturevalue("make_cluster")(nodes=0)
    create_nodes(cluster.client, (node(name, zone=f"zone-{index}") for index, name in enumerate(NODES)))
    install(cluster)
    return cluster


@pytest.fixture
def stage(stage_cluster: LocalCluster) -> Iterator[Stage]:
    """The cluster with a namespace of the test; policies, pods, cordons and taints that it leaves are removed."""
    name = f"test-{secrets.token_hex(4)}"
    client = stage_cluster.client
    make_namespace(client, name)
    stage = Stage(stage_cluster, name)
    yield stage
    delete_all(client, POLICIES)
    wait_for(lambda: not client.request("GET", POLICIES)["items"], "the policies of the test to be gone")
    remove_namespace(client, name)
    spec = {"spec": {"unschedulable": None, "taints": None}}
    for each in NODES:
        with suppress(NotFound):
            client.request("PATCH", f"/api/v1/nodes/{each}", spec, content_type=MERGE)


@pytest.fixture
def approver(stage: Stage) -> Client:
    """A client with only the chart's approver role."""
    name = f"approver-{stage.namespace}"
    manifest = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": f"{RELEASE}-approver"},
        "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": stage.namespace}],
    }
    apply(stage.client, BINDINGS, manifest)
    token = stage.cluster.service_account_token(stage.namespace, "default")
    return Client(server=stage.cluster.server, token=token, ca=stage.cluster.ca)


Start = Callable[..., OperatorProcess]


@pytest.fixture
def start(stage: Stage, tmp_path: Path) -> Iterator[Start]:
    """Start an operator process; processes that still run are stopped at the end."""
    with ExitStack() as stack:
        count = 0

        def begin(*arguments: str, target: Any = None, ready: bool = True) -> OperatorProcess:
            nonlocal count
            count += 1
            process = OperatorProcess(target or stage.cluster, tmp_path, *arguments, name=f"operator-{count}")
            stack.callback(lambda: process.running() and process.stop())
            process.start(ready=ready)
            return process

        yield begin


@pytest.fixture(scope="module")
def audited(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[LocalCluster, Audit]:
    """A cluster whose nodes all come from MachineSets, with the chart installed, and its audit log."""
    require_local_cluster(request, MACHINES_AND_AUDIT)
    audit = Audit(tmp_path_factory.mktemp("audit"))
    cluster: LocalCluster = request.getfixturevalue("make_cluster")(machine_settings(audit), nodes=0)
    install_autoscaler(cluster)
    return cluster, audit


@pytest.fixture
def fleet(audited: tuple[LocalCluster, Audit]) -> Iterator[Fleet]:
    """The audited cluster with a namespace of the test; machines, pods and autoscalers are deleted afterwards."""
    cluster, audit = audited
    with fleet_of(cluster, f"test-{secrets.token_hex(4)}", audit) as fleet:
        yield fleet


class SlowRemovals(OperatorProcess):
    """An operator process whose removals of nodes leave a test time to intervene."""

    def _command(self, *program: str) -> list[str]:
        """Return the command line with the entry point of the tests."""
        assert not program
        delay = f"TAINT_DELAY={patiently(15.0)}"
        return super()._command("env", delay, sys.executable, "-m", "tests.fixtures.slow_removals")


@pytest.fixture
def operate(fleet: Fleet, tmp_path: Path) -> Iterator[Start]:
    """Start an operator with the autoscaler, by default without leader election; it is stopped at the end.

    With ``slow_removals``, a node is reviewed later after it was tainted, so that the test can intervene before.
    """
    with ExitStack() as stack:
        count = 0

        def begin(
            *arguments: str, elect: bool = False, ready: bool = True, slow_removals: bool = False
        ) -> OperatorProcess:
            nonlocal count
            count += 1
            more = (*ARGUMENTS, *(() if elect else ("--no-leader-elect",)), *arguments)
            kind = SlowRemovals if slow_removals else OperatorProcess
            process = fleet.operator = kind(fleet.cluster, tmp_path, *more, name=f"operator-{count}")
            stack.callback(lambda: process.running() and process.stop())
            process.start(ready=ready)
            return process

        yield begin
