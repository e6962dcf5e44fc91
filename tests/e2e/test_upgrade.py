"""`helm upgrade` and `helm rollback` while the operator acts: stored objects stay, and uninstalling leaves nothing."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.conftest import MakeCluster
from tests.e2e.conftest import NODES, POLICIES, Stage
from tests.fixtures.clusters import create_nodes, require_local_cluster
from tests.fixtures.custom_resources import served
from tests.fixtures.installation import Installation
from tests.fixtures.tainting import make_namespace
from tests.fixtures.waiting import wait_for
from trimtab.cli.main import cli
from trimtab.kube.resources import CLUSTER_AUTOSCALERS, DEPLOYMENTS, DESCHEDULING_RUNS, HISTORY_RECORDS
from trimtab_local.install import NAMESPACE, RELEASE, OperatorProcess, apply
from trimtab_local.nodes import node

pytestmark = pytest.mark.core


OLD = "0.0.9"
DEPLOYMENT = DEPLOYMENTS.path(RELEASE, namespace=NAMESPACE)
MORE = (
    "replicas=2",
    "controllers.clusterAutoscaler.enabled=true",
    "controllers.pressure.enabled=true",
    "podDisruptionBudget.enabled=true",
)
"""Values of the upgrade: further CRDs and permissions, and a second replica."""


@pytest.fixture
def stage(make_cluster: MakeCluster, request: pytest.FixtureRequest) -> Stage:
    """Three nodes without trimtab. kwok runs the Deployments of the chart without their images."""
    require_local_cluster(request, "everything of trimtab is removed from the cluster")
    cluster = make_cluster(nodes=0)
    create_nodes(cluster.client, (node(name, zone=f"zone-{index}") for index, name in enumerate(NODES)))
    cluster.client.request("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    make_namespace(cluster.client, "shop")
    return Stage(cluster, "shop")


@pytest.fixture
def replace_operator(stage: Stage, tmp_path: Path) -> Iterator[Callable[[], OperatorProcess]]:
    """Start an operator next to the last one, if any, and stop the last one when the new one is ready."""
    with ExitStack() as stack:
        processes: list[OperatorProcess] = []

        def replace() -> OperatorProcess:
            name = f"operator-{len(processes)}"
            process = OperatorProcess(stage.cluster, tmp_path, "--controllers=descheduler", name=name)
            stack.callback(lambda: process.running() and process.stop())
            process.start()
            if processes:
                assert processes[-1].stop() == 0
            processes.append(process)
            return process

        yield replace


def test_upgrade_and_rollback_keep_stored_objects_and_uninstall_leaves_nothing(
    stage: Stage, replace_operator: Callable[[], OperatorProcess], tmp_path: Path
) -> None:
    if shutil.which("kubectl") is None:
        pytest.skip("no kubectl here")
    client = stage.client
    installation = Installation(stage.cluster, tmp_path, release=RELEASE)
    installation.install("replicas=1", chart=installation.package(OLD))
    wait_for(lambda: served(client, HISTORY_RECORDS.path()), "the CRDs to be served")
    replace_operator()
    stage.deploy_on("web", 3, on="a")
    stage.write_policy("act", mode="Act")
    stage.write_policy("simulate")
    wait_for(lambda: stage.spread("web", 3), "the pods to be spread")
    wait_for(lambda: len(history(stage)) == 2, "both evictions in the history")
    before = Stored(stage)
    assert version(stage) == OLD

    installation.upgrade(*MORE)
    replace_operator()
    assert version(stage) != OLD
    assert client.request("GET", DEPLOYMENT)["status"]["readyReplicas"] == 2
    before.require_kept()
    until_next_cycles(stage)
    wait_for(lambda: served(client, CLUSTER_AUTOSCALERS.path()), "the autoscaler's CRD to be served")
    autoscaler = {"apiVersion": CLUSTER_AUTOSCALERS.api_version, "kind": CLUSTER_AUTOSCALERS.kind}
    body = {**autoscaler, "metadata": {"name": "default"}, "spec": {"scaleDown": {"enabled": True}}}
    apply(client, CLUSTER_AUTOSCALERS.path(), body)

    installation.rollback()
    replace_operator()
    assert version(stage) == OLD
    assert client.request("GET", DEPLOYMENT)["status"]["readyReplicas"] == 1
    before.require_kept()
    until_next_cycles(stage)
    assert client.request("GET", CLUSTER_AUTOSCALERS.path("default"))["spec"]["scaleDown"]["enabled"] is True

    installation.upgrade(*MORE)  # the CRDs that the rollback kept belong to the release
    last = replace_operator()
    before.require_kept()
    until_next_cycles(stage)

    for name in ("act", "simulate"):
        stage.remove_policy(name)
    assert last.stop() == 0
    installation.uninstall()
    code, left = installation.check()
    assert code == 1
    assert "Deployment" not in {each["kind"] for each in left}
    for each in left:
        installation.run(each["command"])
    assert installation.check() == (0, [])


class Stored:
    """The objects that the operator and its users have stored."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._specs = self._read_specs()
        self._runs = self._read_runs()
        self._history = history(stage)

    def require_kept(self) -> None:
        """Assert that each object is still readable and has the same content."""
        assert self._read_specs() == self._specs
        assert self._read_runs().items() >= self._runs.items()
        assert history(self._stage)[: len(self._history)] == self._history
        evicted = sum(self._stage.status(name).get("evicted", 0) for name in self._specs)
        assert evicted == len(self._history)

    def _read_specs(self) -> dict[str, Any]:
        items = self._stage.client.request("GET", POLICIES)["items"]
        return {each["metadata"]["name"]: each["spec"] for each in items}

    def _read_runs(self) -> dict[str, str]:
        items = self._stage.client.request("GET", DESCHEDULING_RUNS.path())["items"]
        return {each["metadata"]["name"]: json.dumps(each["spec"], sort_keys=True) for each in items}


def until_next_cycles(stage: Stage) -> None:
    """Wait until both policies have had a cycle that started after this call."""
    for name in ("act", "simulate"):
        last = stage.status(name)["lastRun"]["time"]
        # The policy that has evicted pods waits up to a minute after a change of the leader.
        wait_for(lambda n=name, t=last: stage.status(n)["lastRun"]["time"] > t, f"a cycle of {name}", timeout=180)


def version(stage: Stage) -> str:
    """The version of the installed chart."""
    return str(stage.client.request("GET", DEPLOYMENT)["metadata"]["labels"]["app.kubernetes.io/version"])


def history(stage: Stage) -> list[dict[str, Any]]:
    """The entries of `trimtab history`, the oldest first."""
    arguments = ["history", "--since=1h", f"--kubeconfig={stage.cluster.kubeconfig}", "-o", "json"]
    made = CliRunner().invoke(cli, arguments, catch_exceptions=False)
    assert made.exit_code == 0, made.output
    entries: list[dict[str, Any]] = json.loads(made.stdout)["entries"]
    return entries
