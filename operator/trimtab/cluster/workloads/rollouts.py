"""Reads Deployments to decide whether a rollout can replace their pods without downtime.

Deployments are not watched, because only policies with ``singleReplica: Surge`` need them and the operator should not
need the permission otherwise. They are listed once per cycle, and a Deployment is read again right before it is
restarted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from msgspec import Struct

from trimtab.kube.api import Api, ApiError, Gone, Unreachable
from trimtab.kube.frozen import FrozenMap
from trimtab.kube.objects import LabelRequirement, LabelSelector
from trimtab.kube.resources import DEPLOYMENTS

RESTARTED_AT: Final = "kubectl.kubernetes.io/restartedAt"
"""The pod template annotation that ``kubectl rollout restart`` sets. Other tools ignore changes of this annotation."""

PAGE: Final = 250
"""Number of Deployments per page. It is small because the server sends whole objects, of which only a few fields are
used."""

_DEFAULT: Final = "25%"

_WHOLE: Final = 1_000_000
"""Maximum percentage. Larger values would have the same effect."""


class Rollout(Struct, frozen=True):
    """A Deployment's rollout strategy and progress.

    ``surge`` and ``unavailable`` are ``maxSurge`` and ``maxUnavailable`` in pods, rounded as the Deployment controller
    does (surge up, unavailable down, and one unavailable if both are 0). For the strategy Recreate, ``surge`` is 0 and
    ``unavailable`` is the number of replicas. ``known`` is false if the Deployment has no status, as in handwritten
    files.
    """

    namespace: str
    name: str
    uid: str = ""
    resource_version: str = ""
    selector: LabelSelector | None = None
    strategy: str = "RollingUpdate"
    surge: int = 1
    unavailable: int = 0
    replicas: int = 1
    paused: bool = False
    deleted: bool = False
    restarted_at: str = ""
    generation: int = 0
    observed_generation: int = 0
    pods: int = 0
    updated: int = 0
    available: int = 0

    @property
    def key(self) -> str:
        """Return ``namespace/name``."""
        return f"{self.namespace}/{self.name}"

    @property
    def known(self) -> bool:
        """Return whether the Deployment controller has reported a status."""
        return self.generation > 0 or self.observed_generation > 0


class Rollouts(Struct, frozen=True):
    """The Deployments by ``namespace/name``, or the reason why they could not be read."""

    found: Mapping[str, Rollout] = FrozenMap()
    problem: str = ""


def rollout_of(manifest: Mapping[str, Any]) -> Rollout:
    """Parse a Deployment (apps/v1) as the API server writes it.

    Raises:
        ValueError, TypeError, KeyError, AttributeError: the manifest is not a valid Deployment.
    """
    metadata, spec = manifest["metadata"], manifest.get("spec") or {}
    status, strategy = manifest.get("status") or {}, spec.get("strategy") or {}
    replicas = int(1 if spec.get("replicas") is None else spec["replicas"])
    kind = str(strategy.get("type") or "RollingUpdate")
    rolling = strategy.get("rollingUpdate") or {}
    surge, unavailable = _resolve_fenceposts(rolling, replicas) if kind == "RollingUpdate" else (0, replicas)
    template = (spec.get("template") or {}).get("metadata") or {}
    return Rollout(
        namespace=str(metadata.get("namespace") or "default"),
        name=str(metadata["name"]),
        uid=str(metadata.get("uid", "")),
        resource_version=str(metadata.get("resourceVersion", "")),
        selector=_selector(spec.get("selector")),
        strategy=kind,
        surge=surge,
        unavailable=unavailable,
        replicas=replicas,
        paused=bool(spec.get("paused")),
        deleted=bool(metadata.get("deletionTimestamp")),
        restarted_at=str((template.get("annotations") or {}).get(RESTARTED_AT, "")),
        generation=int(metadata.get("generation") or 0),
        observed_generation=int(status.get("observedGeneration") or 0),
        pods=int(status.get("replicas") or 0),
        updated=int(status.get("updatedReplicas") or 0),
        available=int(status.get("availableReplicas") or 0),
    )


def rollouts_of(manifests: Iterable[Mapping[str, Any]]) -> Rollouts:
    """Parse the Deployments among the objects. Invalid Deployments are skipped."""
    found = {}
    for manifest in manifests:
        try:
            rollout = rollout_of(manifest)
        except (ValueError, TypeError, KeyError, AttributeError):
            continue
        found[rollout.key] = rollout
    return Rollouts(found)


async def read_rollouts(api: Api) -> Rollouts:
    """List all Deployments in pages.

    API errors are reported in ``problem`` instead of raised.
    """
    found: dict[str, Rollout] = {}
    token, limit = "", PAGE
    try:
        while True:
            paging = ({"limit": str(limit)} if limit else {}) | ({"continue": token} if token else {})
            try:
                page = await api.request("GET", DEPLOYMENTS.path(), params=paging, timeout=60.0)
            except Gone:  # the continue token has expired, so restart without pages
                if not token:
                    raise
                found, token, limit = {}, "", 0
                continue
            found |= rollouts_of(page.get("items") or ()).found
            token = page["metadata"].get("continue") or ""
            if not token:
                return Rollouts(found)
    except (ApiError, Unreachable) as error:
        return Rollouts(problem=f"Deployments cannot be listed: {error}")


def _resolve_fenceposts(rolling: Mapping[str, Any], replicas: int) -> tuple[int, int]:
    """Return ``maxSurge`` and ``maxUnavailable`` in pods (kubernetes v1.36 deployment/util ``ResolveFenceposts``)."""
    surge = _pods(rolling.get("maxSurge", _DEFAULT), replicas, up=True)
    unavailable = _pods(rolling.get("maxUnavailable", _DEFAULT), replicas, up=False)
    return (surge, unavailable) if surge or unavailable else (0, 1)


def _pods(value: Any, replicas: int, *, up: bool) -> int:
    if isinstance(value, str) and value.endswith("%"):
        share = min(int(value[:-1]), _WHOLE) * replicas  # integers: a percentage may have hundreds of digits
        return -(-share // 100) if up else share // 100
    return int(value)


def _selector(wire: Mapping[str, Any] | None) -> LabelSelector | None:
    if wire is None:
        return None
    expressions = tuple(
        LabelRequirement(str(each["key"]), str(each["operator"]), tuple(map(str, each.get("values") or ())))
        for each in wire.get("matchExpressions") or ()
    )
    labels = wire.get("matchLabels") or {}
    if not all(isinstance(value, str) for value in labels.values()):
        raise TypeError(labels)
    return LabelSelector(FrozenMap(labels), expressions)
