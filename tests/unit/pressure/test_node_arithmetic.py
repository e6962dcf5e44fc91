"""The arithmetic of the kubelet: allocatable amounts and the oom_score_adj of containers."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.builders import node, pod
from trimtab.api.node_pressure_policy import MEMORY_AVAILABLE, ThresholdValue
from trimtab.kube.errors import InputError
from trimtab.pressure.node_arithmetic import (
    KubeletSettings,
    kubelet_settings,
    oom_order,
    oom_score,
    oom_score_adjustment,
    reservation_of,
)
from trimtab.pressure.ranking import EPHEMERAL_STORAGE, MEMORY

GI = 1024**3
MI = 1024**2
STANDARD = 8_000_000_000


def configuration(text: str) -> KubeletSettings:
    found = kubelet_settings(msgspec.yaml.decode(text), source="kubelet.yaml")
    assert found is not None
    return found


# --- the example of OpenShift 3's documentation: a node with 10Gi, 10% for daemons ------------------------------------

SEED_NODE_CONFIG = """
kubeletArguments:
  eviction-hard: ["memory.available<5%"]
  eviction-soft: ["memory.available<10%"]
  system-reserved: ["memory=2Gi"]
"""


def test_reservation_without_thresholds_leaves_nine_of_ten_gibibytes() -> None:
    ten = node("n1").allocatable(memory="9Gi").capacity(memory="10Gi").build()
    found = reservation_of(ten, MEMORY, KubeletSettings(system_reserved={MEMORY: GI}), known=True)

    assert found is not None
    assert (found.capacity, found.reserved, found.expected) == (10 * GI, GI, 9 * GI)


def test_reservation_that_covers_the_soft_threshold_leaves_daemons_their_tenth() -> None:
    """capacity 10Gi, system-reserved 10% + threshold 10% = 2Gi, allocatable 8Gi: daemons may use 1Gi."""
    settings = configuration(SEED_NODE_CONFIG)
    eight = node("n1").allocatable(memory="8Gi").capacity(memory="10Gi").build()
    # The kubelet of that time did not subtract the hard threshold.
    found = reservation_of(eight, MEMORY, msgspec.structs.replace(settings, eviction_hard={}), known=True)

    assert found is not None
    assert (found.expected, found.reserved) == (8 * GI, 2 * GI)
    soft = settings.eviction_soft[MEMORY_AVAILABLE].of(found.capacity)
    assert (soft, found.daemon_room(soft)) == (GI, GI)


def test_kubelet_subtracts_its_hard_threshold_today() -> None:
    settings = configuration(SEED_NODE_CONFIG)
    ten = node("n1").allocatable(memory="7680Mi").capacity(memory="10Gi").build()
    found = reservation_of(ten, MEMORY, settings, known=True)

    assert found is not None
    assert (found.eviction, found.expected, found.daemons) == (512 * MI, 7680 * MI, 2 * GI)


def test_scenario_with_1_5_gibibytes_reserved_and_500_mebibytes_threshold() -> None:
    settings = configuration(
        'kubeletArguments: {eviction-hard: ["memory.available<500Mi"], system-reserved: ["memory=1.5Gi"]}'
    )
    then = node("n1").allocatable(memory="8704Mi").capacity(memory="10Gi").build()
    found = reservation_of(then, MEMORY, settings, known=True)

    assert found is not None
    hard = settings.eviction_hard[MEMORY_AVAILABLE].of(found.capacity)
    # "either some pod is using more than its request, or the system is using more than 1Gi" (1036Mi, exactly)
    assert (hard, found.daemon_room(hard)) == (500 * MI, 1036 * MI)
    assert found.expected == 8204 * MI


def test_reservation_below_a_threshold_leaves_daemons_no_room() -> None:
    full = node("n1").allocatable(memory="10Gi").build()
    found = reservation_of(full, MEMORY, KubeletSettings(), known=False)

    assert found is not None
    assert found.daemon_room(GI) == -GI
    assert (found.expected, found.eviction, found.daemons) == (None, 0, 0)


def test_huge_pages_are_subtracted_from_memory_only() -> None:
    big = node("n1").allocatable({"ephemeral-storage": "90Gi", "hugepages-2Mi": "1Gi"}, memory="8Gi")
    built = big.capacity({"ephemeral-storage": "100Gi"}, memory="10Gi").build()
    settings = KubeletSettings(
        eviction_hard={MEMORY_AVAILABLE: ThresholdValue(quantity=GI), "nodefs.available": ThresholdValue(share=0.1)}
    )
    memory = reservation_of(built, MEMORY, settings, known=True)
    disk = reservation_of(built, EPHEMERAL_STORAGE, settings, known=True)

    assert memory is not None
    assert disk is not None
    assert (memory.huge_pages, memory.expected, memory.daemons) == (GI, 8 * GI, 0)
    assert (disk.huge_pages, disk.eviction, disk.expected) == (0, 10 * GI, 90 * GI)


def test_node_that_reports_no_storage_has_no_reservation_of_it() -> None:
    assert reservation_of(node("n1").build(), EPHEMERAL_STORAGE, KubeletSettings(), known=True) is None


# --- the kubelet's configuration --------------------------------------------------------------------------------------


def test_unset_thresholds_are_the_kubelets_defaults() -> None:
    found = configuration("{kind: KubeletConfiguration, systemReserved: {memory: 1Gi, cpu: 500m}}")

    assert found.eviction_hard[MEMORY_AVAILABLE] == ThresholdValue(quantity=100 * MI)
    assert len(found.eviction_hard) == 5
    assert found.system_reserved == {"memory": GI, "cpu": 500}


@pytest.mark.parametrize(("merge", "signals"), [("", 1), ("mergeDefaultEvictionSettings: true", 5)])
def test_set_thresholds_replace_all_defaults_unless_they_are_merged(merge: str, signals: int) -> None:
    found = configuration(f"kind: KubeletConfiguration\nevictionHard: {{nodefs.available: 5%}}\n{merge}")

    assert len(found.eviction_hard) == signals
    assert found.eviction_hard["nodefs.available"] == ThresholdValue(share=0.05)


def test_threshold_of_zero_percent_is_none() -> None:
    found = configuration("{kind: KubeletConfiguration, evictionHard: {memory.available: 0%, nodefs.available: 1%}}")

    assert list(found.eviction_hard) == ["nodefs.available"]


def test_flags_may_have_several_entries() -> None:
    found = configuration(
        "kubeletArguments: {eviction-hard: ['memory.available<1Gi,nodefs.available<10%', 'pid.available<100'], "
        "kube-reserved: ['cpu=1,memory=512Mi']}"
    )

    assert set(found.eviction_hard) == {"memory.available", "nodefs.available", "pid.available"}
    assert found.kube_reserved == {"cpu": 1000, "memory": 512 * MI}


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("{kind: KubeletConfiguration, systemReserved: {memory: much}}", "systemReserved"),
        ("{kind: KubeletConfiguration, evictionHard: {memory.free: 1Gi}}", "evictionHard"),
        ("{kind: KubeletConfiguration, evictionHard: {memory.available: 120%}}", "evictionHard"),
        ("{kind: KubeletConfiguration, evictionHard: [a]}", "evictionHard"),
        ("kubeletArguments: {eviction-hard: ['memory.available=1Gi']}", "kubeletArguments.eviction-hard"),
        ("kubeletArguments: {system-reserved: ['memory=-']}", "kubeletArguments.system-reserved"),
    ],
)
def test_invalid_configuration_names_the_field(text: str, field: str) -> None:
    with pytest.raises(InputError) as raised:
        configuration(text)

    assert (raised.value.source, raised.value.field) == ("kubelet.yaml", field)


def test_other_documents_are_no_configuration() -> None:
    assert kubelet_settings({"kind": "ConfigMap"}) is None


# --- oom_score_adj: the cases of the kubelet's policy_test.go ---------------------------------------------------------

EIGHTH, QUARTER = str(STANDARD // 8), str(STANDARD // 4)


def containers(**memory: str | None) -> Any:
    """A pod with one container for each keyword; a name that begins with ``side`` is a sidecar, ``init`` an init."""
    made = pod("p")
    manifest = made.manifest()
    manifest["spec"]["containers"] = []
    for name, request in memory.items():
        limit = {"memory": str(int(request) + 1000)} if request else {}
        resources = {"requests": {"memory": request}, "limits": limit} if request else {}
        entry: dict[str, Any] = {"name": name, "resources": resources}
        if name.startswith(("side", "init")):
            if name.startswith("side"):
                entry["restartPolicy"] = "Always"
            manifest["spec"].setdefault("initContainers", []).append(entry)
        else:
            manifest["spec"]["containers"].append(entry)
    return made.merge(spec=manifest["spec"])


def with_pod_requests(made: Any, request: str, limit: str) -> Any:
    resources = {"requests": {"cpu": "5m", "memory": request}, "limits": {"cpu": "5m", "memory": limit}}
    return made.merge(spec={"resources": resources})


LARGER = str(STANDARD // 4 + 1000)


@pytest.mark.parametrize(
    ("made", "capacity", "expected"),
    [
        (pod("p").limits(cpu="10"), 4_000_000_000, {"main": 999}),
        # The API server copies limits to missing requests, which the kubelet's table does not.
        (pod("p").requests(cpu="0").limits(memory="10G"), STANDARD, {"main": 3}),
        (pod("p").limits(memory="0"), 4_000_000_000, {"main": 1000}),
        (pod("p"), 4_000_000_000, {"main": 1000}),
        (pod("p").cpu("5m", "5m").memory("10G", "10G"), 123_456_789, {"main": -997}),
        (pod("p").cpu("5m").memory(str(STANDARD // 2), "10G"), STANDARD, {"main": 500}),
        (pod("p").cpu("5m").memory(str(STANDARD - 1)), STANDARD, {"main": 3}),
        (pod("p").priority(2_000_000_000, "system-cluster-critical"), 4_000_000_000, {"main": 1000}),
        (pod("p").priority(2_000_001_000, "system-node-critical"), 4_000_000_000, {"main": -997}),
        (containers(main=EIGHTH), STANDARD, {"main": 875}),
        (containers(init=EIGHTH, main=EIGHTH), STANDARD, {"init": 875, "main": 875}),
        (containers(side=str(STANDARD // 20), main=EIGHTH), STANDARD, {"side": 875, "main": 875}),
        (containers(side=EIGHTH, main=EIGHTH), STANDARD, {"side": 875, "main": 875}),
        (containers(side=str(STANDARD // 2), main=EIGHTH), STANDARD, {"side": 500, "main": 875}),
        (with_pod_requests(containers(a=None, b=None), QUARTER, QUARTER), 4_000_000_000, {"a": -997, "b": -997}),
        (with_pod_requests(containers(a=None, b=None), QUARTER, LARGER), 4_000_000_000, {"a": 750, "b": 750}),
        (with_pod_requests(containers(a=EIGHTH, b=EIGHTH), QUARTER, LARGER), 4_000_000_000, {"a": 750, "b": 750}),
        (with_pod_requests(containers(a=EIGHTH, b=None), QUARTER, LARGER), 4_000_000_000, {"a": 625, "b": 875}),
        (with_pod_requests(containers(a=None, side=None), QUARTER, LARGER), 4_000_000_000, {"a": 750, "side": 750}),
        (with_pod_requests(containers(a=EIGHTH, side=EIGHTH), QUARTER, LARGER), 4_000_000_000, {"a": 750, "side": 750}),
        (
            with_pod_requests(containers(a="1000000000", b="500000000", side="200000000"), "2000000000", LARGER),
            4_000_000_000,
            {"a": 725, "b": 850, "side": 850},
        ),
    ],
)
def test_adjustment_is_the_kubelets(made: Any, capacity: int, expected: dict[str, int]) -> None:
    built = made.build()
    each = (*built.spec.init_containers, *built.spec.containers)

    assert {found.name: oom_score_adjustment(built, found, capacity) for found in each} == expected


@pytest.mark.parametrize(("request_", "expected"), [("0", 999), ("1Gi", 900), ("5Gi", 500), ("10Gi", 3)])
def test_adjustments_on_a_node_with_ten_gibibytes(request_: str, expected: int) -> None:
    built = pod("p").cpu("1m").memory(request_).build()

    assert oom_score_adjustment(built, built.spec.containers[0], 10 * GI) == expected


def test_order_compares_usage_and_adjustment() -> None:
    pods = [
        pod("best-effort").build(),
        pod("within").memory("4Gi").build(),
        pod("above").memory("1Gi").build(),
        pod("guaranteed").cpu("1", "1").memory("1Gi", "1Gi").build(),
        pod("done").phase("Succeeded").build(),
    ]
    used = {(pods[1].key, "main"): 3 * GI, (pods[2].key, "main"): 4 * GI, (pods[3].key, "main"): GI}
    found = oom_order(pods, 10 * GI, used)

    assert [(each.pod.split("/")[1], each.adjustment, each.score) for each in found] == [
        ("above", 900, 1300),
        ("best-effort", 1000, None),
        ("within", 600, 900),
        ("guaranteed", -997, 0),
    ]


def test_score_is_in_thousandths_and_not_negative() -> None:
    assert oom_score(5 * GI, 500, 10 * GI) == 1000
    assert oom_score(GI, -997, 10 * GI) == 0
