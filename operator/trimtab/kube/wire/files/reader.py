"""Reads objects from files: the output of ``kubectl get nodes,pods,… -A -o json``, in a file, a folder or an archive.

Files may be written by hand, so the objects are validated (:mod:`trimtab.kube.wire.validation`). Each error names the
file, the object and the field. The caller decides whether to stop at the first error or to skip invalid objects.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, Final

import msgspec
from msgspec import Struct

from trimtab.kube.errors import InputError
from trimtab.kube.objects import KubeObject
from trimtab.kube.wire.decode import decode_json, decode_object
from trimtab.kube.wire.files.archives import texts
from trimtab.kube.wire.files.documents import Document, documents
from trimtab.kube.wire.identity import ObjectIdentity, decode_identity
from trimtab.kube.wire.intern import Interner

STDIN: Final = "-"

OnInvalid = Callable[[InputError], None]

OnObject = Callable[[ObjectIdentity, msgspec.Raw | Mapping[str, Any]], bool]
"""Called with each valid object as JSON or decoded YAML. Returns whether the caller uses the object."""

OnUntyped = Callable[[msgspec.Raw | Mapping[str, Any]], bool]
"""Called with each document that has no kind, for example a kubelet's summary. Returns whether the caller uses it."""


class ClusterObjects(Struct, frozen=True):
    """The objects of a file, in the file's order.

    Attributes:
        objects: the objects of kinds that have a type.
        others: the manifests of other kinds in ``keep_kinds``.
    """

    objects: tuple[KubeObject, ...] = ()
    others: tuple[Mapping[str, Any], ...] = ()


def read_objects(
    source: Path | str | BinaryIO,
    *,
    skip_invalid: OnInvalid | None = None,
    keep_kinds: Collection[str] = (),
    interner: Interner | None = None,
    on_object: OnObject | None = None,
    on_untyped: OnUntyped | None = None,
) -> ClusterObjects:
    """Read the objects in a file, in all JSON and YAML files of a folder or an archive, or in a stream.

    Args:
        source: a path, or a stream of bytes such as ``sys.stdin.buffer``.
        skip_invalid: called with the error of each invalid object, which is then skipped. By default the first such
            error is raised.
        keep_kinds: the kinds without a type whose manifests are returned in ``others``, e.g. ``{"NodeMetrics"}``.
        interner: shares identical values with other objects.
        on_object: called with each object, whatever its kind, for callers that need other fields than the types have.
        on_untyped: called with each document without a kind. By default such documents are invalid.

    Raises:
        InputError: an object is invalid or a duplicate and ``skip_invalid`` is not given, or a file cannot be read or
            is neither JSON nor YAML.
    """
    reader = _Reader(
        skip_invalid=skip_invalid,
        keep_kinds=keep_kinds,
        interner=interner or Interner(),
        on_object=on_object,
        on_untyped=on_untyped,
    )
    for name, text in _texts(source):
        reader.read(name, text)
    return ClusterObjects(objects=tuple(reader.objects), others=tuple(reader.others))


def read_documents(source: Path | str | BinaryIO) -> Iterator[tuple[str, Document]]:
    """Yield the documents in a file, in all JSON and YAML files of a folder or an archive, or in a stream, undecoded.

    Each document has the name of its file. The caller checks :attr:`Document.fault`.

    Raises:
        InputError: a file cannot be read or is neither JSON nor YAML.
    """
    for name, text in _texts(source):
        try:
            for document in documents(text):
                yield name, document
        except InputError as error:
            raise _located(error, name) from None


def _texts(source: Path | str | BinaryIO) -> Iterator[tuple[str, bytes]]:
    """Yield the name and content of each file, sorted by name."""
    if not isinstance(source, (str, Path)):
        name = getattr(source, "name", STDIN)
        yield (name if isinstance(name, str) and not name.startswith("<") else STDIN), source.read()
        return
    try:
        yield from texts(Path(source))
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", source=str(error.filename or source)) from None


class _Reader:
    """Collects objects from several files and rejects duplicates."""

    def __init__(
        self,
        *,
        skip_invalid: OnInvalid | None,
        keep_kinds: Collection[str],
        interner: Interner,
        on_object: OnObject | None,
        on_untyped: OnUntyped | None,
    ) -> None:
        self.objects: list[KubeObject] = []
        self.others: list[Mapping[str, Any]] = []
        self._skip_invalid = skip_invalid
        self._keep_kinds = keep_kinds
        self._interner = interner
        self._on_object = on_object
        self._on_untyped = on_untyped
        self._places: dict[tuple[str, str], tuple[str, str]] = {}
        self._revisions: dict[tuple[str, str], tuple[str, str] | None] = {}

    def read(self, source: str, text: bytes) -> None:
        try:
            for document in documents(text):
                self._read_document(source, document)
        except InputError as error:
            raise _located(error, source) from None

    def _read_document(self, source: str, document: Document) -> None:
        try:
            if document.fault is not None:
                raise document.fault
            identity = self._identity(document)
            if identity is None:
                return
            name = identity.type_name
            if self._is_copy(name or str(identity.kind), identity, source, document.place):
                return
            if name:
                value = self._decode(name, identity, document)
                self._check_twice(name, identity, source, document.place)
                self.objects.append(value)
            elif identity.kind in self._keep_kinds:
                self._check_twice(identity.kind, identity, source, document.place)
                self.others.append(_manifest(document))
            if self._on_object is not None and self._on_object(identity, document.content):
                self._check_twice(name or identity.kind, identity, source, document.place)
        except InputError as error:
            located = _located(
                error, source, "" if error is document.fault else document.place
            )  # a fault contains its place
            if self._skip_invalid is None:
                raise located from None
            self._skip_invalid(located)

    def _identity(self, document: Document) -> ObjectIdentity | None:
        """Return the identity of an object, or ``None`` if the caller uses the document, which has no kind."""
        if isinstance(document.content, msgspec.Raw):
            identity = decode_identity(document.content)
        else:
            identity = msgspec.convert(document.content, ObjectIdentity)
        if not identity.kind and document.kind:
            identity.kind = document.kind
        if not identity.kind and self._on_untyped is not None and self._on_untyped(document.content):
            return None
        if not identity.kind or not isinstance(identity.kind, str):
            raise InputError("is required: an object has apiVersion, kind and metadata", field="kind")
        return identity

    def _decode(self, name: str, identity: ObjectIdentity, document: Document) -> KubeObject:
        if isinstance(document.content, msgspec.Raw):
            value = decode_json(name, document.content, interner=self._interner, validated=True)
            return identity.adjusted_to_version(value)
        manifest = {**document.content, "kind": identity.kind}
        decoded = decode_object(manifest, interner=self._interner, validated=True)
        assert decoded is not None
        return decoded

    def _is_copy(self, type_name: str, identity: ObjectIdentity, source: str, place: str) -> bool:
        """Return whether the same version of the object was read from another place.

        ``oc adm inspect`` stores each pod twice.
        """
        key = (type_name, identity.name)
        first = self._places.get(key, (source, place))
        return first != (source, place) and bool(identity.revision) and identity.revision == self._revisions[key]

    def _check_twice(self, type_name: str, identity: ObjectIdentity, source: str, place: str) -> None:
        first = self._places.setdefault((type_name, identity.name), (source, place))
        self._revisions.setdefault((type_name, identity.name), identity.revision)
        if first != (source, place):
            raise InputError(
                f"is a duplicate: in {_where(*first)} and in {_where(source, place)}; keep one", object=identity.label
            )


def _where(source: str, place: str) -> str:
    return f"{source} ({place})" if place else source


def _manifest(document: Document) -> Mapping[str, Any]:
    if isinstance(document.content, msgspec.Raw):
        manifest = msgspec.json.decode(document.content)
        assert isinstance(manifest, dict)
    else:
        manifest = dict(document.content)
    return manifest if manifest.get("kind") else {**manifest, "kind": document.kind}


def _located(error: InputError, source: str, place: str = "") -> InputError:
    """Add the file to an error, and the place in the file if the object has no name."""
    if error.source:
        return error
    named = "/" in error.object
    return InputError(
        error.message,
        source=source,
        object=error.object if named or not place else f"{place} {error.object}".strip(),
        field=error.field,
    )
