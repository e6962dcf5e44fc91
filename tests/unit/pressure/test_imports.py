"""Settings of kubelets become NodePressurePolicies; mistakes in them are corrected with a warning, or rejected."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fixtures.golden import Golden
from tests.node_pressure_policies import EVERYTHING, node_pressure_policy
from trimtab.api.decode import decode_node_pressure_policy
from trimtab.api.node_pressure_policy import KUBELET_EVICTION_HARD, SIGNALS
from trimtab.kube.errors import InputError
from trimtab.pressure.imports import ImportedPressurePolicy, read_pressure_policy

PAGE_SAMPLE = """
kubeletArguments:
  eviction-hard:\x20
    - "memory.available<500Mi"
  system-reserved:
    - "memory=1.5Gi"
"""
"""The only configuration file that OpenShift 3's documentation of evictions prints, with its trailing space."""

PAGE_FLAGS = """
kubeletArguments:
  eviction-soft: ["memory.available<1.5Gi"]
  eviction-soft-grace-period: ["memory.available=1m30s"]
  eviction-hard: ["memory.available<1Gi"]
  eviction-max-pod-grace-period: ["60"]
  eviction-pressure-transition-period: ["5m0s"]
"""
"""The values that it gives as examples in the text."""

CONFIGURATION = """
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
cgroupDriver: systemd
maxPods: 110
evictionHard: {memory.available: 200Mi, nodefs.available: 10%}
evictionSoft: {memory.available: 10%, imagefs.available: 20%}
evictionSoftGracePeriod: {memory.available: 1m30s, imagefs.available: 2m}
evictionMinimumReclaim: {memory.available: 0Mi, nodefs.available: 500Mi, imagefs.available: 2Gi}
evictionMaxPodGracePeriod: 120
evictionPressureTransitionPeriod: 30s
"""

OPENSHIFT = """
apiVersion: machineconfiguration.openshift.io/v1
kind: KubeletConfig
metadata: {name: worker-kubeconfig}
spec:
  machineConfigPoolSelector:
    matchLabels: {pools.operator.machineconfiguration.openshift.io/worker: ""}
  kubeletConfig:
    evictionSoft: {memory.available: 500Mi, nodefs.available: 10%}
    evictionSoftGracePeriod: {memory.available: 1m30s, nodefs.available: 1m30s}
    evictionHard: {memory.available: 200Mi, nodefs.available: 5%, nodefs.inodesFree: 4%}
    evictionPressureTransitionPeriod: 0s
"""

KUBEADM = """
apiVersion: kubeadm.k8s.io/v1beta4
kind: JoinConfiguration
nodeRegistration:
  kubeletExtraArgs:
  - {name: node-ip, value: 192.0.2.1}
  - {name: eviction-hard, value: "memory.available<1Gi,nodefs.available<10%"}
"""

KUBEADM_MAP = """
apiVersion: kubeadm.k8s.io/v1beta3
kind: InitConfiguration
nodeRegistration: {kubeletExtraArgs: {eviction-hard: "memory.available<1Gi,nodefs.available<10%", v: 2}}
"""

K3S = """
node-label: [a=b]
kubelet-arg: ["eviction-hard=memory.available<1Gi,nodefs.available<10%", "--v=2"]
"""


def read(text: str) -> ImportedPressurePolicy:
    found = read_pressure_policy(msgspec.yaml.decode(text), source="kubelet.yaml")
    assert found is not None
    assert found.policy == decode_node_pressure_policy(found.document)
    return found


def spec_of(text: str) -> dict[str, Any]:
    found: dict[str, Any] = read(text).document["spec"]
    return found


def warned(text: str) -> list[str]:
    """The places of the warnings, without the two that nearly all results have."""
    usual = ("the policy selects all nodes", "the kubelet kills pods at these thresholds itself")
    return [each.field for each in read(text).warnings if not each.message.startswith(usual)]


def configuration(**fields: Any) -> str:
    head = {"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration"}
    return msgspec.json.encode({**head, **fields}).decode()


def soft(**fields: Any) -> str:
    return configuration(**{"evictionHard": {"memory.available": "100Mi"}, **fields})


def test_sample_of_the_documentation_is_converted_as_printed() -> None:
    assert spec_of(PAGE_SAMPLE) == {
        "mode": "Simulate",
        "evictionHard": {"memory.available": "500Mi"},
        "kubeletEvictionHard": {"memory.available": "500Mi"},
    }
    assert warned(PAGE_SAMPLE) == []


def test_flags_of_the_documentation_are_converted() -> None:
    assert spec_of(PAGE_FLAGS) == {
        "mode": "Simulate",
        "evictionHard": {"memory.available": "1Gi"},
        "evictionSoft": {"memory.available": "1.5Gi"},
        "evictionSoftGracePeriod": {"memory.available": "1m30s"},
        "evictionMaxPodGracePeriod": 60,
        "evictionPressureTransitionPeriod": "5m",
        "kubeletEvictionHard": {"memory.available": "1Gi"},
    }


def test_kubelet_configuration_is_converted() -> None:
    imported = read(CONFIGURATION)

    assert imported.document["metadata"] == {"name": "default"}
    assert imported.document["spec"] == {
        "mode": "Simulate",
        "evictionHard": {"memory.available": "200Mi", "nodefs.available": "10%"},
        "evictionSoft": {"memory.available": "10%", "imagefs.available": "20%"},
        "evictionSoftGracePeriod": {"memory.available": "1m30s", "imagefs.available": "2m"},
        "evictionMinimumReclaim": {"memory.available": "0Mi", "nodefs.available": "500Mi", "imagefs.available": "2Gi"},
        "evictionMaxPodGracePeriod": 120,
        "evictionPressureTransitionPeriod": "30s",
        "kubeletEvictionHard": {"memory.available": "200Mi", "nodefs.available": "10%"},
    }
    assert [each.field for each in imported.warnings] == ["nodeSelector", "evictionHard"]


def test_kubelet_config_of_a_machine_config_pool_selects_its_nodes() -> None:
    imported = read(OPENSHIFT)

    assert imported.policy.name == "worker-kubeconfig"
    assert imported.document["spec"]["nodeSelector"] == {"matchLabels": {"node-role.kubernetes.io/worker": ""}}
    assert imported.document["spec"]["kubeletEvictionHard"]["nodefs.inodesFree"] == "4%"
    assert "evictionPressureTransitionPeriod" not in imported.document["spec"]
    assert [each.field for each in imported.warnings] == [
        "spec.machineConfigPoolSelector",
        "spec.kubeletConfig.evictionPressureTransitionPeriod",
        "spec.kubeletConfig.evictionHard",
    ]


@pytest.mark.parametrize("text", [KUBEADM, KUBEADM_MAP, K3S], ids=["kubeadm", "kubeadm map", "k3s"])
def test_flags_of_other_installers_are_read(text: str) -> None:
    assert spec_of(text)["evictionHard"] == {"memory.available": "1Gi", "nodefs.available": "10%"}


def test_policy_of_trimtab_is_returned_unchanged() -> None:
    manifest = node_pressure_policy(EVERYTHING)
    imported = read_pressure_policy({**manifest, "status": {"unreadOmitted": 1}})

    assert imported is not None
    assert (imported.document, imported.warnings) == (manifest, ())


def test_unset_thresholds_are_the_kubelets_defaults() -> None:
    text = configuration()

    assert spec_of(text) == {"mode": "Simulate", "evictionHard": dict(KUBELET_EVICTION_HARD)}
    assert warned(text) == ["evictionHard"]


@pytest.mark.parametrize(("merge", "nodefs"), [(True, "10%"), (False, None)])
def test_defaults_are_merged_only_if_the_kubelet_merges_them(merge: bool, nodefs: str | None) -> None:
    spec = spec_of(configuration(evictionHard={"memory.available": "1Gi"}, mergeDefaultEvictionSettings=merge))

    assert spec["evictionHard"] == spec["kubeletEvictionHard"]
    assert (spec["evictionHard"]["memory.available"], spec["evictionHard"].get("nodefs.available")) == ("1Gi", nodefs)


@pytest.mark.parametrize(
    ("text", "fields", "expected"),
    [
        (
            soft(evictionSoft={"memory.available": "1Gi"}),
            ["evictionSoft"],
            {"evictionSoft": {"memory.available": "1Gi"}, "evictionSoftGracePeriod": {"memory.available": "1m30s"}},
        ),
        (
            soft(
                evictionSoft={"memory.available": "1Gi"},
                evictionSoftGracePeriod={"memory.available": "1m", "nodefs.available": "1m"},
            ),
            ["evictionSoftGracePeriod"],
            {"evictionSoftGracePeriod": {"memory.available": "1m"}},
        ),
        (soft(evictionSoftGracePeriod={"memory.available": "1m"}), ["evictionSoftGracePeriod"], {}),
        (
            soft(evictionSoft={"memory.available": "50Mi"}, evictionSoftGracePeriod={"memory.available": "1m"}),
            ["evictionSoft", "evictionSoftGracePeriod"],
            {"evictionSoft": None, "evictionSoftGracePeriod": None},
        ),
        (
            soft(evictionHard={"memory.available": "1Gi", "memory.avaliable": "2Gi"}),
            ["evictionHard"],
            {"evictionHard": {"memory.available": "1Gi"}},
        ),
        (
            soft(evictionHard={"memory.available": "1Gi", "nodefs.available": "0%", "imagefs.available": "100%"}),
            ["evictionHard", "evictionHard"],
            {
                "evictionHard": {
                    "memory.available": "1Gi",
                    "nodefs.available": "0%",
                    "imagefs.available": "100%",
                }
            },
        ),
        (soft(evictionMaxPodGracePeriod=0), ["evictionMaxPodGracePeriod"], {"evictionMaxPodGracePeriod": None}),
        (soft(evictionMaxPodGracePeriod=-1), [], {"evictionMaxPodGracePeriod": None}),
        (
            soft(evictionPressureTransitionPeriod="1500ms"),
            ["evictionPressureTransitionPeriod"],
            {"evictionPressureTransitionPeriod": "2s"},
        ),
        (soft(evictionHard={"memory.available": "1e9"}), [], {"evictionHard": {"memory.available": "1000000000"}}),
        (
            "kubeletArguments: {eviction-hard: ['memory.available<1Gi', 'memory.available<10%']}",
            ["kubeletArguments.eviction-hard"],
            {"evictionHard": {"memory.available": "10%"}},
        ),
    ],
    ids=[
        *("soft without a grace period", "grace period of another signal", "grace period without soft"),
        *("soft below hard", "misspelt signal", "switched off", "no grace", "pods' own grace"),
        *("fraction of a second", "exponent", "signal twice"),
    ],
)
def test_invalid_settings_are_corrected_with_a_warning(text: str, fields: list[str], expected: dict[str, Any]) -> None:
    spec = spec_of(text)

    assert warned(text) == fields
    assert {key: spec.get(key) for key in expected} == expected


def test_warning_about_a_misspelt_signal_suggests_the_signal(golden: Golden) -> None:
    warnings = read(soft(evictionHard={"nodefs.inodesfree": "5%", "pid.available": "9"})).warnings

    golden("\n".join(f"{each.field}: {each.message}" for each in warnings))


@pytest.mark.parametrize(
    ("text", "field"),
    [
        (configuration(evictionHard=["memory.available<1Gi"]), "evictionHard"),
        (configuration(evictionHard={"memory.available": "1GiB"}), "evictionHard"),
        (configuration(evictionHard={"memory.available": "0"}), "evictionHard"),
        (configuration(evictionHard={"memory.available": "101%"}), "evictionHard"),
        (configuration(evictionMinimumReclaim={"memory.available": "0%"}), "evictionMinimumReclaim"),
        (
            soft(evictionSoft={"pid.available": "9"}, evictionSoftGracePeriod={"pid.available": "soon"}),
            "evictionSoftGracePeriod",
        ),
        (configuration(evictionMaxPodGracePeriod="a minute"), "evictionMaxPodGracePeriod"),
        (configuration(evictionPressureTransitionPeriod="-1s"), "evictionPressureTransitionPeriod"),
        (configuration(evictionhard={}), "evictionhard"),
        ("kubeletArguments: [eviction-hard]", "kubeletArguments[0]"),
        ("kubeletArguments: 3", "kubeletArguments"),
        ("kubeletArguments: {eviction-hard: ['memory.available>1Gi']}", "kubeletArguments.eviction-hard"),
        ("kubeletArguments: {eviction-hard: ['memory.available']}", "kubeletArguments.eviction-hard"),
        ("kubeletArguments: {eviction-soft-grace: ['memory.available=1m']}", "kubeletArguments.eviction-soft-grace"),
    ],
)
def test_settings_with_which_no_kubelet_starts_are_refused(text: str, field: str) -> None:
    with pytest.raises(InputError) as refused:
        read_pressure_policy(msgspec.yaml.decode(text), source="kubelet.yaml")

    assert (refused.value.source, refused.value.field) == ("kubelet.yaml", field)


@pytest.mark.parametrize(
    "manifest",
    [
        {},
        {"kind": "ConfigMap", "apiVersion": "v1", "kubeletArguments": {}},
        {"kind": "KubeletConfiguration", "apiVersion": "kubelet.config.k8s.io/v9"},
        {"kind": "JoinConfiguration", "apiVersion": "kubeadm.k8s.io/v1beta4"},
    ],
)
def test_other_documents_are_not_read(manifest: dict[str, Any]) -> None:
    assert read_pressure_policy(manifest) is None


_VALUE = st.one_of(
    st.sampled_from(["500Mi", "10%", "0%", "1e9", "1m30s", "0", "", "x"]), st.integers(), st.none(), st.text(max_size=6)
)
_FIELD = st.sampled_from(
    ["evictionHard", "evictionSoft", "evictionSoftGracePeriod", "evictionMinimumReclaim", "evictionMaxPodGracePeriod"]
)


@given(
    fields=st.dictionaries(
        _FIELD, st.one_of(st.dictionaries(st.sampled_from([*SIGNALS, "x"]), _VALUE, max_size=4), _VALUE)
    )
)
def test_every_configuration_is_converted_to_a_valid_policy_or_refused(fields: dict[str, Any]) -> None:
    head = {"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration"}
    try:
        found = read_pressure_policy({**head, **fields})
    except InputError as refused:
        found, field = None, refused.field
    else:
        field = ""
    assert (found is None) is field.startswith("eviction")
