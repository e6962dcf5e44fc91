"""The PlacementAdmissions in examples/ are valid, and fit the MachineSets of their examples."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from tools.generate import ROOT

from tests.admission_samples import SAMPLES
from trimtab.admission.imports import read_admission
from trimtab.api.decode import decode_placement_admission
from trimtab.api.placement_admission import NodeTaint
from trimtab.cli.audit import OPERATOR_NAMESPACE
from trimtab.runtime.admission import AdmissionSettings

EXAMPLES = ROOT / "examples" / "admission"
FILES = sorted(path for path in EXAMPLES.glob("*.yaml") if path.stem not in ("master-config", "cert-manager"))
OF_MACHINE_SETS = "placement-admission.yaml"


def load(path: Path) -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return document


def nodes_of(example: str) -> list[tuple[list[NodeTaint], dict[str, str]]]:
    """The taints and labels of the nodes of each MachineSet."""
    text = (ROOT / "examples" / example / "machine-sets.yaml").read_text(encoding="utf-8")
    templates = [each["spec"]["template"]["spec"] for each in yaml.safe_load_all(text) if each["kind"] == "MachineSet"]
    return [
        (
            [NodeTaint(taint["key"], taint.get("value", ""), taint["effect"]) for taint in each.get("taints", ())],
            each.get("metadata", {}).get("labels", {}),
        )
        for each in templates
    ]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_examples_are_valid(path: Path) -> None:
    assert decode_placement_admission(load(path)).name == "default"


def test_readme_lists_all_files() -> None:
    text = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    assert [path.name for path in EXAMPLES.glob("*.yaml") if f"({path.name})" not in text] == []


def test_converted_example_is_current() -> None:
    imported = read_admission(load(EXAMPLES / "master-config.yaml"))
    assert imported is not None
    assert load(EXAMPLES / "openshift-3.11.yaml")["spec"] == {"mode": "Warn", **imported.blocks}
    assert imported.blocks == SAMPLES["complete file"][1]


def test_pool_has_the_taint_and_the_label_of_the_teams_machine_set() -> None:
    rule = decode_placement_admission(
        load(ROOT / "examples" / "dedicated-nodes" / OF_MACHINE_SETS)
    ).spec.dedicated_nodes
    assert rule is not None
    [pool] = rule.pools
    label = {pool.taint.key: pool.taint.value}
    assert any(
        pool.taint in taints and label.items() <= labels.items() for taints, labels in nodes_of("dedicated-nodes")
    )


def test_hardware_classes_have_the_taints_and_labels_of_the_machine_sets() -> None:
    rule = decode_placement_admission(
        load(ROOT / "examples" / "special-hardware" / OF_MACHINE_SETS)
    ).spec.special_hardware
    assert rule is not None
    for each in rule.classes:
        assert each.node_label is not None
        label = {each.node_label.key: each.node_label.value}
        found = [taints for taints, labels in nodes_of("special-hardware") if label.items() <= labels.items()]
        assert any(each.taint in taints for taints in found)


def test_certificate_of_cert_manager_is_for_the_service() -> None:
    certificate = load(EXAMPLES / "cert-manager.yaml")
    namespace = certificate["metadata"]["namespace"]
    assert namespace == OPERATOR_NAMESPACE
    assert certificate["spec"]["dnsNames"] == [f"{AdmissionSettings().service}.{namespace}.svc"]
