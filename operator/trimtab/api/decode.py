"""From plain data to typed custom resources, strictly."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from trimtab.api.base import API_VERSION, ObjectMeta
from trimtab.api.check import FieldError, check, join_path, unknown_key
from trimtab.api.checks import validate
from trimtab.api.descheduler_policy import KIND, DeschedulerPolicy, DeschedulerPolicySpec
from trimtab.api.descheduler_status import DeschedulerStatus
from trimtab.api.schema import structural_schema
from trimtab.kube.errors import InputError

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
    policy, errors = read_policy(data)
    errors = errors or (validate(policy) if policy else ())
    if errors or policy is None:
        raise InvalidObject(errors, source=source, object=describe(data))
    return policy


def read_policy(data: object) -> tuple[DeschedulerPolicy | None, tuple[FieldError, ...]]:
    """A DeschedulerPolicy as far as its schema allows, and what is wrong with it.

    The rules of :func:`trimtab.api.checks.validate` are not applied yet.
    """
    if not isinstance(data, Mapping):
        return None, (FieldError("", f"must be a mapping with {', '.join(_TOP_LEVEL[:4])}"),)
    errors = _envelope(data)
    if "spec" in data:
        errors += check(data["spec"], structural_schema(DeschedulerPolicySpec), path="spec")
    if errors:
        return None, tuple(errors)
    try:
        policy = DeschedulerPolicy(
            metadata=msgspec.convert(data.get("metadata", {}), ObjectMeta),
            spec=msgspec.convert(_whole_numbers(data["spec"]), DeschedulerPolicySpec),
            status=read_status(data.get("status"))[0],
        )
    except msgspec.ValidationError as error:  # what the schema cannot say, e.g. a name that is no text
        return None, (FieldError("", str(error)),)
    return policy, ()


def _whole_numbers(value: Any) -> Any:
    """The value with 3 for 3.0: JSON knows no difference, nor does the API server; msgspec does."""
    if isinstance(value, Mapping):
        return {key: _whole_numbers(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_whole_numbers(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _envelope(data: Mapping[Any, object]) -> list[FieldError]:
    errors = [
        FieldError(key, f"must be {wanted}, not {data.get(key)}" if key in data else f"is required: {wanted}")
        for key, wanted in (("apiVersion", API_VERSION), ("kind", KIND))
        if data.get(key) != wanted
    ]
    errors += [
        FieldError(join_path("", str(key)), unknown_key(str(key), _TOP_LEVEL)) for key in data if key not in _TOP_LEVEL
    ]
    errors += _naming(data.get("metadata"))
    if "spec" not in data:
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
    try:
        return msgspec.convert(data or {}, DeschedulerStatus), ""
    except msgspec.ValidationError as error:
        return DeschedulerStatus(), str(error)


def describe(data: object) -> str:
    """What a document calls itself, ``Kind/name``, for messages; ``""`` where it says nothing."""
    if not isinstance(data, Mapping):
        return ""
    metadata = data.get("metadata")
    name = metadata.get("name") if isinstance(metadata, Mapping) else None
    return "/".join(str(part) for part in (data.get("kind"), name) if part)
