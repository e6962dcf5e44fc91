"""`trimtab convert` with admission configurations of OpenShift and kube-apiserver."""

from __future__ import annotations

import pytest
import yaml

from tests.admission_samples import PROJECTS_FILE, PROJECTS_REFERENCE, SAMPLES, SELECTORS, TOLERATION_SECONDS
from trimtab.api.decode import decode_placement_admission


@pytest.mark.parametrize("sample", SAMPLES)
def test_printed_samples_are_converted_with_warnings(run, file, sample) -> None:
    text, blocks, warnings = SAMPLES[sample]
    result = run("convert", file(text, "master-config.yaml"))

    assert result.exit_code == 0
    [document] = yaml.safe_load_all(result.stdout)
    assert document == {
        "apiVersion": "trimtab.dev/v1alpha1",
        "kind": "PlacementAdmission",
        "metadata": {"name": "default"},
        "spec": {"mode": "Warn", **blocks},
    }
    decode_placement_admission(document)
    assert len(result.stderr.splitlines()) == len(warnings)
    assert all(line.startswith("trimtab: warning: ") for line in result.stderr.splitlines())


def test_file_and_its_reference_become_one_admission(run, file) -> None:
    files = [file(PROJECTS_REFERENCE, "a.yaml"), file(PROJECTS_FILE, "b.yaml"), file(TOLERATION_SECONDS, "c.yaml")]
    result = run("convert", *files)

    [document] = yaml.safe_load_all(result.stdout)
    assert document["spec"] == {"mode": "Warn", "podNodeSelector": SELECTORS, "defaultTolerationSeconds": {}}


def test_converted_admission_is_converted_to_itself(run, file) -> None:
    first = run("convert", file(PROJECTS_FILE))
    again = run("convert", file(first.stdout, "converted.yaml"))

    assert (again.stdout, again.stderr) == (first.stdout, "")


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["admissionConfig: {pluginConfig: {PodNodeConstraints: {configuration: {nodeSelectorLabels: [a]}}}}"],
         "0.yaml: admissionConfig: admissionConfig.pluginConfig.PodNodeConstraints.configuration.nodeSelectorLabels"),
        (["podNodeSelectorPluginConfig: {a: b=c}", "podNodeSelectorPluginConfig: {a: b=d}"],
         "1.yaml: spec.podNodeSelector.namespaceWhitelists: is set to different values in two documents"),
        (["podNodeSelectorPluginConfig: {a: b=c}",
          "{apiVersion: trimtab.dev/v1alpha1, kind: PlacementAdmission, metadata: {name: default}}"],
         "is defined twice: in"),
    ],
)  # fmt: skip
def test_invalid_input_is_an_error_with_its_file_and_field(run, file, texts, expected) -> None:
    result = run("convert", *(file(text, f"{number}.yaml") for number, text in enumerate(texts)))

    assert (result.exit_code, result.stdout) == (2, "")
    assert expected in result.stderr
