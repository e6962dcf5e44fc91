"""The order in which pods are evicted. The cases of the kubelet are those of its ``helpers_test.go`` (v1.36).

``TestFallbackResourcesUsage`` and ``TestEvictionMessage`` do not apply: the usage is summed in
:mod:`trimtab.pressure.summary`, and the eviction API has no message.
"""

from __future__ import annotations

import random
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.pressure.nodes import by_key, names, pod, used
from trimtab.api.node_pressure_policy import SIGNALS, Ranking
from trimtab.kube.objects import Pod
from trimtab.pressure.measurement import PodUsage
from trimtab.pressure.ranking import rank

LOW, DEFAULT, HIGH = -1, 0, 1


def order(
    pods: list[Pod],
    usage: Mapping[str, PodUsage],
    signal: str,
    *,
    ranking: Ranking = "UsagePriority",
    dedicated_image_fs: bool = False,
) -> list[str]:
    return names(rank(pods, usage, signal, ranking=ranking, dedicated_image_fs=dedicated_image_fs))


def memory(**values: str) -> dict[str, PodUsage]:
    return by_key(*(used(name.replace("_", "-"), memory=value) for name, value in values.items()))


def disk(**values: tuple[str, str, str]) -> dict[str, PodUsage]:
    """Return the usage of layers, logs and local volumes by pod."""
    return by_key(
        *(
            used(name.replace("_", "-"), root=root, logs=logs, local_volumes=volumes)
            for name, (root, logs, volumes) in values.items()
        )
    )


def inodes(**values: tuple[int, int, int]) -> dict[str, PodUsage]:
    return by_key(
        *(
            used(name.replace("_", "-"), root_inodes=root, logs_inodes=logs, local_volumes_inodes=volumes)
            for name, (root, logs, volumes) in values.items()
        )
    )


def requesting(name: str, resource: str, request: str, priority: int = DEFAULT) -> Pod:
    return pod(name, requests={resource: request} if request else {}, priority=priority)


# The kubelet's cases.


def test_pods_that_exceed_their_memory_request_come_first() -> None:
    """``TestOrderedByExceedsRequestMemory``."""
    pods = [requesting("below", "memory", "200Mi", -1), requesting("exceeds", "memory", "100Mi", 1)]
    assert order(pods, memory(below="199Mi", exceeds="101Mi"), "memory.available") == ["exceeds", "below"]


def test_pods_that_exceed_their_disk_request_come_first() -> None:
    """``TestOrderedByExceedsRequestDisk``."""
    pods = [
        requesting("below", "ephemeral-storage", "200Mi", -1),
        requesting("exceeds", "ephemeral-storage", "100Mi", 1),
    ]
    usage = disk(below=("100Mi", "99Mi", "0"), exceeds=("90Mi", "11Mi", "0"))
    assert order(pods, usage, "nodefs.available") == ["exceeds", "below"]


def test_pods_of_lower_priority_come_first() -> None:
    """``TestOrderedByPriority``: nothing else differs."""
    pods = [pod("high", priority=12534), pod("medium", priority=1), pod("low", priority=-134)]
    usage = memory(high="1Mi", medium="1Mi", low="1Mi")
    assert order(pods, usage, "memory.available") == ["low", "medium", "high"]


def test_pods_that_use_more_disk_above_their_request_come_first() -> None:
    """``TestOrderedbyDisk``."""
    pods = [
        requesting("best-effort-high", "ephemeral-storage", ""),
        requesting("best-effort-low", "ephemeral-storage", ""),
        requesting("burstable-high", "ephemeral-storage", "100Mi"),
        requesting("burstable-low", "ephemeral-storage", "100Mi"),
        requesting("guaranteed-high", "ephemeral-storage", "400Mi"),
        requesting("guaranteed-low", "ephemeral-storage", "400Mi"),
    ]
    usage = disk(
        best_effort_high=("50Mi", "100Mi", "150Mi"),
        best_effort_low=("25Mi", "25Mi", "50Mi"),
        burstable_high=("150Mi", "150Mi", "50Mi"),
        burstable_low=("25Mi", "35Mi", "50Mi"),
        guaranteed_high=("225Mi", "100Mi", "50Mi"),
        guaranteed_low=("25Mi", "45Mi", "50Mi"),
    )
    assert order(pods, usage, "nodefs.available") == [
        "best-effort-high",
        "burstable-high",
        "best-effort-low",
        "burstable-low",
        "guaranteed-high",
        "guaranteed-low",
    ]


def test_pods_that_use_more_inodes_come_first() -> None:
    """``TestOrderedbyInodes``."""
    usage = inodes(low=(50_000, 100_000, 50_000), medium=(100_000, 150_000, 50_000), high=(200_000, 150_000, 50_000))
    pods = [pod("low"), pod("medium"), pod("high")]
    assert order(pods, usage, "nodefs.inodesFree") == ["high", "medium", "low"]


EIGHT = (
    ("above-low-priority-high-usage", LOW, ""),
    ("above-low-priority-low-usage", LOW, ""),
    ("above-high-priority-high-usage", HIGH, "100Mi"),
    ("above-high-priority-low-usage", HIGH, "100Mi"),
    ("below-low-priority-high-usage", LOW, "1Gi"),
    ("below-low-priority-low-usage", LOW, "1Gi"),
    ("below-high-priority-high-usage", HIGH, "1Gi"),
    ("below-high-priority-low-usage", HIGH, "1Gi"),
)


def test_disk_order_is_excess_then_priority_then_usage() -> None:
    """``TestOrderedByPriorityDisk``."""
    parts = [
        ("200Mi", "100Mi", "200Mi"),
        ("10Mi", "10Mi", "30Mi"),
        ("200Mi", "150Mi", "250Mi"),
        ("90Mi", "50Mi", "10Mi"),
        ("500Mi", "200Mi", "100Mi"),
        ("50Mi", "100Mi", "50Mi"),
        ("250Mi", "500Mi", "50Mi"),
        ("100Mi", "60Mi", "40Mi"),
    ]
    pods = [requesting(name, "ephemeral-storage", request, priority) for name, priority, request in EIGHT]
    usage = disk(**{name.replace("-", "_"): part for (name, _, _), part in zip(EIGHT, parts, strict=True)})
    assert order(pods[::-1], usage, "nodefs.available") == [name for name, _, _ in EIGHT]


def test_inode_order_is_priority_then_usage() -> None:
    """``TestOrderedByPriorityInodes``."""
    usage = inodes(
        low_priority_high=(50_000, 100_000, 250_000),
        low_priority_low=(60_000, 30_000, 10_000),
        high_priority_high=(150_000, 150_000, 50_000),
        high_priority_low=(10_000, 40_000, 100_000),
    )
    expected = ["low-priority-high", "low-priority-low", "high-priority-high", "high-priority-low"]
    pods = [pod(name, priority=LOW if name.startswith("low") else HIGH) for name in expected]
    assert order(pods[::-1], usage, "nodefs.inodesFree") == expected


def test_pods_that_use_more_memory_above_their_request_come_first() -> None:
    """``TestOrderedByMemory``."""
    pods = [
        requesting("best-effort-high", "memory", ""),
        requesting("best-effort-low", "memory", ""),
        requesting("burstable-high", "memory", "100Mi"),
        requesting("burstable-low", "memory", "100Mi"),
        requesting("guaranteed-high", "memory", "1Gi"),
        requesting("guaranteed-low", "memory", "1Gi"),
    ]
    usage = memory(
        best_effort_high="500Mi",
        best_effort_low="300Mi",
        burstable_high="800Mi",
        burstable_low="300Mi",
        guaranteed_high="800Mi",
        guaranteed_low="200Mi",
    )
    assert order(pods, usage, "memory.available") == [
        "burstable-high",
        "best-effort-high",
        "best-effort-low",
        "burstable-low",
        "guaranteed-high",
        "guaranteed-low",
    ]


@pytest.mark.parametrize("signal", ["memory.available", "allocatableMemory.available", "memory.psi.full"])
def test_memory_order_is_excess_then_priority_then_usage(signal: str) -> None:
    """``TestOrderedByPriorityMemory``."""
    amounts = ("500Mi", "50Mi", "600Mi", "150Mi", "800Mi", "200Mi", "800Mi", "200Mi")
    pods = [requesting(name, "memory", request, priority) for name, priority, request in EIGHT]
    usage = memory(**{name.replace("-", "_"): used for (name, _, _), used in zip(EIGHT, amounts, strict=True)})
    assert order(pods[::-1], usage, signal) == [name for name, _, _ in EIGHT]


def test_process_order_is_priority_then_number() -> None:
    """``TestOrderedByPriorityProcess``."""
    counts = {"low-priority-high": 20, "low-priority-low": 6, "high-priority-high": 20, "high-priority-low": 5}
    pods = [pod(name, priority=LOW if name.startswith("low") else HIGH) for name in counts]
    usage = by_key(*(used(name, processes=count) for name, count in counts.items()))
    assert order(pods[::-1], usage, "pid.available") == list(counts)


@pytest.mark.parametrize("signal", SIGNALS)
def test_pods_without_stats_are_equal(signal: str) -> None:
    """``TestStatsNotFoundForPod``. Equal pods are sorted by name."""
    assert order([pod("b"), pod("a")], {}, signal) == ["a", "b"]


def test_pods_without_stats_come_first() -> None:
    """As in ``exceedMemoryRequests``; among processes, only within a priority."""
    pods = [pod("known", priority=LOW), pod("unknown", priority=HIGH)]
    assert order(pods, memory(known="1Gi"), "memory.available") == ["unknown", "known"]
    assert order(pods, by_key(used("known", processes=9)), "pid.available") == ["known", "unknown"]


def test_stats_of_an_earlier_pod_of_the_same_name_are_not_used() -> None:
    pods = [pod("web", uid="uid-new"), pod("api")]
    ranked = rank(
        pods, memory(web="2Gi", api="1Gi"), "memory.available", ranking="UsagePriority", dedicated_image_fs=False
    )
    assert [(each.pod.name, each.usage) for each in ranked] == [("web", None), ("api", 1 << 30)]


def test_missing_values_count_as_nothing() -> None:
    """As in ``diskUsage`` and its likes."""
    usage = by_key(used("a", root=5), used("b"))
    ranked = rank([pod("b"), pod("a")], usage, "nodefs.available", ranking="UsagePriority", dedicated_image_fs=False)
    assert [(each.pod.name, each.usage, each.exceeds_request) for each in ranked] == [("a", 5, True), ("b", 0, False)]


# Where the kubelet is wrong.


def test_number_of_inodes_decides_even_if_a_pod_requests_disk() -> None:
    """The kubelet subtracts 10Gi from 900000 inodes, and evicts the pod that uses 10 inodes first."""
    pods = [requesting("many", "ephemeral-storage", "10Gi"), pod("few")]
    assert order(pods, inodes(many=(900_000, 0, 0), few=(10, 0, 0)), "nodefs.inodesFree") == ["many", "few"]


# File systems (``buildSignalToRankFunc``).

LAYERS, LOGS = "layers", "logs"


@pytest.mark.parametrize(
    ("signal", "dedicated", "first"),
    [
        pytest.param("nodefs.available", False, LAYERS, id="one file system"),
        pytest.param("imagefs.available", False, LAYERS, id="images on the one file system"),
        pytest.param("nodefs.available", True, LOGS, id="logs and volumes, without layers"),
        pytest.param("imagefs.available", True, LAYERS, id="layers, without logs and volumes"),
        pytest.param("containerfs.available", True, LAYERS, id="layers in containerfs"),
        pytest.param("nodefs.inodesFree", True, LOGS, id="inodes of logs and volumes"),
        pytest.param("imagefs.inodesFree", True, LAYERS, id="inodes of layers"),
    ],
)
def test_only_files_on_the_file_system_count(signal: str, dedicated: bool, first: str) -> None:
    usage = by_key(
        used(LAYERS, root="9Gi", logs="1Gi", local_volumes="1Gi", root_inodes=9, logs_inodes=1, local_volumes_inodes=1),
        used(LOGS, root="1Gi", logs="2Gi", local_volumes="3Gi", root_inodes=1, logs_inodes=2, local_volumes_inodes=3),
    )
    assert order([pod(LAYERS), pod(LOGS)], usage, signal, dedicated_image_fs=dedicated)[0] == first


@pytest.mark.parametrize(
    ("signal", "first", "usage"),
    [
        pytest.param("nodefs.available", LAYERS, 11 << 30, id="all files of a pod"),
        pytest.param("containerfs.inodesFree", LAYERS, 11, id="containerfs is nodefs"),
        pytest.param("imagefs.available", LAYERS, 0, id="images are no files of pods"),
    ],
)
def test_layers_count_with_volumes_if_only_images_are_elsewhere(signal: str, first: str, usage: int) -> None:
    of_pods = by_key(
        used(LAYERS, root="9Gi", logs="1Gi", local_volumes="1Gi", root_inodes=9, logs_inodes=1, local_volumes_inodes=1),
        used(LOGS, root="1Gi", logs="2Gi", local_volumes="3Gi", root_inodes=1, logs_inodes=2, local_volumes_inodes=3),
    )
    ranked = rank(
        [pod(LOGS), pod(LAYERS)],
        of_pods,
        signal,
        ranking="UsagePriority",
        dedicated_image_fs=True,
        split_image_fs=True,
    )
    assert (ranked[0].pod.name, ranked[0].usage) == (first, usage)


# QoS, as OpenShift 3.


def of_class(name: str, qos: str, request: str = "", priority: int = 0) -> Pod:
    return pod(name, requests={"memory": request} if request else {}, priority=priority, spec={"qos": qos})


def test_qos_orders_by_class_then_by_memory_relative_to_the_request() -> None:
    pods = [
        of_class("guaranteed-large", "Guaranteed", "8Gi"),
        of_class("guaranteed-small", "Guaranteed", "1Gi"),
        of_class("burstable-exceeds-little", "Burstable", "100Mi"),
        of_class("burstable-exceeds-most", "Burstable", "1Gi"),
        of_class("burstable-below-large", "Burstable", "8Gi"),
        of_class("burstable-below-small", "Burstable", "500Mi"),
        of_class("best-effort-small", "BestEffort", priority=-5),
        of_class("best-effort-large", "BestEffort", priority=1000),
    ]
    usage = memory(
        guaranteed_large="6Gi",
        guaranteed_small="900Mi",
        burstable_exceeds_little="200Mi",
        burstable_exceeds_most="3Gi",
        burstable_below_large="4Gi",
        burstable_below_small="400Mi",
        best_effort_small="10Mi",
        best_effort_large="20Mi",
    )
    assert order(pods, usage, "memory.available", ranking="QoS") == [
        "best-effort-large",
        "best-effort-small",
        "burstable-exceeds-most",
        "burstable-exceeds-little",
        "burstable-below-large",  # below their requests: the largest consumer
        "burstable-below-small",
        "guaranteed-large",
        "guaranteed-small",
    ]


@pytest.mark.parametrize("signal", ["nodefs.available", "nodefs.inodesFree", "pid.available"])
def test_qos_orders_by_usage_of_resources_that_are_best_effort(signal: str) -> None:
    pods = [
        pod("guaranteed", spec={"qos": "Guaranteed"}),
        pod("burstable", requests={"ephemeral-storage": "8Gi"}, spec={"qos": "Burstable"}),
        pod("burstable-small", spec={"qos": "Burstable"}),
        pod("best-effort"),
    ]
    usage = by_key(
        used("guaranteed", root="9Gi", root_inodes=9000, processes=900),
        used("burstable", root="3Gi", root_inodes=3000, processes=300),
        used("burstable-small", root="2Gi", root_inodes=2000, processes=200),
        used("best-effort", root="1Gi", root_inodes=1000, processes=100),
    )
    assert order(pods, usage, signal, ranking="QoS") == ["best-effort", "burstable", "burstable-small", "guaranteed"]


def test_qos_decides_before_unknown_usage() -> None:
    """Within a class, pods without stats come first, as in the kubelet."""
    pods = [of_class("known", "BestEffort"), of_class("unknown", "BestEffort"), of_class("burstable", "Burstable")]
    assert order(pods, memory(known="9Gi"), "memory.available", ranking="QoS") == ["unknown", "known", "burstable"]


# Properties.

AMOUNTS = st.none() | st.integers(min_value=0, max_value=3)


@st.composite
def pods_and_usage(draw: st.DrawFn) -> tuple[list[Pod], dict[str, PodUsage]]:
    names = draw(st.lists(st.sampled_from("abcdefgh"), unique=True))
    pods, usage = [], []
    for name in names:
        qos = draw(st.sampled_from(["BestEffort", "Burstable", "Guaranteed"]))
        requests = {"memory": str(draw(st.integers(0, 3))), "ephemeral-storage": str(draw(st.integers(0, 3)))}
        pods.append(pod(name, requests=requests, priority=draw(st.integers(-1, 1)), spec={"qos": qos}))
        if draw(st.booleans()):
            fields = [field for field in PodUsage.__struct_fields__ if field != "uid"]
            usage.append(PodUsage(f"uid-{name}", **{field: draw(AMOUNTS) for field in fields}))
    return pods, by_key(*usage)


@given(
    pods_and_usage(),
    st.sampled_from(SIGNALS),
    st.sampled_from(["UsagePriority", "QoS"]),
    st.booleans(),
    st.randoms(use_true_random=False),
)
def test_order_does_not_depend_on_the_order_of_the_input(
    node: tuple[list[Pod], dict[str, PodUsage]], signal: str, ranking: Ranking, dedicated: bool, chance: random.Random
) -> None:
    pods, usage = node
    shuffled = list(pods)
    chance.shuffle(shuffled)
    found = order(pods, usage, signal, ranking=ranking, dedicated_image_fs=dedicated)
    assert sorted(found) == sorted(each.name for each in pods)
    assert found == order(shuffled, usage, signal, ranking=ranking, dedicated_image_fs=dedicated)
