"""An API server in memory, behind the `Api` seam: objects with resource versions, conflicts, scripted failures.

It keeps what optimistic concurrency needs (resourceVersion, uid, 404, 409) and leaves out validation and selectors.
"""

from __future__ import annotations

import copy
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from trimtab.kube.api import Conflict, NotFound, Unreachable


@dataclass
class Call:
    """One request as it came in."""

    method: str
    path: str
    params: dict[str, str]
    body: Any
    content_type: str
    accept: str = ""


@dataclass
class Fault:
    error: Exception
    times: int
    method: str
    path: str

    def hits(self, method: str, path: str) -> bool:
        return self.times > 0 and self.method in ("", method) and self.path in path


@dataclass
class FakeApi:
    """Implements `trimtab.kube.api.Api`.

    `down` makes every request Unreachable; `fail()` scripts failures; `before` runs ahead of each request (to wait,
    to change something in between); `calls` has what came in. `may` answers access reviews of the user, `account_may`
    those of another account, by its name.
    """

    objects: dict[str, dict[str, Any]] = field(default_factory=dict)
    calls: list[Call] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    before: Callable[[Call], Awaitable[None]] | None = None
    after: Callable[[Call], Awaitable[None]] | None = None
    down: bool = False
    may: Callable[[dict[str, str]], bool] | None = None
    account_may: Callable[[str, dict[str, str]], bool] | None = None
    chunks: dict[str, list[bytes]] = field(default_factory=dict)
    _version: int = 0

    def fail(self, error: Exception, *, times: int = 1, method: str = "", path: str = "") -> None:
        self.faults.append(Fault(error, times, method, path))

    def sent(self, method: str = "", path: str = "") -> list[Call]:
        return [call for call in self.calls if method in ("", call.method) and path in call.path]

    def put(self, path: str, obj: Mapping[str, Any]) -> dict[str, Any]:
        """Store an object behind the callers' backs."""
        return self._store(path, copy.deepcopy(dict(obj)))

    async def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: Any = None,
        content_type: str = "application/json",
        accept: str = "",
        timeout: float = 30.0,
        leading: Callable[[], bool] | None = None,
    ) -> Any:
        call = Call(method, path, dict(params or {}), copy.deepcopy(body), content_type, accept)
        self.calls.append(call)
        if self.before is not None:
            await self.before(call)
        if self.down:
            raise Unreachable(f"{method} {path}: the fake is down")
        for fault in self.faults:
            if fault.hits(method, path):
                fault.times -= 1
                raise fault.error
        answer = copy.deepcopy(self._answer(copy.deepcopy(call)))
        if self.after is not None:
            await self.after(call)
        return answer

    @asynccontextmanager
    async def stream(
        self,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        accept: str = "application/json",
        idle_timeout: float = 60.0,
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        self.calls.append(Call("WATCH", path, dict(params or {}), None, accept))
        if self.down:
            raise Unreachable(f"WATCH {path}: the fake is down")

        async def chunks() -> AsyncIterator[bytes]:
            for chunk in self.chunks.get(path, []):
                yield chunk

        yield chunks()

    def _answer(self, call: Call) -> Any:
        match call.method:
            case "POST" if call.path.endswith("/eviction"):
                return self._evict(call)
            case "POST" if call.path.endswith("subjectaccessreviews"):
                return {**call.body, "status": {"allowed": self._may(call.body)}}
            case "POST":
                return self._create(call)
            case "GET":
                return self._get(call.path)
            case "PUT":
                return self._replace(call.path, call.body)
            case "PATCH":
                return self._patch(call)
            case "DELETE":
                return self.objects.pop(self._existing(call.path))
        raise AssertionError(f"the fake knows no {call.method}")

    def _may(self, review: dict[str, Any]) -> bool:
        spec = review["spec"]
        if "user" in spec:
            return self.account_may is None or self.account_may(spec["user"], spec["resourceAttributes"])
        return self.may is None or self.may(spec["resourceAttributes"])

    def _existing(self, path: str) -> str:
        if path not in self.objects:
            raise NotFound(f'"{path}" not found', status=404, reason="NotFound")
        return path

    def _get(self, path: str) -> Any:
        if _is_collection(path):
            items = [obj for at, obj in self.objects.items() if in_collection(path, at)]
            return {"kind": "List", "metadata": {"resourceVersion": str(self._version)}, "items": items}
        return self.objects[self._existing(path)]

    def _create(self, call: Call) -> Any:
        obj = call.body
        metadata = obj.setdefault("metadata", {})
        if "name" not in metadata:
            metadata["name"] = metadata["generateName"] + uuid.uuid4().hex[:5]
        path = f"{call.path}/{metadata['name']}"
        if path in self.objects:
            raise Conflict(f'"{metadata["name"]}" already exists', status=409, reason="AlreadyExists")
        return self._store(path, obj)

    def _replace(self, path: str, obj: dict[str, Any]) -> Any:
        stored = self.objects[self._existing(path)]
        wanted = obj["metadata"].get("resourceVersion")
        if wanted is not None and wanted != stored["metadata"]["resourceVersion"]:
            raise Conflict("the object has been modified", status=409, reason="Conflict")
        return self._store(path, obj)

    def _patch(self, call: Call) -> Any:
        path = call.path.removesuffix("/status")
        if call.content_type == "application/apply-patch+yaml" and path not in self.objects:
            return self._store(path, call.body)
        assert isinstance(call.body, dict), "the fake knows merge patch and apply only"
        stored = self.objects[self._existing(path)]
        wanted = call.body.get("metadata", {}).get("resourceVersion")
        if wanted is not None and wanted != stored["metadata"]["resourceVersion"]:
            raise Conflict("the object has been modified", status=409, reason="Conflict")
        return self._store(path, merged(stored, call.body))

    def _evict(self, call: Call) -> Any:
        path = self._existing(call.path.removesuffix("/eviction"))
        uid = call.body["deleteOptions"]["preconditions"]["uid"]
        actual = self.objects[path]["metadata"]["uid"]
        if uid != actual:
            message = f"Precondition failed: UID in precondition: {uid}, UID in object meta: {actual}"
            raise Conflict(message, status=409, reason="Conflict")
        if "dryRun" not in call.params:
            del self.objects[path]
        return {"kind": "Status", "status": "Success"}

    def _store(self, path: str, obj: dict[str, Any]) -> dict[str, Any]:
        self._version += 1
        metadata = obj.setdefault("metadata", {})
        metadata["resourceVersion"] = str(self._version)
        metadata.setdefault("uid", str(uuid.uuid4()))
        self.objects[path] = obj
        return obj


def _parts(path: str) -> list[str]:
    """What comes after the group and version, without the namespace: plural, name, subresource."""
    parts = path.strip("/").split("/")
    parts = parts[2:] if parts[0] == "api" else parts[3:]
    return parts[2:] if parts[:1] == ["namespaces"] and len(parts) > 2 else parts


def _is_collection(path: str) -> bool:
    return len(_parts(path)) == 1


def in_collection(path: str, at: str) -> bool:
    """Whether the object at `at` is in the collection at `path`, of one namespace or of all."""
    group = path.removesuffix(_parts(path)[0])
    return at.startswith((f"{path}/", f"{group}namespaces/")) and _parts(at)[:1] == _parts(path)


def merged(target: Any, patch: Any) -> Any:
    """Apply a JSON merge patch."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key), value)
    return result
