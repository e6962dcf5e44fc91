"""Each role of the chart is removed in turn: the condition names the missing rules, and work resumes after its return.

Each controller runs as a process with a service account of its own, as with ``deployments: PerController``, so that no
role of another controller contains the removed rules. Roles of different accounts are removed at the same time.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from typing import Any, Final

import pytest
from msgspec import Struct

from examples.demo.workloads import IMAGE
from tests.e2e.conftest import NODES, Stage
from tests.fixtures.clusters import require_local_cluster
from tests.fixtures.custom_resources import served
from tests.fixtures.tainting import make_namespace
from tests.fixtures.waiting import wait_for
from trimtab.kube.resources import (
    CLUSTER_AUTOSCALERS,
    DESCHEDULER_POLICIES,
    NODE_PRESSURE_POLICIES,
    PODS,
    SCHEDULER_POLICIES,
    TAINT_MANAGERS,
    Resource,
)
from trimtab.kube.resources import (
    NODES as NODE_OBJECTS,
)
from trimtab_local.cluster import LocalCluster
from trimtab_local.install import INSTALLED, OperatorProcess, apply, install, render
from trimtab_local.nodes import node, ready

VALUES: Final = (
    "deployments=PerController",
    "controllers.scheduler.enabled=true",
    "controllers.pressure.enabled=true",
    "controllers.taintManager.rights=TaintAndEvict",
    "controllers.descheduler.surge=true",
)
LONGEST: Final = 30.0
"""Seconds in which a report must arrive on a busy machine. On an idle one it takes less than ten."""
SHOP: Final = "shop"


class Controller(Struct, frozen=True, eq=False):
    """A controller with its own process.

    Attributes:
        name: the name in ``trimtab run --controllers``.
        component: the name in roles and service accounts.
        resource: its custom resource.
        object: name of the object.
        spec: spec of the object.
    """

    name: str
    component: str
    resource: Resource
    object: str
    spec: dict[str, Any]

    @property
    def account(self) -> str:
        return f"trimtab-{self.component}"


LIFECYCLE: Final = {"nodeMonitorGracePeriod": "300s", "nodeStartupGracePeriod": "300s"}
CONTROLLERS: Final = (
    Controller(
        "descheduler",
        "descheduler",
        DESCHEDULER_POLICIES,
        "acting",
        {
            "mode": "Act",
            "interval": "5s",
            "singleReplica": "Surge",
            "namespaces": {"include": [SHOP]},
            "strategies": {"RemoveDuplicates": {"enabled": True}},
        },
    ),
    Controller("autoscaler", "cluster-autoscaler", CLUSTER_AUTOSCALERS, "default", {"scaleDown": {"enabled": True}}),
    Controller(
        "tainting",
        "taint-manager",
        TAINT_MANAGERS,
        "default",
        {"mode": "TaintAndEvict", "nodeLifecycle": LIFECYCLE},
    ),
    Controller("scheduler", "scheduler", SCHEDULER_POLICIES, "packing", {"schedulerName": "packing"}),
    Controller(
        "pressure",
        "pressure",
        NODE_PRESSURE_POLICIES,
        "default",
        {"mode": "Act", "evictionHard": {"memory.available": "1%"}},
    ),
)
Role = dict[str, Any]


def role_path(role: Role) -> str:
    return INSTALLED[role["kind"]][0].format(namespace=role["metadata"].get("namespace", ""))


def rules_of(role: Role) -> set[str]:
    """The rules of a role as the condition names them, such as ``patch nodes/status``."""
    where = f" in {role['metadata']['namespace']}" if role["kind"] == "Role" else ""
    found = set()
    for rule in role["rules"]:
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                plural, slash, subresource = resource.partition("/")
                full = f"{plural}.{group}" if group else plural
                for name in rule.get("resourceNames", [""]):
                    named = f" {name}" if name else ""
                    found |= {f"{verb} {full}{slash}{subresource}{named}{where}" for verb in rule["verbs"]}
    return found


class World:
    """The cluster, the operators and the roles of the rendered chart."""

    def __init__(self, stage: Stage, processes: Mapping[str, OperatorProcess]) -> None:
        self.stage = stage
        self.processes = processes
        made = render(*VALUES)
        self._roles = {
            (each["kind"], each["metadata"]["name"], each["metadata"].get("namespace", "")): each
            for each in made
            if each["kind"] in ("ClusterRole", "Role")
        }
        self._bindings = [each for each in made if each["kind"].endswith("RoleBinding")]
        self.worst: dict[str, float] = {}

    def roles_of(self, account: str) -> list[Role]:
        """The roles of a service account, except the one for its status."""
        found = []
        for each in self._bindings:
            if account in [subject["name"] for subject in each["subjects"]]:
                kind, namespace = each["roleRef"]["kind"], each["metadata"].get("namespace", "")
                found.append(self._roles[kind, each["roleRef"]["name"], namespace if kind == "Role" else ""])
        return [each for each in found if not each["metadata"]["name"].endswith("-status")]

    def remove(self, role: Role) -> None:
        self.stage.client.request("DELETE", f"{role_path(role)}/{role['metadata']['name']}")

    def restore(self, role: Role) -> None:
        apply(self.stage.client, role_path(role), role)

    def condition(self, controller: Controller, type_: str) -> dict[str, Any]:
        found = self.stage.client.request("GET", controller.resource.path(controller.object)).get("status") or {}
        return next((each for each in found.get("conditions", ()) if each["type"] == type_), {})

    def missing(self, controller: Controller) -> set[str] | None:
        """The rules that the condition names; ``None`` before it is reported."""
        found = self.condition(controller, "PermissionsMissing")
        if not found:
            return None
        if found["status"] == "False":
            return set()
        listed = re.sub(r" \(chart value [^)]*\)", "", found["message"].partition(": ")[2])
        return set(re.split(r"[,;] ", listed))

    def complete(self, controller: Controller) -> bool:
        return self.missing(controller) == set()

    def measure(self, what: str, holds: Callable[[], bool], since: float) -> None:
        """Wait until a condition holds, and keep the longest time."""
        wait_for(holds, what, timeout=LONGEST, interval=0.1)
        self.worst[what] = max(self.worst.get(what, 0.0), time.monotonic() - since)

    def lose_and_regain(self, roles: Mapping[Controller, Role], *, meanwhile: Callable[[], None] | None = None) -> None:
        """Remove one role of each controller, wait for the reports, restore the roles and wait again."""
        try:
            began = time.monotonic()
            for role in distinct(roles.values()):
                self.remove(role)
            for controller, role in roles.items():
                name = role["metadata"]["name"]
                self.measure(f"report of {name}", lambda of=controller: bool(self.missing(of)), began)  # type: ignore[misc]
                assert (self.missing(controller) or set()) <= rules_of(role), f"{controller.name} without {name}"
            if meanwhile is not None:
                meanwhile()
        finally:
            began = time.monotonic()
            for role in distinct(roles.values()):
                self.restore(role)
        for controller, role in roles.items():
            name = role["metadata"]["name"]
            self.measure(f"return of {name}", lambda of=controller: self.complete(of), began)  # type: ignore[misc]


def distinct(roles: Any) -> list[Role]:
    return list({(each["kind"], each["metadata"]["name"]): each for each in roles}.values())


@pytest.fixture(scope="module")
def world(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Three nodes, an object of each kind, and a process for each controller that has all permissions."""
    require_local_cluster(request)
    cluster: LocalCluster = request.getfixturevalue("make_cluster")(nodes=0)
    for index, name in enumerate(NODES):
        cluster.client.request("POST", NODE_OBJECTS.path(), node(name, zone=f"zone-{index}"))
    install(cluster, *VALUES)
    make_namespace(cluster.client, SHOP)
    directory = tmp_path_factory.mktemp("operators")
    processes = {}
    with ExitStack() as stack:
        for each in CONTROLLERS:
            path = each.resource.path()
            wait_for(lambda path=path: served(cluster.client, path), f"{path} to be served")  # type: ignore[misc]
            manifest = {"apiVersion": each.resource.api_version, "kind": each.resource.kind, "spec": each.spec}
            apply(cluster.client, path, {**manifest, "metadata": {"name": each.object}})
            process = OperatorProcess(
                cluster,
                directory,
                f"--controllers={each.name}",
                f"--lease-name={each.account}",
                name=each.name,
                account=each.account,
            )
            stack.callback(lambda process=process: process.running() and process.stop())  # type: ignore[misc]
            process.start(ready=False)
            processes[each.name] = process
        world = World(Stage(cluster, SHOP), processes)
        for each in CONTROLLERS:
            wait_for(lambda of=each: world.complete(of), f"{each.name} to have all permissions")  # type: ignore[misc]
        listed = NODE_OBJECTS.path()
        wait_for(lambda: all(map(ready, cluster.client.request("GET", listed)["items"])), "the nodes to be ready")
        yield world
    lines = [f"{seconds:5.1f} s  {name}" for name, seconds in sorted(world.worst.items())]
    sys.stderr.write("\n".join(["", *lines, ""]))


def by_controller(world: World) -> list[dict[Controller, Role]]:
    """The rounds of the test: in each one, every account that has a further role loses one."""
    left = {}
    for each in CONTROLLERS:
        roles = world.roles_of(each.account)
        shared = [role for role in roles if role["metadata"]["name"] in SHARED]
        own = [role for role in roles if role not in shared and not role["metadata"]["name"].endswith("-lease")]
        left[each] = sorted(own, key=lambda role: (role["kind"], role["metadata"]["name"]))
    rounds = []
    while any(left.values()):
        rounds.append({each: roles.pop(0) for each, roles in left.items() if roles})
    return rounds


SHARED: Final = ("trimtab-history", "trimtab-acting")


def test_every_removed_role_is_reported_and_work_resumes_after_its_return(world: World) -> None:
    stage, client = world.stage, world.stage.client
    first, *others = by_controller(world)
    assert {role["metadata"]["name"] for role in first.values()} >= {each.account for each in CONTROLLERS}

    def work() -> None:
        """Create a pod for the scheduler, and two pods of a Deployment on one node for the descheduler."""
        container = {"name": "main", "image": IMAGE, "resources": {"requests": {"cpu": "100m"}}}
        spec = {"schedulerName": "packing", "containers": [container]}
        client.request("POST", PODS.path(namespace=SHOP), {"metadata": {"name": "pending"}, "spec": spec})
        stage.deploy_on("web", 2, on="a")
        assert "nodeName" not in client.request("GET", PODS.path("pending", namespace=SHOP))["spec"]
        assert len(set(stage.running("web").values())) == 1

    def bound() -> bool:
        return "nodeName" in client.request("GET", PODS.path("pending", namespace=SHOP))["spec"]

    world.lose_and_regain(first, meanwhile=work)
    began = time.monotonic()
    world.measure("return of work: the pending pod is bound", bound, began)
    world.measure("return of work: a duplicate is evicted", lambda: stage.spread("web", 2), began)
    for each in others:
        world.lose_and_regain(each)


@pytest.mark.parametrize("name", SHARED)
def test_removed_role_of_all_controllers_is_reported_by_each(world: World, name: str) -> None:
    [role] = distinct(
        role for each in CONTROLLERS for role in world.roles_of(each.account) if role["metadata"]["name"] == name
    )
    world.lose_and_regain(dict.fromkeys(CONTROLLERS, role))
    for each in CONTROLLERS:
        assert world.processes[each.name].running()


def test_removed_lease_role_is_reported_before_the_lease_is_lost(world: World) -> None:
    """A process that cannot renew its lease exits after ten seconds. On an idle machine, the role returns before."""
    controller = CONTROLLERS[0]
    process = world.processes[controller.name]
    [role] = [each for each in world.roles_of(controller.account) if each["metadata"]["name"].endswith("-lease")]

    def restart() -> None:
        if not process.running():
            process.start(ready=False)

    world.lose_and_regain({controller: role}, meanwhile=restart)


def test_removed_status_role_is_in_log_and_metrics(world: World) -> None:
    controller = next(each for each in CONTROLLERS if each.name == "tainting")
    process = world.processes[controller.name]
    name = f"{controller.account}-status"
    [role] = [each for each in render(*VALUES) if each["kind"] == "ClusterRole" and each["metadata"]["name"] == name]
    world.remove(role)
    try:
        wait_for(
            lambda: "patch taintmanagers.trimtab.dev/status" in process.log.read_text(), "the log", timeout=LONGEST
        )
        spec = {"taints": [{"key": "example.com/new", "policy": "Evict"}]}
        client = world.stage.client
        client.request(
            "PATCH",
            controller.resource.path(controller.object),
            {"spec": spec},
            content_type="application/merge-patch+json",
        )
        wait_for(lambda: 'status="403"' in (process.get("/metrics") or ""), "refused requests", timeout=LONGEST)
    finally:
        world.restore(role)
    wait_for(lambda: "has regained permissions" in process.log.read_text(), "the return", timeout=LONGEST)
