"""What the MachineAutoscaler controller does if an object that it writes has changed, was replaced or is gone."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.autoscaling.machine_autoscaler_world import MAX, NS, Server
from trimtab.api.machine_autoscaler import MachineAutoscalerStatus
from trimtab.autoscaling.machine_autoscalers.registry import (
    OPENSHIFT_FINALIZER,
    MachineAutoscalerRegistry,
    RegistryEntry,
)
from trimtab.autoscaling.machine_autoscalers.targets import TargetKey, Targets
from trimtab.autoscaling.machine_autoscalers.writer import LeadershipLost, ObjectWriter, StaleObject
from trimtab.kube.api import Conflict, Invalid
from trimtab.kube.objects import AnyMachineSet
from trimtab.kube.resources import MACHINE_AUTOSCALERS, MACHINE_SETS

SET = MACHINE_SETS.path("a", namespace=NS)
AUTOSCALER = MACHINE_AUTOSCALERS.path("ma", namespace=NS)
REFUSED = Invalid("refused by a webhook", status=422)
TAKEN = Conflict("the object has been modified", status=409)


class Objects:
    """A MachineSet and a MachineAutoscaler with its finalizer, and a writer that has read both."""

    def __init__(self) -> None:
        self.server = Server()
        self.lead = True
        self.autoscalers = MachineAutoscalerRegistry()
        self.targets = Targets()
        self.writer = ObjectWriter(
            self.server, leading=lambda: self.lead, autoscalers=self.autoscalers, targets=self.targets
        )
        self.target: AnyMachineSet = self.targets.put(self.put_set("1"))
        self.entry: RegistryEntry = self.autoscalers.observe(self.put_autoscaler(OPENSHIFT_FINALIZER))

    def put_set(self, limit: str, **metadata: Any) -> dict[str, Any]:
        metadata = {"name": "a", "namespace": NS, "annotations": {MAX: limit}, **metadata}
        return self._put(SET, MACHINE_SETS, metadata, {"replicas": 1})

    def put_autoscaler(self, *finalizers: str) -> dict[str, Any]:
        reference = {"apiVersion": MACHINE_SETS.api_version, "kind": "MachineSet", "name": "a"}
        spec = {"minReplicas": 1, "maxReplicas": 5, "scaleTargetRef": reference}
        metadata = {"name": "ma", "namespace": NS, "finalizers": list(finalizers)}
        return self._put(AUTOSCALER, MACHINE_AUTOSCALERS, metadata, spec)

    def _put(self, path: str, resource: Any, metadata: dict[str, Any], spec: dict[str, Any]) -> dict[str, Any]:
        body = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata, "spec": spec}
        return self.server.put(path, body)


@pytest.fixture
def objects() -> Objects:
    return Objects()


async def test_target_that_is_gone_is_forgotten(objects: Objects) -> None:
    del objects.server.objects[SET]
    with pytest.raises(StaleObject):
        await objects.writer.annotate(objects.target, {MAX: "5"})
    assert objects.targets.get(TargetKey.of(objects.target)) is None


async def test_refused_change_of_an_unchanged_target_is_reported(objects: Objects) -> None:
    objects.server.fail(REFUSED, method="PATCH", path=SET)
    with pytest.raises(Invalid):
        await objects.writer.annotate(objects.target, {MAX: "5"})


async def test_annotation_of_another_writer_is_read_and_not_overwritten(objects: Objects) -> None:
    objects.put_set("7")
    with pytest.raises(StaleObject):
        await objects.writer.annotate(objects.target, {MAX: "5"})
    now = objects.targets.get(TargetKey.of(objects.target))
    assert now is not None
    assert now.annotations[MAX] == "7"
    assert objects.server.objects[SET]["metadata"]["annotations"] == {MAX: "7"}


async def test_target_of_the_same_name_is_another_object(objects: Objects) -> None:
    del objects.server.objects[SET]
    objects.put_set("1", uid="another")
    with pytest.raises(StaleObject):
        await objects.writer.annotate(objects.target, {MAX: "5"})


async def test_only_kinds_that_can_be_targets_are_read(objects: Objects) -> None:
    assert await objects.writer.read_target(TargetKey("apps", "Deployment", f"{NS}/a")) is None
    assert not objects.server.calls
    assert await objects.writer.read_target(TargetKey.of(objects.target)) == objects.target
    del objects.server.objects[SET]
    assert await objects.writer.read_target(TargetKey.of(objects.target)) is None
    assert objects.targets.get(TargetKey.of(objects.target)) is None


async def test_finalizer_that_is_there_or_gone_takes_no_request(objects: Objects) -> None:
    await objects.writer.add_finalizer(objects.entry)
    await objects.writer.remove_finalizer(objects.autoscalers.observe(objects.put_autoscaler()))
    assert not objects.server.calls


async def test_finalizer_of_a_deleted_object_is_forgotten(objects: Objects) -> None:
    del objects.server.objects[AUTOSCALER]
    with pytest.raises(StaleObject):
        await objects.writer.remove_finalizer(objects.entry)
    assert objects.autoscalers.get(objects.entry.key) is None


async def test_finalizers_of_other_writers_are_read_and_kept(objects: Objects) -> None:
    objects.put_autoscaler("example.com/wait", OPENSHIFT_FINALIZER)
    with pytest.raises(StaleObject):
        await objects.writer.remove_finalizer(objects.entry)
    now = objects.autoscalers.get(objects.entry.key)
    assert now is not None
    await objects.writer.remove_finalizer(now)
    assert objects.server.objects[AUTOSCALER]["metadata"]["finalizers"] == ["example.com/wait"]


@pytest.mark.parametrize("error", [REFUSED, TAKEN], ids=["Invalid", "Conflict"])
async def test_refused_finalizer_of_an_unchanged_object_is_reported(objects: Objects, error: Exception) -> None:
    objects.server.fail(error, method="PATCH", path=AUTOSCALER)
    with pytest.raises(type(error)):
        await objects.writer.remove_finalizer(objects.entry)


async def test_object_that_vanishes_after_a_conflict_is_forgotten(objects: Objects) -> None:
    async def vanish(call: Any) -> None:
        if call.method == "GET":
            objects.server.objects.pop(AUTOSCALER)

    objects.server.before = vanish
    objects.server.fail(TAKEN, method="PATCH", path=AUTOSCALER)
    with pytest.raises(StaleObject):
        await objects.writer.remove_finalizer(objects.entry)
    assert objects.autoscalers.get(objects.entry.key) is None


async def test_status_of_a_deleted_object_is_dropped(objects: Objects) -> None:
    del objects.server.objects[AUTOSCALER]
    await objects.writer.write_status(objects.entry, MachineAutoscalerStatus())
    assert objects.autoscalers.get(objects.entry.key) is None


async def test_follower_sends_nothing(objects: Objects) -> None:
    objects.lead = False
    for write in (
        objects.writer.annotate(objects.target, {MAX: "5"}),
        objects.writer.remove_finalizer(objects.entry),
        objects.writer.write_status(objects.entry, MachineAutoscalerStatus()),
    ):
        with pytest.raises(LeadershipLost):
            await write
    assert not objects.server.calls
