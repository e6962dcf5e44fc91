"""Decodes custom resources from plain data (parsed JSON or YAML) into typed objects, and rejects unknown fields."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from trimtab.api import (
    cluster_autoscaler,
    machine_autoscaler,
    node_pressure_policy,
    placement_admission,
    scheduler_policy,
    taint_manager,
)
from trimtab.api.base import API_VERSION, ObjectMeta
from trimtab.api.cluster_autoscaler import ClusterAutoscaler, ClusterAutoscalerSpec
from trimtab.api.cluster_autoscaler_status import ClusterAutoscalerStatus
from trimtab.api.descheduler_policy import KIND, DeschedulerPolicy, DeschedulerPolicySpec
from trimtab.api.descheduler_status import DeschedulerStatus
from trimtab.api.machine_autoscaler import MachineAutoscaler, MachineAutoscalerSpec, MachineAutoscalerStatus
from trimtab.api.node_pressure_policy import NodePressurePolicy, NodePressurePolicySpec, NodePressurePolicyStatus
from trimtab.api.placement_admission import PlacementAdmission, PlacementAdmissionSpec, PlacementAdmissionStatus
from trimtab.api.rules import (
    check_cluster_autoscaler,
    check_descheduler_policy,
    check_machine_autoscaler,
    check_node_pressure_policy,
    check_placement_admission,
    check_scheduler_policy,
    check_taint_manager,
)
from trimtab.api.scheduler_policy import SchedulerPolicy, SchedulerPolicySpec, SchedulerPolicyStatus
from trimtab.api.schema import FieldError, check, join_path, structural_schema, unknown_key
from trimtab.api.taint_manager import TaintManager, TaintManagerSpec, TaintManagerStatus
from trimtab.kube.errors import InputError

S = TypeVar("S", bound=Struct)

_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")  # RFC 1123 subdomain
_TOP_LEVEL = ("apiVersion", "kind", "metadata", "spec", "status")


class InvalidObject(InputError):
    """An invalid object with one or more errors; ``field`` and ``message`` are those of the first error.

    Attributes:
        errors: all errors, in the order of the document.
    """

    def __init__(self, errors: tuple[FieldError, ...], *, source: str, object: str) -> None:  # noqa: A002
        super().__init__(errors[0].message, source=source, object=object, field=errors[0].field)
        self.errors = errors

    def __str__(self) -> str:
        """Return one line per error: ``source: object: field: message``."""
        where = ": ".join(part for part in (self.source, self.object) if part)
        return "\n".join(f"{where}: {error}" if where else str(error) for error in self.errors)


class DecodableKind(Struct, frozen=True):
    """A kind of custom resource that can be decoded.

    Attributes:
        api_version: the required ``apiVersion``.
        name: the required ``kind``.
        object_type: the type of the object.
        spec: the type of its spec.
        status: the type of its status.
        check: returns the errors of an object that violates rules that the schema cannot express.
        optional_spec: whether the spec may be omitted; then all its fields have their defaults.
        namespaced: whether objects have a namespace. If a file omits it, the namespace is ``default``.
        renamed: current values by former value, by field of the spec. Former values are accepted.
    """

    api_version: str
    name: str
    object_type: type[Struct]
    spec: type[Struct]
    status: type[Struct]
    check: Callable[[Any], tuple[FieldError, ...]]
    optional_spec: bool = False
    namespaced: bool = False
    renamed: Mapping[str, Mapping[str, str]] = {}


POLICY: Final = DecodableKind(
    API_VERSION, KIND, DeschedulerPolicy, DeschedulerPolicySpec, DeschedulerStatus, check_descheduler_policy
)
CLUSTER_AUTOSCALER: Final = DecodableKind(
    cluster_autoscaler.API_VERSION,
    cluster_autoscaler.KIND,
    ClusterAutoscaler,
    ClusterAutoscalerSpec,
    ClusterAutoscalerStatus,
    check_cluster_autoscaler,
    optional_spec=True,
)
MACHINE_AUTOSCALER: Final = DecodableKind(
    machine_autoscaler.API_VERSION,
    machine_autoscaler.KIND,
    MachineAutoscaler,
    MachineAutoscalerSpec,
    MachineAutoscalerStatus,
    check_machine_autoscaler,
    namespaced=True,
)
TAINT_MANAGER: Final = DecodableKind(
    API_VERSION,
    taint_manager.KIND,
    TaintManager,
    TaintManagerSpec,
    TaintManagerStatus,
    check_taint_manager,
    optional_spec=True,
    renamed={"mode": taint_manager.RENAMED_MODES},
)
SCHEDULER_POLICY: Final = DecodableKind(
    API_VERSION,
    scheduler_policy.KIND,
    SchedulerPolicy,
    SchedulerPolicySpec,
    SchedulerPolicyStatus,
    check_scheduler_policy,
)

PLACEMENT_ADMISSION: Final = DecodableKind(
    API_VERSION,
    placement_admission.KIND,
    PlacementAdmission,
    PlacementAdmissionSpec,
    PlacementAdmissionStatus,
    check_placement_admission,
    optional_spec=True,
)

NODE_PRESSURE_POLICY: Final = DecodableKind(
    API_VERSION,
    node_pressure_policy.KIND,
    NodePressurePolicy,
    NodePressurePolicySpec,
    NodePressurePolicyStatus,
    check_node_pressure_policy,
)


def decode_policy(data: object, *, source: str = "") -> DeschedulerPolicy:
    """Decode a DeschedulerPolicy from plain data, and validate it against its schema and rules.

    An invalid status is treated as empty: users do not write it, and another version of trimtab may have written it.

    Args:
        data: the decoded JSON or YAML.
        source: where the data came from, for error messages.

    Raises:
        InvalidObject: the object is invalid. The exception contains all errors.
    """
    policy: DeschedulerPolicy = _decode(data, POLICY, source)
    return policy


def decode_cluster_autoscaler(data: object, *, source: str = "") -> ClusterAutoscaler:
    """Decode a ClusterAutoscaler from plain data, see :func:`decode_policy`.

    Raises:
        InvalidObject: the object is invalid. The exception contains all errors.
    """
    autoscaler: ClusterAutoscaler = _decode(data, CLUSTER_AUTOSCALER, source)
    return autoscaler


def decode_machine_autoscaler(data: object, *, source: str = "") -> MachineAutoscaler:
    """Decode a MachineAutoscaler from plain data, see :func:`decode_policy`.

    Raises:
        InvalidObject: the object is invalid. The exception contains all errors.
    """
    autoscaler: MachineAutoscaler = _decode(data, MACHINE_AUTOSCALER, source)
    return autoscaler


def decode_taint_manager(data: object, *, source: str = "") -> TaintManager:
    """Decode a TaintManager from plain data, see :func:`decode_policy`.

    Raises:
        InvalidObject: the object is invalid. The exception contains all errors.
    """
    manager: TaintManager = _decode(data, TAINT_MANAGER, source)
    return manager


def decode_scheduler_policy(data: object, *, source: str = "") -> SchedulerPolicy:
    """Decode a SchedulerPolicy from plain data, see :func:`decode_policy`.

    Raises:
        InvalidObject: the object is invalid. The exception contains all errors.
    """
    policy: SchedulerPolicy = _decode(data, SCHEDULER_POLICY, source)
    return policy


def decode_node_pressure_policy(data: object, *, source: str = "") -> NodePressurePolicy:
    """Decode a NodePressurePolicy from plain data, see :func:`decode_policy`.

    Raises:
        InvalidObject: the object is invalid. The exception contains all errors.
    """
    policy: NodePressurePolicy = _decode(data, NODE_PRESSURE_POLICY, source)
    return policy


def decode_placement_admission(data: object, *, source: str = "") -> PlacementAdmission:
    """Decode a PlacementAdmission from plain data, see :func:`decode_policy`.

    Raises:
        InvalidObject: the object is invalid. The exception contains all errors.
    """
    admission: PlacementAdmission = _decode(data, PLACEMENT_ADMISSION, source)
    return admission


def _decode(data: object, kind: DecodableKind, source: str) -> Any:
    value, errors = read_object(data, kind)
    errors = errors or (kind.check(value) if value is not None else ())
    if errors or value is None:
        raise InvalidObject(errors, source=source, object=describe(data))
    return value


def read_policy(data: object) -> tuple[DeschedulerPolicy | None, tuple[FieldError, ...]]:
    """Decode a DeschedulerPolicy, validate it against its schema only, and return the policy and the errors.

    The rules of :func:`trimtab.api.rules.check_descheduler_policy` are not checked.
    """
    return read_object(data, POLICY)


def read_object(data: object, kind: DecodableKind) -> tuple[Any, tuple[FieldError, ...]]:
    """Decode an object, validate it against its schema only, and return it (``None`` if invalid) with the errors."""
    if not isinstance(data, Mapping):
        return None, (FieldError("", f"must be a mapping with {', '.join(_TOP_LEVEL[:4])}"),)
    errors = _envelope(data, kind)
    if "spec" in data:
        data = _with_current_values(data, kind)
        errors += check(data["spec"], structural_schema(kind.spec), path="spec")
    if errors:
        return None, tuple(errors)
    try:
        metadata = msgspec.convert(data.get("metadata", {}), ObjectMeta)
        if kind.namespaced and not metadata.namespace:
            metadata = replace(metadata, namespace="default")
        spec = msgspec.convert(_whole_numbers(data["spec"]), kind.spec) if "spec" in data else kind.spec()
        return kind.object_type(metadata=metadata, spec=spec, status=_status(data.get("status"), kind.status)[0]), ()
    except msgspec.ValidationError as error:  # errors that the schema does not cover, e.g. a name that is not a string
        return None, (FieldError("", str(error)),)


def find_former_values(data: object, kind: DecodableKind) -> tuple[FieldError, ...]:
    """Return the fields of an object that have a former value, each with a message that contains the current one.

    The object is valid nevertheless, because it may have been stored before the value was renamed. The API server
    refuses new objects with such a value.
    """
    spec = data.get("spec") if isinstance(data, Mapping) else None
    if not isinstance(spec, Mapping):
        return ()
    return tuple(
        FieldError(f"spec.{field}", f"{field} {spec[field]} is now {names[spec[field]]}")
        for field, names in kind.renamed.items()
        if isinstance(spec.get(field), str) and spec[field] in names
    )


def _with_current_values(data: Mapping[Any, Any], kind: DecodableKind) -> Mapping[Any, Any]:
    fields = [each.field.removeprefix("spec.") for each in find_former_values(data, kind)]
    current = {field: kind.renamed[field][data["spec"][field]] for field in fields}
    return {**data, "spec": {**data["spec"], **current}} if current else data


def _whole_numbers(value: Any) -> Any:
    """Replace floats such as 3.0 with integers. JSON and the API server do not distinguish them, but msgspec does."""
    if isinstance(value, Mapping):
        return {key: _whole_numbers(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_whole_numbers(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _envelope(data: Mapping[Any, object], kind: DecodableKind) -> list[FieldError]:
    errors = [
        FieldError(key, f"must be {wanted}, not {data.get(key)}" if key in data else f"is required: {wanted}")
        for key, wanted in (("apiVersion", kind.api_version), ("kind", kind.name))
        if data.get(key) != wanted
    ]
    errors += [
        FieldError(join_path("", str(key)), unknown_key(str(key), _TOP_LEVEL)) for key in data if key not in _TOP_LEVEL
    ]
    errors += _naming(data.get("metadata"))
    if "spec" not in data and not kind.optional_spec:
        errors.append(FieldError("spec", "is required"))
    return errors


def _naming(metadata: object) -> list[FieldError]:
    """Return the errors of ``metadata.name``, validated as the API server does."""
    if not isinstance(metadata, Mapping) or not (metadata.get("name") or metadata.get("generateName")):
        return [FieldError("metadata.name", "is required")]
    name = metadata.get("name")
    if name and (not isinstance(name, str) or len(name) > 253 or not _NAME.fullmatch(name)):
        allowed = "lower case letters, digits, - and ., start and end with a letter or digit, at most 253 characters"
        return [FieldError("metadata.name", f"must consist of {allowed}; not {name!r}")]
    return []


def read_status(data: object) -> tuple[DeschedulerStatus, str]:
    """Decode a policy's status. If it is invalid, return an empty status and the error."""
    return _status(data, DeschedulerStatus)


def _status(data: object, type_: type[S]) -> tuple[S, str]:
    try:
        return msgspec.convert(data or {}, type_), ""
    except msgspec.ValidationError as error:
        return type_(), str(error)


def describe(data: object) -> str:
    """Return ``Kind/name`` of a document for error messages; ``""`` if it has neither."""
    if not isinstance(data, Mapping):
        return ""
    metadata = data.get("metadata")
    name = metadata.get("name") if isinstance(metadata, Mapping) else None
    return "/".join(str(part) for part in (data.get("kind"), name) if part)
