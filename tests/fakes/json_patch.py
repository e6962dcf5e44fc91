"""JSON patches (RFC 6902) as an API server carries them out."""

from __future__ import annotations

from typing import Any

from trimtab.kube.api import Invalid


def patch(found: dict[str, Any], operations: list[dict[str, Any]]) -> dict[str, Any]:
    """RFC 6902 as an API server has it: a test against null holds where there is nothing."""
    for each in operations:
        *parents, key = (part.replace("~1", "/").replace("~0", "~") for part in each["path"].split("/")[1:])
        place: Any = found
        for parent in parents:
            place = _child(place, parent)
            if place is None:
                raise Invalid(f"no such path: {each['path']}", status=422, reason="Invalid")
        if each["op"] == "test":
            if _child(place, key) != each["value"]:
                raise Invalid("the test did not hold", status=422, reason="Invalid")
        elif each["op"] == "add":
            if isinstance(place, list):
                place.insert(len(place) if key == "-" else int(key), each["value"])
            else:
                place[key] = each["value"]
        elif _child(place, key) is None:
            raise Invalid(f"nothing to remove: {each['path']}", status=422, reason="Invalid")
        else:
            del place[int(key) if isinstance(place, list) else key]
    return found


def _child(place: Any, key: str) -> Any:
    if isinstance(place, list):
        return place[int(key)] if int(key) < len(place) else None
    return place.get(key)
