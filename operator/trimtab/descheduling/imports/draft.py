"""A policy on its way from another format: the parts of its spec, where each was said, and what is to be told."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from msgspec import Struct, field

from trimtab.api.base import API_VERSION
from trimtab.api.check import FieldError
from trimtab.api.checks import validate
from trimtab.api.decode import InvalidObject, describe, read_policy
from trimtab.api.descheduler_policy import KIND, DeschedulerPolicy

_ORDER: Final = (
    "mode",
    "suspend",
    "interval",
    "schedule",
    "gracePeriodSeconds",
    "limits",
    "protections",
    "priorityThreshold",
    "namespaces",
    "namespaceSelector",
    "podSelector",
    "nodeSelector",
    "strategies",
)
"""How a spec is written out: when and how much first, what is done last."""


def of_format(data: object, kind: str, version: str, *, source: str) -> Mapping[str, Any]:
    """The document, which must be of this format.

    Raises:
        InvalidObject: it is something else.
    """
    if isinstance(data, Mapping) and data.get("apiVersion") == version and data.get("kind") == kind:
        return data
    error = FieldError("", f"must be a {kind} of {version}")
    raise InvalidObject((error,), source=source, object=describe(data))


class Imported(Struct, frozen=True):
    """What a foreign document came to.

    Attributes:
        policies: in the order of the document.
        documents: the same as plain data, to be written out: what was said and no defaults, but for the mode.
        warnings: what has no equivalent, and what happens instead, under the document's own names.
    """

    policies: tuple[DeschedulerPolicy, ...]
    documents: tuple[dict[str, Any], ...]
    warnings: tuple[FieldError, ...] = ()


class Findings:
    """What is to be told of a document: errors stop it, warnings don't."""

    def __init__(self) -> None:
        self.errors: list[FieldError] = []
        self.warnings: list[FieldError] = []

    def error(self, place: str, message: str) -> None:
        """Note what cannot be used, or would be unsafe to leave out."""
        self.errors.append(FieldError(place, message))

    def warn(self, place: str, message: str) -> None:
        """Note what is left out or done otherwise, and does no harm; once."""
        warning = FieldError(place, message)
        if warning not in self.warnings:
            self.warnings.append(warning)


class Draft(Struct):
    """Parts of a spec as plain data.

    Attributes:
        spec: the parts.
        origins: our field's path to the path of the field in the document that said it.
    """

    spec: dict[str, Any] = field(default_factory=dict)
    origins: dict[str, str] = field(default_factory=dict)

    def put(self, path: str, value: Any, place: str) -> None:
        """Set a part, ``limits.perNode``, and note where it was said."""
        *parents, last = path.split(".")
        where = self.spec
        for parent in parents:
            where = where.setdefault(parent, {})
        where[last] = value
        self.origins[f"spec.{path}"] = place

    def add(self, path: str, word: str, place: str) -> None:
        """Add a word to a list that is a set, ``protections.extra``."""
        section, name = path.split(".")
        words = self.spec.get(section, {}).get(name, [])
        if word not in words:
            self.put(path, [*words, word], place)

    def joined(self, other: Draft) -> Draft:
        """Both drafts in one; pods must then match the selectors of both."""
        both = Draft(dict(self.spec), {**self.origins, **other.origins})
        for part, value in other.spec.items():
            mine = both.spec.get(part)
            if part == "podSelector" and mine is not None:
                value = all_of(mine, value)
            both.spec[part] = value
        return both

    def finish(self, name: str, findings: Findings) -> tuple[DeschedulerPolicy, dict[str, Any]] | None:
        """The policy and the same as plain data; ``None`` with the errors noted under the document's names."""
        spec = {"mode": "Simulate", **self.spec}
        document = {
            "apiVersion": API_VERSION,
            "kind": KIND,
            "metadata": {"name": name},
            "spec": {part: spec[part] for part in _ORDER if part in spec},
        }
        policy, errors = read_policy(document)
        if findings.errors:  # what follows from those would only confuse
            errors = tuple(error for error in errors if not error.message.startswith("is required"))
        elif policy is not None:
            errors = validate(policy)
        findings.errors += [FieldError(self._origin(error.field), error.message) for error in errors]
        return None if policy is None or errors else (policy, document)

    def _origin(self, path: str) -> str:
        """A field's path as the document has it."""
        inside = [ours for ours in self.origins if path == ours or re.match(re.escape(ours) + r"[.\[]", path)]
        if not inside:
            return path
        ours = max(inside, key=len)
        theirs, rest = self.origins[ours], path.removeprefix(ours)
        return theirs + rest if theirs else rest.removeprefix(".")


def all_of(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    """A selector that matches what both good selectors match."""
    labels = dict(first.get("matchLabels", {}))
    expressions = [*first.get("matchExpressions", ()), *second.get("matchExpressions", ())]
    for key, value in second.get("matchLabels", {}).items():
        if labels.setdefault(key, value) != value:  # nothing matches then, and that is what was said
            expressions.append({"key": key, "operator": "In", "values": [value]})
    both = {"matchLabels": labels, "matchExpressions": expressions}
    return {key: value for key, value in both.items() if value}


def object_name(text: str) -> str:
    """A name of an object from any text: ``ProfileName`` becomes ``profile-name``; ``""`` where nothing is left."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", text).lower()
    return re.sub(r"[^a-z0-9]+", "-", words).strip("-")[:200].strip("-")


def without_nulls(value: Any) -> Any:
    """The value without keys that say nothing, which YAML gives for a key with only comments under it."""
    if isinstance(value, Mapping):
        return {key: without_nulls(item) for key, item in value.items() if item is not None}
    return value
