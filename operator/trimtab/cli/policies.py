"""Policies from files: ours, and those of other deschedulers (:mod:`trimtab.descheduling.imports`)."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

import click
import msgspec

from trimtab.cli.errors import Skipping
from trimtab.cli.options import STDIN
from trimtab.kube.errors import InputError

if TYPE_CHECKING:
    from trimtab.api.descheduler_policy import DeschedulerPolicy
    from trimtab.descheduling.imports.draft import Imported
    from trimtab.descheduling.policy_conflicts import Scoring
    from trimtab.kube.wire.documents import Document

KIND: Final = "DeschedulerPolicy"


class Beside(Protocol):
    """Takes documents that are no policies of a descheduler, and that may stand beside them."""

    @property
    def kinds(self) -> Sequence[tuple[str, str]]:
        """Kind and API version of what it takes."""
        ...

    def __bool__(self) -> bool: ...

    def take(self, manifest: Mapping[str, Any], *, source: str, place: str) -> bool:
        """Take a document if it is one of those; tells whether it is."""
        ...


def load_policies(
    sources: Sequence[str], *, skip_invalid: bool = False, beside: Sequence[Beside] = ()
) -> tuple[DeschedulerPolicy, ...]:
    """The policies of files, in the order of their names, so that the order of files and documents has no say.

    Args:
        sources: files, or ``-`` for standard input.
        skip_invalid: report documents that cannot be used and go on, instead of raising.
        beside: take documents of other kinds, which are no policies without them.

    Raises:
        InputError: a file, a document or a field cannot be used, two policies have one name, or there is nothing.
    """
    found = {
        policy.name: policy
        for imported in read_policies(sources, skip_invalid=skip_invalid, beside=beside)
        for policy in imported.policies
    }
    return tuple(found[name] for name in sorted(found))


def refuse_conflicts(policies: Sequence[DeschedulerPolicy], scoring: Scoring | None = None) -> None:
    """Refuse policies that an operator would hold: a plan for them would undo itself.

    Raises:
        InputError: policies would undo each other, or would be undone by the scheduler; the first conflict is told.
    """
    from trimtab.api.reasons import POLICY_CONFLICT
    from trimtab.descheduling.policy_conflicts import REMEDY, conflicts

    for found in conflicts(policies, scoring=scoring):
        remedy = ""
        if found.reason == POLICY_CONFLICT:
            remedy = f"; plan them apart ({REMEDY} in a cluster)"
        raise InputError(f"{found.message}{remedy}", object=f"{KIND}/{found.first}")


def read_policies(
    sources: Sequence[str], *, skip_invalid: bool = False, beside: Sequence[Beside] = ()
) -> list[Imported]:
    """What each document of the files comes to, in their order; what is left out of it is told on stderr.

    Raises:
        InputError: as :func:`load_policies`.
    """
    names = _Names()
    skipping = Skipping() if skip_invalid else None
    found = []
    for source in sources:
        for document in _documents(source):
            try:
                if any(_taken(document, source, other) for other in beside):
                    continue
                imported = _decode(document, source, beside=beside)
                names.add(imported, _where(source, document.place))
            except InputError as error:
                located = _located(error, source, document.place)
                if skipping is None:
                    raise located from None
                skipping(located)
            else:
                _warn(imported, _where(source, document.place))
                found.append(imported)
    if not found and not any(beside):
        raise InputError(f"no policy found; allowed are {_allowed(beside)}", source=", ".join(sources))
    return found


def _warn(imported: Imported, place: str) -> None:
    for warning in imported.warnings:
        click.echo(f"trimtab: warning: {place}: {warning}", err=True)


class _Names:
    """Which policy is from where."""

    def __init__(self) -> None:
        self._places: dict[str, str] = {}

    def add(self, imported: Imported, place: str) -> None:
        for policy in imported.policies:
            if policy.name in self._places:
                raise InputError(
                    f"is there twice: in {self._places[policy.name]} and in {place}; "
                    "policies of one name could not be told apart in the plan",
                    object=f"{KIND}/{policy.name}",
                )
            self._places[policy.name] = place


def _documents(source: str) -> list[Document]:
    from trimtab.kube.wire.documents import documents

    try:
        text = sys.stdin.buffer.read() if source == STDIN else Path(source).read_bytes()
        found = list(documents(text))
        fault = next((document.fault for document in found if document.fault is not None), None)
        if fault is not None:
            raise fault
        return found
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", source=source) from None
    except InputError as error:
        raise _located(error, source) from None


def _taken(document: Document, source: str, other: Beside) -> bool:
    """Whether a document is of another kind and has been taken."""
    return other.take(_manifest(document), source=source, place=_where(source, document.place))


def _decode(document: Document, source: str, *, beside: Sequence[Beside] = ()) -> Imported:
    manifest = _manifest(document)
    kind, version = manifest.get("kind") or document.kind, manifest.get("apiVersion")
    decode = _readers().get((str(kind), str(version)))
    if decode is None:
        this = f"{kind or 'an object without kind'} of {version or 'no apiVersion'}"
        raise InputError(f"{this} is no policy; allowed are {_allowed(beside)}")
    metadata = manifest.get("metadata")
    named = isinstance(metadata, dict) and metadata.get("name")
    return decode({**manifest, "kind": kind}, source=source if named else _where(source, document.place))


def _own(manifest: dict[str, Any], *, source: str) -> Imported:
    from trimtab.api.check import FieldError
    from trimtab.api.decode import decode_policy, read_status
    from trimtab.descheduling.imports.draft import Imported

    policy = decode_policy(manifest, source=source)
    _, problem = read_status(manifest.get("status"))
    told = (FieldError("status", f"cannot be read and counts as empty: {problem}"),) if problem else ()
    return Imported((policy,), ({key: value for key, value in manifest.items() if key != "status"},), told)


def _in_config_map(manifest: dict[str, Any], *, source: str) -> Imported:
    """The policies that a ConfigMap holds, which is where the descheduler project's live in a cluster."""
    from trimtab.api.check import FieldError
    from trimtab.api.decode import describe
    from trimtab.descheduling.imports.draft import Imported

    data = manifest.get("data")
    found = []
    for key, text in sorted(data.items()) if isinstance(data, dict) else ():
        inner = f"{source} (data[{key}])"
        try:
            each_imported = [_decode(document, inner) for document in _policies_in(text)]
        except InputError as error:
            raise _located(error, inner) from None
        for imported in each_imported:
            told = (FieldError(f"data[{key}]: {warning.field}", warning.message) for warning in imported.warnings)
            found.append(Imported(imported.policies, imported.documents, tuple(told)))
    if not found:
        raise InputError("holds no policy: no key of data has a DeschedulerPolicy", object=describe(manifest))
    return Imported(
        tuple(policy for each in found for policy in each.policies),
        tuple(document for each in found for document in each.documents),
        tuple(warning for each in found for warning in each.warnings),
    )


def _policies_in(text: Any) -> list[Document]:
    """The policies in a text, which may as well be something else.

    Raises:
        InputError: it cannot be read, and speaks of a policy.
    """
    from trimtab.kube.wire.documents import documents

    try:
        found = list(documents(text.encode())) if isinstance(text, str) else []
    except InputError:
        if KIND in text:
            raise
        return []
    return [each for each in found if _manifest(each).get("kind") == KIND]


def _manifest(document: Document) -> dict[str, Any]:
    content = document.content
    return msgspec.json.decode(content) if isinstance(content, msgspec.Raw) else dict(content)


def _readers() -> dict[tuple[str, str], Callable[..., Imported]]:
    """Kind and API version to what reads such an object."""
    from trimtab.descheduling.imports.formats import FORMATS

    return {(KIND, "trimtab.dev/v1alpha1"): _own, **FORMATS, ("ConfigMap", "v1"): _in_config_map}


def _allowed(beside: Sequence[Beside]) -> str:
    """The kinds that are read; those beside policies also, where they are."""
    also = [kind for other in beside for kind in other.kinds]
    *first, last = (f"{kind} of {version}" for kind, version in (*_readers(), *also))
    return f"{', '.join(first)} and {last}"


def _where(source: str, place: str) -> str:
    return f"{source} ({place})" if place else source


def _located(error: InputError, source: str, place: str = "") -> InputError:
    """The error with its file, and with the document's place where the object has no name."""
    if error.source and error.object:
        return error
    return InputError(error.message, source=error.source or source, object=error.object or place, field=error.field)
