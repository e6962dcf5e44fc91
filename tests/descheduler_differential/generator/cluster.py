"""Random clusters whose pods were placed long ago and violate policies."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from tests.builders import PodBuilder, budget, namespace, pv, pvc, storage_class
from tests.descheduler_differential.clock import ago
from tests.descheduler_differential.generator.nodes import random_node
from tests.descheduler_differential.generator.templates import APPS, CLAIM, LABELS, Template, random_template
from tests.differential.api_client import Manifest
from tests.differential.generator.rng import RandomSource

AGES: Final = (40, 400, 2_000, 7_000, 50_000, 100_000, 900_000)
"""Ages in seconds. No policy has a threshold near one of them, so that the time of the run does not matter."""


class RandomCluster:
    """The random cluster of a seed.

    Args:
        seed: determines all objects.

    Attributes:
        objects: the manifests of all objects.
        nodes: the names of the nodes.
    """

    def __init__(self, seed: int) -> None:
        self._rng = RandomSource(seed)
        self.nodes = [f"n{number}" for number in range(self._rng.pick(2, 3, 4, 4, 6, 9))]
        self.objects: list[Manifest] = list(self._make())

    def _make(self) -> Iterator[Manifest]:
        rng = self._rng
        for name, labels in LABELS.items():
            yield namespace(name).labels({"kubernetes.io/metadata.name": name} | labels).manifest()
            volume = pv(f"of-{name}").source("nfs", server="nfs.example", path=f"/{name}").of_class("slow")
            volume.access("ReadWriteMany").merge(spec={"claimRef": _reference(name)}, status={"phase": "Bound"})
            yield volume.manifest()
            claim = pvc(CLAIM, name).of_class("slow").access("ReadWriteMany").uid(f"claim-{name}")
            claim.annotations({"pv.kubernetes.io/bind-completed": "yes"})
            yield claim.merge(spec={"volumeName": f"of-{name}"}, status={"phase": "Bound"}).manifest()
        for name in ("slow", "fast"):
            yield storage_class(name).manifest()
        for name in self.nodes:
            yield random_node(rng.fork(), name).manifest()
        for number in range(rng.number(2, 3 * len(self.nodes))):
            template = random_template(rng.fork(), number)
            yield from self._pods(rng.fork(), template)
        for number in range(rng.pick(0, 0, 1, 2)):
            of = rng.pick("red", "blue", "grey")
            made = budget(f"budget-{number}", of).selecting(app=rng.pick(*APPS))
            yield made.allowing(rng.pick(0, 0, 1, 3), healthy=6, expected=6).manifest()

    def _pods(self, rng: RandomSource, template: Template) -> Iterator[Manifest]:
        """Generate the pods of a template, concentrated on one or two nodes."""
        favourite = rng.sample(self.nodes, rng.pick(1, 2, 2))
        for number in range(template.replicas):
            where = rng.pick(*favourite, rng.pick(*self.nodes))
            made = template.pod(number)
            if template.kind == "DaemonSet":
                where = self.nodes[number % len(self.nodes)]
            if template.kind == "" and rng.one_in(4):
                made.mirror()
            _add_status(rng.fork(), made.on(where))
            yield made.manifest()


def _reference(name: str) -> dict[str, Any]:
    return {"namespace": name, "name": CLAIM, "uid": f"claim-{name}", "kind": "PersistentVolumeClaim"}


def _add_status(rng: RandomSource, made: PodBuilder) -> None:
    """Set the pod's age, phase, restarts and conditions."""
    age = rng.pick(*AGES)
    made.created(ago(age)).started(ago(age - 10))
    phase = rng.pick(*("Running",) * 12, "Failed", "Failed", "Succeeded", "Pending")
    _containers(rng, made, phase)
    if phase == "Running":
        made.condition("Initialized", "True", since=ago(age - 15))
        made.ready(since=ago(rng.pick(age - 20, age - 20, *(each for each in AGES if each < age))))
        if rng.one_in(12):
            made.condition("Ready", "False", since=ago(rng.pick(*AGES[:3])))
    else:
        made.phase(phase, rng.pick("", "", "Evicted", "NodeAffinity") if phase == "Failed" else "")
    made.condition("PodScheduled", "True", since=ago(age))
    if phase in ("Running", "Pending") and rng.one_in(25):
        made.deleted(ago(10)).grace_period(30).merge(metadata={"deletionGracePeriodSeconds": 30})


def _containers(rng: RandomSource, made: PodBuilder, phase: str) -> None:
    restarts = rng.pick(0, 0, 0, 0, 3, 7, 50)
    status: dict[str, Any] = {"name": "main", "image": "x", "imageID": "x", "ready": phase == "Running"}
    status |= {"restartCount": restarts, "state": {"running": {}}}
    if phase == "Failed":
        code = rng.pick(1, 137)
        ended = {"exitCode": code, "reason": "OOMKilled" if code == 137 else "Error"}
        status["state"] = {"terminated": ended}
    elif phase == "Succeeded":
        status["state"] = {"terminated": {"exitCode": 0, "reason": "Completed"}}
    elif phase == "Pending":
        status["state"] = {"waiting": {"reason": rng.pick("ImagePullBackOff", "ContainerCreating")}}
    elif rng.one_in(10):
        status |= {"ready": False, "state": {"waiting": {"reason": "CrashLoopBackOff"}}}
    statuses: dict[str, Any] = {"containerStatuses": [status]}
    if rng.one_in(8):
        made.init_container("step", image="x")
        ended = {"exitCode": rng.pick(0, 2), "reason": rng.pick("Completed", "Error")}
        step = {"name": "step", "image": "x", "imageID": "x", "ready": True, "restartCount": rng.pick(0, 4)}
        statuses["initContainerStatuses"] = [{**step, "state": {"terminated": ended}}]
    made.merge(status=statuses)
