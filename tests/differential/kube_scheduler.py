"""The real kube-scheduler's verdicts on pods, with the scores of nodes.

Verdicts are read from a watch on pods, and scores from kube-scheduler's log at level 10. Both are complete when the pod
has a node or a PodScheduled condition. kube-scheduler restarts for each cluster, because it schedules nothing before
its caches have synced, while single changes arrive through one watch per kind in any order.

Usually, kube-scheduler has no permission to write volumes and claims. A pod with unbound claims then fails after
kube-scheduler has chosen its node and does not change the cluster, so that the next pod is compared in the same
cluster. With the permission, such pods remain assumed in kube-scheduler's cache with their volumes, because no
controller binds the volumes.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.differential.api_client import ApiClient, Manifest, path
from tests.differential.profiles import DEFAULT, write_configuration
from trimtab_local.cluster import LocalCluster
from trimtab_local.components import Settings
from trimtab_local.versions import APISERVER, ETCD, SCHEDULER

_LOG_LEVELS: Final = "--vmodule=schedule_one=10,batch=3"
_SCORED: Final = re.compile(
    r'"Plugin scored node for pod" pod="(?P<pod>[^"]+)".* plugin="(?P<plugin>[^"]+)" node="(?P<node>[^"]+)"'
    r" score=(?P<score>-?\d+)"
)
_HINT: Final = re.compile(r'"OpportunisticBatch provided node hint".* pod="(?P<pod>[^"]+)"')
_TIMEOUT_SECONDS: Final = 60.0
_CONDITION_DELAY_SECONDS: Final = 0.5
_VOLUME_SCHEDULER: Final = "/apis/rbac.authorization.k8s.io/v1/clusterroles/system:volume-scheduler"
_REVIEWS: Final = "/apis/authorization.k8s.io/v1/subjectaccessreviews"


def settings(directory: Path, profile: str = DEFAULT) -> Settings:
    """Configure a cluster with only etcd, kube-apiserver and kube-scheduler, which logs its scores.

    Args:
        directory: the cluster's directory.
        profile: the name of kube-scheduler's profile; with the default, kube-scheduler gets no configuration file.
    """
    arguments: tuple[str, ...] = (_LOG_LEVELS,)
    if profile != DEFAULT:
        arguments = (_LOG_LEVELS, f"--config={write_configuration(profile, directory)}")
    return Settings(
        components=(ETCD, APISERVER, SCHEDULER),
        # No controller runs that would remove the not-ready taint of new nodes or the finalizer of claims.
        apiserver_args=(
            "--disable-admission-plugins=ServiceAccount,TaintNodesByCondition,StorageObjectInUseProtection",
        ),
        scheduler_args=arguments,
    )


@dataclass(frozen=True)
class Verdict:
    """kube-scheduler's verdict on a pod.

    Attributes:
        created: the pod as created.
        bound: the pod with its node; ``None`` if it was not bound, for example without the permission to bind volumes.
        node: the node that kube-scheduler chose; empty if none fits.
        message: why no node fits.
        scores: the weighted scores by node and plugin, for all nodes that fit; empty if fewer than two fit.
        reused: whether kube-scheduler reused the previous pod's result and filtered only that node.
    """

    created: Manifest
    bound: Manifest | None
    node: str
    message: str
    scores: dict[str, dict[str, int]] = field(default_factory=dict)
    reused: bool = False

    @property
    def fits(self) -> frozenset[str] | None:
        """The nodes that pass all filters; ``None`` if kube-scheduler did not filter all nodes."""
        if self.reused:
            return None
        return frozenset(self.scores) or frozenset({self.node} - {""})


class KubeScheduler:
    """Schedules pods one at a time with the real kube-scheduler."""

    def __init__(self, cluster: LocalCluster, api: ApiClient) -> None:
        self._cluster = cluster
        self._api = api
        self._log = cluster.layout.log(SCHEDULER)
        self._read = 0
        self._may_bind = True
        self._changes = api.watch_pods()

    def close(self) -> None:
        self._changes.close()

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Stop kube-scheduler while the caller changes the cluster, and start it afterwards with an empty log."""
        with self._cluster.paused(SCHEDULER):
            os.truncate(self._log, 0)
            self._read = 0
            yield
        self._changes.close()
        self._changes = self._api.watch_pods()

    def allow_volume_binding(self, allowed: bool) -> None:
        """Grant or revoke the permission to write volumes and claims, and wait until it is in effect."""
        if allowed == self._may_bind:
            return
        self._may_bind = allowed
        role = self._api.request("GET", _VOLUME_SCHEDULER)
        for rule in role["rules"]:
            rule["verbs"] = ["get", "list", "watch", *(("patch", "update") if allowed else ())]
        self._api.request("PUT", _VOLUME_SCHEDULER, role)
        for resource in ("persistentvolumes", "persistentvolumeclaims"):
            while self._may_update(resource) != allowed:
                time.sleep(0.02)

    def evaluate(self, manifest: Manifest, *, keep: bool = False) -> Verdict:
        """Create the pod, wait for kube-scheduler's verdict, and delete the pod.

        Args:
            manifest: a pod without a node.
            keep: do not delete the pod if kube-scheduler bound or assumed it.

        Raises:
            AssertionError: kube-scheduler gave no verdict in time.
        """
        created = self._api.create(manifest)
        kept = False
        try:
            verdict = self._await_verdict(created)
            kept = keep and (verdict.bound is not None or (self._may_bind and verdict.node != ""))
            return verdict
        finally:
            if not kept:
                self._api.request("DELETE", f"{path(created)}?gracePeriodSeconds=0")

    def lost_assumed_pod(self) -> bool:
        """Whether kube-scheduler gave up on an assumed pod; it writes the condition with a delay."""
        time.sleep(_CONDITION_DELAY_SECONDS)
        pending = self._api.request("GET", "/api/v1/pods?fieldSelector=spec.nodeName%3D")["items"]
        conditions = (condition for pod in pending for condition in pod["status"].get("conditions", ()))
        return any(condition["type"] == "PodScheduled" and condition["status"] == "False" for condition in conditions)

    def _may_update(self, resource: str) -> bool:
        review = {"user": "system:kube-scheduler", "resourceAttributes": {"verb": "update", "resource": resource}}
        response = self._api.request("POST", _REVIEWS, {"spec": review})
        return bool(response["status"]["allowed"])

    def _await_verdict(self, created: Manifest) -> Verdict:
        """Read watch events until the pod has a verdict.

        kube-scheduler nominates a node for a pod with unbound claims before it binds the volumes.
        """
        uid = created["metadata"]["uid"]
        nominated = ""
        deadline = time.monotonic() + _TIMEOUT_SECONDS
        for change in self._changes:
            assert time.monotonic() < deadline, f"no verdict of kube-scheduler on {path(created)}"
            pod = change["object"]
            if pod["metadata"].get("uid") != uid:
                continue
            node = pod["spec"].get("nodeName", "")
            status = pod.get("status", {})
            nominated = nominated or status.get("nominatedNodeName", "")
            if node or (nominated and self._may_bind):
                return self._verdict(created, pod, node or nominated, "")
            for condition in status.get("conditions", ()):
                if condition["type"] == "PodScheduled" and condition["status"] == "False":
                    return self._verdict(created, pod, nominated, condition["message"])
        raise AssertionError(f"the watch ended before kube-scheduler's verdict on {path(created)}")

    def _verdict(self, created: Manifest, pod: Manifest, node: str, message: str) -> Verdict:
        name = f"{created['metadata']['namespace']}/{created['metadata']['name']}"
        scores: dict[str, dict[str, int]] = {}
        reused = False
        with self._log.open("rb") as log:
            log.seek(self._read)
            content = log.read()
            self._read += len(content)
        for line in content.decode(errors="replace").splitlines():
            if (found := _SCORED.search(line)) and found["pod"] == name:
                scores.setdefault(found["node"], {})[found["plugin"]] = int(found["score"])
            elif (found := _HINT.search(line)) and found["pod"] == name:
                reused = True
        bound = pod if pod["spec"].get("nodeName") else None
        return Verdict(created, bound, node, "" if node else message, scores, reused)
