"""Policies from files: ours, and those of the upstream descheduler."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from trimtab.cli.errors import Skipping
from trimtab.cli.options import STDIN
from trimtab.kube.errors import InputError

if TYPE_CHECKING:
    from trimtab.api.descheduler_policy import DeschedulerPolicy
    from trimtab.kube.wire.documents import Document

KIND: Final = "DeschedulerPolicy"


def load_policies(sources: Sequence[str], *, skip_invalid: bool = False) -> tuple[DeschedulerPolicy, ...]:
    """The policies of files, in the order of their names, so that the order of files and documents has no say.

    Args:
        sources: files, or ``-`` for standard input.
        skip_invalid: report documents that cannot be used and go on, instead of raising.

    Raises:
        InputError: a file, a document or a field cannot be used, two policies have one name, or there is none.
    """
    found = _Policies()
    skipping = Skipping() if skip_invalid else None
    for source in sources:
        for document in _documents(source):
            try:
                found.add(_decode(document, source), _where(source, document.place))
            except InputError as error:
                located = _located(error, source, document.place)
                if skipping is None:
                    raise located from None
                skipping(located)
    if not found.policies:
        raise InputError(f"no policy to plan by; allowed are {_allowed()}", source=", ".join(sources))
    return tuple(found.policies[name] for name in sorted(found.policies))


class _Policies:
    """Policies by name, and where each is from."""

    def __init__(self) -> None:
        self.policies: dict[str, DeschedulerPolicy] = {}
        self._places: dict[str, str] = {}

    def add(self, policy: DeschedulerPolicy, place: str) -> None:
        if policy.name in self.policies:
            raise InputError(
                f"is there twice: in {self._places[policy.name]} and in {place}; "
                "policies of one name could not be told apart in the plan",
                object=f"{KIND}/{policy.name}",
            )
        self.policies[policy.name] = policy
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


def _decode(document: Document, source: str) -> DeschedulerPolicy:
    content = document.content
    manifest: dict[str, Any] = msgspec.json.decode(content) if isinstance(content, msgspec.Raw) else dict(content)
    kind, version = manifest.get("kind") or document.kind, manifest.get("apiVersion")
    decode = _DECODERS.get(str(version)) if kind == KIND else None
    if decode is None:
        this = f"{kind or 'an object without kind'} of {version or 'no apiVersion'}"
        raise InputError(f"{this} is no policy; allowed are {_allowed()}")
    metadata = manifest.get("metadata")
    named = isinstance(metadata, dict) and metadata.get("name")
    return decode({**manifest, "kind": kind}, source if named else _where(source, document.place))


def _own(manifest: dict[str, Any], source: str) -> DeschedulerPolicy:
    from trimtab.api.decode import decode_policy

    return decode_policy(manifest, source=source)


def _upstream_v1alpha1(manifest: dict[str, Any], source: str) -> DeschedulerPolicy:
    from trimtab.descheduling.imports.v1alpha1 import import_policy

    return import_policy(manifest, source=source)


_DECODERS: Final[dict[str, Callable[[dict[str, Any], str], DeschedulerPolicy]]] = {
    "trimtab.dev/v1alpha1": _own,
    "descheduler/v1alpha1": _upstream_v1alpha1,
}
"""API version to what reads its DeschedulerPolicy; a further format is one more line."""


def _allowed() -> str:
    return " and ".join(f"{KIND} of {version}" for version in _DECODERS)


def _where(source: str, place: str) -> str:
    return f"{source} ({place})" if place else source


def _located(error: InputError, source: str, place: str = "") -> InputError:
    """The error with its file, and with the document's place where the object has no name."""
    if error.source and error.object:
        return error
    return InputError(error.message, source=error.source or source, object=error.object or place, field=error.field)
