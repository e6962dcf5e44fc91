"""From plain data to typed custom resources, strictly."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from trimtab.api import cluster_autoscaler, machine_autoscaler, taint_manager
from trimtab.api.autoscaling_checks import check_cluster_autoscaler, check_machine_autoscaler
from trimtab.api.base import API_VERSION, ObjectMeta
from trimtab.api.check import FieldError, check, join_path, unknown_key
from trimtab.api.checks import validate
from trimtab.api.cluster_autoscaler import ClusterAutoscaler, ClusterAutoscalerSpec
from trimtab.api.cluster_autoscaler_status import ClusterAutoscalerStatus
from trimtab.api.descheduler_policy import KIND, DeschedulerPolicy, DeschedulerPolicySpec
from trimtab.api.descheduler_status import DeschedulerStatus
from trimtab.api.machine_autoscaler import MachineAutoscaler, MachineAutoscalerSpec, MachineAutoscalerStatus
from trimtab.api.schema import structural_schema
from trimtab.api.taint_manager import TaintManager, TaintManagerSpec
from trimtab.api.taint_manager_checks import check_taint_manager
from trimtab.api.taint_manager_status import TaintManagerStatus
from trimtab.kube.errors import InputError

S = TypeVar("S", bound=Struct)

_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")  # RFC 1123 subdomain
_TOP_LEVEL = ("apiVersion", "kind", "metadata", "spec", "status")


class InvalidObject(InputError):
    """An object with one fault or several; ``field`` and ``message`` are those of the first.

    Attributes:
        errors: all of them, in the order of the document.
    """

    def __init__(self, errors: tuple[FieldError, ...], *, source: str, object: str) -> None:  # noqa: A002
        super().__init__(errors[0].message, source=source, object=object, field=errors[0].field)
        self.errors = errors

    def __str__(self) -> str:
        """One line a fault: ``source: object: field: message``."""
        where = ": ".join(part for part in (self.source, self.object) if part)
        return "\n".join(f"{where}: {error}" if where else str(error) for error in self.errors)


class Kind(Struct, frozen=True):
    """One of our kinds, as far as reading it goes.

    Attributes:
        api_version: what an object must say.
        name: the kind that an object must say.
        whole: the type of the whole object.
        spec: the type of its spec.
        status: the type of its status.
        check: tells what does not make sense though the schema allows it.
        optional_spec: whether an object may have no spec, which then has its defaults.
        namespaced: whether objects live in namespaces; a file may leave the namespace out: it is ``default`` then.
    """

    api_version: str
    name: str
    whole: type[Struct]
    spec: type[Struct]
    status: type[Struct]
    check: Callable[[Any], tuple[FieldError, ...]]
    optional_spec: bool = False
    namespaced: bool = False


POLICY: Final = Kind(API_VERSION, KIND, DeschedulerPolicy, DeschedulerPolicySpec, DeschedulerStatus, validate)
CLUSTER_AUTOSCALER: Final = Kind(
    cluster_autoscaler.API_VERSION,
    cluster_autoscaler.KIND,
    ClusterAutoscaler,
    ClusterAutoscalerSpec,
    ClusterAutoscalerStatus,
    check_cluster_autoscaler,
    optional_spec=True,
)
MACHINE_AUTOSCALER: Final = Kind(
    machine_autoscaler.API_VERSION,
    machine_autoscaler.KIND,
    MachineAutoscaler,
    MachineAutoscalerSpec,
    MachineAutoscalerStatus,
    check_machine_autoscaler,
    namespaced=True,
)
TAINT_MANAGER: Final = Kind(
    API_VERSION,
    taint_manager.KIND,
    TaintManager,
    TaintManagerSpec,
    TaintManagerStatus,
    check_taint_manager,
    optional_spec=True,
)


def decode_policy(data: object, *, source: str = "") -> DeschedulerPolicy:
    """A DeschedulerPolicy from plain data, checked against its schema and for sense.

    The status is taken as it is if it can be understood, and as empty if not: another version of trimtab may have
    written it, and it is no part of what the policy's author says.

    Args:
        data: what JSON or YAML gave.
        source: where it came from, for messages.

    Raises:
        InvalidObject: with everything that is wrong.
    """
    policy: DeschedulerPolicy = _decode(data, POLICY, source)
    return policy


def decode_cluster_autoscaler(data: object, *, source: str = "") -> ClusterAutoscaler:
    """A ClusterAutoscaler from plain data; as :func:`decode_policy`.

    Raises:
        InvalidObject: with everything that is wrong.
    """
    autoscaler: ClusterAutoscaler = _decode(data, CLUSTER_AUTOSCALER, source)
    return autoscaler


def decode_machine_autoscaler(data: object, *, source: str = "") -> MachineAutoscaler:
    """A MachineAutoscaler from plain data; as :func:`decode_policy`.

    Raises:
        InvalidObject: with everything that is wrong.
    """
    autoscaler: MachineAutoscaler = _decode(data, MACHINE_AUTOSCALER, source)
    return autoscaler


def decode_taint_manager(data: object, *, source: str = "") -> TaintManager:
    """A TaintManager from plain data; as :func:`decode_policy`.

    Raises:
        InvalidObject: with everything that is wrong.
    """
    manager: TaintManager = _decode(data, TAINT_MANAGER, source)
    return manager


def _decode(data: object, kind: Kind, source: str) -> Any:
    value, errors = read_object(data, kind)
    errors = errors or (kind.check(value) if value is not None else ())
    if errors or value is None:
        raise InvalidObject(errors, source=source, object=describe(data))
    return value


def read_policy(data: object) -> tuple[DeschedulerPolicy | None, tuple[FieldError, ...]]:
    """A DeschedulerPolicy as far as its schema allows, and what is wrong with it.

    The rules of :func:`trimtab.api.checks.validate` are not applied yet.
    """
    return read_object(data, POLICY)


def read_object(data: object, kind: Kind) -> tuple[Any, tuple[FieldError, ...]]:
    """An object as far as its schema allows, ``None`` if that is not at all, and what is wrong with it.

    The kind's own :attr:`Kind.check` is not applied yet.
    """
    if not isinstance(data, Mapping):
        return None, (FieldError("", f"must be a mapping with {', '.join(_TOP_LEVEL[:4])}"),)
    errors = _envelope(data, kind)
    if "spec" in data:
        errors += check(data["spec"], structural_schema(kind.spec), path="spec")
    if errors:
        return None, tuple(errors)
    try:
        metadata = msgspec.convert(data.get("metadata", {}), ObjectMeta)
        if kind.namespaced and not metadata.namespace:
            metadata = replace(metadata, namespace="default")
        spec = msgspec.convert(_whole_numbers(data["spec"]), kind.spec) if "spec" in data else kind.spec()
        return kind.whole(metadata=metadata, spec=spec, status=_status(data.get("status"), kind.status)[0]), ()
    except msgspec.ValidationError as error:  # what the schema cannot say, e.g. a name that is no text
        return None, (FieldError("", str(error)),)


def _whole_numbers(value: Any) -> Any:
    """The value with 3 for 3.0: JSON knows no difference, nor does the API server; msgspec does."""
    if isinstance(value, Mapping):
        return {key: _whole_numbers(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_whole_numbers(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _envelope(data: Mapping[Any, object], kind: Kind) -> list[FieldError]:
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
    """What is wrong with the name: what the API server would say, as the checks of the spec do."""
    if not isinstance(metadata, Mapping) or not (metadata.get("name") or metadata.get("generateName")):
        return [FieldError("metadata.name", "is required")]
    name = metadata.get("name")
    if name and (not isinstance(name, str) or len(name) > 253 or not _NAME.fullmatch(name)):
        allowed = "small letters, digits, - and ., beginning and ending with a letter or digit, at most 253 characters"
        return [FieldError("metadata.name", f"must be a text of {allowed}; not {name!r}")]
    return []


def read_status(data: object) -> tuple[DeschedulerStatus, str]:
    """A policy's status, and what keeps it from being understood: then it counts as empty, for it is only a report."""
    return _status(data, DeschedulerStatus)


def _status(data: object, type_: type[S]) -> tuple[S, str]:
    try:
        return msgspec.convert(data or {}, type_), ""
    except msgspec.ValidationError as error:
        return type_(), str(error)


def describe(data: object) -> str:
    """What a document calls itself, ``Kind/name``, for messages; ``""`` where it says nothing."""
    if not isinstance(data, Mapping):
        return ""
    metadata = data.get("metadata")
    name = metadata.get("name") if isinstance(metadata, Mapping) else None
    return "/".join(str(part) for part in (data.get("kind"), name) if part)
