"""Binds the volumes of a pod before the pod is bound, like PreBind of the plugin VolumeBinding of kube-scheduler v1.36.

    binder = PodVolumeBinder(api=api, claims=claims, volumes=volumes, lister=lister, clock=clock)
    await binder.bind(pod, "n1", assumed)    # returns when all claims of the pod are bound

Placement has chosen the volumes (:mod:`trimtab.placement.volume_binding`) and has reserved them in the snapshot, so
that no other pod of the batch uses them. For each claim that waits for its first consumer, the binder does one of two
things:

- It reserves an existing volume for the claim (``spec.claimRef`` with the claim's UID). kube-controller-manager then
  completes the binding.
- It writes the node on the claim (annotation ``volume.kubernetes.io/selected-node``). The provisioner then creates a
  volume that the node can use. If that fails, the provisioner removes the annotation, and the pod is scheduled again.

Each write contains the resource version from which the plan was computed. So two pods, or two schedulers, never reserve
one volume for two claims. If only unrelated fields have changed, the write is repeated with the new version.

As in kube-scheduler, a reservation that the API server has stored is kept if a later step fails: the pod is scheduled
again, to a node that can use the volume. The same applies after a restart.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from msgspec import Struct, field

from trimtab.cluster.lister import Lister
from trimtab.cluster.volumes import claim_key
from trimtab.kube import verbs
from trimtab.kube.api import Api, Conflict
from trimtab.kube.clock import Clock
from trimtab.kube.objects import Node, PersistentVolume, PersistentVolumeClaim, Pod
from trimtab.kube.resource_versions import is_older
from trimtab.kube.resources import PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES
from trimtab.kube.rules.selectors import matches_node_selector
from trimtab.kube.watching.store import Store
from trimtab.kube.wire.projection.annotations import SELECTED_NODE
from trimtab.scheduling.dependencies import AssumedVolume, VolumeBindingError

log = logging.getLogger(__name__)

BIND_TIMEOUT: Final = 600.0
"""Seconds within which the claims of a pod must be bound (``bindTimeoutSeconds`` of ``VolumeBindingArgs``)."""

CHECK_PERIOD: Final = 2.0
"""Seconds between two checks without a change of the pod's volumes, for example whether the pod was deleted."""

WRITE_ATTEMPTS: Final = 4
"""Maximum number of attempts to write a volume or a claim that other components change at the same time."""

BOUND_BY_CONTROLLER: Final = "pv.kubernetes.io/bound-by-controller"
"""Annotation of a volume that was not reserved by a user, so that kube-controller-manager may release it again."""


class _PodVolumes(Struct, eq=False):
    """The volumes of one pod that are being bound.

    Attributes:
        pod: the pod.
        node: the name of the chosen node.
        claims: the UIDs of the pod's claims that were not bound at the start, by ``namespace/name``.
        volumes: the resource version that contains the reservation, for each reserved volume by name.
        selected: the resource version that contains the annotation, by key of each claim for which a volume is
            provisioned.
        changed: set when one of the volumes or claims changes in the cache.
    """

    pod: Pod
    node: str
    claims: dict[str, str]
    volumes: dict[str, str] = field(default_factory=dict)
    selected: dict[str, str] = field(default_factory=dict)
    changed: asyncio.Event = field(default_factory=asyncio.Event)


class PodVolumeBinder:
    """Binds the volumes of pods (:class:`~trimtab.scheduling.dependencies.VolumeBinder`).

    Args:
        api: the API client.
        claims: the cache of PersistentVolumeClaims.
        volumes: the cache of PersistentVolumes.
        lister: the caches of nodes and pods.
        clock: the monotonic clock.
        timeout: seconds within which the claims of a pod must be bound.
    """

    def __init__(
        self,
        *,
        api: Api,
        claims: Store[PersistentVolumeClaim],
        volumes: Store[PersistentVolume],
        lister: Lister,
        clock: Clock,
        timeout: float = BIND_TIMEOUT,
    ) -> None:
        self._api = api
        self._claims = claims
        self._volumes = volumes
        self._by_claim = volumes.index(_claim_of)
        self._lister = lister
        self._clock = clock
        self._timeout = timeout
        self._announced_claims: Counter[str] = Counter()
        self._waiting: defaultdict[str, set[_PodVolumes]] = defaultdict(set)
        claims.subscribe(self._claim_changed, replay=False)
        volumes.subscribe(self._volume_changed, replay=False)

    async def bind(self, pod: Pod, node: str, assumed: Sequence[AssumedVolume]) -> None:
        """See :meth:`~trimtab.scheduling.dependencies.VolumeBinder.bind`.

        ``assumed`` is empty if another pod with the same claims is being bound at the same time. This method then only
        waits.
        """
        work = _PodVolumes(pod, node, self._unbound(pod))
        if not work.claims:
            return
        with self._watched(work), self._announced(assumed):
            for each in assumed:
                if isinstance(each, PersistentVolume):
                    await self._reserve(each, work)
                else:
                    await self._select_node(each, work)
            await self._wait(work)
        log.info("Bound the volumes of pod %s for node %s: %s", pod.key, node, ", ".join(work.claims))

    # --- writes ---------------------------------------------------------------------------------------------------

    async def _reserve(self, assumed: PersistentVolume, work: _PodVolumes) -> None:
        """Reserve a volume for its claim (``GetBindVolumeToClaim``)."""
        cached = self._volumes.get(assumed.name)
        by_user = cached is not None and cached.claim == assumed.claim
        version = assumed.resource_version
        for attempt in range(WRITE_ATTEMPTS):
            try:
                stored = await verbs.merge_patch(
                    self._api, PERSISTENT_VOLUMES, assumed.name, _reservation(assumed, version, by_user=by_user)
                )
            except Conflict:
                if attempt == WRITE_ATTEMPTS - 1:
                    raise
            else:
                work.volumes[assumed.name] = stored["metadata"]["resourceVersion"]
                return
            found = await verbs.get(self._api, PERSISTENT_VOLUMES, assumed.name)
            version = found["metadata"]["resourceVersion"]
            reference = found.get("spec", {}).get("claimRef") or {}
            claim = f"{reference.get('namespace', '')}/{reference.get('name', '')}"
            by_user = claim == assumed.claim
            if by_user and reference.get("uid") == assumed.claim_uid:  # by another pod with the same claim
                work.volumes[assumed.name] = version
                return
            taken = reference and (not by_user or reference.get("uid"))
            if taken or found["metadata"]["uid"] != assumed.uid or found["metadata"].get("deletionTimestamp"):
                raise VolumeBindingError(f"PersistentVolume {assumed.name} is no longer available")

    async def _select_node(self, assumed: PersistentVolumeClaim, work: _PodVolumes) -> None:
        """Write the selected node on a claim, so that its volume is provisioned for this node."""
        version = assumed.resource_version
        for attempt in range(WRITE_ATTEMPTS):
            metadata = {"uid": assumed.uid, "resourceVersion": version, "annotations": {SELECTED_NODE: work.node}}
            try:
                stored = await verbs.merge_patch(
                    self._api,
                    PERSISTENT_VOLUME_CLAIMS,
                    assumed.name,
                    {"metadata": metadata},
                    namespace=assumed.namespace,
                )
            except Conflict:
                if attempt == WRITE_ATTEMPTS - 1:
                    raise
            else:
                work.selected[assumed.key] = stored["metadata"]["resourceVersion"]
                return
            found = await verbs.get(self._api, PERSISTENT_VOLUME_CLAIMS, assumed.name, namespace=assumed.namespace)
            version = found["metadata"]["resourceVersion"]
            selected = (found["metadata"].get("annotations") or {}).get(SELECTED_NODE)
            if found["metadata"]["uid"] != assumed.uid or found["metadata"].get("deletionTimestamp"):
                raise VolumeBindingError(f"PersistentVolumeClaim {assumed.key} was deleted")
            if selected == work.node:  # by another pod with the same claim
                work.selected[assumed.key] = version
                return
            if selected is not None or found.get("spec", {}).get("volumeName"):
                raise VolumeBindingError(f"PersistentVolumeClaim {assumed.key} is being bound by another component")

    # --- waiting --------------------------------------------------------------------------------------------------

    async def _wait(self, work: _PodVolumes) -> None:
        until = self._clock.monotonic() + self._timeout
        while True:
            work.changed.clear()
            pending = self._pending(work)
            if pending is None:
                return
            left = until - self._clock.monotonic()
            if left <= 0.0:
                raise VolumeBindingError(f"timed out after {self._timeout:g}s: {pending}")
            try:
                async with asyncio.timeout(min(left, CHECK_PERIOD)):
                    await work.changed.wait()
            except TimeoutError:
                continue

    def _pending(self, work: _PodVolumes) -> str | None:
        """Return a description of the claims that are not bound yet; ``None`` if all are bound (``checkBindings``).

        Raises:
            VolumeBindingError: the pod, its node, its volumes or claims have changed so that it must be scheduled
                again.
        """
        pod, node = self._lister.pod(work.pod.key), self._lister.node(work.node)
        if pod is None or pod.uid != work.pod.uid or pod.deleted is not None:
            raise VolumeBindingError("the pod was deleted")
        if node is None:
            raise VolumeBindingError(f"node {work.node} was removed")
        for name, version in work.volumes.items():
            volume = self._volumes.get(name)
            if volume is None:
                raise VolumeBindingError(f"PersistentVolume {name} was deleted")
            if is_older(volume.resource_version, version):
                return f"the cache does not contain the reservation of PersistentVolume {name} yet"
            _check_affinity(volume, node)
            if not volume.claim_uid:
                raise VolumeBindingError(f"the reservation of PersistentVolume {name} was reset")
        for key, uid in work.claims.items():
            pending = self._pending_claim(key, uid, node, work)
            if pending is not None:
                return pending
        return None

    def _pending_claim(self, key: str, uid: str, node: Node, work: _PodVolumes) -> str | None:
        claim = self._claims.get(key)
        if claim is None or claim.uid != uid:
            raise VolumeBindingError(f"PersistentVolumeClaim {key} was deleted")
        version = work.selected.get(key)
        if version is not None:
            if is_older(claim.resource_version, version):
                return f"the cache does not contain the selected node of PersistentVolumeClaim {key} yet"
            if claim.selected_node != node.name:
                raise VolumeBindingError(f"provisioning failed for PersistentVolumeClaim {key}")
        if not claim.volume:
            if not self._in_progress(claim):
                raise VolumeBindingError(f"PersistentVolumeClaim {key} is not being bound any more")
            return f"PersistentVolumeClaim {key} is not bound"
        volume = self._volumes.get(claim.volume)
        if volume is None:
            return f"the cache does not contain PersistentVolume {claim.volume} of PersistentVolumeClaim {key} yet"
        _check_affinity(volume, node)
        return None if claim.bind_completed else f"PersistentVolumeClaim {key} is not bound"

    def _in_progress(self, claim: PersistentVolumeClaim) -> bool:
        """Return whether the claim has a selected node or a reserved volume, or is being bound for another pod."""
        return (
            claim.selected_node is not None
            or self._announced_claims[claim.key] > 0
            or any(volume.claim_uid == claim.uid for _, volume in self._by_claim.items(claim.key))
        )

    # --- caches ---------------------------------------------------------------------------------------------------

    def _unbound(self, pod: Pod) -> dict[str, str]:
        """Return the UIDs of the pod's claims that are not bound, by ``namespace/name``."""
        keys = (claim_key(pod, volume) for volume in pod.spec.volumes)
        claims = (self._claims.get(key) for key in keys if key is not None)
        return {each.key: each.uid for each in claims if each is not None and not _is_bound(each)}

    @contextmanager
    def _announced(self, assumed: Sequence[AssumedVolume]) -> Iterator[None]:
        """Make other pods with these claims wait while the claims are being bound for this pod."""
        keys = Counter(each.claim if isinstance(each, PersistentVolume) else each.key for each in assumed)
        self._announced_claims += keys
        try:
            yield
        finally:
            self._announced_claims -= keys

    @contextmanager
    def _watched(self, work: _PodVolumes) -> Iterator[None]:
        """Set ``work.changed`` on each change of the pod's claims and of volumes that are reserved for them."""
        for key in work.claims:
            self._waiting[key].add(work)
        try:
            yield
        finally:
            for key in work.claims:
                self._waiting[key].discard(work)
                if not self._waiting[key]:
                    del self._waiting[key]

    def _claim_changed(self, old: PersistentVolumeClaim | None, new: PersistentVolumeClaim | None) -> None:
        claim = new or old
        if claim is not None:
            self._wake(claim.key)

    def _volume_changed(self, old: PersistentVolume | None, new: PersistentVolume | None) -> None:
        for volume in (old, new):
            if volume is not None and volume.claim:
                self._wake(volume.claim)

    def _wake(self, claim: str) -> None:
        for work in self._waiting.get(claim, ()):
            work.changed.set()


def _reservation(volume: PersistentVolume, version: str, *, by_user: bool) -> dict[str, Any]:
    """Return the patch that reserves a volume for its claim."""
    namespace, _, name = volume.claim.partition("/")
    metadata: dict[str, Any] = {"uid": volume.uid, "resourceVersion": version}
    if not by_user:
        metadata["annotations"] = {BOUND_BY_CONTROLLER: "yes"}
    reference = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "namespace": namespace,
        "name": name,
        "uid": volume.claim_uid,
    }
    return {"metadata": metadata, "spec": {"claimRef": reference}}


def _claim_of(volume: PersistentVolume) -> str | None:
    return volume.claim or None


def _is_bound(claim: PersistentVolumeClaim) -> bool:
    return bool(claim.volume) and claim.bind_completed


def _check_affinity(volume: PersistentVolume, node: Node) -> None:
    affinity = volume.node_affinity
    if affinity is not None and not matches_node_selector(affinity, node.labels, node.name):
        raise VolumeBindingError(f"node {node.name} does not match the node affinity of PersistentVolume {volume.name}")
