"""Claims and volumes.

Nobody provisions or binds anything here: each claim is drawn in one of the states that it can be found in, and stays
there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from tests.builders import HOSTNAME, ZONE, expression
from tests.differential.generator.chance import Chance
from tests.differential.generator.names import CAPACITY, CSI, NAMESPACES, OLD_ZONE, REGION, REGIONS, ZONES
from tests.differential.server import Manifest

CLASSES: Final = ("fast", "zoned", "now", "manual", "room")
BOUND: Final = "pv.kubernetes.io/bind-completed"
SELECTED: Final = "volume.kubernetes.io/selected-node"
SIZES: Final = ("1Gi", "2Gi", "5Gi", "500M")
UNBOUND: Final = ("reserved", "selected", "lost", "classless", "half", "detailed", "detailed", "robbed")
"""What else claims may be than bound or simply waiting."""
CLAIMS: Final = 7
"""Claims in each namespace, ``claim-0`` and so on."""

THE_CLAIM: Final = "@claim"
"""Stands in a volume's ``claimRef`` for the UID that the claim of that name gets."""


def claims(chance: Chance, nodes: Sequence[str]) -> Iterator[Manifest]:
    """Claims of all namespaces, with their volumes, and volumes that are free."""
    for namespace in NAMESPACES:
        for number in range(CLAIMS):
            yield from _claim(chance, namespace, number, nodes)
    for number in range(chance.number(2, 6)):
        storage_class = chance.pick("manual", "manual", "manual", "fast", "now", "")
        yield _volume(chance, f"free-{number}", nodes, storage_class=storage_class)


def claim_spec(storage_class: str, size: str, mode: str = "ReadWriteOnce") -> dict[str, Any]:
    """What a claim asks for."""
    spec: dict[str, Any] = {"accessModes": [mode], "resources": {"requests": {"storage": size}}}
    return {**spec, "storageClassName": storage_class}


def claim(name: str, namespace: str, spec: dict[str, Any]) -> Manifest:
    """A claim."""
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec}


def _claim(chance: Chance, namespace: str, number: int, nodes: Sequence[str]) -> Iterator[Manifest]:
    """A claim and, where it has one, its volume, which is named after it."""
    mode = chance.pick("ReadWriteOnce", "ReadWriteOnce", "ReadWriteMany", "ReadWriteOncePod")
    # Two of each namespace's are bound for certain, else few pods with claims would fit anywhere.
    bound = number < 2 or chance.one_in(3)
    storage_class = chance.pick("fast", "zoned", "now", "manual", "room", "") if bound else chance.pick(*CLASSES)
    size = chance.pick(*SIZES)
    made = claim(f"claim-{number}", namespace, claim_spec(storage_class, size, mode))
    volume = f"{namespace}-{number}"
    if bound:
        made["spec"]["volumeName"] = volume
        made["metadata"]["annotations"] = {BOUND: "yes"}
        made["status"] = {"phase": "Bound"}
        if not chance.one_in(15):
            yield _volume(chance, volume, nodes, storage_class=storage_class, mode=mode, claim=made)
    else:
        state = chance.pick("waits", "waits", "waits", *UNBOUND)
        _unbound(chance, made, state, nodes)
        if state in ("reserved", "half"):  # by the claim and the volume, or by the volume alone
            yield _volume(chance, volume, nodes, storage_class=storage_class, mode=mode, reserved=made)
    if chance.one_in(20):
        made["metadata"]["deletionTimestamp"] = "2026-11-20T12:00:00Z"
    yield made


def _unbound(chance: Chance, claim: Manifest, state: str, nodes: Sequence[str]) -> None:
    metadata, spec = claim["metadata"], claim["spec"]
    if state in ("reserved", "lost", "robbed"):
        spec["volumeName"] = f"{metadata['namespace']}-{metadata['name'].rpartition('-')[2]}"
    if state == "selected":
        metadata["annotations"] = {SELECTED: chance.pick(*nodes, "gone")}
    elif state == "lost":
        metadata["annotations"] = {BOUND: "yes"}
        claim["status"] = {"phase": "Lost"}
    elif state == "robbed":  # another claim's volume
        metadata["annotations"] = {BOUND: "yes"}
        spec["volumeName"] = f"{chance.pick(*NAMESPACES)}-{chance.number(0, CLAIMS - 1)}"
    elif state == "classless":
        spec["storageClassName"] = chance.pick("", "gone")
    elif state == "detailed":
        _detail(chance, claim)


def _detail(chance: Chance, claim: Manifest) -> None:
    """What static volumes have to match."""
    claim["spec"]["storageClassName"] = "manual"
    if chance.one_in(2):
        claim["spec"]["volumeMode"] = "Block"
    if chance.one_in(4):
        claim["spec"]["volumeAttributesClassName"] = chance.pick("quick", "slow")
    if chance.one_in(4):
        claim["spec"]["accessModes"] = ["ReadWriteOnce", "ReadWriteMany"]
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
            spec["claimRef"]["uid"] = "of-one-before" if chance.one_in(15) else THE_CLAIM
    else:
        _free(chance, made)
    labels = _labels(chance)
    if labels:
        made["metadata"]["labels"] = labels
    if chance.one_in(25):
        made["metadata"]["deletionTimestamp"] = "2026-11-20T12:00:00Z"
    return made


def _free(chance: Chance, volume: Manifest) -> None:
    """What claims have to match."""
    spec = volume["spec"]
    if chance.one_in(4):
        spec["volumeMode"] = "Block"
    if chance.one_in(4) and "csi" in spec:
        spec["volumeAttributesClassName"] = chance.pick("quick", "slow")
    if chance.one_in(3):
        spec["accessModes"] = ["ReadWriteOnce", "ReadWriteMany"]
    if chance.one_in(12):
        volume["status"] = {"phase": "Released"}


def _labels(chance: Chance) -> dict[str, str]:
    labels: dict[str, str] = {}
    if chance.one_in(4):
        key = chance.pick(ZONE, ZONE, REGION, OLD_ZONE)
        labels[key] = chance.pick(*REGIONS) if key == REGION else chance.pick(*ZONES, "a__b")
    if chance.one_in(3):
        labels["tier"] = chance.pick("gold", "tin")
    return labels


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
