"""Splits files into objects: JSON or YAML, one or several documents, single objects or lists.

JSON is split without decoding it (``msgspec.Raw``). So each object is decoded only once, directly into its type, and
30,000 pods are read in seconds. YAML is first decoded into dictionaries.
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
        place: the position in the file: ``items[3]``, ``document 2, items[3]``, or ``""`` for a file with one object.
        content: the object as raw JSON, or as decoded YAML.
        kind: the kind of the items of a typed list (``PodList``), because the items may omit it, otherwise ``""``.
        fault: why this document is not an object, or ``None`` if it is one.
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
    """Yield the objects in the content of a file.

    Raises:
        InputError: the content is neither JSON nor YAML (the message has line and column), or a document is not an
            object.
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
        # These are several concatenated documents, or a YAML mapping in braces. Both are rare and may be slow.
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
    """Return the documents of a file that starts like JSON but is not valid JSON. It may be YAML."""
    try:
        found = list(_yaml_documents(text))
    except InputError:
        found = []
    if not any(document.fault is None for document in found):
        raise InputError(f"is not JSON: {error}")
    return found


def _concatenated(text: str) -> list[bytes]:
    """Split concatenated JSON documents, with or without white space between them."""
    decoder = json.JSONDecoder(parse_constant=_no_number)
    parts = []
    start = _skip_space(text, 0)
    while start < len(text):
        _, end = decoder.raw_decode(text, start)
        parts.append(text[start:end].encode())
        start = _skip_space(text, end)
    return parts


def _no_number(name: str) -> float:
    """Reject Infinity and NaN, which Python accepts as JSON."""
    raise json.JSONDecodeError(f"{name} is not a number", name, 0)


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
        yield Document(place, msgspec.Raw(text))  # the decoder reports the invalid object
        return
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InputError(f"is not JSON: {error}") from None
    if not _is_list(envelope.kind, envelope.items):
        yield Document(place, msgspec.Raw(text))
        return
    for index, item in enumerate(envelope.items or ()):
        yield Document(_item_place(place, index), item, _item_kind(envelope.kind))


def _yaml_documents(text: bytes) -> Iterator[Document]:
    from trimtab.kube.wire.files.strict_yaml import load_all

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
        raise _not_an_object(place, "items is not a list")
    for index, item in enumerate(items or ()):
        if isinstance(item, dict):
            yield Document(_item_place(place, index), item, _item_kind(str(kind)))
        else:
            yield _no_object(_item_place(place, index), f"it is a {type(item).__name__}")


def _is_list(kind: Any, items: Any) -> bool:
    """Return whether this is a list.

    The field ``items`` alone is not sufficient, because a custom resource may also have it.
    """
    return isinstance(kind, str) and kind.endswith("List") and (items is not None or kind == "List")


def _item_kind(kind: str) -> str:
    return kind.removesuffix("List")


def _item_place(place: str, index: int) -> str:
    return f"{place}, items[{index}]" if place else f"items[{index}]"


def _no_object(place: str, why: str) -> Document:
    return Document(place, {}, fault=_not_an_object(place, why))


def _not_an_object(place: str, why: str) -> InputError:
    what = "does not hold a Kubernetes object" if not place else f"{place} is not a Kubernetes object"
    return InputError(f"{what} ({why.replace('`', '')}): allowed is a mapping with apiVersion, kind and metadata")
