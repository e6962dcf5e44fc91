"""Pods that use volumes: claims, disks named in the pod itself, ephemeral volumes, images."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from tests.builders import PodBuilder
from tests.differential.generator.chance import Chance
from tests.differential.generator.claims import CLAIMS, claim, claim_spec
from tests.differential.generator.names import ASKED_IMAGES
from tests.differential.server import Manifest

THE_POD: Final = "@pod"
"""Stands in a claim's owner reference for the UID that the pod of that name gets."""


def add_volumes(chance: Chance, made: PodBuilder) -> None:
    """Give the pod a volume or three."""
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
            made.volume("ephemeral", volumeClaimTemplate={"spec": claim_spec("fast", "1Gi", "ReadWriteOnce")})


def ephemeral_claims(chance: Chance, pod: Manifest) -> Iterator[Manifest]:
    """The claims of the pod's ephemeral volumes, as the controller would have made them; some are missing or taken."""
    metadata = pod["metadata"]
    for volume in pod["spec"].get("volumes", ()):
        if "ephemeral" not in volume or chance.one_in(3):
            continue
        name = f"{metadata['name']}-{volume['name']}"
        made = claim(name, metadata["namespace"], claim_spec("fast", "1Gi"))
        owner = {"apiVersion": "v1", "kind": "Pod", "name": metadata["name"], "controller": True}
        if not chance.one_in(20):  # kube-scheduler gives up on pods where it meets one of these
            made["metadata"]["ownerReferences"] = [{**owner, "uid": THE_POD}]
        yield made


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
