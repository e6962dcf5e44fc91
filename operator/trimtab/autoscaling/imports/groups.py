"""Makes MachineAutoscalers of ``--nodes=MIN:MAX:NAME`` and of the size annotations of node groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from msgspec import Struct

from trimtab.api.differences import HIGH, MEDIUM, Difference
from trimtab.api.machine_autoscaler import (
    API_VERSION,
    CLUSTER_API_KINDS,
    CLUSTER_API_PREFIX,
    KIND,
    MACHINE_API_VERSION,
)
from trimtab.autoscaling.groups.annotations import MAX_SIZE, SizeLimits, annotated_limits
from trimtab.autoscaling.groups.node_group import ObjectProblem
from trimtab.kube.errors import InputError

_FLAG: Final = "--nodes"
_CLUSTER_API_VERSION: Final = f"{CLUSTER_API_PREFIX}v1beta2"
_PLACEHOLDER_NAMESPACE: Final = "default"


class NodeGroupObject(Struct, frozen=True):
    """A MachineSet, MachineDeployment or MachinePool in the input.

    Attributes:
        api_version: its API version.
        kind: its kind.
        namespace: its namespace.
        name: its name.
        annotations: its annotations.
    """

    api_version: str
    kind: str
    namespace: str
    name: str
    annotations: Mapping[str, str] = {}

    @property
    def api_group(self) -> str:
        """Return the API group."""
        return self.api_version.partition("/")[0]

    @property
    def target(self) -> tuple[str, str, str, str]:
        """Return API group, kind, namespace and name."""
        return (self.api_group, self.kind, self.namespace, self.name)


def node_group_object(manifest: Mapping[str, Any]) -> NodeGroupObject | None:
    """Return the node group in a document; ``None`` if the document is something else."""
    version, kind = str(manifest.get("apiVersion")), str(manifest.get("kind"))
    cluster_api = version.startswith(CLUSTER_API_PREFIX) and kind in CLUSTER_API_KINDS
    if not cluster_api and (version, kind) != (MACHINE_API_VERSION, "MachineSet"):
        return None
    metadata = manifest.get("metadata")
    if not isinstance(metadata, Mapping) or not metadata.get("name"):
        return None
    annotations = metadata.get("annotations")
    return NodeGroupObject(
        api_version=version,
        kind=kind,
        namespace=str(metadata.get("namespace") or _PLACEHOLDER_NAMESPACE),
        name=str(metadata["name"]),
        annotations={str(key): str(value) for key, value in (annotations or {}).items()}
        if isinstance(annotations, Mapping | None)
        else {},
    )


def group_autoscaler(group: NodeGroupObject) -> tuple[dict[str, Any] | None, tuple[Difference, ...]]:
    """Return the MachineAutoscaler for the size annotations of a node group, or why there is none.

    A MachineAutoscaler needs a maximum of at least 1.
    """
    limits = annotated_limits(group)
    if limits is None:
        return None, ()
    if isinstance(limits, ObjectProblem):
        return None, (Difference("metadata.annotations", limits.message, HIGH),)
    if limits.maximum < 1:
        key = f"{group.api_group}/{MAX_SIZE}"
        return None, (Difference(f"metadata.annotations.{key}", "is 0, so the node group is not scaled", MEDIUM),)
    return _document(group, limits), ()


def target_autoscalers(
    nodes: Sequence[str], provider: str, groups: Sequence[NodeGroupObject]
) -> tuple[list[tuple[NodeGroupObject, dict[str, Any]]], list[Difference]]:
    """Return a target and a MachineAutoscaler for each value of ``--nodes``, and warnings.

    The name of a group is looked up among the node groups of the input: ``NAME``, ``NAMESPACE/NAME`` or
    ``KIND/NAMESPACE/NAME``. If none has it, the target is a MachineDeployment with that name, which may not exist.

    Args:
        nodes: the values, ``MIN:MAX:NAME``.
        provider: the value of ``--cloud-provider``.
        groups: the node groups of the input.

    Raises:
        InputError: a value has another format.
    """
    found, warnings = [], []
    for text in nodes:
        limits, name = _node_spec(text)
        matching = [group for group in groups if _is_named(group, name)]
        if len(matching) == 1:
            target = matching[0]
        else:
            target = _placeholder(name)
            why = "several node groups of the input have that name" if matching else "the input has no such node group"
            warnings.append(
                Difference(
                    _FLAG,
                    f"{text}: {why}. The MachineAutoscaler's target is the {target.kind} {target.namespace}/"
                    f"{target.name}; set spec.scaleTargetRef and metadata.namespace to the node group that replaces "
                    f"this one of {provider}",
                    HIGH,
                )
            )
        if limits.maximum < 1:
            warnings.append(Difference(_FLAG, f"{text}: the maximum is 0, so the node group is not scaled", MEDIUM))
            continue
        found.append((target, _document(target, limits)))
    return found, warnings


def _node_spec(text: str) -> tuple[SizeLimits, str]:
    low, _, rest = text.partition(":")
    high, _, name = rest.partition(":")
    if not (low.isdecimal() and high.isdecimal() and name):
        raise InputError(f"must have the form MIN:MAX:NAME; not {text!r}", field=_FLAG)
    if int(low) > int(high):
        raise InputError(f"must not have a minimum above the maximum; not {text!r}", field=_FLAG)
    return SizeLimits(int(low), int(high)), name


def _is_named(group: NodeGroupObject, name: str) -> bool:
    plain = f"{group.namespace}/{group.name}"
    return name in (group.name, plain, f"{group.kind}/{plain}")


def _placeholder(name: str) -> NodeGroupObject:
    """Return a target for the name of a provider's group, for example a URL of an instance group."""
    short = name.rpartition("/")[2].rpartition(":")[2].lower()
    valid = "".join(each if each.isalnum() and each.isascii() else "-" for each in short).strip("-")
    return NodeGroupObject(_CLUSTER_API_VERSION, CLUSTER_API_KINDS[0], _PLACEHOLDER_NAMESPACE, valid[:63] or "group")


def _document(group: NodeGroupObject, limits: SizeLimits) -> dict[str, Any]:
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {"name": group.name, "namespace": group.namespace},
        "spec": {
            "minReplicas": limits.minimum,
            "maxReplicas": limits.maximum,
            "scaleTargetRef": {"apiVersion": group.api_version, "kind": group.kind, "name": group.name},
        },
    }
