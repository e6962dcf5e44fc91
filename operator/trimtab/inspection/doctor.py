"""Judges an installation: CustomResourceDefinitions, the operator, the custom resources, and the user's permissions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Literal

import msgspec
from msgspec import Struct

from trimtab.api import reasons
from trimtab.controller.permissions import Requirement, describe_missing
from trimtab.kube.permissions import Permission

Document = dict[str, Any]

PROBLEM_STATES: Final = ("Degraded", "NotReady", "Conflicting", "Unknown")
"""States of ``trimtab status`` that are problems of a resource."""

Result = Literal["Ok", "Failed", "Unknown"]

_RESULTS: Final[Mapping[bool | None, Result]] = {True: "Ok", False: "Failed", None: "Unknown"}

CLI_ROLE: Final = "trimtab-cli"
"""The ClusterRole of the chart for users of the command line."""


class Check(Struct, frozen=True, rename="camel"):
    """One result.

    Attributes:
        subject: what was checked: ``definitions``, ``operator``, ``operator permissions …``, a custom resource, or
            ``user``.
        result: Unknown means that the user may not read what the check needs.
        reason: a reason code; empty if the result is Ok.
        message: what was found.
        remedy: what to do about it; empty if nothing is known to help.
    """

    subject: str
    result: Result
    message: str
    reason: str = ""
    remedy: str = ""


def check_definitions(served: Mapping[str, bool]) -> Check:
    """Judge whether the API server serves our kinds.

    Args:
        served: whether each kind of the default installation is served, by ``plural.group``.
    """
    missing = sorted(name for name, there in served.items() if not there)
    if not missing:
        return Check("definitions", "Ok", f"all {len(served)} CustomResourceDefinitions are served")
    return Check(
        "definitions",
        "Failed",
        f"not served: {', '.join(missing)}",
        reasons.RESOURCE_NOT_SERVED,
        "kubectl apply -f crds/, or helm upgrade with crds.install=true",
    )


def check_status(status: Mapping[str, Any]) -> list[Check]:
    """Judge the operator and each custom resource by the document of ``trimtab status``."""
    checks = []
    operator = status["operator"]
    if operator is not None:
        state = _RESULTS[operator["running"]]
        several = len(operator["leaders"]) > 1
        checks.append(
            Check(
                "operator",
                "Failed" if several else state,
                operator["message"],
                reasons.ANOTHER_OPERATOR_ACTIVE if several else "",
            )
        )
    checks += [Check("definitions", "Failed", message) for message in status["invalid"]]
    for each in status["resources"]:
        namespace = f"{each['namespace']}/" if each["namespace"] else ""
        subject = f"{each['kind']}/{namespace}{each['name']}"
        if each["state"] not in PROBLEM_STATES:
            checks.append(Check(subject, "Ok", each["state"]))
            continue
        found = [Check(subject, "Failed", block["message"], block["reason"]) for block in each["blockedBy"]]
        checks += found or [Check(subject, "Failed", f"its state is {each['state']}")]
    return checks


def check_user(missing: Sequence[Permission], checked: int) -> Check:
    """Judge what the user of the command line may read.

    Args:
        missing: the permissions that the user lacks.
        checked: number of permissions that were checked.
    """
    if not missing:
        return Check("user", "Ok", f"you have all {checked} permissions that plan, explain, status and history need")
    return Check(
        "user",
        "Failed",
        f"you may not: {', '.join(each.text for each in missing)}",
        reasons.PERMISSIONS_MISSING,
        f"bind the ClusterRole {CLI_ROLE} of the chart, or one with the rules below",
    )


OPERATOR_PERMISSIONS: Final = "operator permissions"


def check_operator_account(account: str, missing: Sequence[Requirement], checked: int) -> Check:
    """Judge what a service account of the operator may do.

    Args:
        account: namespace and name of the account.
        missing: the permissions that it lacks.
        checked: number of permissions that were checked.
    """
    subject = f"{OPERATOR_PERMISSIONS} of {account}"
    if not missing:
        return Check(subject, "Ok", f"it has all {checked} permissions that the custom resources in the cluster need")
    return Check(
        subject,
        "Failed",
        describe_missing(missing),
        reasons.PERMISSIONS_MISSING,
        "restore the roles and role bindings of the chart (helm upgrade), or set the chart values that are named",
    )


def cannot_check_operator(why: str) -> Check:
    """Report that the permissions of the operator are unknown."""
    return Check(
        OPERATOR_PERMISSIONS,
        "Unknown",
        f"not checked: {why}",
        remedy="name the account with --service-account NAMESPACE/NAME",
    )


def missing_rules(missing: Iterable[Permission]) -> list[Document]:
    """Return rules of a ClusterRole that grant the permissions: one rule for each API group and verb."""
    grouped: dict[tuple[str, str], list[str]] = {}
    for each in missing:
        name = each.resource.plural + (f"/{each.subresource}" if each.subresource else "")
        grouped.setdefault((each.resource.group, each.verb), []).append(name)
    return [
        {"apiGroups": [group], "resources": sorted(set(names)), "verbs": [verb]}
        for (group, verb), names in sorted(grouped.items())
    ]


def doctor_document(
    checks: Sequence[Check], missing: Sequence[Permission] = (), *, operator_missing: Sequence[Permission] = ()
) -> Document:
    """Return all checks, those that failed first, ready for JSON.

    Args:
        checks: the checks.
        missing: the permissions that the user lacks.
        operator_missing: the permissions that the operator's service accounts lack.
    """
    order = {"Failed": 0, "Unknown": 1, "Ok": 2}
    ordered = sorted(checks, key=lambda each: order[each.result])
    return {
        "healthy": all(each.result != "Failed" for each in checks),
        "checks": [msgspec.to_builtins(each) for each in ordered],
        "missingRules": missing_rules(missing),
        "operatorMissing": [each.text for each in operator_missing],
    }
