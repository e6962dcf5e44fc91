"""Provide the volumes that the pod's claims wait for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Final

from msgspec.structs import replace

from trimtab.cluster.attachables import claim_key
from trimtab.kube.objects import KubeObject, Node, OwnerReference, PersistentVolume, PersistentVolumeClaim, Pod
from trimtab.placement.remedies.costs import CLAIM, EACH_FURTHER
from trimtab.placement.remedies.framework import NEVER, Case, Costs, Step

_VOLUME: Final = "trimtab-proposed-"


class BindClaim:
    """A claim that is missing or lost is made, one that waits gets a volume that every node can use.

    A claim that is bound is left alone: its data are where they are.
    """

    reason: ClassVar = "BindClaim"
    rules: ClassVar = frozenset(("VolumeRestrictions", "VolumeBinding", "VolumeZone"))
    evicts: ClassVar = False

    def lifting(self, case: Case) -> Iterator[Step]:
        """One step, for all claims that are not as they should be."""
        claims = case.snapshot.shelves.of(PersistentVolumeClaim)
        keys = [key for key in _claims_of(case.pod) if _problem(case, claims.get(key)) is not None]
        if keys:
            yield _step(case, keys)

    def bound(self, case: Case, rule: str) -> Costs | float:
        """The same on all nodes, if some claim is not bound."""
        del rule
        return CLAIM if any(self.lifting(case)) else NEVER

    def steps(self, case: Case, node: Node, rule: str) -> Iterator[Step]:
        """See :meth:`lifting`: where the volume is to be is for whoever makes it."""
        del node, rule
        return self.lifting(case)


def _step(case: Case, keys: list[str]) -> Step:
    claims = case.snapshot.shelves.of(PersistentVolumeClaim)
    texts = [f"{_problem(case, claims.get(key))} {key}" for key in keys]
    puts = [each for key in keys for each in _provided(case.pod, key, claims.get(key))]
    return Step(
        reason="BindClaim",
        change=f"{' and '.join(texts)}, with a volume that the node can use",
        cost=CLAIM + EACH_FURTHER * (len(keys) - 1),
        kind="PersistentVolumeClaim",
        name=keys[0],
        details={"claims": keys},
        puts=tuple(puts),
    )


def _claims_of(pod: Pod) -> list[str]:
    found = (claim_key(pod, volume) for volume in pod.spec.volumes)
    return list(dict.fromkeys(key for key in found if key is not None))


def _problem(case: Case, claim: PersistentVolumeClaim | None) -> str | None:
    """What to do about a claim, ``None`` where nothing is wrong with it."""
    if claim is None:
        return "create claim"
    if claim.deleted is not None or claim.phase == "Lost":
        return "make anew claim"
    bound = claim.bind_completed and claim.volume in case.snapshot.shelves.of(PersistentVolume)
    return None if bound else "bind claim"


def _provided(pod: Pod, key: str, claim: PersistentVolumeClaim | None) -> tuple[KubeObject, KubeObject]:
    """The claim, bound, and its volume."""
    namespace, _, name = key.partition("/")
    if claim is None:
        owner = OwnerReference("Pod", pod.name, pod.uid, "v1", controller=True)  # asked for with ephemeral volumes
        claim = PersistentVolumeClaim(namespace, name, owners=(owner,))
    volume = f"{_VOLUME}{namespace}-{name}"
    bound = replace(claim, deleted=None, volume=volume, bind_completed=True, phase="Bound")
    made = PersistentVolume(
        volume,
        capacity=claim.request or 0,
        access_modes=claim.access_modes,
        storage_class=claim.storage_class or "",
        volume_mode=claim.volume_mode,
        claim=key,
        claim_uid=claim.uid,
        phase="Bound",
    )
    return made, bound
