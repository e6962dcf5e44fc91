"""Reading clusters from files: what ``kubectl get nodes,pods,… -A -o json`` prints, in one file, several, or a folder.

No API server stands between a file and its reader, so objects are checked here as one would check them; see
:mod:`trimtab.kube.wire.validation`. Problems are told one by one, each naming file, object and field, so that a reader
may either stop at the first or leave broken objects out and go on.
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
from trimtab.kube.wire.documents import Document, documents
from trimtab.kube.wire.head import Head, decode_head
from trimtab.kube.wire.intern import Interner
from trimtab.kube.wire.validation import Validator

SUFFIXES: Final = (".json", ".yaml", ".yml")
"""Files of a folder that are read; others are none of ours."""

STDIN: Final = "-"

OnInvalid = Callable[[InputError], None]


class ClusterObjects(Struct, frozen=True):
    """What a file held, in the file's order.

    Attributes:
        objects: of the kinds that have types.
        others: manifests of the other kinds that were asked for.
    """

    objects: tuple[KubeObject, ...] = ()
    others: tuple[Mapping[str, Any], ...] = ()


def read_objects(
    source: Path | str | BinaryIO,
    *,
    skip_invalid: OnInvalid | None = None,
    keep_kinds: Collection[str] = (),
    interner: Interner | None = None,
) -> ClusterObjects:
    """Read the objects of a file, of all JSON and YAML files of a folder and its folders, or of a stream.

    Args:
        source: a path, or a stream of bytes such as ``sys.stdin.buffer``.
        skip_invalid: called with what is wrong with an object, which is then left out; without it the first such
            error is raised.
        keep_kinds: kinds without a type whose manifests to keep, e.g. ``{"NodeMetrics"}``.
        interner: shares equal values with those read elsewhere.

    Raises:
        InputError: naming file, object and field, where an object cannot be used or is there twice (unless skipped),
            and always where a file cannot be read or is neither JSON nor YAML.
    """
    reader = _Reader(skip_invalid=skip_invalid, keep_kinds=keep_kinds, interner=interner or Interner())
    for name, text in _texts(source):
        reader.read(name, text)
    return ClusterObjects(objects=tuple(reader.objects), others=tuple(reader.others))


def _texts(source: Path | str | BinaryIO) -> Iterator[tuple[str, bytes]]:
    """The files' names, as the user wrote them, and what is in them; in the order of their names."""
    if not isinstance(source, (str, Path)):
        name = getattr(source, "name", STDIN)
        yield (name if isinstance(name, str) and not name.startswith("<") else STDIN), source.read()
        return
    root = Path(source)
    try:
        if not root.is_dir():
            yield str(source), root.read_bytes()
            return
        paths = sorted(path for path in root.rglob("*") if path.suffix in SUFFIXES and path.is_file())
        if not paths:
            raise InputError(f"holds no file ending in {', '.join(SUFFIXES)}", source=str(source))
        for path in paths:
            yield str(path), path.read_bytes()
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", source=str(error.filename or source)) from None


class _Reader:
    """Collects objects over several files and sees that none is there twice."""

    def __init__(self, *, skip_invalid: OnInvalid | None, keep_kinds: Collection[str], interner: Interner) -> None:
        self.objects: list[KubeObject] = []
        self.others: list[Mapping[str, Any]] = []
        self._skip_invalid = skip_invalid
        self._keep_kinds = keep_kinds
        self._interner = interner
        self._validator = Validator()
        self._places: dict[tuple[str, str], tuple[str, str]] = {}

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
            head = self._head(document)
            name = head.type_name
            if name:
                value = self._decode(name, head, document)
                self._check_twice(name, head, source, document.place)
                self.objects.append(value)
            elif head.kind in self._keep_kinds:
                self._check_twice(head.kind, head, source, document.place)
                self.others.append(_manifest(document))
        except InputError as error:
            located = _located(error, source, "" if error is document.fault else document.place)  # a fault says where
            if self._skip_invalid is None:
                raise located from None
            self._skip_invalid(located)

    @staticmethod
    def _head(document: Document) -> Head:
        if isinstance(document.content, msgspec.Raw):
            head = decode_head(document.content)
        else:
            head = msgspec.convert(document.content, Head)
        if not head.kind and document.kind:
            head.kind = document.kind
        if not head.kind or not isinstance(head.kind, str):
            raise InputError("is required: an object has apiVersion, kind and metadata", field="kind")
        return head

    def _decode(self, name: str, head: Head, document: Document) -> KubeObject:
        if isinstance(document.content, msgspec.Raw):
            value = decode_json(name, document.content, interner=self._interner, validator=self._validator)
            return head.settled(value)
        manifest = {**document.content, "kind": head.kind}
        decoded = decode_object(manifest, interner=self._interner, validator=self._validator)
        assert decoded is not None
        return decoded

    def _check_twice(self, type_name: str, head: Head, source: str, place: str) -> None:
        first = self._places.setdefault((type_name, head.name), (source, place))
        if first != (source, place):
            raise InputError(
                f"is there twice: in {_where(*first)} and in {_where(source, place)}; keep one", object=head.label
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
    """The error with its file, and with its place in the file where the object has no name to be found by."""
    if error.source:
        return error
    named = "/" in error.object
    return InputError(
        error.message,
        source=source,
        object=error.object if named or not place else f"{place} {error.object}".strip(),
        field=error.field,
    )
