"""Our filters against the real kube-scheduler: the same verdicts, in the same words."""

from __future__ import annotations

import os
from collections.abc import Iterator

import msgspec
import pytest

from tests.conftest import MakeCluster
from tests.fixtures.scheduling import Chance, Scheduler, pinned
from trimtab.cluster.load import load
from trimtab.cluster.snapshot import Snapshot
from trimtab.kube.connection.config import load_config
from trimtab.kube.connection.transport import Transport
from trimtab.kube.objects import Pod
from trimtab.kube.wire.decode import decode_json
from trimtab.local.client import Client
from trimtab.local.cluster import LocalCluster
from trimtab.local.components import Settings
from trimtab.local.versions import APISERVER, ETCD, SCHEDULER
from trimtab.placement.placer import Placer

NODES = 12
THERE = 40
PODS = int(os.environ.get("TRIMTAB_DIFFERENTIAL_PODS", "60"))
SEED = int(os.environ.get("TRIMTAB_DIFFERENTIAL_SEED", "1"))
SETTINGS = Settings(
    components=(ETCD, APISERVER, SCHEDULER),
    # Nobody runs nodes or pods here, and nobody would take the taint away that new nodes get.
    apiserver_args=("--disable-admission-plugins=TaintNodesByCondition",),
)
PLURALS = {"Namespace": "namespaces", "Node": "nodes"}


@pytest.fixture(scope="module")
def chance() -> Chance:
    return Chance(SEED)


@pytest.fixture(scope="module")
def scheduled(make_cluster: MakeCluster, chance: Chance) -> Iterator[LocalCluster]:
    """A cluster of nothing but an API server and a scheduler, with nodes, and pods on them that nobody runs."""
    cluster = make_cluster(SETTINGS, nodes=0)
    for manifest in chance.cluster(nodes=NODES, pods=THERE):
        kind = manifest["kind"]
        path = PLURALS.get(kind) or f"namespaces/{manifest['metadata']['namespace']}/pods"
        cluster.client.request("POST", f"/api/v1/{path}", manifest)
    _end_some(cluster.client, chance)
    _wait_for_the_scheduler(cluster.client)
    yield cluster
    cluster.down()


def _end_some(client: Client, chance: Chance) -> None:
    """Some pods have run to their end and hold nothing; some are on their way out and hold what they have."""
    for live in client.request("GET", "/api/v1/pods")["items"]:
        path = f"/api/v1/namespaces/{live['metadata']['namespace']}/pods/{live['metadata']['name']}"
        if chance.one_in(8):
            live["status"]["phase"] = chance.pick("Succeeded", "Failed")
            client.request("PUT", f"{path}/status", live)
        elif chance.one_in(8):
            client.request("DELETE", path, params={"gracePeriodSeconds": "600"})


def _wait_for_the_scheduler(client: Client) -> None:
    """Wait until it knows all nodes; pods and namespaces it learns in the order of their making."""
    probe = Chance(0).pod("probe").manifest() | {"spec": {"containers": [{"name": "main", "image": "x"}]}}
    probe["spec"]["nodeSelector"] = {"nobody": "has"}
    while not Scheduler(client).judge(probe).message.startswith(f"0/{NODES} "):
        pass


async def picture(cluster: LocalCluster) -> Snapshot:
    async with Transport(load_config(cluster.kubeconfig)) as api:
        return await load(api)


async def test_every_pod_is_judged_as_kube_scheduler_judges_it(scheduled: LocalCluster, chance: Chance) -> None:
    """Each pod as it is, and with two nodes alone to run on, so that the message is about one node."""
    placer = Placer(await picture(scheduled))
    scheduler = Scheduler(scheduled.client)
    disagreements = []
    for number in range(PODS):
        manifest = chance.pod(f"asked-{number}").manifest()
        nodes = chance.pick(*range(NODES)), chance.pick(*range(NODES))
        for asked in (manifest, *(pinned(manifest, f"n{node}") for node in nodes)):
            said = scheduler.judge(asked)
            pod = decode_json("Pod", msgspec.json.encode(said.pod))
            assert isinstance(pod, Pod)
            verdicts = placer.verdicts(pod)
            fits = {verdict.node for verdict in verdicts if verdict.fits}
            if said.node in fits or (not fits and said.message.startswith(placer.why_not(pod))):
                continue
            ours = f"fits {sorted(fits)}" if fits else placer.why_not(pod)
            spec = msgspec.json.encode(asked["spec"]).decode()
            disagreements.append(f"{pod.key}: {said.node or said.message!r}, but we say {ours!r}: {spec}")
    assert not disagreements, "\n".join([f"seed {SEED}, {len(disagreements)} of {3 * PODS}:", *disagreements])
