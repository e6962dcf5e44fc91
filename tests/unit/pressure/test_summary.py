"""The Summary API: its fields, its values that cannot be right, and input that is no summary."""

from __future__ import annotations

import json
from typing import Any

import pytest

from trimtab.pressure.measurement import MemoryStallTimes, NodeMeasurement, PodUsage, SignalValue
from trimtab.pressure.summary import LARGEST, InvalidSummary, no_pods, read_summary

GIBI = 2**30
TIME = "2026-11-23T06:00:00Z"
AT = 1795413600.0


def file_system(available: Any = 60 * GIBI, capacity: Any = 100 * GIBI, free: Any = 900, inodes: Any = 1000) -> Any:
    return {
        "time": TIME,
        "availableBytes": available,
        "capacityBytes": capacity,
        "inodesFree": free,
        "inodes": inodes,
        "usedBytes": 7,
        "inodesUsed": 8,
    }


def memory(available: Any = 2 * GIBI, used: Any = 6 * GIBI, **more: Any) -> Any:
    return {"time": TIME, "availableBytes": available, "usageBytes": 1, "workingSetBytes": used, **more}


def summary(**node: Any) -> dict[str, Any]:
    everything = {
        "nodeName": "n1",
        "startTime": TIME,
        "cpu": {"time": TIME, "usageNanoCores": 5},
        "memory": memory(),
        "systemContainers": [
            {"name": "kubelet", "startTime": TIME, "memory": memory(1, 1)},
            {"name": "pods", "startTime": TIME, "memory": memory(GIBI, 6 * GIBI)},
        ],
        "fs": file_system(),
        "runtime": {"imageFs": file_system(), "containerFs": file_system()},
        "rlimit": {"time": TIME, "maxpid": 32768, "curproc": 768},
    }
    return {"node": everything | node, "pods": []}


def read(manifest: Any) -> NodeMeasurement:
    return read_summary(json.dumps(manifest).encode(), node="n1", read_at=1.0)


def test_each_signal_is_taken_from_its_fields() -> None:
    found = read(summary())
    disk = SignalValue(60 * GIBI, 100 * GIBI, AT)
    inodes = SignalValue(900, 1000, AT)
    assert found.signals == {
        "memory.available": SignalValue(2 * GIBI, 8 * GIBI, AT),
        "allocatableMemory.available": SignalValue(GIBI, 7 * GIBI, AT),
        "nodefs.available": disk,
        "nodefs.inodesFree": inodes,
        "imagefs.available": disk,
        "imagefs.inodesFree": inodes,
        "containerfs.available": disk,
        "containerfs.inodesFree": inodes,
        "pid.available": SignalValue(32000, 32768, AT),
    }
    assert (found.node, found.source, found.read_at, found.problems) == ("n1", "Summary", 1.0, {})
    assert (found.dedicated_image_fs, found.memory_stall) == (False, None)


@pytest.mark.parametrize(
    ("images", "dedicated"),
    [
        pytest.param(file_system(), False, id="the same"),
        pytest.param(file_system(available=59 * GIBI + GIBI // 2), False, id="the same, measured later"),
        pytest.param(file_system(capacity=200 * GIBI), True, id="another size"),
        pytest.param(file_system(inodes=2000), True, id="another number of inodes"),
        pytest.param(file_system(available=50 * GIBI), True, id="a disk of the same size, fuller"),
        pytest.param(file_system(free=500), True, id="a disk of the same size, with more files"),
        pytest.param({"time": TIME}, False, id="unknown"),
    ],
)
def test_images_on_another_disk_are_recognized_by_its_size(images: Any, dedicated: bool) -> None:
    assert read(summary(runtime={"imageFs": images})).dedicated_image_fs is dedicated


@pytest.mark.parametrize(
    ("images", "layers", "split"),
    [
        pytest.param(file_system(capacity=200 * GIBI), file_system(), True, id="only images are elsewhere"),
        pytest.param(
            file_system(capacity=200 * GIBI), file_system(capacity=200 * GIBI), False, id="both are elsewhere"
        ),
        pytest.param(file_system(), file_system(), False, id="one disk"),
        pytest.param(file_system(capacity=200 * GIBI), None, False, id="unknown"),
    ],
)
def test_writable_layers_next_to_volumes_are_recognized(images: Any, layers: Any, split: bool) -> None:
    runtime = {"imageFs": images} | ({} if layers is None else {"containerFs": layers})
    assert read(summary(runtime=runtime)).split_image_fs is split


@pytest.mark.parametrize(
    ("part", "value", "missing"),
    [
        pytest.param("memory", memory(available=-1), {"memory.available"}, id="negative memory"),
        pytest.param("memory", memory(used=0), {"memory.available"}, id="no working set"),
        pytest.param("memory", memory(used=-5), {"memory.available"}, id="negative working set"),
        pytest.param("memory", memory(available=2**64 - 5), {"memory.available"}, id="absurd memory"),
        pytest.param("memory", memory(available=10**400), {"memory.available"}, id="a number of 401 digits"),
        pytest.param("fs", file_system(available=101 * GIBI), {"nodefs.available"}, id="more than the capacity"),
        pytest.param("fs", file_system(free=1001), {"nodefs.inodesFree"}, id="more inodes than there are"),
        pytest.param("fs", file_system(free=5, inodes=0), {"nodefs.inodesFree"}, id="inodes of none"),
        pytest.param("fs", file_system(capacity=LARGEST + 1), {"nodefs.available"}, id="absurd disk"),
        pytest.param("rlimit", {"time": TIME, "maxpid": 10, "curproc": 11}, {"pid.available"}, id="more than maxpid"),
        pytest.param("rlimit", {"time": TIME, "maxpid": 10, "curproc": -1}, {"pid.available"}, id="negative PIDs"),
    ],
)
def test_implausible_values_are_left_out_and_reported(part: str, value: Any, missing: set[str]) -> None:
    found = read(summary(**{part: value}))
    assert found.problems.keys() == missing
    assert found.signals.keys() == read(summary()).signals.keys() - missing


@pytest.mark.parametrize(
    ("part", "value", "missing"),
    [
        pytest.param("memory", None, {"memory.available"}, id="no memory"),
        pytest.param("memory", memory(available=None), {"memory.available"}, id="no limit, so no available memory"),
        pytest.param("systemContainers", None, {"allocatableMemory.available"}, id="no system containers"),
        pytest.param("rlimit", {"time": TIME}, {"pid.available"}, id="no PIDs"),
        pytest.param("fs", file_system(free=0, inodes=0), {"nodefs.inodesFree"}, id="Btrfs, which has no inode limit"),
    ],
)
def test_missing_values_are_left_out(part: str, value: Any, missing: set[str]) -> None:
    found = read(summary(**{part: value}))
    assert found.problems == {}
    assert found.signals.keys() == read(summary()).signals.keys() - missing


def test_a_value_without_a_time_is_kept() -> None:
    assert read(summary(memory=memory() | {"time": None})).signals["memory.available"].measured_at is None


@pytest.mark.parametrize("share", [-1, 101, 1e300])
def test_implausible_stall_times_are_left_out(share: float) -> None:
    found = read(summary(memory=memory(psi={"full": {"total": 1, "avg10": share}, "some": {}})))
    assert (found.memory_stall, found.problems.keys()) == (None, {"memory.psi.full"})


def test_memory_stall_is_that_of_all_tasks() -> None:
    full = {"total": 123, "avg10": 1.5, "avg60": 20, "avg300": 100}
    found = read(summary(memory=memory(psi={"full": full, "some": {"total": 1, "avg10": 99.0}})))
    assert found.memory_stall == MemoryStallTimes(1.5, 20.0, 100.0)


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"<html>", id="HTML"),
        pytest.param(b"[]", id="a list"),
        pytest.param(b"{}", id="no node"),
        pytest.param(b'{"node": {"nodeName": 5}}', id="a name that is a number"),
        pytest.param(b'{"node": {"nodeName": "n2"}}', id="another node"),
        pytest.param(b'{"node": {"nodeName": "n1"}', id="truncated"),
        pytest.param(b'{"node": {"nodeName": "n1"}} {}', id="two documents"),
        pytest.param(b'{"node": {"nodeName": "\xff\xfe"}}', id="not UTF-8"),
        pytest.param(b'{"node": {"nodeName": "n1", "memory": {"availableBytes": 1e999}}}', id="infinity"),
        pytest.param(b'{"node": {"nodeName": "n1", "memory": {"availableBytes": NaN}}}', id="NaN"),
        pytest.param(b'{"node": {"nodeName": "n1", "fs": {"inodes": ' + b"9" * 5000 + b"}}}", id="a huge number"),
        pytest.param(b'{"node": {"nodeName": "n1", "memory": {"time": "yesterday"}}}', id="no time"),
        pytest.param(b'{"node": {"nodeName": "n1", "memory": {"time": "2026-11-23T06:00:00"}}}', id="no time zone"),
        pytest.param(b'{"node": {"nodeName": "n1"}, "x": ' + b"[" * 100_000, id="deep and truncated"),
        pytest.param(b'{"node": {"nodeName": "n1"}, "pods": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", id="deep pods"),
        pytest.param(b'{"x":' * 100_000 + b"1" + b"}" * 100_000, id="deep objects"),
    ],
)
def test_malformed_responses_are_invalid(body: bytes) -> None:
    with pytest.raises(InvalidSummary):
        read_summary(body, node="n1", read_at=1.0)


def container(**parts: tuple[int, int]) -> dict[str, Any]:
    return {"name": "c", **{name: {"usedBytes": used, "inodesUsed": inodes} for name, (used, inodes) in parts.items()}}


def pod(name: str, **more: Any) -> dict[str, Any]:
    return {"podRef": {"name": name, "namespace": "shop", "uid": f"uid-{name}"}, "startTime": TIME, **more}


def test_usage_of_pods_is_summed_over_containers_and_local_volumes() -> None:
    web = pod(
        "web",
        containers=[container(rootfs=(100, 10), logs=(20, 2)), container(rootfs=(1, 1))],
        memory=memory(used=GIBI),
        volume=[
            {"name": "cache", "usedBytes": 1000, "inodesUsed": 50},
            {"name": "token", "usedBytes": 8, "inodesUsed": 9},
            {"name": "data", "usedBytes": 10**9, "inodesUsed": 10**5, "pvcRef": {"name": "data", "namespace": "shop"}},
        ],
        **{"ephemeral-storage": {"usedBytes": 1121, "inodesUsed": 63}, "process_stats": {"process_count": 12}},
    )
    assert read(summary() | {"pods": [web]}).pods() == {
        "shop/web": PodUsage(
            uid="uid-web",
            memory=GIBI,
            logs=20,
            local_volumes=1000,  # the token is in memory
            root=101,
            logs_inodes=2,
            local_volumes_inodes=50,
            root_inodes=11,
            processes=12,
        )
    }


def test_volumes_count_in_full_without_ephemeral_storage() -> None:
    web = pod("web", containers=[], volume=[{"usedBytes": 10}, {"usedBytes": 5, "inodesUsed": 3}])
    assert read(summary() | {"pods": [web]}).pods() == {
        "shop/web": PodUsage("uid-web", local_volumes=15, local_volumes_inodes=3)
    }


def test_implausible_usage_and_invalid_pods_are_left_out() -> None:
    pods = [
        pod("web", memory=memory(used=-1), process_stats={"process_count": 2**61}),
        pod("bad", memory="much"),
        {"memory": memory()},
        pod("db", containers=None, volume=None),
        7,
    ]
    assert read(summary() | {"pods": pods}).pods() == {"shop/web": PodUsage("uid-web"), "shop/db": PodUsage("uid-db")}


@pytest.mark.parametrize("pods", [None, 5, {"a": 1}, "text"])
def test_summary_without_pods_has_no_usage(pods: Any) -> None:
    assert read(summary() | {"pods": pods}).pods() == {}


def test_pods_are_decoded_once() -> None:
    pods = read(summary() | {"pods": [pod("web")]}).pods
    assert pods() is pods()


def test_dropped_pods_are_never_taken_for_pods_without_usage() -> None:
    with pytest.raises(LookupError):
        no_pods()


_SMALL = [b"{}", b"[]", b"0", b'{"podRef":{"name":"a","namespace":"b","uid":""}}']


@pytest.mark.parametrize("value", _SMALL)
@pytest.mark.parametrize("place", [b'"systemContainers":[%b]},"pods":[]', b'"fs":{}},"pods":[%b]'])
def test_response_with_very_many_values_is_not_decoded(value: bytes, place: bytes) -> None:
    """4 MiB of them would block the event loop for half a second."""
    body = b'{"node":{"nodeName":"n1",' + place % b",".join([value] * 250_000) + b"}"
    with pytest.raises(InvalidSummary, match="more than 200000 values"):
        read_summary(body, node="n1", read_at=0.0)


@pytest.mark.parametrize("value", _SMALL)
def test_very_many_pods_are_not_decoded(value: bytes) -> None:
    body = b'{"node":{"nodeName":"n1"},"pods":[%b]}' % b",".join([value] * 2001)
    assert read_summary(body, node="n1", read_at=0.0).pods() == {}
