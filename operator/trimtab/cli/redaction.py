"""Redacts objects for snapshot files, because users share such files, for example in issues.

The files contain only allowed fields: the fields that planners read, a few that help human readers, and the annotations
that trimtab reads. The fields that planners read are those of the structs that objects are decoded into (``slim.proto``
and :mod:`trimtab.kube.wire.custom_json`). None of the structs contains environment, commands, arguments, probes or
hooks, which may contain passwords and tokens. Fields of later Kubernetes versions are omitted.

In the remaining fields, free text is removed (messages of conditions, of failed machines and of trimtab's own custom
resources, because these quote other programs), credentials are removed from images (everything before ``@``), and
identifiers of the cloud are replaced with pseudonyms. Pseudonyms are digests, so that equal identifiers remain equal in
all files, for planners and for ``trimtab diff``. Labels are kept, because planners compare them. The labels of nodes
can contain identifiers of the cloud, such as the name of a resource group.

Of trimtab's own custom resources, the files contain the fields of their types (:mod:`trimtab.api`), without the
certificates of scheduler extenders.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Final, get_args, get_type_hints

import msgspec
from msgspec import Struct

from trimtab.api.cluster_autoscaler import ClusterAutoscaler
from trimtab.api.descheduler_policy import DeschedulerPolicy
from trimtab.api.descheduling_run import DeschedulingRun
from trimtab.api.history_record import HistoryRecord
from trimtab.api.machine_autoscaler import MachineAutoscaler
from trimtab.api.node_pressure_policy import NodePressurePolicy
from trimtab.api.placement_admission import PlacementAdmission
from trimtab.api.scheduler_extenders import ExtenderTLS
from trimtab.api.scheduler_policy import SchedulerPolicy
from trimtab.api.taint_manager import TaintManager
from trimtab.kube.wire import custom_json, slim_json
from trimtab.kube.wire.decode import MESSAGES
from trimtab.kube.wire.identity import kind_of
from trimtab.kube.wire.projection.annotations import is_read
from trimtab.kube.wire.projection.machine import SIZES

Manifest = dict[str, Any]

Rewrite = Callable[[str], str]
Allowed = Mapping[str, Any] | Rewrite | None
"""The allowed keys of an object, each with the allowed keys of its value.

``None`` allows everything, and a function rewrites a string or the strings of a list.
"""

_TIMES: Final = dict.fromkeys(("startedAt", "finishedAt"))
_STATE: Final = dict.fromkeys(("reason", "exitCode")) | _TIMES
_VERSIONS: Final = ("architecture", "containerRuntimeVersion", "kernelVersion", "kubeletVersion", "osImage")

_EXTRA_FIELDS: Final[Mapping[type[Struct], Mapping[str, Allowed]]] = {
    slim_json.ContainerStatus: {
        "ready": None,
        "started": None,
        "lastState": {"running": _STATE, "terminated": _STATE, "waiting": _STATE},
    },
    slim_json.ContainerState: {"running": _TIMES},
    slim_json.ContainerStateTerminated: _TIMES,
    slim_json.NodeStatus: {"nodeInfo": dict.fromkeys(_VERSIONS)},
    slim_json.StorageClass: {"reclaimPolicy": None},
    slim_json.CSIDriverSpec: {"attachRequired": None},
    slim_json.ReplicationControllerSpec: {"replicas": None},
    slim_json.ReplicaSetSpec: {"replicas": None},
    slim_json.StatefulSetSpec: {"replicas": None},
    custom_json.MachineSetSpec: {"selector": None},
    custom_json.MachineSetStatus: {"replicas": None, "readyReplicas": None},
    # Provider settings are reduced to the fields with the machine's size, see machine.py.
    custom_json.TemplateMachineSpec: {
        "infrastructureRef": dict.fromkeys(("kind", "name")),
        "providerSpec": {"value": dict.fromkeys(SIZES)},
    },
}
"""Allowed fields that planners do not read, by struct: fields for human readers, and machine sizes in provider
settings."""


_EXCLUDED_FIELDS: Final[Mapping[type[Struct], tuple[str, ...]]] = {
    slim_json.NodeStatus: ("addresses", "daemonEndpoints"),
    ExtenderTLS: ("caData",),
}
"""Fields that the operator reads, but no planner, by struct. They would describe the network to readers of a file, or
are certificates."""

LEFT_OUT: Final = "(left out)"
"""The replacement for strings such as a machine's error message. Planners only test whether these are empty, or compare
them with the names of images on nodes."""


_IMAGE: Final = re.compile(r"[A-Za-z0-9._:/@+\[\]-]*")
"""Characters of images that a container runtime can pull. The API server accepts all characters."""
_IMAGE_DIGEST: Final = re.compile(r"@[a-z0-9]+(?:[+._-][a-z0-9]+)*:[0-9a-f]{32,}\Z")


def _without_credentials(image: str) -> str:
    """Return an image without what precedes the last ``@``, except the one of its digest."""
    if not _IMAGE.fullmatch(image):
        return LEFT_OUT
    digest = _IMAGE_DIGEST.search(image)
    name = image if digest is None else image[: digest.start()]
    return name.rpartition("@")[2] + ("" if digest is None else digest.group())


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()[:32] if text else ""


_EBS_URL: Final = re.compile(r"aws://(?P<zone>[^/]*)/(?P<before>/*)(?P<disk>vol-[^/]*)(?P<after>/*)", re.DOTALL)
_TRANSLATED_DISK: Final = re.compile(
    r"(?P<path>projects/UNSPECIFIED/(?:zones|regions)/[a-zA-Z0-9-]+/disks/)(?P<disk>.+)", re.DOTALL
)


def _volume_pseudonym(volume: str) -> str:
    """Return a digest of a volume's identifier, in the form from which a CSI volume handle is derived.

    For example, the pseudonyms of the EBS volumes ``aws://zone/vol-1`` and ``vol-1`` denote the same volume, and those
    of the disk ``pd-1`` and of the handle ``projects/UNSPECIFIED/zones/zone/disks/pd-1`` too
    (:mod:`trimtab.kube.rules.in_tree_volumes`).
    """
    ebs = _EBS_URL.fullmatch(volume)
    if ebs is not None:
        return f"aws://{_digest(ebs['zone'])}/{ebs['before']}{_volume_pseudonym(ebs['disk'])}{ebs['after']}"
    translated = _TRANSLATED_DISK.fullmatch(volume)
    if translated is not None:
        return translated["path"] + _volume_pseudonym(translated["disk"])
    prefix = next((each for each in ("aws://", "vol-") if volume.startswith(each)), "")
    return prefix + _digest(volume)


_SCHEME: Final = re.compile(r"[a-z0-9]{1,16}://")


def _instance_pseudonym(provider_id: str) -> str:
    """Return a provider ID without the account, subscription or project.

    Two pseudonyms are equal if the IDs are, and so are their parts after the last slash. Machines and nodes are matched
    by either. The scheme, such as ``aws://``, is kept for human readers.
    """
    path, slash, instance = provider_id.rpartition("/")
    if not slash:
        return _digest(provider_id)
    scheme = _SCHEME.match(provider_id)
    return ("" if scheme is None else scheme.group()) + f"{_digest(path + slash)}/{_digest(instance)}"


_PSEUDONYMS: Final[Mapping[type[Struct], Mapping[str, Rewrite]]] = {
    slim_json.NodeSpec: {"providerID": _instance_pseudonym},
    custom_json.MachineSpec: {"providerID": _instance_pseudonym},
    custom_json.MachineSetSpec: {"providerIDList": _instance_pseudonym},
    slim_json.CSIPersistentVolumeSource: {"volumeHandle": _volume_pseudonym},
    slim_json.AWSElasticBlockStoreVolumeSource: {"volumeID": _volume_pseudonym},
    slim_json.CinderVolumeSource: {"volumeID": _volume_pseudonym},
    slim_json.PortworxVolumeSource: {"volumeID": _volume_pseudonym},
    slim_json.AzureDiskVolumeSource: {"diskURI": _volume_pseudonym},
    slim_json.GCEPersistentDiskVolumeSource: {"pdName": _volume_pseudonym},
    slim_json.ISCSIVolumeSource: {"iqn": _digest},
    # A pool without a name is the pool "rbd".
    slim_json.RBDVolumeSource: {
        "monitors": _digest,
        "image": _digest,
        "pool": lambda pool: pool if pool == "rbd" else _digest(pool),
    },
}
"""The fields that identify instances and volumes, by struct, and their pseudonyms. Planners only compare them."""


def _left_out(text: str) -> str:
    return LEFT_OUT if text else ""


_REWRITE: Final[Mapping[str, Rewrite]] = {
    **dict.fromkeys(("image", "reference", "names"), _without_credentials),
    "message": lambda _: "",
    **dict.fromkeys(("errorMessage", "failureMessage"), _left_out),
}
"""The functions that rewrite string values, by key, in all kinds except trimtab's own custom resources."""

_REWRITE_OWN: Final[Mapping[str, Rewrite]] = dict.fromkeys(
    ("message", "paused", "problem", "resultMessage", "unhealthy"), _left_out
)
"""The rewrites of trimtab's own custom resources."""


def redact(kind: str, item: Manifest) -> Manifest:
    """Return the allowed fields of an object.

    Args:
        kind: the object's kind, because items of a list may not contain it.
        item: the object as decoded JSON; it is not changed.

    Raises:
        KeyError: trimtab does not read this kind.
    """
    kept: Manifest = _redacted(item, _BY_KIND[kind], _REWRITE_OWN if kind in OWN_TYPES else _REWRITE)
    for spec in (kept.get("spec"), _get_path(kept, "spec", "template", "spec")):
        if isinstance(spec, dict) and spec.get("volumes"):
            # Volumes of types that no rule reads, such as Secrets, have only their name left.
            spec["volumes"] = [each for each in spec["volumes"] if not isinstance(each, dict) or each.keys() - {"name"}]
    metadata = kept.get("metadata")
    if isinstance(metadata, dict) and "managedFields" in metadata:
        _keep_node_name(metadata)
    return kept


def _keep_node_name(metadata: dict[str, Any]) -> None:
    """Keep only those entries of the managedFields that show who set ``spec.nodeName``."""
    found = metadata.pop("managedFields")
    entries = [
        each
        for each in (found if isinstance(found, list) else ())
        if _get_path(each, "fieldsV1", "f:spec", "f:nodeName") is not None
    ]
    if entries:
        metadata["managedFields"] = entries


def _redacted(value: Any, allowed: Allowed, rewrites: Mapping[str, Rewrite]) -> Any:
    if allowed is None:
        return value
    if callable(allowed):
        return _rewritten(allowed, value)
    if isinstance(value, dict):
        return {
            key: {name: text for name, text in inner.items() if is_read(name)}
            if key == "annotations" and isinstance(inner, dict)
            else _rewritten(rewrites.get(key), _redacted(inner, allowed[key], rewrites))
            for key, inner in value.items()
            if key in allowed
        }
    if isinstance(value, list):
        return [_redacted(each, allowed, rewrites) for each in value]
    # A scalar in place of an object is malformed: planners refuse it, and it may contain anything.
    return None


def _rewritten(rewrite: Rewrite | None, value: Any) -> Any:
    if rewrite is None:
        return value
    if isinstance(value, list):
        return [rewrite(each) if isinstance(each, str) else each for each in value]
    return rewrite(value) if isinstance(value, str) else value


def _get_path(value: Any, *path: str) -> Any:
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value


@cache
def _allowed(message: type[Struct]) -> Mapping[str, Allowed]:
    """Return the JSON keys of a struct's fields, each with the allowed keys or the rewrite of its value."""
    hints = get_type_hints(message)
    kept = {field.encode_name: _kept_fields(hints[field.name]) for field in msgspec.structs.fields(message)}
    for base in message.__mro__:
        kept |= {**_EXTRA_FIELDS.get(base, {}), **_PSEUDONYMS.get(base, {})}
    return {name: allowed for name, allowed in kept.items() if name not in _EXCLUDED_FIELDS.get(message, ())}


def _kept_fields(hint: Any) -> Allowed:
    """Return the allowed keys of a field with this type.

    For the type Any, no keys are allowed, because :data:`_EXTRA_FIELDS` lists them.
    """
    if hint is Any:
        return {}
    if isinstance(hint, type) and issubclass(hint, Struct):
        return _allowed(hint)
    return next((kept for kept in map(_kept_fields, get_args(hint)) if kept is not None), None)


OWN_TYPES: Final[Mapping[str, type[Struct]]] = {
    each.__name__: each
    for each in (
        DeschedulerPolicy,
        ClusterAutoscaler,
        MachineAutoscaler,
        TaintManager,
        SchedulerPolicy,
        PlacementAdmission,
        NodePressurePolicy,
        DeschedulingRun,
        HistoryRecord,
    )
}
"""The types of trimtab's own custom resources, by kind."""

_HEAD: Final = dict.fromkeys(("apiVersion", "kind"))
_BY_KIND: Final = {kind_of(name): _HEAD | dict(_allowed(message)) for name, message in MESSAGES.items()} | {
    kind: _HEAD | dict(_allowed(type_)) | {"metadata": _allowed(slim_json.ObjectMeta)}
    for kind, type_ in OWN_TYPES.items()
}
