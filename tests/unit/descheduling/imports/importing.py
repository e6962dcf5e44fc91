"""What the tests of foreign policies share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from trimtab.api.decode import InvalidObject, decode_policy
from trimtab.descheduling.imports import v1alpha1, v1alpha2
from trimtab.descheduling.imports.draft import ImportResult

Read = Callable[..., ImportResult]


def parsed(content: Any, version: str) -> Any:
    """A policy of that version; text is what stands beside ``apiVersion`` and ``kind``."""
    if not isinstance(content, str):
        return content
    return {"apiVersion": version, "kind": "DeschedulerPolicy", **(msgspec.yaml.decode(content) or {})}


def read_v1alpha1(content: Any) -> ImportResult:
    return whole(v1alpha1.import_policy, parsed(content, v1alpha1.FOREIGN_VERSION))


def read_v1alpha2(content: Any) -> ImportResult:
    return whole(v1alpha2.import_policy, parsed(content, v1alpha2.FOREIGN_VERSION))


def whole(read: Read, data: Any) -> ImportResult:
    """What was read, after seeing that what would be written out says the same."""
    imported = read(data, source="p.yaml")
    assert len(imported.documents) == len(imported.policies)
    for document, policy in zip(imported.documents, imported.policies, strict=True):
        written = msgspec.yaml.decode(msgspec.yaml.encode(document))
        assert decode_policy(written) == policy
    return imported


def errors_of(read: Callable[[Any], ImportResult], content: Any) -> dict[str, str]:
    """The fields that are refused, and why."""
    with pytest.raises(InvalidObject) as refused:
        read(content)
    assert refused.value.source == "p.yaml"
    return {error.field: error.message for error in refused.value.errors}


def warnings_of(imported: ImportResult) -> dict[str, str]:
    return {warning.field: warning.message for warning in imported.warnings}
