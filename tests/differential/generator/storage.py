"""StorageClasses, CSIDrivers, CSINodes, CSIStorageCapacities and VolumeAttachments."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from tests.builders import ZONE
from tests.differential.api_client import Manifest
from tests.differential.generator.claims import CLAIMS, claims
from tests.differential.generator.names import CAPACITY, CSI, NAMESPACES, REGION, ZONES
from tests.differential.generator.rng import RandomSource

MIGRATED: Final = "storage.alpha.kubernetes.io/migrated-plugins"


def storage(rng: RandomSource, nodes: Sequence[str]) -> Iterator[Manifest]:
    """Generate all storage objects of a cluster, including its claims and volumes."""
    yield from _classes(rng)
    for name, capacity in ((CSI, False), (CAPACITY, True)):
        if not rng.one_in(6):
            yield _storage("CSIDriver", name, spec={"storageCapacity": capacity, "attachRequired": True})
    for name in nodes:
        if not rng.one_in(3):
            yield _csi_node(rng, name)
    for number in range(rng.pick(0, 1, 2, 3)):
        yield _capacity(rng, f"room-{number}")
    yield from claims(rng, nodes)
    for number in range(rng.pick(0, 0, 1, 3)):
        spec = {"attacher": CSI, "nodeName": rng.pick(*nodes)}
        source = {"persistentVolumeName": f"{rng.pick(*NAMESPACES)}-{rng.number(0, CLAIMS - 1)}"}
        yield _storage("VolumeAttachment", f"attached-{number}", spec={**spec, "source": source})


def _classes(rng: RandomSource) -> Iterator[Manifest]:
    terms = [{"matchLabelExpressions": [{"key": ZONE, "values": rng.sample(ZONES, 2)}]}]
    if rng.one_in(2):
        terms.append({"matchLabelExpressions": [{"key": REGION, "values": ["north"]}]})
    waits = {"volumeBindingMode": "WaitForFirstConsumer"}
    yield _storage("StorageClass", "fast", provisioner=CSI, **waits)
    yield _storage("StorageClass", "zoned", provisioner=CSI, allowedTopologies=terms, **waits)
    yield _storage("StorageClass", "now", provisioner=CSI, volumeBindingMode="Immediate")
    yield _storage("StorageClass", "manual", provisioner="kubernetes.io/no-provisioner", **waits)
    yield _storage("StorageClass", "room", provisioner=CAPACITY, **waits)


def _csi_node(rng: RandomSource, node: str) -> Manifest:
    drivers = []
    for name in rng.pick((CSI,), (CSI,), (CSI, CAPACITY), (CAPACITY,), ("pd.csi.storage.gke.io", CSI)):
        driver: dict[str, Any] = {"name": name, "nodeID": node}
        count = rng.pick(None, 0, 1, 1, 2, 3)
        drivers.append(driver if count is None else {**driver, "allocatable": {"count": count}})
    made = _storage("CSINode", node, spec={"drivers": drivers})
    if rng.one_in(2):
        made["metadata"]["annotations"] = {MIGRATED: "kubernetes.io/aws-ebs,kubernetes.io/gce-pd"}
    return made


def _capacity(rng: RandomSource, name: str) -> Manifest:
    labels = rng.pick({"matchLabels": {ZONE: rng.pick(*ZONES)}}, {"matchLabels": {"disk": "ssd"}}, {}, None)
    made = _storage("CSIStorageCapacity", name, storageClassName=rng.pick("room", "room", "fast"))
    made["metadata"]["namespace"] = "grey"
    if labels is not None:
        made["nodeTopology"] = labels
    if not rng.one_in(6):
        made["capacity"] = rng.pick("500M", "2Gi", "10Gi")
    if rng.one_in(3):
        made["maximumVolumeSize"] = rng.pick("500M", "1Gi", "2Gi")
    return made


def _storage(kind: str, name: str, **fields: Any) -> Manifest:
    return {"apiVersion": "storage.k8s.io/v1", "kind": kind, "metadata": {"name": name}, **fields}
