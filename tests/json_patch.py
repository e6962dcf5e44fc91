"""Applies JSON patches (RFC 6902) as kube-apiserver does."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any

import msgspec

from trimtab.admission.requests import PatchOperation


def apply_patch(document: Any, patch: bytes | Iterable[PatchOperation]) -> Any:
    """Return a patched copy of a document. A path with a missing parent is an error. No bytes are an empty patch."""
    document = copy.deepcopy(document)
    encoded = (patch or b"[]") if isinstance(patch, bytes) else msgspec.json.encode(list(patch))
    for operation in msgspec.json.decode(encoded):
        *parents, last = [part.replace("~1", "/").replace("~0", "~") for part in operation["path"].split("/")[1:]]
        at = document
        for part in parents:
            at = at[int(part)] if isinstance(at, list) else at[part]
        if isinstance(at, list):
            index = len(at) if last == "-" else int(last)
            assert 0 <= index <= len(at) - (operation["op"] != "add"), operation
            if operation["op"] == "add":
                at.insert(index, operation["value"])
            else:
                del at[index]
        elif operation["op"] == "add":
            assert isinstance(at, dict), operation
            at[last] = operation["value"]
        else:
            del at[last]
    return document
