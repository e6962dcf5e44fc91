"""Protections: the rules that decide which pods a policy may evict.

:mod:`.rules` contains the registry of protections, :mod:`.surge` the rules for single replicas, and :mod:`.causes` the
rule for evictions that another pod causes. :mod:`.gate` combines them with PodDisruptionBudgets and limits.
"""

from trimtab.disruption.protections.rules import (
    CONFIG_SOURCE_ANNOTATION,
    LOCAL_VOLUME_KINDS,
    MIRROR_ANNOTATION,
    PREFER_NO_EVICTION_KEY,
    PROTECTIONS,
    START_GRACE,
    SYSTEM_NAMESPACE_PREFIXES,
    SYSTEM_NAMESPACES,
    Protection,
    ProtectionContext,
    is_system_namespace,
    prefers_to_stay,
    protections_of,
)

__all__ = [
    "CONFIG_SOURCE_ANNOTATION",
    "LOCAL_VOLUME_KINDS",
    "MIRROR_ANNOTATION",
    "PREFER_NO_EVICTION_KEY",
    "PROTECTIONS",
    "START_GRACE",
    "SYSTEM_NAMESPACES",
    "SYSTEM_NAMESPACE_PREFIXES",
    "Protection",
    "ProtectionContext",
    "is_system_namespace",
    "prefers_to_stay",
    "protections_of",
]
