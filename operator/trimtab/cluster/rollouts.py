"""Deployments, as far as it matters whether their pods can be made anew without an outage.

They are no part of the watched picture: only policies with ``singleReplica: Surge`` ask, with a right that others need
not have. So they are listed once a cycle, and the one that is to be restarted is read again right before.
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
"""The annotation of the pod template that ``kubectl rollout restart`` sets; everybody knows to ignore it."""

PAGE: Final = 250
"""Deployments a page: whole objects come, of which little is kept."""

_DEFAULT: Final = "25%"

_WHOLE: Final = 1_000_000
"""Percent above which more makes no difference."""


class Rollout(Struct, frozen=True):
    """A Deployment's way of rolling out, and how far it is.

    ``surge`` and ``unavailable`` are ``maxSurge`` and ``maxUnavailable`` in pods, rounded as the Deployment controller
    does it (surge up, unavailable down; one unavailable where both are none); 0 and all where it recreates.
    ``known`` says whether there is a status to judge by, which files written by hand have not.
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
        """``namespace/name``."""
        return f"{self.namespace}/{self.name}"

    @property
    def known(self) -> bool:
        """Whether the Deployment controller has reported on it."""
        return self.generation > 0 or self.observed_generation > 0


class Rollouts(Struct, frozen=True):
    """The Deployments there are, by ``namespace/name``, or why they are not known."""

    found: Mapping[str, Rollout] = FrozenMap()
    problem: str = ""


def rollout_of(manifest: Mapping[str, Any]) -> Rollout:
    """Read a Deployment (apps/v1) as the API server writes it.

    Raises:
        ValueError, TypeError, KeyError, AttributeError: it is none; an API server writes no such thing.
    """
    metadata, spec = manifest["metadata"], manifest.get("spec") or {}
    status, strategy = manifest.get("status") or {}, spec.get("strategy") or {}
    replicas = int(1 if spec.get("replicas") is None else spec["replicas"])
    kind = str(strategy.get("type") or "RollingUpdate")
    rolling = strategy.get("rollingUpdate") or {}
    surge, unavailable = _fence_posts(rolling, replicas) if kind == "RollingUpdate" else (0, replicas)
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
    """Those of the objects that are Deployments; one that cannot be read is as one that is not there."""
    found = {}
    for manifest in manifests:
        try:
            rollout = rollout_of(manifest)
        except (ValueError, TypeError, KeyError, AttributeError):
            continue
        found[rollout.key] = rollout
    return Rollouts(found)


async def read_rollouts(api: Api) -> Rollouts:
    """All Deployments, page by page. Never raises for what the server says, see ``problem``."""
    found: dict[str, Rollout] = {}
    token, limit = "", PAGE
    try:
        while True:
            paging = ({"limit": str(limit)} if limit else {}) | ({"continue": token} if token else {})
            try:
                page = await api.request("GET", DEPLOYMENTS.path(), params=paging, timeout=60.0)
            except Gone:  # the token has expired: begin anew, and ask for all at once
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


def _fence_posts(rolling: Mapping[str, Any], replicas: int) -> tuple[int, int]:
    """``maxSurge`` and ``maxUnavailable`` in pods (k8s.io/kubernetes v1.36 deployment/util ResolveFenceposts)."""
    surge = _pods(rolling.get("maxSurge", _DEFAULT), replicas, up=True)
    unavailable = _pods(rolling.get("maxUnavailable", _DEFAULT), replicas, up=False)
    return (surge, unavailable) if surge or unavailable else (0, 1)


def _pods(value: Any, replicas: int, *, up: bool) -> int:
    if isinstance(value, str) and value.endswith("%"):
        share = min(int(value[:-1]), _WHOLE) * replicas  # in integers: a percentage may have hundreds of digits
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
