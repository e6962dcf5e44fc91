"""Admission configurations of OpenShift and kube-apiserver become blocks of a PlacementAdmission."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tests.admission_samples import SAMPLES
from trimtab.admission.imports import ImportedAdmission, merge_blocks, read_admission, repair_admission_text
from trimtab.kube.errors import InputError

API_SERVER = "apiVersion: apiserver.config.k8s.io/v1, kind: AdmissionConfiguration"
TOLERATIONS = "apiVersion: podtolerationrestriction.admission.k8s.io/v1alpha1, kind: Configuration"
DISABLED = "{configuration: {kind: DefaultAdmissionConfig, disable: true}}"


def api_server(plugin: str) -> str:
    return f"{{{API_SERVER}, plugins: [{{{plugin}}}]}}"


def read(text: str) -> ImportedAdmission:
    found = read_admission(yaml.safe_load(text), source="master-config.yaml")
    assert found is not None
    return found


def plugin(name: str, configuration: str) -> str:
    return f"admissionConfig: {{pluginConfig: {{{name}: {{configuration: {configuration}}}}}}}"


@pytest.mark.parametrize("sample", SAMPLES)
def test_printed_samples_are_read_with_a_warning_for_each_slip(sample: str) -> None:
    text, blocks, expected = SAMPLES[sample]
    repaired, changes = repair_admission_text(text)
    found = read(repaired)

    assert found.blocks == blocks
    warnings = [*changes, *map(str, found.warnings)]
    assert len(warnings) == len(expected)
    for part in expected:
        assert any(part in warning for warning in warnings)


@pytest.mark.parametrize(
    ("text", "blocks"),
    [
        (plugin("PodNodeConstraints", "{nodeSelectorLabelBlacklist: [a, b]}"),
         {"podNodeConstraints": {"nodeSelectorLabelBlacklist": ["a", "b"]}}),
        (plugin("OriginPodNodeEnvironment", "{kind: DefaultAdmissionConfig, disable: false}"), {"podNodeSelector": {}}),
        (plugin("PodNodeConstraints", "{kind: DefaultAdmissionConfig, disable: true}"), {}),
        (plugin("ExtendedResourceToleration", "null"), {}),
        ("projectConfig: {defaultNodeSelector: 'a=b, c=d'}",
         {"podNodeSelector": {"clusterDefaultNodeSelector": "a=b,c=d"}}),
        ("projectConfig: {defaultNodeSelector: ''}\nadmissionConfig: {}", {}),
        ("{kind: MasterConfig, apiVersion: v1}", {"podNodeSelector": {}}),
        (f"""{{kind: MasterConfig, apiVersion: v1, projectConfig: {{defaultNodeSelector: a=b}},
             admissionConfig: {{pluginConfig: {{OriginPodNodeEnvironment: {DISABLED}}}}}}}""", {}),
        (api_server("""name: PodNodeSelector, configuration: {podNodeSelectorPluginConfig:
            {clusterDefaultNodeSelector: a=b, ns: c=d}}"""),
         {"podNodeSelector": {"clusterDefaultNodeSelector": "a=b", "namespaceWhitelists": {"ns": "c=d"}}}),
        (api_server(f"""name: PodTolerationRestriction,
            configuration: {{{TOLERATIONS}, default: [{{key: a}}], whitelist: [{{operator: Exists}}]}}"""),
         {"podTolerationRestriction": {"defaultTolerations": [{"key": "a"}],
                                       "tolerationsWhitelist": [{"operator": "Exists"}]}}),
        (api_server("name: EventRateLimit, path: e.yaml"), {}),
        (f"{{{TOLERATIONS}, whitelist: [{{key: a}}]}}",
         {"podTolerationRestriction": {"tolerationsWhitelist": [{"key": "a"}]}}),
    ],
)  # fmt: skip
def test_configurations_become_blocks(text: str, blocks: dict[str, Any]) -> None:
    assert read(text).blocks == blocks


def test_default_of_projects_is_added_to_the_default_of_the_plugin() -> None:
    selectors = plugin("PodNodeSelector", "{podNodeSelectorPluginConfig: {clusterDefaultNodeSelector: c=d}}")

    found = read(f"{selectors}\nprojectConfig: {{defaultNodeSelector: a=b}}")
    assert found.blocks == {"podNodeSelector": {"clusterDefaultNodeSelector": "a=b,c=d"}}
    with pytest.raises(InputError, match="conflicts with clusterDefaultNodeSelector"):
        read(f"{selectors}\nprojectConfig: {{defaultNodeSelector: c=e}}")


@pytest.mark.parametrize(
    ("text", "field", "message"),
    [
        (plugin("PodNodeConstraints", "{nodeSelectorLabelBlackList: [a]}"),
         "admissionConfig.pluginConfig.PodNodeConstraints.configuration.nodeSelectorLabelBlackList",
         "is unknown; allowed are apiVersion, kind, nodeSelectorLabelBlacklist"),
        (plugin("PodNodeConstraints", "{kind: PodNodeSelectorConfig}"),
         "admissionConfig.pluginConfig.PodNodeConstraints.configuration.kind", "must be PodNodeConstraintsConfig"),
        (plugin("PodNodeConstraints", "{nodeSelectorLabelBlacklist: a}"),
         "admissionConfig.pluginConfig.PodNodeConstraints.configuration.nodeSelectorLabelBlacklist", "must be a list"),
        ("admissionConfig: {plugins: {}}", "admissionConfig.plugins", "is unknown"),
        ("admissionConfig: {pluginConfig: {PodNodeSelector: {file: a}}}",
         "admissionConfig.pluginConfig.PodNodeSelector.file", "is unknown; allowed are configuration, location"),
        ("admissionConfig: []", "admissionConfig", "must be a mapping"),
        (plugin("DefaultTolerationSeconds", "{kind: DefaultAdmissionConfig, disabled: false}"),
         "admissionConfig.pluginConfig.DefaultTolerationSeconds.configuration.disabled", "is unknown"),
        (plugin("DefaultTolerationSeconds", "{kind: DefaultAdmissionConfig, disable: 'no'}"),
         "admissionConfig.pluginConfig.DefaultTolerationSeconds.configuration.disable", "must be true or false"),
        ("podNodeSelectorPluginConfig: {ns1: region}", "podNodeSelectorPluginConfig.ns1", "must be key=value pairs"),
        ("podNodeSelectorPluginConfig: {ns1: 3}", "podNodeSelectorPluginConfig.ns1", "must be a node selector"),
        ("kubernetesMasterConfig: {apiServerArguments: {default-not-ready-toleration-seconds: [soon]}}",
         "kubernetesMasterConfig.apiServerArguments.default-not-ready-toleration-seconds", "must be a number"),
        (f"{{{API_SERVER}, plugin: []}}", "plugin", "is unknown"),
        (f"{{{API_SERVER}, plugins: {{}}}}", "plugins", "must be a list"),
        (f"{{{TOLERATIONS}, whiteList: []}}", "whiteList", "is unknown; allowed are apiVersion, kind, default"),
    ],
)  # fmt: skip
def test_invalid_configuration_is_rejected_by_field(text: str, field: str, message: str) -> None:
    with pytest.raises(InputError) as rejected:
        read(text)

    assert (rejected.value.field, rejected.value.source) == (field, "master-config.yaml")
    assert message in rejected.value.message


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("admissionConfig: {pluginOrderOverride: [PodNodeSelector]}", "pluginOrderOverride: is ignored"),
        (plugin("ExtendedResourceToleration", "null"), "has no configuration, so the plugin does not run"),
        (plugin("ExtendedResourceToleration", "{kind: DefaultAdmissionConfig, disable: true}"), "disable is true"),
        (api_server("name: PodTolerationRestriction, path: p.yaml"), "plugins[0].path: p.yaml is not read"),
        ("{kind: MasterConfig, apiVersion: v1}", "openshift.io/node-selector"),
    ],
)  # fmt: skip
def test_ignored_settings_are_reported(text: str, part: str) -> None:
    [warning] = read(text).warnings
    assert part in str(warning)


@pytest.mark.parametrize(
    "manifest",
    [{}, {"kind": "Pod", "apiVersion": "v1"}, {"kind": "Policy", "apiVersion": "v1", "admissionConfig": {}}],
)
def test_other_documents_are_left_to_other_readers(manifest: dict[str, Any]) -> None:
    assert read_admission(manifest) is None


def test_other_text_is_not_changed() -> None:
    text = "kind: Namespace\nmetadata: {name: podNodeSelectorPluginConfig}\n...\nkind: Pod\n"
    assert repair_admission_text(text) == (text, ())
    valid = "podNodeSelectorPluginConfig:\n  ns1: a=b\n  ns2: c=d 1d\nother: 3\n"
    assert repair_admission_text(valid) == (valid, ())


def test_blocks_of_several_documents_are_merged() -> None:
    first = {"podNodeSelector": {"clusterDefaultNodeSelector": "a=b"}, "podNodeConstraints": {}}
    second = {"podNodeSelector": {"namespaceWhitelists": {"n": "a=b"}}}

    assert merge_blocks(first, second) == {
        "podNodeSelector": {"clusterDefaultNodeSelector": "a=b", "namespaceWhitelists": {"n": "a=b"}},
        "podNodeConstraints": {},
    }
    with pytest.raises(InputError) as rejected:
        merge_blocks(first, {"podNodeSelector": {"clusterDefaultNodeSelector": "c=d"}})
    assert rejected.value.field == "spec.podNodeSelector.clusterDefaultNodeSelector"


@given(
    data=st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=9),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3),
        max_leaves=9,
    ),
    at=st.sampled_from(
        ["admissionConfig", "projectConfig", "kubernetesMasterConfig", "podNodeSelectorPluginConfig", "pluginConfig"]
    ),
)
def test_random_documents_are_read_or_rejected(data: Any, at: str) -> None:
    manifest = {"admissionConfig": {at: {"PodNodeSelector": data}}} if at == "pluginConfig" else {at: data}
    with suppress(InputError):
        read_admission(manifest)


@given(text=st.text(max_size=300))
def test_random_text_is_repaired_without_errors(text: str) -> None:
    repair_admission_text(text)
    repair_admission_text(f"podNodeSelectorPluginConfig:\n{text}")
