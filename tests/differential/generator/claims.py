"""PersistentVolumeClaims and PersistentVolumes.

No controller provisions or binds volumes here: the generator creates each claim in one of its possible states, and the
claim remains in it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from tests.builders import HOSTNAME, ZONE, expression
from tests.differential.api_client import Manifest
from tests.differential.generator.names import CAPACITY, CSI, LEGACY_ZONE, NAMESPACES, REGION, REGIONS, ZONES
from tests.differential.generator.rng import RandomSource

CLASSES: Final = ("fast", "zoned", "now", "manual", "room")
BOUND: Final = "pv.kubernetes.io/bind-completed"
SELECTED: Final = "volume.kubernetes.io/selected-node"
SIZES: Final = ("1Gi", "2Gi", "5Gi", "500M")
UNBOUND: Final = (
    "reserved",
    "node-selected",
    "lost",
    "no-class",
    "half-bound",
    "static",
    "static",
    "volume-of-other-claim",
)
"""States of claims in addition to ``bound`` and ``waiting``."""
CLAIMS: Final = 7
"""Claims in each namespace, ``claim-0`` and so on."""

CLAIM_UID: Final = "@claim"
"""Placeholder in a volume's ``claimRef`` for the UID that the API server assigns to the claim."""


def claims(rng: RandomSource, nodes: Sequence[str]) -> Iterator[Manifest]:
    """Generate the claims of all namespaces with their volumes, and available volumes."""
    for namespace in NAMESPACES:
        for number in range(CLAIMS):
            yield from _claim(rng, namespace, number, nodes)
    for number in range(rng.number(2, 6)):
        storage_class = rng.pick("manual", "manual", "manual", "fast", "now", "")
        yield _volume(rng, f"free-{number}", nodes, storage_class=storage_class)


def claim_spec(storage_class: str, size: str, mode: str = "ReadWriteOnce") -> dict[str, Any]:
    """Build the spec of a PersistentVolumeClaim."""
    spec: dict[str, Any] = {"accessModes": [mode], "resources": {"requests": {"storage": size}}}
    return {**spec, "storageClassName": storage_class}


def claim(name: str, namespace: str, spec: dict[str, Any]) -> Manifest:
    """Build a PersistentVolumeClaim."""
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec}


def _claim(rng: RandomSource, namespace: str, number: int, nodes: Sequence[str]) -> Iterator[Manifest]:
    """A claim and its volume, if it has one. The volume's name contains the claim's."""
    mode = rng.pick("ReadWriteOnce", "ReadWriteOnce", "ReadWriteMany", "ReadWriteOncePod")
    # Two claims of each namespace are always bound, or few pods with claims would fit.
    bound = number < 2 or rng.one_in(3)
    storage_class = rng.pick("fast", "zoned", "now", "manual", "room", "") if bound else rng.pick(*CLASSES)
    size = rng.pick(*SIZES)
    made = claim(f"claim-{number}", namespace, claim_spec(storage_class, size, mode))
    volume = f"{namespace}-{number}"
    if bound:
        made["spec"]["volumeName"] = volume
        made["metadata"]["annotations"] = {BOUND: "yes"}
        made["status"] = {"phase": "Bound"}
        if not rng.one_in(15):
            yield _volume(rng, volume, nodes, storage_class=storage_class, mode=mode, claim=made)
    else:
        state = rng.pick("waiting", "waiting", "waiting", *UNBOUND)
        _unbound(rng, made, state, nodes)
        if state in ("reserved", "half-bound"):  # both refer to each other, or only the volume refers to the claim
            yield _volume(rng, volume, nodes, storage_class=storage_class, mode=mode, reserved=made)
    if rng.one_in(20):
        made["metadata"]["deletionTimestamp"] = "2026-11-20T12:00:00Z"
    yield made


def _unbound(rng: RandomSource, claim: Manifest, state: str, nodes: Sequence[str]) -> None:
    metadata, spec = claim["metadata"], claim["spec"]
    if state in ("reserved", "lost", "volume-of-other-claim"):
        spec["volumeName"] = f"{metadata['namespace']}-{metadata['name'].rpartition('-')[2]}"
    if state == "node-selected":
        metadata["annotations"] = {SELECTED: rng.pick(*nodes, "gone")}
    elif state == "lost":
        metadata["annotations"] = {BOUND: "yes"}
        claim["status"] = {"phase": "Lost"}
    elif state == "volume-of-other-claim":  # the volume of another claim
        metadata["annotations"] = {BOUND: "yes"}
        spec["volumeName"] = f"{rng.pick(*NAMESPACES)}-{rng.number(0, CLAIMS - 1)}"
    elif state == "no-class":
        spec["storageClassName"] = rng.pick("", "gone")
    elif state == "static":
        _add_claim_fields(rng, claim)


def _add_claim_fields(rng: RandomSource, claim: Manifest) -> None:
    """Give the claim fields that static volumes must match."""
    claim["spec"]["storageClassName"] = "manual"
    if rng.one_in(2):
        claim["spec"]["volumeMode"] = "Block"
    if rng.one_in(4):
        claim["spec"]["volumeAttributesClassName"] = rng.pick("quick", "slow")
    if rng.one_in(4):
        claim["spec"]["accessModes"] = ["ReadWriteOnce", "ReadWriteMany"]
    if rng.one_in(2):
        selector = rng.pick({"matchLabels": {"tier": "gold"}}, {"matchExpressions": [expression("tier", "Exists")]})
        claim["spec"]["selector"] = selector


def _volume(
    rng: RandomSource,
    name: str,
    nodes: Sequence[str],
    *,
    storage_class: str,
    mode: str = "",
    claim: Manifest | None = None,
    reserved: Manifest | None = None,
) -> Manifest:
    """A volume that is bound to a claim, reserved for a claim, or available."""
    spec: dict[str, Any] = {"capacity": {"storage": rng.pick(*SIZES)}, "storageClassName": storage_class}
    spec["accessModes"] = [mode or rng.pick("ReadWriteOnce", "ReadWriteOnce", "ReadWriteMany", "ReadWriteOncePod")]
    spec |= _source(rng, name)
    if "local" in spec or rng.one_in(2):
        terms = rng.several(lambda: {"matchExpressions": [_topology(rng, nodes)]}, 1, 1, 2)
        spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": terms}}
    made: Manifest = {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": spec}
    made["status"] = {"phase": "Bound" if claim else "Available"}
    owner = claim or reserved
    if owner:
        metadata = owner["metadata"]
        reference = {"apiVersion": "v1", "kind": "PersistentVolumeClaim"}
        spec["claimRef"] = {**reference, "namespace": metadata["namespace"], "name": metadata["name"]}
        if claim:
            spec["claimRef"]["uid"] = "of-deleted-claim" if rng.one_in(15) else CLAIM_UID
    else:
        _add_static_fields(rng, made)
    labels = _labels(rng)
    if labels:
        made["metadata"]["labels"] = labels
    if rng.one_in(25):
        made["metadata"]["deletionTimestamp"] = "2026-11-20T12:00:00Z"
    return made


def _add_static_fields(rng: RandomSource, volume: Manifest) -> None:
    """Give an available volume fields that claims must match."""
    spec = volume["spec"]
    if rng.one_in(4):
        spec["volumeMode"] = "Block"
    if rng.one_in(4) and "csi" in spec:
        spec["volumeAttributesClassName"] = rng.pick("quick", "slow")
    if rng.one_in(3):
        spec["accessModes"] = ["ReadWriteOnce", "ReadWriteMany"]
    if rng.one_in(12):
        volume["status"] = {"phase": "Released"}


def _labels(rng: RandomSource) -> dict[str, str]:
    labels: dict[str, str] = {}
    if rng.one_in(4):
        key = rng.pick(ZONE, ZONE, REGION, LEGACY_ZONE)
        labels[key] = rng.pick(*REGIONS) if key == REGION else rng.pick(*ZONES, "a__b")
    if rng.one_in(3):
        labels["tier"] = rng.pick("gold", "tin")
    return labels


def _source(rng: RandomSource, name: str) -> dict[str, Any]:
    return rng.pick(
        {"csi": {"driver": CSI, "volumeHandle": rng.pick(name, name, name, "shared")}},
        {"csi": {"driver": CSI, "volumeHandle": name}},
        {"csi": {"driver": CAPACITY, "volumeHandle": name}},
        {"local": {"path": "/data"}},
        {"hostPath": {"path": "/data"}},
        {"gcePersistentDisk": {"pdName": rng.pick(name, "pd")}},
        {"awsElasticBlockStore": {"volumeID": name}},
    )


def _topology(rng: RandomSource, nodes: Sequence[str]) -> dict[str, Any]:
    return rng.pick(
        expression(ZONE, "In", *rng.sample(ZONES, rng.pick(1, 2))),
        expression(HOSTNAME, "In", *rng.sample(nodes, rng.pick(1, 2, 3))),
        expression("disk", "NotIn", "hdd"),
    )
