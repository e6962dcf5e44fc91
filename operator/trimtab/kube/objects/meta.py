"""Metadata and selectors: owner references, label selectors and node selectors.

:mod:`trimtab.kube.rules.selectors` implements matching.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from msgspec import Struct

from trimtab.kube.frozen import NO_LABELS, Labels


class Namespaced(Struct, frozen=True, gc=False):
    """The base class of namespaced objects."""

    namespace: str
    name: str
    uid: str = ""
    resource_version: str = ""

    @property
    def key(self) -> str:
        """Return ``namespace/name``."""
        return f"{self.namespace}/{self.name}"


class ClusterScoped(Struct, frozen=True, gc=False):
    """The base class of cluster-scoped objects."""

    name: str
    uid: str = ""
    resource_version: str = ""

    @property
    def key(self) -> str:
        """Return the name of the object."""
        return self.name


@lru_cache(maxsize=1024)
def _qualified_kind(kind: str, api_version: str) -> str:
    group = api_version.rpartition("/")[0]
    return kind if group in _BUILT_IN_GROUPS else f"{kind}.{group}"


class OwnerReference(Struct, frozen=True, gc=False):
    """metav1.OwnerReference. ``controller`` is true for the managing controller, which recreates a deleted pod."""

    kind: str
    name: str
    uid: str = ""
    api_version: str = ""
    controller: bool = False

    @property
    def qualified_kind(self) -> str:
        """Return the kind, followed by the API group if it is not one of Kubernetes: ``StatefulSet.apps.kruise.io``.

        A cluster may have the same kind in several groups. References without ``apiVersion`` are those of Kubernetes.
        """
        return _qualified_kind(self.kind, self.api_version)

    @property
    def qualified_name(self) -> str:
        """Return the qualified kind and the name: ``ReplicaSet/web-5d4f``, ``StatefulSet.apps.kruise.io/web``."""
        return f"{self.qualified_kind}/{self.name}"


_BUILT_IN_GROUPS: Final = frozenset({"", "apps", "batch", "extensions"})
"""The API groups of Kubernetes' own controllers of pods. No two of them have the same kind with another meaning."""


class LabelRequirement(Struct, frozen=True, gc=False):
    """An expression of a selector.

    The operators are In, NotIn, Exists and DoesNotExist; node selectors also allow Gt and Lt.
    """

    key: str
    operator: str
    values: tuple[str, ...] = ()


class LabelSelector(Struct, frozen=True, gc=False):
    """metav1.LabelSelector. An empty selector matches everything, and an absent one (``None``) matches nothing."""

    match_labels: Labels = NO_LABELS
    match_expressions: tuple[LabelRequirement, ...] = ()


class NodeSelectorTerm(Struct, frozen=True, gc=False):
    """core/v1 NodeSelectorTerm: expressions on labels and fields (only ``metadata.name``), all of which must match.

    An empty term matches no node.
    """

    match_expressions: tuple[LabelRequirement, ...] = ()
    match_fields: tuple[LabelRequirement, ...] = ()


class NodeSelector(Struct, frozen=True, gc=False):
    """core/v1 NodeSelector. A node must match at least one of the terms."""

    terms: tuple[NodeSelectorTerm, ...] = ()
