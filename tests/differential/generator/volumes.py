"""Volumes of pods: claims, inline disks, ephemeral volumes, images."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from tests.builders import PodBuilder
from tests.differential.api_client import Manifest
from tests.differential.generator.claims import CLAIMS, claim, claim_spec
from tests.differential.generator.names import POD_IMAGES
from tests.differential.generator.rng import RandomSource

OWNER_UID: Final = "@owner"
"""Placeholder in an owner reference for the UID that the API server assigns to the owner."""


def add_volumes(rng: RandomSource, made: PodBuilder) -> None:
    """Add one to three volumes to the pod."""
    for _ in range(rng.pick(1, 1, 1, 2, 3)):
        sort = rng.pick(*("claim",) * 6, "disk", "disk", "emptyDir", "ephemeral", "image")
        if sort == "claim":
            name = "missing" if rng.one_in(25) else f"claim-{rng.number(0, CLAIMS - 1)}"
            made.volume("persistentVolumeClaim", claimName=name)
        elif sort == "disk":
            kind, source = _disk(rng)
            made.volume(kind, **source)
        elif sort == "emptyDir":
            made.volume("emptyDir")
        elif sort == "image":
            made.volume("image", reference=rng.pick(*POD_IMAGES))
        else:
            made.volume("ephemeral", volumeClaimTemplate={"spec": claim_spec("fast", "1Gi", "ReadWriteOnce")})


def ephemeral_claims(rng: RandomSource, pod: Manifest) -> Iterator[Manifest]:
    """Generate the claims of the pod's ephemeral volumes; some are missing or belong to no pod."""
    metadata = pod["metadata"]
    for volume in pod["spec"].get("volumes", ()):
        if "ephemeral" not in volume or rng.one_in(3):
            continue
        name = f"{metadata['name']}-{volume['name']}"
        made = claim(name, metadata["namespace"], claim_spec("fast", "1Gi"))
        owner = {"apiVersion": "v1", "kind": "Pod", "name": metadata["name"], "controller": True}
        if not rng.one_in(20):  # kube-scheduler rejects the pod if the claim belongs to no pod
            made["metadata"]["ownerReferences"] = [{**owner, "uid": OWNER_UID}]
        yield made


def _disk(rng: RandomSource) -> tuple[str, dict[str, Any]]:
    """An inline disk, which only one pod may mount for writing."""
    read_only = rng.one_in(2)
    return rng.pick(
        ("gcePersistentDisk", {"pdName": "pd", "readOnly": read_only}),
        ("awsElasticBlockStore", {"volumeID": "vol-1", "readOnly": read_only}),
        ("iscsi", {"targetPortal": "10.0.0.1:3260", "iqn": "iqn.2026-01.example:1", "lun": rng.pick(0, 1)})
        if not read_only
        else ("iscsi", {"targetPortal": "10.0.0.1:3260", "iqn": "iqn.2026-01.example:1", "lun": 0, "readOnly": True}),
        ("rbd", {"monitors": rng.pick(["m1"], ["m1", "m2"]), "image": "i", "pool": "p", "readOnly": read_only}),
    )
