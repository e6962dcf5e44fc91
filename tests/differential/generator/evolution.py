"""Changes of a cluster: objects are created, deleted and changed."""

from __future__ import annotations

from collections.abc import Iterable

from tests.builders import namespace
from tests.differential.api_client import Manifest, key
from tests.differential.generator.claims import CLAIM_UID
from tests.differential.generator.names import HIGH, RUNTIME
from tests.differential.generator.rng import RandomSource
from tests.differential.generator.volumes import OWNER_UID

_UNCHANGED = frozenset({"Node/n0", f"RuntimeClass/{RUNTIME}", f"PriorityClass/{HIGH}"})


def evolve(
    rng: RandomSource, objects: Iterable[Manifest], others: Iterable[Manifest]
) -> tuple[dict[str, Manifest], dict[str, Manifest]]:
    """Replace about a fifth of a cluster's objects with those of another cluster.

    Args:
        chance: the random source.
        objects: the cluster's objects.
        others: the other cluster's objects.

    Returns:
        The deleted objects, and the objects that are created or replace one of the same name. The keys are those of
        :func:`~tests.differential.api_client.key`.
    """
    current = {key(manifest): manifest for manifest in objects}
    other = {key(manifest): manifest for manifest in others}
    deleted: dict[str, Manifest] = {}
    created: dict[str, Manifest] = {}
    for name in sorted(current.keys() | other.keys()):
        if name in _UNCHANGED or not rng.one_in(5):
            continue
        if name.startswith("Namespace/"):
            created[name] = _relabelled(rng, current[name])
        elif name in other:
            created[name] = other[name]
        else:
            deleted[name] = current[name]
    after = {**{name: manifest for name, manifest in current.items() if name not in deleted}, **created}
    # A recreated object has a new UID, so the objects that refer to the UID are recreated, too.
    for name, manifest in after.items():
        if _referenced_keys(manifest) & created.keys():
            created[name] = manifest
    return deleted, created


def _relabelled(rng: RandomSource, manifest: Manifest) -> Manifest:
    labels = {"kubernetes.io/metadata.name": manifest["metadata"]["name"]}
    return namespace(manifest["metadata"]["name"]).labels({**labels, "team": rng.pick("x", "y", "z")}).manifest()


def _referenced_keys(manifest: Manifest) -> frozenset[str]:
    """The keys of the objects to whose UIDs an object refers."""
    metadata = manifest["metadata"]
    found = {
        f"{owner['kind']}/{metadata['namespace']}/{owner['name']}"
        for owner in metadata.get("ownerReferences", ())
        if owner["uid"] == OWNER_UID
    }
    reference = manifest.get("spec", {}).get("claimRef", {})
    if reference.get("uid") == CLAIM_UID:
        found.add(f"PersistentVolumeClaim/{reference['namespace']}/{reference['name']}")
    return frozenset(found)
