"""Volumes, claims, classes and drivers, and pods that use them.

Nobody provisions, binds or attaches anything here: each claim is drawn in one of the states that it can be found in,
and stays there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from tests.builders import HOSTNAME, ZONE, PodBuilder, expression
from tests.differential.generator.chance import Chance
from tests.differential.generator.names import ASKED_IMAGES, CAPACITY, CSI, NAMESPACES, OLD_ZONE, REGION, REGIONS, ZONES
from tests.differential.server import Manifest

CLASSES: Final = ("fast", "zoned", "now", "manual", "room")
BOUND: Final = "pv.kubernetes.io/bind-completed"
SELECTED: Final = "volume.kubernetes.io/selected-node"
MIGRATED: Final = "storage.alpha.kubernetes.io/migrated-plugins"
SIZES: Final = ("1Gi", "2Gi", "5Gi", "500M")
CLAIMS: Final = 7
"""Claims in each namespace, ``claim-0`` and so on."""

THE_CLAIM: Final = "@claim"
"""Stands in a volume's ``claimRef`` for the UID that the claim of that name gets."""
THE_POD: Final = "@pod"
"""Stands in a claim's owner reference for the UID that the pod of that name gets."""


def storage(chance: Chance, nodes: Sequence[str]) -> Iterator[Manifest]:
    """Classes, drivers, and what is bound, to be bound, or lost."""
    yield from _classes(chance)
    for name, capacity in ((CSI, False), (CAPACITY, True)):
        if not chance.one_in(6):
            yield _storage("CSIDriver", name, spec={"storageCapacity": capacity, "attachRequired": True})
    for name in nodes:
        if not chance.one_in(3):
            yield _csi_node(chance, name)
    for number in range(chance.pick(0, 1, 2, 3)):
        yield _capacity(chance, f"room-{number}")
    for namespace in NAMESPACES:
        for number in range(CLAIMS):
            yield from _claim(chance, namespace, number, nodes)
    volumes = [f"free-{number}" for number in range(chance.number(2, 6))]
    for name in volumes:
        yield _volume(chance, name, nodes, storage_class=chance.pick("manual", "manual", "manual", "fast", "now", ""))
    for number in range(chance.pick(0, 0, 1, 3)):
        spec = {"attacher": CSI, "nodeName": chance.pick(*nodes)}
        source = {"persistentVolumeName": f"{chance.pick(*NAMESPACES)}-{chance.number(0, CLAIMS - 1)}"}
        yield _storage("VolumeAttachment", f"attached-{number}", spec={**spec, "source": source})


def add_volumes(chance: Chance, made: PodBuilder) -> None:
    """Give one in four pods a volume or three."""
    if not chance.one_in(4):
        return
    for _ in range(chance.pick(1, 1, 1, 2, 3)):
        sort = chance.pick(*("claim",) * 6, "disk", "disk", "emptyDir", "ephemeral", "image")
        if sort == "claim":
            name = "missing" if chance.one_in(25) else f"claim-{chance.number(0, CLAIMS - 1)}"
            made.volume("persistentVolumeClaim", claimName=name)
        elif sort == "disk":
            kind, source = _disk(chance)
            made.volume(kind, **source)
        elif sort == "emptyDir":
            made.volume("emptyDir")
        elif sort == "image":
            made.volume("image", reference=chance.pick(*ASKED_IMAGES))
        else:
            made.volume("ephemeral", volumeClaimTemplate={"spec": _claim_spec("fast", "1Gi", "ReadWriteOnce")})


def ephemeral_claims(chance: Chance, pod: Manifest) -> Iterator[Manifest]:
    """The claims of the pod's ephemeral volumes, as the controller would have made them; some are missing or taken."""
    metadata = pod["metadata"]
    for volume in pod["spec"].get("volumes", ()):
        if "ephemeral" not in volume or chance.one_in(3):
            continue
        name = f"{metadata['name']}-{volume['name']}"
        made = _object("PersistentVolumeClaim", name, metadata["namespace"], _claim_spec("fast", "1Gi"))
        owner = {"apiVersion": "v1", "kind": "Pod", "name": metadata["name"], "controller": True}
        if not chance.one_in(4):
            made["metadata"]["ownerReferences"] = [{**owner, "uid": THE_POD}]
        yield made


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


def _claim(chance: Chance, namespace: str, number: int, nodes: Sequence[str]) -> Iterator[Manifest]:
    """A claim and, where it has one, its volume, which is named after it."""
    mode = chance.pick("ReadWriteOnce", "ReadWriteOnce", "ReadWriteMany", "ReadWriteOncePod")
    # One of each namespace's is bound for certain, else few pods with claims would fit anywhere.
    bound = number < 2 or chance.one_in(3)
    storage_class = chance.pick("fast", "zoned", "now", "manual", "room", "") if bound else chance.pick(*CLASSES)
    size = chance.pick(*SIZES)
    made = _object("PersistentVolumeClaim", f"claim-{number}", namespace, _claim_spec(storage_class, size, mode))
    volume = f"{namespace}-{number}"
    if bound:
        made["spec"]["volumeName"] = volume
        made["metadata"]["annotations"] = {BOUND: "yes"}
        made["status"] = {"phase": "Bound"}
        if not chance.one_in(15):
            yield _volume(chance, volume, nodes, storage_class=storage_class, mode=mode, claim=made)
    else:
        state = chance.pick("waits", "waits", "waits", "reserved", "selected", "lost", "classless", "half", "detailed")
        _unbound(chance, made, state, nodes)
        if state in ("reserved", "half"):  # by the claim and the volume, or by the volume alone
            yield _volume(chance, volume, nodes, storage_class=storage_class, mode=mode, reserved=made)
    if chance.one_in(20):
        made["metadata"]["deletionTimestamp"] = "2026-11-20T12:00:00Z"
    yield made


def _unbound(chance: Chance, claim: Manifest, state: str, nodes: Sequence[str]) -> None:
    metadata, spec = claim["metadata"], claim["spec"]
    if state in ("reserved", "lost"):
        spec["volumeName"] = f"{metadata['namespace']}-{metadata['name'].rpartition('-')[2]}"
    if state == "selected":
        metadata["annotations"] = {SELECTED: chance.pick(*nodes, "gone")}
    elif state == "lost":
        metadata["annotations"] = {BOUND: "yes"}
        claim["status"] = {"phase": "Lost"}
    elif state == "classless":
        spec["storageClassName"] = chance.pick("", "gone")
    elif state == "detailed":
        _detail(chance, claim)


def _detail(chance: Chance, claim: Manifest) -> None:
    """What static volumes have to match."""
    claim["spec"]["storageClassName"] = "manual"
    if chance.one_in(2):
        claim["spec"]["volumeMode"] = "Block"
    if chance.one_in(2):
        selector = chance.pick({"matchLabels": {"tier": "gold"}}, {"matchExpressions": [expression("tier", "Exists")]})
        claim["spec"]["selector"] = selector


def _volume(
    chance: Chance,
    name: str,
    nodes: Sequence[str],
    *,
    storage_class: str,
    mode: str = "",
    claim: Manifest | None = None,
    reserved: Manifest | None = None,
) -> Manifest:
    """A volume: bound to a claim, reserved for one, or free."""
    spec: dict[str, Any] = {"capacity": {"storage": chance.pick(*SIZES)}, "storageClassName": storage_class}
    spec["accessModes"] = [mode or chance.pick("ReadWriteOnce", "ReadWriteOnce", "ReadWriteMany", "ReadWriteOncePod")]
    spec |= _source(chance, name)
    if "local" in spec or chance.one_in(2):
        terms = chance.some(lambda: {"matchExpressions": [_place(chance, nodes)]}, 1, 1, 2)
        spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": terms}}
    made: Manifest = {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": spec}
    made["status"] = {"phase": "Bound" if claim else "Available"}
    owner = claim or reserved
    if owner:
        metadata = owner["metadata"]
        reference = {"apiVersion": "v1", "kind": "PersistentVolumeClaim"}
        spec["claimRef"] = {**reference, "namespace": metadata["namespace"], "name": metadata["name"]}
        if claim:
            spec["claimRef"]["uid"] = THE_CLAIM
    else:
        if chance.one_in(4):
            spec["volumeMode"] = "Block"
        if chance.one_in(12):
            made["status"] = {"phase": "Released"}
    labels: dict[str, str] = {}
    if chance.one_in(4):
        key = chance.pick(ZONE, ZONE, REGION, OLD_ZONE)
        labels[key] = chance.pick(*REGIONS) if key == REGION else chance.pick(*ZONES, "a__b")
    if chance.one_in(3):
        labels["tier"] = chance.pick("gold", "tin")
    if labels:
        made["metadata"]["labels"] = labels
    if chance.one_in(25):
        made["metadata"]["deletionTimestamp"] = "2026-11-20T12:00:00Z"
    return made


def _source(chance: Chance, name: str) -> dict[str, Any]:
    return chance.pick(
        {"csi": {"driver": CSI, "volumeHandle": chance.pick(name, name, name, "shared")}},
        {"csi": {"driver": CSI, "volumeHandle": name}},
        {"csi": {"driver": CAPACITY, "volumeHandle": name}},
        {"local": {"path": "/data"}},
        {"hostPath": {"path": "/data"}},
        {"gcePersistentDisk": {"pdName": chance.pick(name, "pd")}},
        {"awsElasticBlockStore": {"volumeID": name}},
    )


def _place(chance: Chance, nodes: Sequence[str]) -> dict[str, Any]:
    return chance.pick(
        expression(ZONE, "In", *chance.sample(ZONES, chance.pick(1, 2))),
        expression(HOSTNAME, "In", *chance.sample(nodes, chance.pick(1, 2, 3))),
        expression("disk", "NotIn", "hdd"),
    )


def _disk(chance: Chance) -> tuple[str, dict[str, Any]]:
    """A disk named in the pod itself, which two pods may not write to at once."""
    read_only = chance.one_in(2)
    return chance.pick(
        ("gcePersistentDisk", {"pdName": "pd", "readOnly": read_only}),
        ("awsElasticBlockStore", {"volumeID": "vol-1", "readOnly": read_only}),
        ("iscsi", {"targetPortal": "10.0.0.1:3260", "iqn": "iqn.2026-01.example:1", "lun": chance.pick(0, 1)})
        if not read_only
        else ("iscsi", {"targetPortal": "10.0.0.1:3260", "iqn": "iqn.2026-01.example:1", "lun": 0, "readOnly": True}),
        ("rbd", {"monitors": chance.pick(["m1"], ["m1", "m2"]), "image": "i", "pool": "p", "readOnly": read_only}),
    )


def _claim_spec(storage_class: str, size: str, mode: str = "ReadWriteOnce") -> dict[str, Any]:
    spec: dict[str, Any] = {"accessModes": [mode], "resources": {"requests": {"storage": size}}}
    return {**spec, "storageClassName": storage_class}


def _storage(kind: str, name: str, **fields: Any) -> Manifest:
    return {"apiVersion": "storage.k8s.io/v1", "kind": kind, "metadata": {"name": name}, **fields}


def _object(kind: str, name: str, namespace: str, spec: dict[str, Any]) -> Manifest:
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": name, "namespace": namespace}, "spec": spec}
