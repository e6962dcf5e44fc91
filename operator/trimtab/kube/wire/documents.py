"""Cutting cluster files into objects: JSON or YAML, one document or several, plain or in lists.

JSON is cut without being decoded (``msgspec.Raw``): who reads an object decodes it once, straight into its type. That
makes reading 30,000 pods a matter of seconds. YAML has no such short cut; it becomes dictionaries first.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec
from msgspec import Struct

from trimtab.kube.errors import InputError


class Document(Struct, frozen=True):
    """One object of a file.

    Attributes:
        place: where in the file: ``items[3]``, ``document 2, items[3]``, or ``""`` for a file of one object.
        content: the object as raw JSON, or as what YAML said.
        kind: what a typed list (``PodList``) says of its items, which need not repeat it; else ``""``.
        fault: why this is no object at all, where others of the file may be; else ``None``.
    """

    place: str
    content: msgspec.Raw | Mapping[str, Any]
    kind: str = ""
    fault: InputError | None = None


class _Envelope(Struct, rename="camel", gc=False):
    kind: str = ""
    items: list[msgspec.Raw] | None = None


_ENVELOPE: Final = msgspec.json.Decoder(_Envelope)


def documents(text: bytes) -> Iterator[Document]:
    """Yield every object of a file's text.

    Raises:
        InputError: with ``field`` empty and the message naming line and column, where this is neither JSON nor YAML,
            or where a document is no object.
    """
    text = text.removeprefix(b"\xef\xbb\xbf")
    try:
        yield from _json_documents(text) if text.lstrip()[:1] == b"{" else _yaml_documents(text)
    except RecursionError:
        raise InputError("is nested too deeply to be read") from None


def _json_documents(text: bytes) -> Iterator[Document]:
    try:
        msgspec.json.decode(text, type=msgspec.Raw)
    except msgspec.DecodeError as error:
        # Several documents one after the other, or a YAML mapping in braces: both are rare and may be slow.
        try:
            parts = _concatenated(text.decode())
        except (json.JSONDecodeError, UnicodeDecodeError):
            yield from _braces(text, error)
            return
        for number, part in enumerate(parts, 1):
            yield from _json_items(part, f"document {number}" if len(parts) > 1 else "")
    else:
        yield from _json_items(text, "")


def _braces(text: bytes, error: Exception) -> list[Document]:
    """The documents of a text that begins as JSON does, but is none: YAML perhaps."""
    try:
        found = list(_yaml_documents(text))
    except InputError:
        found = []
    if not any(document.fault is None for document in found):
        raise InputError(f"is not JSON: {error}")
    return found


def _concatenated(text: str) -> list[bytes]:
    """Cut JSON documents that follow each other, with or without white space between."""
    decoder = json.JSONDecoder(parse_constant=_no_number)
    parts = []
    start = _skip_space(text, 0)
    while start < len(text):
        _, end = decoder.raw_decode(text, start)
        parts.append(text[start:end].encode())
        start = _skip_space(text, end)
    return parts


def _no_number(name: str) -> float:
    """Refuse Infinity and NaN, which Python takes for JSON."""
    raise json.JSONDecodeError(f"{name} is no number", name, 0)


def _skip_space(text: str, start: int) -> int:
    while start < len(text) and text[start].isspace():
        start += 1
    return start


def _json_items(text: bytes, place: str) -> Iterator[Document]:
    try:
        envelope = _ENVELOPE.decode(text)
    except msgspec.ValidationError as error:
        try:
            content = msgspec.json.decode(text)
        except msgspec.DecodeError:
            content = None
        if not isinstance(content, dict) or _is_list(content.get("kind"), content.get("items")):
            raise _not_an_object(place, str(error)) from None
        yield Document(place, msgspec.Raw(text))  # an object that is wrong in itself: not the file's fault
        return
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InputError(f"is not JSON: {error}") from None
    if not _is_list(envelope.kind, envelope.items):
        yield Document(place, msgspec.Raw(text))
        return
    for index, item in enumerate(envelope.items or ()):
        yield Document(_item_place(place, index), item, _item_kind(envelope.kind))


def _yaml_documents(text: bytes) -> Iterator[Document]:
    from trimtab.kube.wire.strict_yaml import load_all

    loaded = [content for content in load_all(text) if content is not None]
    for number, content in enumerate(loaded, 1):
        place = f"document {number}" if len(loaded) > 1 else ""
        if isinstance(content, dict):
            yield from _yaml_items(content, place)
        else:
            yield _no_object(place, f"it is a {type(content).__name__}")


def _yaml_items(content: dict[str, Any], place: str) -> Iterator[Document]:
    kind, items = content.get("kind"), content.get("items")
    if not _is_list(kind, items):
        yield Document(place, content)
        return
    if not isinstance(items, list | None):
        raise _not_an_object(place, "items is no list")
    for index, item in enumerate(items or ()):
        if isinstance(item, dict):
            yield Document(_item_place(place, index), item, _item_kind(str(kind)))
        else:
            yield _no_object(_item_place(place, index), f"it is a {type(item).__name__}")


def _is_list(kind: Any, items: Any) -> bool:
    """Whether this is a list: ``items`` alone does not make one, a custom resource may have a field of that name."""
    return isinstance(kind, str) and kind.endswith("List") and (items is not None or kind == "List")


def _item_kind(kind: str) -> str:
    return kind.removesuffix("List")


def _item_place(place: str, index: int) -> str:
    return f"{place}, items[{index}]" if place else f"items[{index}]"


def _no_object(place: str, why: str) -> Document:
    return Document(place, {}, fault=_not_an_object(place, why))


def _not_an_object(place: str, why: str) -> InputError:
    what = "holds no Kubernetes object" if not place else f"{place} is no Kubernetes object"
    return InputError(f"{what} ({why.replace('`', '')}): allowed is a mapping with apiVersion, kind and metadata")
