"""Whole clusters, as they are when the scheduler has long forgotten them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from tests.builders import PodBuilder, budget, namespace, pv, pvc, storage_class
from tests.descheduler_differential.clock import ago
from tests.descheduler_differential.generator.nodes import random_node
from tests.descheduler_differential.generator.templates import APPS, CLAIM, LABELS, Template, random_template
from tests.differential.generator.chance import Chance
from tests.differential.server import Manifest

AGES: Final = (40, 400, 2_000, 7_000, 50_000, 100_000, 900_000)
"""Seconds: no policy draws the line near one of these, so that it does not matter when it is asked."""


class RandomCluster:
    """A cluster of its own for each seed.

    Args:
        seed: what it follows from.

    Attributes:
        objects: all of it, as manifests.
        nodes: the names of the nodes.
    """

    def __init__(self, seed: int) -> None:
        self._chance = Chance(seed)
        self.nodes = [f"n{number}" for number in range(self._chance.pick(2, 3, 4, 4, 6, 9))]
        self.objects: list[Manifest] = list(self._make())

    def _make(self) -> Iterator[Manifest]:
        chance = self._chance
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
            yield random_node(chance.fork(), name).manifest()
        for number in range(chance.number(2, 3 * len(self.nodes))):
            template = random_template(chance.fork(), number)
            yield from self._pods(chance.fork(), template)
        for number in range(chance.pick(0, 0, 1, 2)):
            of = chance.pick("red", "blue", "grey")
            made = budget(f"budget-{number}", of).selecting(app=chance.pick(*APPS))
            yield made.allowing(chance.pick(0, 0, 1, 3), healthy=6, expected=6).manifest()

    def _pods(self, chance: Chance, template: Template) -> Iterator[Manifest]:
        """Where they once fitted, or did not matter: often more of them on one node than is good."""
        favourite = chance.sample(self.nodes, chance.pick(1, 2, 2))
        for number in range(template.replicas):
            where = chance.pick(*favourite, chance.pick(*self.nodes))
            made = template.pod(number)
            if template.kind == "DaemonSet":
                where = self.nodes[number % len(self.nodes)]
            if template.kind == "" and chance.one_in(4):
                made.mirror()
            _live(chance.fork(), made.on(where))
            yield made.manifest()


def _reference(name: str) -> dict[str, Any]:
    return {"namespace": name, "name": CLAIM, "uid": f"claim-{name}", "kind": "PersistentVolumeClaim"}


def _live(chance: Chance, made: PodBuilder) -> None:
    """What became of a pod: age, phase, restarts, conditions."""
    age = chance.pick(*AGES)
    made.created(ago(age)).started(ago(age - 10))
    phase = chance.pick(*("Running",) * 12, "Failed", "Failed", "Succeeded", "Pending")
    _containers(chance, made, phase)
    if phase == "Running":
        made.condition("Initialized", "True", since=ago(age - 15))
        made.ready(since=ago(chance.pick(age - 20, age - 20, *(each for each in AGES if each < age))))
        if chance.one_in(12):
            made.condition("Ready", "False", since=ago(chance.pick(*AGES[:3])))
    else:
        made.phase(phase, chance.pick("", "", "Evicted", "NodeAffinity") if phase == "Failed" else "")
    made.condition("PodScheduled", "True", since=ago(age))
    if phase in ("Running", "Pending") and chance.one_in(25):
        made.deleted(ago(10)).grace_period(30).merge(metadata={"deletionGracePeriodSeconds": 30})


def _containers(chance: Chance, made: PodBuilder, phase: str) -> None:
    restarts = chance.pick(0, 0, 0, 0, 3, 7, 50)
    status: dict[str, Any] = {"name": "main", "image": "x", "imageID": "x", "ready": phase == "Running"}
    status |= {"restartCount": restarts, "state": {"running": {}}}
    if phase == "Failed":
        code = chance.pick(1, 137)
        ended = {"exitCode": code, "reason": "OOMKilled" if code == 137 else "Error"}
        status["state"] = {"terminated": ended}
    elif phase == "Succeeded":
        status["state"] = {"terminated": {"exitCode": 0, "reason": "Completed"}}
    elif phase == "Pending":
        status["state"] = {"waiting": {"reason": chance.pick("ImagePullBackOff", "ContainerCreating")}}
    elif chance.one_in(10):
        status |= {"ready": False, "state": {"waiting": {"reason": "CrashLoopBackOff"}}}
    statuses: dict[str, Any] = {"containerStatuses": [status]}
    if chance.one_in(8):
        made.init_container("step", image="x")
        ended = {"exitCode": chance.pick(0, 2), "reason": chance.pick("Completed", "Error")}
        step = {"name": "step", "image": "x", "imageID": "x", "ready": True, "restartCount": chance.pick(0, 4)}
        statuses["initContainerStatuses"] = [{**step, "state": {"terminated": ended}}]
    made.merge(status=statuses)
