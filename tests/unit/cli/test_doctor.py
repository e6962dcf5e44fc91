"""``trimtab doctor``, on an API server in memory."""

from __future__ import annotations

from typing import Any

import msgspec

from tests.fakes.cluster import FakeCluster
from tests.unit.cli.test_operator_permissions import deployment
from tests.unit.cli.test_status import DEGRADED, IDLE, LEASE
from trimtab.kube.api import Forbidden
from trimtab.kube.resources import DEPLOYMENTS, DESCHEDULER_POLICIES, LEASES

ACCOUNT = "system:serviceaccount:trimtab-system:trimtab"


def add_operator(server: FakeCluster) -> None:
    """An operator whose Lease is never out of date."""
    made = deployment("trimtab", "--controllers=descheduler", "--no-leader-elect")
    made["metadata"] |= {"name": "trimtab", "labels": {"app.kubernetes.io/name": "trimtab"}}
    server.add(DEPLOYMENTS, made)
    server.add(LEASES, {**LEASE, "spec": {**LEASE["spec"], "renewTime": "2100-01-01T00:00:00Z"}})


def examined(run, kubeconfig, *options: str) -> tuple[int, dict[str, tuple[str, str]], dict[str, Any]]:
    """The exit status, result and reason by subject, and the document."""
    result = run("doctor", "--kubeconfig", kubeconfig, "-o", "json", *options)
    document = msgspec.json.decode(result.stdout)
    found = {each["subject"]: (each["result"], each["reason"]) for each in document["checks"]}
    return result.exit_code, found, document


def test_healthy_installation_has_no_failed_check(run, server, kubeconfig) -> None:
    add_operator(server)
    server.add(DESCHEDULER_POLICIES, msgspec.yaml.decode(IDLE))

    code, found, document = examined(run, kubeconfig)

    assert (code, document["missingRules"], document["operatorMissing"]) == (0, [], [])
    assert found == {
        "definitions": ("Ok", ""),
        "operator": ("Ok", ""),
        "DeschedulerPolicy/idle": ("Ok", ""),
        "operator permissions of trimtab-system/trimtab": ("Ok", ""),
        "user": ("Ok", ""),
    }
    assert run("doctor", "--kubeconfig", kubeconfig).exit_code == 0


def test_every_problem_is_found_at_once(run, server, kubeconfig) -> None:
    add_operator(server)
    server.add(DESCHEDULER_POLICIES, msgspec.yaml.decode(DEGRADED))
    server.may = lambda review: review["resource"] not in ("pods", "csinodes")
    server.account_may = lambda user, review: user != ACCOUNT or review.get("subresource") != "eviction"
    del server.objects["/apis/trimtab.dev/v1alpha1"]

    code, found, document = examined(run, kubeconfig)

    assert code == 1
    assert found == {
        "definitions": ("Failed", "ResourceNotServed"),
        "operator": ("Ok", ""),
        "DeschedulerPolicy/nightly": ("Failed", "EvictionsFailed"),
        "operator permissions of trimtab-system/trimtab": ("Failed", "PermissionsMissing"),
        "user": ("Failed", "PermissionsMissing"),
    }
    assert document["operatorMissing"] == ["create pods/eviction"]
    assert [(rule["resources"], rule["verbs"]) for rule in document["missingRules"]] == [
        (["pods"], ["list"]),
        (["csinodes"], ["list"]),
    ]
    table = run("doctor", "--kubeconfig", kubeconfig)
    assert table.exit_code == 1
    rules = msgspec.yaml.decode(table.stdout.rpartition("what you lack:")[2])
    assert rules == document["missingRules"]


def test_account_of_the_option_is_checked_without_a_deployment(run, server, kubeconfig) -> None:
    _, found, _ = examined(run, kubeconfig, "--service-account", "ops/mine")

    assert found["operator permissions of ops/mine"] == ("Ok", "")


def test_operators_permissions_are_unknown_without_what_the_check_needs(run, server, kubeconfig) -> None:
    assert examined(run, kubeconfig)[1]["operator permissions"] == ("Unknown", "")  # no Deployment

    server.fail(Forbidden("may not list deployments", status=403), times=9, path="/deployments")
    assert examined(run, kubeconfig)[1]["operator permissions"] == ("Unknown", "")

    server.may = lambda review: review["resource"] != "subjectaccessreviews"
    assert examined(run, kubeconfig)[1]["operator permissions"] == ("Unknown", "")


def test_malformed_account_is_refused_before_any_request(run, server, kubeconfig) -> None:
    assert run("doctor", "--kubeconfig", kubeconfig, "--service-account", "trimtab").exit_code == 2
    assert server.calls == []
