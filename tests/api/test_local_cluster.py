"""The local control plane from the user's point of view."""

from __future__ import annotations

import os
import signal
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.fixtures.clusters import Cluster
from tests.fixtures.lagging_watch import lagging_watch
from tests.fixtures.waiting import eventually, killed_after
from trimtab.kube.api import Forbidden
from trimtab.kube.connection.transport import Transport
from trimtab_local.cluster import LocalCluster
from trimtab_local.components import Settings
from trimtab_local.processes import alive
from trimtab_local.versions import APISERVER, ETCD, KWOK, SCHEDULER

pytestmark = pytest.mark.live

BARE = Settings(components=(ETCD, APISERVER))


async def test_the_admin_reads_everything(api: Transport) -> None:
    response = await api.request("GET", "/api/v1/nodes")
    assert {item["metadata"]["labels"]["topology.kubernetes.io/zone"] for item in response["items"]} >= {"zone-a"}


def test_service_account_has_no_permissions_by_default(cluster: Cluster, namespace: str, tmp_path: Path) -> None:
    path = cluster.service_account_kubeconfig(namespace, "default", path=tmp_path / "kubeconfig")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    token = cluster.service_account_token(namespace, "default")
    client = type(cluster.client)(server=cluster.server, token=token, ca=cluster.ca)
    with pytest.raises(Forbidden):
        client.request("GET", "/api/v1/nodes")


def deployment(name: str, replicas: int) -> dict:
    return {
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"containers": [{"name": "main", "image": "none"}]},
            },
        },
    }


def running(cluster: Cluster, namespace: str) -> dict[str, str]:
    """The node of each running pod, by name, without pods being deleted."""
    listed = cluster.client.request("GET", f"/api/v1/namespaces/{namespace}/pods")
    return {
        pod["metadata"]["name"]: pod["spec"]["nodeName"]
        for pod in listed["items"]
        if pod["status"].get("phase") == "Running" and "deletionTimestamp" not in pod["metadata"]
    }


def test_evicted_pod_is_recreated_on_another_node(cluster: Cluster, namespace: str) -> None:
    client = cluster.client
    client.request("POST", f"/apis/apps/v1/namespaces/{namespace}/deployments", deployment("web", 1))
    (name, node) = next(iter(eventually(lambda: running(cluster, namespace), what="a pod runs").items()))
    patch = "application/merge-patch+json"
    client.request("PATCH", f"/api/v1/nodes/{node}", {"spec": {"unschedulable": True}}, content_type=patch)
    try:
        eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": namespace}}
        client.request("POST", f"/api/v1/namespaces/{namespace}/pods/{name}/eviction", eviction)
        replacement = eventually(
            lambda: {k: v for k, v in running(cluster, namespace).items() if k != name}, what="its replacement runs"
        )
        assert list(replacement.values()) != [node]
    finally:
        client.request("PATCH", f"/api/v1/nodes/{node}", {"spec": {"unschedulable": None}}, content_type=patch)


def test_up_restarts_only_dead_components(make_cluster) -> None:
    cluster: LocalCluster = make_cluster(Settings(components=(ETCD, APISERVER, SCHEDULER, KWOK)), nodes=1)
    before = cluster.record().started
    assert cluster.up().started == before
    os.kill(before[SCHEDULER].process.pid, signal.SIGKILL)
    eventually(lambda: not alive(before[SCHEDULER].process), what="the scheduler is dead")
    assert {c.name: c.state for c in cluster.status().components}[SCHEDULER] == "Dead"
    after = cluster.up().started
    assert {name for name in after if after[name] != before[name]} == {SCHEDULER}
    assert cluster.status().healthy
    cluster.up(nodes=2)
    listed = cluster.client.request("GET", "/api/v1/nodes")
    assert {node["metadata"]["name"] for node in listed["items"]} == {"node-1", "node-2"}


def test_restarted_kwok_manages_existing_nodes_at_once(make_cluster) -> None:
    # With for_load leases last minutes: waiting for them to expire would fail this test, not just slow it down.
    cluster: LocalCluster = make_cluster(Settings(components=(ETCD, APISERVER, KWOK), for_load=True), nodes=1)
    path = "/api/v1/namespaces/default/pods"
    spec = {"nodeName": "node-1", "containers": [{"name": "main", "image": "none"}]}
    cluster.client.request("POST", path, {"metadata": {"name": "p"}, "spec": spec})
    eventually(lambda: running(cluster, "default"), what="the pod runs")
    kwok = cluster.record().started[KWOK].process
    os.kill(kwok.pid, signal.SIGKILL)
    eventually(lambda: not alive(kwok), what="kwok is dead")
    cluster.client.request("DELETE", f"{path}/p")
    assert cluster.client.request("GET", path)["items"]
    cluster.up()
    eventually(lambda: not cluster.client.request("GET", path)["items"], what="the pod is gone")


def test_restarted_kwok_acts_on_existing_pods_although_its_lease_watch_lags(make_cluster, tmp_path: Path) -> None:
    cluster: LocalCluster = make_cluster(Settings(components=(ETCD, APISERVER, KWOK)), nodes=1)
    settings = cluster.record().settings
    path = "/api/v1/namespaces/default/pods"
    spec = {"nodeName": "node-1", "containers": [{"name": "main", "image": "none"}]}
    cluster.client.request("POST", path, {"metadata": {"name": "ending"}, "spec": spec})
    eventually(lambda: running(cluster, "default"), what="the pod runs")
    kwok = cluster.record().started[KWOK].process
    os.kill(kwok.pid, signal.SIGKILL)
    eventually(lambda: not alive(kwok), what="kwok is dead")
    cluster.client.request("DELETE", f"{path}/ending")
    cluster.client.request("POST", path, {"metadata": {"name": "starting"}, "spec": spec})

    with lagging_watch(cluster, "leases", seconds=0.5, kubeconfig=tmp_path / "kubeconfig") as kubeconfig:
        cluster.up(replace(settings, kwok_args=(f"--kubeconfig={kubeconfig}",)))
        eventually(lambda: set(running(cluster, "default")) == {"starting"}, what="the new pod runs", seconds=15)
        items = cluster.client.request("GET", path)["items"]
        assert [each["metadata"]["name"] for each in items] == ["starting"]
        cluster.up(settings)


def test_changed_flags_restart_only_their_component(make_cluster) -> None:
    cluster: LocalCluster = make_cluster(BARE)
    before = cluster.record()
    after = cluster.up(replace(before.settings, apiserver_args=("--v=1",))).started
    assert {name for name in after if after[name] != before.started[name]} == {APISERVER}


def test_kept_data_survives_a_restart(tmp_path: Path) -> None:
    cluster = LocalCluster("kept", directory=tmp_path / "cluster")
    try:
        cluster.up(BARE, die_with_parent=True)
        cluster.client.request("POST", "/api/v1/namespaces", {"metadata": {"name": "kept"}})
        cluster.down(keep_data=True)
        cluster.up(die_with_parent=True)
        assert cluster.client.request("GET", "/api/v1/namespaces/kept")["metadata"]["name"] == "kept"
    finally:
        cluster.down()
    assert not cluster.directory.exists()
    assert not cluster.down()


def binds(server: socket.socket, port: int) -> bool:
    """Bind to a port of 127.0.0.1, unless it is in use."""
    try:
        server.bind(("127.0.0.1", port))
    except OSError:
        return False
    return True


@pytest.mark.parametrize("component", [ETCD, APISERVER])
def test_occupied_port_is_replaced(component: str, tmp_path: Path) -> None:
    cluster = LocalCluster("moved", directory=tmp_path / "cluster")
    try:
        cluster.up(BARE, die_with_parent=True)
        before = cluster.record().ports
        cluster.down(keep_data=True)
        with socket.socket() as foreign:
            foreign.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            eventually(lambda: binds(foreign, before[component]), what="the port is free")
            foreign.listen()
            cluster.up(die_with_parent=True)
        after = cluster.record().ports
        assert after[component] != before[component]
        assert {name for name in after if after[name] != before[name]} <= {component, "etcd-peer"}
        assert cluster.client.request("GET", "/api/v1/namespaces/default")
    finally:
        cluster.down()


def test_cluster_stops_when_its_parent_is_killed(tmp_path: Path) -> None:
    directory = tmp_path / "cluster"
    script = (
        "import sys, time; from pathlib import Path\n"
        "from trimtab_local.cluster import LocalCluster; from trimtab_local.components import Settings\n"
        f"LocalCluster('orphan', directory=Path(sys.argv[1])).up(Settings(components={BARE.components!r}),"
        " die_with_parent=True)\n"
        "print('up', flush=True); time.sleep(600)\n"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", script, str(directory)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as parent:
        assert parent.stdout is not None
        with killed_after(parent, 120):
            assert parent.stdout.readline() == b"up\n"
        started = LocalCluster("orphan", directory=directory).record().started
        parent.kill()
    eventually(lambda: not any(alive(entry.process) for entry in started.values()), what="all processes are gone")
    eventually(lambda: not directory.exists(), what="its files are gone")
