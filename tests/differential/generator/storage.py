"""Storage classes, CSI drivers, and what they say of nodes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from tests.builders import ZONE
from tests.differential.generator.chance import Chance
from tests.differential.generator.claims import CLAIMS, claims
from tests.differential.generator.names import CAPACITY, CSI, NAMESPACES, REGION, ZONES
from tests.differential.server import Manifest

MIGRATED: Final = "storage.alpha.kubernetes.io/migrated-plugins"


def storage(chance: Chance, nodes: Sequence[str]) -> Iterator[Manifest]:
    """Classes, drivers and what they say of nodes, claims and volumes, and attachments of volumes to nodes."""
    yield from _classes(chance)
    for name, capacity in ((CSI, False), (CAPACITY, True)):
        if not chance.one_in(6):
            yield _storage("CSIDriver", name, spec={"storageCapacity": capacity, "attachRequired": True})
    for name in nodes:
        if not chance.one_in(3):
            yield _csi_node(chance, name)
    for number in range(chance.pick(0, 1, 2, 3)):
        yield _capacity(chance, f"room-{number}")
    yield from claims(chance, nodes)
    for number in range(chance.pick(0, 0, 1, 3)):
        spec = {"attacher": CSI, "nodeName": chance.pick(*nodes)}
        source = {"persistentVolumeName": f"{chance.pick(*NAMESPACES)}-{chance.number(0, CLAIMS - 1)}"}
        yield _storage("VolumeAttachment", f"attached-{number}", spec={**spec, "source": source})


def _classes(chance: Chance) -> Iterator[Manifest]:
    terms = [{"matchLabelExpressions": [{"key": ZONE, "values": chance.sample(ZONES, 2)}]}]
    if chance.one_in(2):
        terms.append({"matchLabelExpressions": [{"key": REGION, "values": ["north"]}]})
    waits = {"volumeBindingMode": "WaitForFirstConsumer"}
    yield _storage("StorageClass", "fast", provisioner=CSI, **waits)
    yield _storage("StorageClass", "zoned", provisioner=CSI, allowedTopologies=terms, **waits)
    yield _storage("StorageClass", "now", provisioner=CSI, volumeBindingMode="Immediate")
    yield _storage("StorageClass", "manual", provisioner="kubernetes.io/no-provisioner", **waits)
    yield _storage("StorageClass", "room", provisioner=CAPACITY, **waits)


def _csi_node(chance: Chance, node: str) -> Manifest:
    drivers = []
    for name in chance.pick((CSI,), (CSI,), (CSI, CAPACITY), (CAPACITY,), ("pd.csi.storage.gke.io", CSI)):
        driver: dict[str, Any] = {"name": name, "nodeID": node}
        count = chance.pick(None, 0, 1, 1, 2, 3)
        drivers.append(driver if count is None else {**driver, "allocatable": {"count": count}})
    made = _storage("CSINode", node, spec={"drivers": drivers})
    if chance.one_in(2):
        made["metadata"]["annotations"] = {MIGRATED: "kubernetes.io/aws-ebs,kubernetes.io/gce-pd"}
    return made


def _capacity(chance: Chance, name: str) -> Manifest:
    labels = chance.pick({"matchLabels": {ZONE: chance.pick(*ZONES)}}, {"matchLabels": {"disk": "ssd"}}, {}, None)
    made = _storage("CSIStorageCapacity", name, storageClassName=chance.pick("room", "room", "fast"))
    made["metadata"]["namespace"] = "grey"
    if labels is not None:
        made["nodeTopology"] = labels
    if not chance.one_in(6):
        made["capacity"] = chance.pick("500M", "2Gi", "10Gi")
    if chance.one_in(3):
        made["maximumVolumeSize"] = chance.pick("500M", "1Gi", "2Gi")
    return made


def _storage(kind: str, name: str, **fields: Any) -> Manifest:
    return {"apiVersion": "storage.k8s.io/v1", "kind": kind, "metadata": {"name": name}, **fields}
