"""What happens to a cluster: objects come, go and change."""

from __future__ import annotations

from collections.abc import Iterable

from tests.builders import namespace
from tests.differential.generator.chance import Chance
from tests.differential.generator.claims import THE_CLAIM
from tests.differential.generator.names import HIGH, RUNTIME
from tests.differential.generator.volumes import THE_POD
from tests.differential.server import Manifest, key

_STAY = frozenset({"Node/n0", f"RuntimeClass/{RUNTIME}", f"PriorityClass/{HIGH}"})


def evolve(
    chance: Chance, mine: Iterable[Manifest], others: Iterable[Manifest]
) -> tuple[dict[str, Manifest], dict[str, Manifest]]:
    """Make a cluster a little more like another one.

    Args:
        chance: what is drawn from.
        mine: the cluster's objects.
        others: the other cluster's.

    Returns:
        What goes, and what comes or takes the place of an object of the same name, by key.
    """
    here = {key(manifest): manifest for manifest in mine}
    there = {key(manifest): manifest for manifest in others}
    gone: dict[str, Manifest] = {}
    come: dict[str, Manifest] = {}
    for name in sorted(here.keys() | there.keys()):
        if name in _STAY or not chance.one_in(5):
            continue
        if name.startswith("Namespace/"):
            come[name] = _relabelled(chance, here[name])
        elif name in there:
            come[name] = there[name]
        else:
            gone[name] = here[name]
    after = {**{name: manifest for name, manifest in here.items() if name not in gone}, **come}
    # Who refers to an object that was made anew, by its UID, is made anew as well.
    for name, manifest in after.items():
        if _referred(manifest) & come.keys():
            come[name] = manifest
    return gone, come


def _relabelled(chance: Chance, manifest: Manifest) -> Manifest:
    labels = {"kubernetes.io/metadata.name": manifest["metadata"]["name"]}
    return namespace(manifest["metadata"]["name"]).labels({**labels, "team": chance.pick("x", "y", "z")}).manifest()


def _referred(manifest: Manifest) -> frozenset[str]:
    """Whose UIDs an object holds."""
    metadata = manifest["metadata"]
    found = {
        f"Pod/{metadata['namespace']}/{owner['name']}"
        for owner in metadata.get("ownerReferences", ())
        if owner["uid"] == THE_POD
    }
    reference = manifest.get("spec", {}).get("claimRef", {})
    if reference.get("uid") == THE_CLAIM:
        found.add(f"PersistentVolumeClaim/{reference['namespace']}/{reference['name']}")
    return frozenset(found)
