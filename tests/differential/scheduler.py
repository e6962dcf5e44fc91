"""The real kube-scheduler: what it says of a pod, and how it scored nodes.

Verdicts come by watch, scores by its log, where it tells them at level 10; both are there once a pod has a node or a
reason for none. It is started anew for each cluster: only then is it certain that it has seen all of it, for it
schedules nothing before its caches are full, while it hears of single changes kind by kind and in no order.

Most of the time it may not write volumes and claims. A pod that would have to wait for volumes to be bound thereby
fails once its node is chosen and leaves everything as it was, so that the next pod is judged in the same cluster. Where
it may, such pods stay in its memory, for nobody binds their volumes, and hold what they were promised.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec

from tests.differential.server import Manifest, Server, path
from trimtab.local.cluster import LocalCluster
from trimtab.local.components import Settings
from trimtab.local.versions import APISERVER, ETCD, SCHEDULER

LEAST_ALLOCATED: Final = "LeastAllocated"
MOST_ALLOCATED: Final = "MostAllocated"

_TELLING: Final = "--vmodule=schedule_one=10,batch=3"
_SCORED: Final = re.compile(
    r'"Plugin scored node for pod" pod="(?P<pod>[^"]+)".* plugin="(?P<plugin>[^"]+)" node="(?P<node>[^"]+)"'
    r" score=(?P<score>-?\d+)"
)
_HINT: Final = re.compile(r'"OpportunisticBatch provided node hint".* pod="(?P<pod>[^"]+)"')
_PATIENCE: Final = 60.0
_LATER: Final = 0.5
_VOLUME_SCHEDULER: Final = "/apis/rbac.authorization.k8s.io/v1/clusterroles/system:volume-scheduler"
_REVIEWS: Final = "/apis/authorization.k8s.io/v1/subjectaccessreviews"


def settings(directory: Path, scoring: str = LEAST_ALLOCATED) -> Settings:
    """A cluster of nothing but an API server and a scheduler, which tells its scores.

    Args:
        directory: of the cluster.
        scoring: how NodeResourcesFit scores; with the default one the scheduler has no configuration at all.
    """
    telling: tuple[str, ...] = (_TELLING,)
    if scoring != LEAST_ALLOCATED:
        path = directory / "scheduler.json"
        path.write_bytes(msgspec.json.encode(_configuration(directory, scoring)))
        telling = (_TELLING, f"--config={path}")
    return Settings(
        components=(ETCD, APISERVER, SCHEDULER),
        # Nobody runs nodes or pods here, and nobody would take the taint away that new nodes get, or let go of claims.
        apiserver_args=(
            "--disable-admission-plugins=ServiceAccount,TaintNodesByCondition,StorageObjectInUseProtection",
        ),
        scheduler_args=telling,
    )


def _configuration(directory: Path, scoring: str) -> dict[str, Any]:
    resources = [{"name": "cpu", "weight": 1}, {"name": "memory", "weight": 1}]
    arguments = {"scoringStrategy": {"type": scoring, "resources": resources}}
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {"kubeconfig": str(directory / f"{SCHEDULER}.kubeconfig"), "qps": 5000, "burst": 10000},
        "leaderElection": {"leaderElect": False},
        "profiles": [{"pluginConfig": [{"name": "NodeResourcesFit", "args": arguments}]}],
    }


@dataclass(frozen=True)
class Verdict:
    """What the scheduler said of a pod.

    Attributes:
        created: the pod as it was created.
        bound: the pod on its node; ``None`` where it was not put on one, be it for want of a right to bind volumes.
        node: the one it chose, empty where none fits.
        message: why there is none.
        scores: weighted points by node and plugin, of all nodes that fit; empty where fewer than two do.
        hinted: whether it took the second best node of the pod before, and looked at no other.
    """

    created: Manifest
    bound: Manifest | None
    node: str
    message: str
    scores: dict[str, dict[str, int]] = field(default_factory=dict)
    hinted: bool = False

    @property
    def fits(self) -> frozenset[str] | None:
        """The nodes that pass all filters, ``None`` where it did not look at all."""
        if self.hinted:
            return None
        return frozenset(self.scores) or frozenset({self.node} - {""})


class Scheduler:
    """Judges pods one at a time."""

    def __init__(self, cluster: LocalCluster, server: Server) -> None:
        self._cluster = cluster
        self._server = server
        self._log = cluster.layout.log(SCHEDULER)
        self._read = 0
        self._binds = True
        self._changes = server.watch_pods()

    def close(self) -> None:
        self._changes.close()

    @contextmanager
    def asleep(self) -> Iterator[None]:
        """Change the cluster here; afterwards the scheduler starts, and knows all of it before its first pod."""
        with self._cluster.paused(SCHEDULER):
            os.truncate(self._log, 0)
            self._read = 0
            yield
        self._changes.close()
        self._changes = self._server.watch_pods()

    def let_bind_volumes(self, allowed: bool) -> None:
        """Give it the right to write volumes and claims, or take it, and wait until that holds."""
        if allowed == self._binds:
            return
        self._binds = allowed
        role = self._server.request("GET", _VOLUME_SCHEDULER)
        for rule in role["rules"]:
            rule["verbs"] = ["get", "list", "watch", *(("patch", "update") if allowed else ())]
        self._server.request("PUT", _VOLUME_SCHEDULER, role)
        for resource in ("persistentvolumes", "persistentvolumeclaims"):
            while self._may_update(resource) != allowed:
                time.sleep(0.02)

    def judge(self, manifest: Manifest, *, keep: bool = False) -> Verdict:
        """Create the pod, wait for the scheduler's word on it, and delete it.

        Args:
            manifest: a pod without a node.
            keep: leave the pod where it was put, be it only in the scheduler's memory, while its volumes are awaited;
                one that has no node is deleted all the same.
        """
        created = self._server.create(manifest)
        left = False
        try:
            verdict = self._word_on(created)
            left = keep and (verdict.bound is not None or (self._binds and verdict.node != ""))
            return verdict
        finally:
            if not left:
                self._server.request("DELETE", f"{path(created)}?gracePeriodSeconds=0")

    def dropped(self) -> bool:
        """Whether some pod lost the place that it was kept on; that is written down a little later."""
        time.sleep(_LATER)
        pending = self._server.request("GET", "/api/v1/pods?fieldSelector=spec.nodeName%3D")["items"]
        conditions = (condition for pod in pending for condition in pod["status"].get("conditions", ()))
        return any(condition["type"] == "PodScheduled" and condition["status"] == "False" for condition in conditions)

    def _may_update(self, resource: str) -> bool:
        review = {"user": "system:kube-scheduler", "resourceAttributes": {"verb": "update", "resource": resource}}
        answer = self._server.request("POST", _REVIEWS, {"spec": review})
        return bool(answer["status"]["allowed"])

    def _word_on(self, created: Manifest) -> Verdict:
        """Read the changes until there is one that decides.

        A pod whose volumes would have to be bound is told its node by nomination, before the scheduler tries that.
        """
        uid = created["metadata"]["uid"]
        nominated = ""
        deadline = time.monotonic() + _PATIENCE
        for change in self._changes:
            assert time.monotonic() < deadline, f"kube-scheduler says nothing of {path(created)}"
            pod = change["object"]
            if pod["metadata"].get("uid") != uid:
                continue
            node = pod["spec"].get("nodeName", "")
            status = pod.get("status", {})
            nominated = nominated or status.get("nominatedNodeName", "")
            if node or (nominated and self._binds):
                return self._verdict(created, pod, node or nominated, "")
            for condition in status.get("conditions", ()):
                if condition["type"] == "PodScheduled" and condition["status"] == "False":
                    return self._verdict(created, pod, nominated, condition["message"])
        raise AssertionError(f"the API server ended the watch before kube-scheduler's word on {path(created)}")

    def _verdict(self, created: Manifest, pod: Manifest, node: str, message: str) -> Verdict:
        name = f"{created['metadata']['namespace']}/{created['metadata']['name']}"
        scores: dict[str, dict[str, int]] = {}
        hinted = False
        with self._log.open("rb") as log:
            log.seek(self._read)
            content = log.read()
            self._read += len(content)
        for line in content.decode(errors="replace").splitlines():
            if (found := _SCORED.search(line)) and found["pod"] == name:
                scores.setdefault(found["node"], {})[found["plugin"]] = int(found["score"])
            elif (found := _HINT.search(line)) and found["pod"] == name:
                hinted = True
        bound = pod if pod["spec"].get("nodeName") else None
        return Verdict(created, bound, node, "" if node else message, scores, hinted)
