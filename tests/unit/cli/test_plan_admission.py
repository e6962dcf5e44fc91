"""``trimtab plan`` with a PlacementAdmission among the policies."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest

from tests.builders import node, pod
from tests.fixtures.golden import Golden
from tests.unit.cli.report.pages import read

NOW = "2026-11-20T12:00:00Z"
ADMISSION = """\
apiVersion: trimtab.dev/v1alpha1
kind: PlacementAdmission
metadata: {name: default}
spec:
  mode: Warn
  exemptNamespaces: [exempt]
  dedicatedNodes:
    pools:
    - {name: a, namespaces: [team-a], taint: {key: dedicated, value: a}}
"""
POLICY = """\
apiVersion: trimtab.dev/v1alpha1
kind: DeschedulerPolicy
metadata: {name: default}
spec:
  strategies: {RemoveDuplicates: {}}
"""
OWN = {"key": "dedicated", "operator": "Equal", "value": "a", "effect": "NoSchedule"}


def deployment(name: str, namespace: str, *tolerations: dict[str, str]) -> dict[str, Any]:
    spec = {"containers": [{"name": "main", "image": "none"}], "tolerations": list(tolerations)}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"template": {"metadata": {"labels": {"app": name}}, "spec": spec}},
    }


def objects() -> list[Any]:
    return [
        node("n1"),
        deployment("api", "team-a"),
        deployment("guest", "shop", OWN),
        deployment("agent", "exempt", OWN),
        pod("web-1").on("n1"),
        pod("bare").on("n1").merge(spec={"tolerations": [OWN]}),
    ]


def planned(result: Any) -> Any:
    assert (result.exit_code, result.stderr) == (0, "")
    return msgspec.json.decode(result.stdout)


@pytest.mark.parametrize("documents", [(ADMISSION,), (POLICY, ADMISSION)], ids=["alone", "with a policy"])
@pytest.mark.parametrize("name", ["c.json", "c.yaml"])
def test_existing_objects_are_refused_and_changed(run, write, policy, documents, name) -> None:
    cluster = write(name, *objects())
    document = planned(run("plan", "--cluster", cluster, "--policy", policy(*documents), "--now", NOW, "-o", "json"))

    found = [(each["action"], each["kind"], each["namespace"], each["name"]) for each in document["actions"]]
    assert found == [
        ("Refuse", "Deployment", "shop", "guest"),
        ("Refuse", "Pod", "shop", "bare"),
        ("Mutate", "Deployment", "team-a", "api"),
    ]
    change = document["actions"][-1]
    assert change["tolerations"] == [OWN]
    assert (change["rule"], change["reason"], "pods" in change) == ("DedicatedNodes", "AdmissionMutated", False)
    assert document["summary"] == {"Evict": 0, "Mutate": 1, "Refuse": 2, "kept": document["summary"]["kept"]}
    (kept,) = [each for each in document["kept"] if each["strategy"] == "DedicatedNodes"]
    assert (kept["kind"], kept["namespace"], kept["name"], kept["reason"]) == (
        "Deployment", "exempt", "agent", "NamespaceExempt",
    )  # fmt: skip


def test_audit_is_independent_of_object_order(run, write, policy) -> None:
    printed = set()
    for seed in range(3):
        cluster = write("c.json", *random.Random(seed).sample(objects(), len(objects())))
        for form in ("json", "html", "table", "yaml"):
            result = run("plan", "--cluster", cluster, "--policy", policy(ADMISSION), "--now", NOW, "-o", form)
            assert result.exit_code == 0
            printed.add(result.stdout)

    assert len(printed) == 4


def test_file_with_workloads_alone_is_audited(run, write, policy) -> None:
    cluster = write("c.json", deployment("guest", "shop", OWN))
    document = planned(run("plan", "--cluster", cluster, "--policy", policy(ADMISSION), "--now", NOW, "-o", "json"))
    assert document["summary"]["Refuse"] == 1


def test_audit_as_a_member_of_a_group(run, write, policy) -> None:
    by_group = policy(ADMISSION.replace("namespaces: [team-a]", "groups: [team-a]"))
    cluster = write("c.json", deployment("web", "shop", OWN))
    for arguments, action in (((), "Refuse"), (("--as-group", "team-b", "--as-group", "team-a"), "Mutate")):
        result = run("plan", "--cluster", cluster, "--policy", by_group, "--now", NOW, "-o", "json", *arguments)
        assert [each["action"] for each in planned(result)["actions"]] == [action]


@pytest.mark.parametrize(("arguments", "namespace"), [((), "trimtab-system"), (("--operator-namespace", "ops"), "ops")])
def test_namespace_of_the_operator_is_exempt(run, write, policy, arguments, namespace) -> None:
    cluster = write("c.json", *(deployment("web", each, OWN) for each in ("trimtab-system", "ops")))
    result = run("plan", "--cluster", cluster, "--policy", policy(ADMISSION), "--now", NOW, "-o", "json", *arguments)
    document = planned(result)
    assert [each["namespace"] for each in document["kept"]] == [namespace]
    assert len(document["actions"]) == 1


def test_cluster_is_read_from_standard_input(run, write, policy) -> None:
    text = write("c.json", *objects()).read_bytes()
    found = run("plan", "--cluster", "-", "--policy", policy(ADMISSION), "--now", NOW, "-o", "json", stdin=text)
    assert planned(found)["summary"]["Refuse"] == 2


def test_workloads_are_not_read_without_a_placement_admission(run, write, policy) -> None:
    invalid = deployment("guest", "shop") | {"spec": {"template": 7}}
    cluster = write("c.json", node("n1"), invalid)
    document = planned(run("plan", "--cluster", cluster, "--policy", policy(POLICY), "--now", NOW, "-o", "json"))
    assert "Refuse" not in document["summary"]


def test_table_shows_the_first_objects(run, write, policy, golden: Golden) -> None:
    many = [deployment(f"guest-{number:02}", "shop", OWN) for number in range(30)]
    cluster = write("c.json", *objects(), *many)
    shown = run("plan", "--cluster", cluster, "--policy", policy(ADMISSION), "--now", NOW).stdout
    whole = run("plan", "--cluster", cluster, "--policy", policy(ADMISSION), "--now", NOW, "--all").stdout

    assert "1 Mutate, 32 Refuse" in shown
    assert "Deployment shop/guest-18" in shown
    assert "Deployment shop/guest-19" not in shown
    assert "Deployment team-a/api" in whole
    golden("\n".join(line for line in shown.splitlines() if "--all" in line))


def test_page_shows_the_objects(run, write, policy, golden: Golden) -> None:
    arguments = ("--policy", policy(ADMISSION), "--now", NOW, "-o", "html")
    page = read(run("plan", "--cluster", write("c.json", *objects()), *arguments).stdout)
    calm = read(run("plan", "--cluster", write("c.json", node("n1")), *arguments).stdout)

    assert page.tables["admission"]
    assert "admission" not in calm.tables
    golden(page.sections["summary"], "summary")
    golden(page.sections["admission"], "admission")
    golden(calm.sections["admission"], "no admission")


@pytest.mark.parametrize(
    ("text", "object_", "field"),
    [
        (ADMISSION.replace("mode: Warn", "mode: Never"), "PlacementAdmission/default", "spec.mode"),
        (ADMISSION.replace("namespaces: [team-a], ", ""), "PlacementAdmission/default", "spec.dedicatedNodes.pools[0]"),
        (ADMISSION.replace("name: default", "name: other"), "PlacementAdmission/other", "metadata.name"),
        (f"{ADMISSION}---\n{ADMISSION}", "PlacementAdmission/default", "is defined twice"),
    ],
)
def test_invalid_placement_admission_is_refused(run, write, policy, text, object_, field) -> None:
    result = run("plan", "--cluster", write("c.json", node("n1")), "--policy", policy(text, name="bad.yaml"))
    assert result.exit_code == 2
    assert (object_ in result.stderr, field in result.stderr, "bad.yaml" in result.stderr) == (True, True, True)


def test_invalid_workload_is_refused_or_skipped(run, write, policy) -> None:
    invalid = deployment("guest", "shop")
    invalid["spec"]["template"]["spec"]["tolerations"] = 7
    cluster = write("c.json", deployment("other", "shop", OWN), invalid, node("n1"))
    arguments = ("--cluster", cluster, "--policy", policy(ADMISSION), "--now", NOW, "-o", "json")

    refused, skipped = run("plan", *arguments), run("plan", *arguments, "--skip-invalid")

    assert refused.exit_code == 2
    assert "Deployment/shop/guest: spec.template.spec.tolerations" in refused.stderr
    assert "skipped" in skipped.stderr
    assert msgspec.json.decode(skipped.stdout)["summary"]["Refuse"] == 1


def test_node_selector_of_the_namespace_is_read(run, write, policy) -> None:
    text = ADMISSION.replace("  mode: Warn\n", "  podNodeSelector: {}\n")
    annotations = {"scheduler.alpha.kubernetes.io/node-selector": "env=test"}
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop", "annotations": annotations}}
    arguments = ("--policy", policy(text), "--now", NOW, "-o", "json")

    with_it = run("plan", "--cluster", write("with.json", pod("web-1"), namespace), *arguments)
    without = run("plan", "--cluster", write("without.json", pod("web-1")), *arguments)

    (change,) = planned(with_it)["actions"]
    assert (change["rule"], change["nodeSelector"]) == ("PodNodeSelector", {"env": "test"})
    assert "no Namespace found" in without.stderr
    assert msgspec.json.decode(without.stdout)["summary"]["Mutate"] == 0


def test_duplicate_workload_is_refused(run, write, policy) -> None:
    cluster = write("c.json", deployment("guest", "shop"), deployment("guest", "shop", OWN))
    result = run("plan", "--cluster", cluster, "--policy", policy(ADMISSION))
    assert result.exit_code == 2
    assert "is a duplicate" in result.stderr
