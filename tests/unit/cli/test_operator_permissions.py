"""What the operator's service accounts need, according to its Deployments and the custom resources in the cluster."""

from __future__ import annotations

from typing import Any

import pytest

from trimtab.api.decode import decode_policy, decode_taint_manager
from trimtab.cli.operator_permissions import OperatorAccount, accounts_of, parse_account, required_by
from trimtab.inspection.cluster import PolicySet
from trimtab.kube.errors import InputError
from trimtab.kube.resources import LEASES


def deployment(account: str, *arguments: str) -> dict[str, Any]:
    container = {"name": "main", "args": ["run", *arguments]}
    spec = {"serviceAccountName": account, "containers": [container]}
    return {"metadata": {"namespace": "trimtab-system"}, "spec": {"template": {"spec": spec}}}


def head(kind: str) -> dict[str, Any]:
    return {"apiVersion": "trimtab.dev/v1alpha1", "kind": kind, "metadata": {"name": "default"}}


POLICIES = PolicySet(
    descheduler=(
        decode_policy({**head("DeschedulerPolicy"), "spec": {"mode": "Act", "strategies": {"RemoveDuplicates": {}}}}),
    ),
    taint_manager=decode_taint_manager({**head("TaintManager"), "spec": {"mode": "EvictPods"}}),
)


def texts(account: OperatorAccount, policies: PolicySet = POLICIES) -> set[str]:
    return {each.permission.text for each in required_by(account, policies)}


def test_each_deployment_with_controllers_has_an_account() -> None:
    found = accounts_of(
        [
            deployment("two", "--controllers=tainting,scheduler"),
            deployment("one", "--controllers=descheduler"),
            deployment("webhooks", "--role=admission"),
        ]
    )

    assert [(each.name, each.controllers) for each in found] == [
        ("one", ("descheduler",)),
        ("two", ("tainting", "scheduler")),
    ]


def test_permissions_are_those_of_the_accounts_controllers() -> None:
    [descheduler, tainting] = accounts_of(
        [deployment("a", "--controllers=descheduler"), deployment("b", "--controllers=tainting")]
    )

    assert "create pods/eviction" in texts(descheduler)
    assert "delete pods" not in texts(descheduler)
    assert "delete pods" in texts(tainting)
    assert texts(OperatorAccount("trimtab-system", "c")) == texts(descheduler) | texts(tainting)


def test_permissions_for_leases_follow_the_arguments() -> None:
    [elected, alone] = accounts_of(
        [
            deployment("a", "--controllers=descheduler", "--lease-name=x"),
            deployment("b", "--controllers=descheduler", "--no-leader-elect"),
        ]
    )

    def updated_leases(account: OperatorAccount) -> set[tuple[str, str]]:
        permissions = [each.permission for each in required_by(account, PolicySet())]
        return {(each.namespace, each.name) for each in permissions if (each.verb, each.resource) == ("update", LEASES)}

    assert ("trimtab-system", "x") in updated_leases(elected)
    assert ("trimtab-system", "trimtab") not in updated_leases(alone)
    assert ("trimtab-system", "trimtab-acting") in updated_leases(alone)


@pytest.mark.parametrize("text", ["trimtab", "/trimtab", "a/", "a/b/c"])
def test_account_must_have_namespace_and_name(text: str) -> None:
    with pytest.raises(InputError, match="NAMESPACE/NAME"):
        parse_account(text)
