"""Measures filling a store through the informer from a protobuf WatchList: decoding, projecting and storing.

No network is used. The frames are generated while they are read, so the peak memory is that of the store, and the time
for generating them is subtracted. The first argument is the number of pods. With the second argument ``n``, every
``n``-th pod has its own spec, like pods of DaemonSets (which name their node) and of StatefulSets with claims.
"""

from __future__ import annotations

import asyncio
import gc
import json
import resource
import sys
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from msgspec import Struct

from trimtab.kube.resources import PODS
from trimtab.kube.watching.informer import Informer
from trimtab.kube.watching.store import Store
from trimtab.kube.wire import slim_pb2
from trimtab.kube.wire.codec import INITIAL_EVENTS_END

CHUNK = 1 << 18
CONDITIONS = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")


class Result(Struct, frozen=True):
    """CPU seconds without the generation of frames, bytes read, and pods in the store."""

    seconds: float
    read: int
    pods: int


def pod(number: int, *, owner_size: int = 20, own_spec: bool = False) -> slim_pb2.Pod:
    """Return a running pod of a ReplicaSet of ``owner_size``.

    If it has its own spec, node affinity binds it to its node.
    """
    owner = number // owner_size
    message = slim_pb2.Pod()
    metadata, spec, status = message.metadata, message.spec, message.status
    metadata.name = f"web-{owner}-6d4b75cb6d-{number:05x}"
    metadata.namespace = f"team-{owner % 50}"
    metadata.uid = f"{number:08x}-aaaa-bbbb-cccc-{number:012x}"
    metadata.resource_version = str(1_000_000 + number)
    metadata.creation_timestamp.seconds = 1_795_000_000 + number
    metadata.labels.update({"app": f"web-{owner}", "pod-template-hash": "6d4b75cb6d"})
    metadata.owner_references.add(
        kind="ReplicaSet", name=f"web-{owner}", uid=f"{owner:08x}-dddd", api_version="apps/v1", controller=True
    )
    spec.node_name = f"node-{number % 5000}"
    container = spec.containers.add(name="main", image="registry.example/app:1")
    container.resources.requests["cpu"].string = "100m"
    container.resources.requests["memory"].string = "128Mi"
    for key in ("not-ready", "unreachable"):
        spec.tolerations.add(
            key=f"node.kubernetes.io/{key}", operator="Exists", effect="NoExecute", toleration_seconds=300
        )
    if own_spec:
        term = spec.affinity.node_affinity.required.node_selector_terms.add()
        term.match_fields.add(key="metadata.name", operator="In", values=[f"node-{number}"])
    status.phase, status.qos_class = "Running", "Burstable"
    status.start_time.seconds = 1_795_000_001 + number
    for kind in CONDITIONS:
        condition = status.conditions.add(type=kind, status="True")
        condition.last_transition_time.seconds = 1_795_000_005 + number
    status.container_statuses.add(name="main", restart_count=number % 3).state.SetInParent()
    return message


def frame(event: str, kind: str, raw: bytes) -> bytes:
    """Return one frame of a watch."""
    unknown = slim_pb2.Unknown(raw=raw)
    unknown.type_meta.kind = kind
    watch = slim_pb2.WatchEvent(type=event)
    watch.object.raw = b"k8s\0" + unknown.SerializeToString()
    body = watch.SerializeToString()
    return len(body).to_bytes(4, "big") + body


def stream(pods: int, every: int = 0) -> Iterator[bytes]:
    """Yield the chunks of a WatchList with the given number of pods, every ``every``-th with its own spec."""
    chunk = bytearray()
    for number in range(pods):
        chunk += frame("ADDED", "Pod", pod(number, own_spec=bool(every) and number % every == 0).SerializeToString())
        if len(chunk) >= CHUNK:
            yield bytes(chunk)
            chunk.clear()
    end = slim_pb2.PartialObject()
    end.metadata.resource_version = "2000000"
    end.metadata.annotations[INITIAL_EVENTS_END] = "true"
    yield bytes(chunk) + frame("BOOKMARK", "Pod", end.SerializeToString())


class _Stream:
    """An :class:`~trimtab.kube.api.Api` that streams pods and measures the time for generating them."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self.chunks = chunks
        self.making = 0.0

    async def request(self, *_args: Any, **_options: Any) -> Any:
        raise NotImplementedError

    @asynccontextmanager
    async def stream(
        self,
        path: str,  # noqa: ARG002
        *,
        params: Mapping[str, str] | None = None,  # noqa: ARG002
        accept: str = "",  # noqa: ARG002
        idle_timeout: float = 60.0,  # noqa: ARG002
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        yield self._chunks()

    async def _chunks(self) -> AsyncIterator[bytes]:
        while True:
            began = time.process_time()
            chunk = next(self.chunks, None)
            self.making += time.process_time() - began
            if chunk is None:
                await asyncio.Event().wait()
            else:
                yield chunk


async def fill(pods: int, every: int = 0) -> tuple[Result, Store[Any]]:
    """Fill a store with the given number of pods, every ``every``-th with its own spec."""
    api = _Stream(stream(pods, every))
    store: Store[Any] = Store()
    informer: Informer[Any] = Informer(api, PODS, store)
    began = time.process_time()
    task = asyncio.create_task(informer.run())
    await informer.synced()
    seconds = time.process_time() - began - api.making
    task.cancel()
    await asyncio.wait([task])
    return Result(seconds=seconds, read=informer.statistics().bytes_read, pods=len(store)), store


def _resident() -> float:
    with open("/proc/self/statm") as statm:  # noqa: PTH123 (no path of the project)
        return int(statm.read().split()[1]) * resource.getpagesize() / 2**20


def main() -> None:
    """Print one JSON object."""
    pods = int(sys.argv[1]) if len(sys.argv) > 1 else 150_000
    every = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    before = _resident()
    result, store = asyncio.run(fill(pods, every))
    gc.collect()
    after = _resident()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    params = {
        "pods": len(store),
        "own_spec_every": every,
        "read_mb": result.read >> 20,
        "store_mb": round(after - before),
    }
    seconds = round(result.seconds, 2)
    print(
        json.dumps({"name": f"wire-{pods // 1000}k", "seconds": seconds, "peak_rss_mb": round(peak), "params": params})
    )


if __name__ == "__main__":
    main()
