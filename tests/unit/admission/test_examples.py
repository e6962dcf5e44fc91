"""The PlacementAdmissions of examples/dedicated-nodes and special-hardware do what the other files write out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.fixtures.golden import Golden
from tests.taint_examples import DEDICATED, HARDWARE, documents, of_kind, pods_of
from trimtab.admission.admission_policies import to_admission_policies
from trimtab.admission.audit import KINDS, Audit, AuditResult, decode
from trimtab.admission.reviewer import compile_rules
from trimtab.api.decode import decode_placement_admission
from trimtab.api.placement_admission import PlacementAdmission
from trimtab.api.plan import Mutate, Refuse

FILE = "placement-admission.yaml"
PLACEMENT = ("tolerations", "affinity")


def example(folder: Path) -> PlacementAdmission:
    (document,) = documents(folder / FILE)
    return decode_placement_admission(document, source=FILE)


def audited(folder: Path, objects: list[dict[str, Any]]) -> AuditResult:
    audit = Audit(compile_rules(example(folder).spec))
    for kind in KINDS:
        for each in objects:
            if each["kind"] == kind:
                audit.add(decode(kind, each))
    return audit.result()


def without_placement(manifest: dict[str, Any], *names: str) -> dict[str, Any]:
    found = msgspec.json.decode(msgspec.json.encode(manifest))
    spec = found["spec"].get("template", found)["spec"]
    for name in names:
        spec.pop(name, None)
    return found


@pytest.mark.parametrize("folder", [DEDICATED, HARDWARE], ids=["dedicated-nodes", "special-hardware"])
def test_workloads_of_the_example_are_admitted_as_they_are(folder: Path) -> None:
    assert audited(folder, documents(folder)).admissions == ()


def test_team_needs_to_write_nothing() -> None:
    api = of_kind("Deployment", DEDICATED)["api"]
    (change,) = audited(DEDICATED, [without_placement(api, *PLACEMENT)]).admissions
    assert isinstance(change, Mutate)
    (written,) = api["spec"]["template"]["spec"]["tolerations"]
    assert [msgspec.to_builtins(each) for each in change.tolerations] == [written]
    assert change.node_affinity == ("dedicated in [team-a]",)


def test_others_may_not_tolerate_the_taint() -> None:
    api = of_kind("Deployment", DEDICATED)["api"]
    (refusal,) = audited(DEDICATED, [api | {"metadata": {"name": "guest", "namespace": "shop"}}]).admissions
    assert isinstance(refusal, Refuse)


def test_pods_with_hardware_need_to_write_nothing() -> None:
    deployments = of_kind("Deployment", HARDWARE)
    (train, *_), (database, *_) = (list(pods_of(deployments[name])) for name in ("train", "database"))
    database["metadata"]["labels"] = {**database["metadata"]["labels"], "disktype": "ssd"}
    found = audited(HARDWARE, [without_placement(each, *PLACEMENT) for each in (train, database)]).admissions

    assert [(each.name, getattr(each, "node_affinity", ())) for each in found] == [
        ("database-0", ("disktype in [ssd]",)),
        ("train-0", ("hardware in [gpu]",)),
    ]
    assert audited(HARDWARE, [train]).admissions == ()


def test_pods_without_hardware_may_not_tolerate_its_taint() -> None:
    web, train = (of_kind("Deployment", HARDWARE)[name] for name in ("web", "train"))
    web["spec"]["template"]["spec"]["tolerations"] = train["spec"]["template"]["spec"]["tolerations"]
    (refusal,) = audited(HARDWARE, [web]).admissions
    assert isinstance(refusal, Refuse)


@pytest.mark.parametrize("folder", [DEDICATED, HARDWARE], ids=["dedicated-nodes", "special-hardware"])
def test_example_is_converted_without_differences_other_than_operators(folder: Path, golden: Golden) -> None:
    found = to_admission_policies(example(folder))
    assert len(found.documents) == 4
    golden("\n".join(map(str, found.warnings)))
