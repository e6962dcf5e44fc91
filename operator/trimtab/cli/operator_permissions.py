"""Asks with SubjectAccessReviews what the operator's service accounts lack, whether the operator runs or not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from msgspec import Struct

from trimtab.autoscaling.machine_autoscalers.targets import TargetKey
from trimtab.autoscaling.permissions import machine_autoscaler_permissions
from trimtab.autoscaling.permissions import required_permissions as autoscaling_permissions
from trimtab.cli.missing_permissions import missing_permissions
from trimtab.controller.permissions import Requirement
from trimtab.descheduling.permissions import required_permissions as descheduling_permissions
from trimtab.inspection.cluster import PolicySet
from trimtab.inspection.doctor import Check, cannot_check_operator, check_operator_account
from trimtab.kube.api import Api, ApiError
from trimtab.kube.errors import InputError
from trimtab.kube.permissions import Permission, Subject, is_permitted
from trimtab.kube.resources import DEPLOYMENTS, SUBJECT_ACCESS_REVIEWS
from trimtab.kube.verbs import list_objects
from trimtab.pressure.kubelet_client import KubeletClientSettings
from trimtab.pressure.permissions import required_permissions as pressure_permissions
from trimtab.runtime.leader_election.permissions import lease_permissions
from trimtab.runtime.settings import AUTOSCALER, CONTROLLERS, DESCHEDULER, PRESSURE, SCHEDULER, TAINTING, Settings
from trimtab.scheduling.permissions import required_permissions as scheduling_permissions
from trimtab.tainting.permissions import required_permissions as tainting_permissions

OPERATOR_SELECTOR: Final = "app.kubernetes.io/name=trimtab"


class OperatorAccount(Struct, frozen=True):
    """A service account with which a Deployment runs controllers.

    Attributes:
        namespace: namespace of the account and of the Deployment.
        name: name of the account.
        arguments: the values of the arguments of ``trimtab run``, by option; ``""`` for an option without a value.
    """

    namespace: str
    name: str
    arguments: Mapping[str, str] = {}

    @property
    def controllers(self) -> tuple[str, ...]:
        """Return the controllers that run with the account: all, unless the Deployment lists them."""
        named = self.arguments.get("--controllers", "")
        return tuple(named.split(",")) if named else CONTROLLERS

    @property
    def kubelets(self) -> KubeletClientSettings:
        """Return how the node-pressure controller reads kubelets."""
        default = KubeletClientSettings()
        access = "Proxy" if self.arguments.get("--kubelet-access") == "Proxy" else default.access
        account = self.arguments.get("--kubelet-stats-service-account", default.service_account)
        return KubeletClientSettings(access=access, service_account=account)


def parse_account(text: str) -> OperatorAccount:
    """Return the account of the option ``--service-account``.

    Raises:
        InputError: the text is not ``NAMESPACE/NAME``.
    """
    namespace, slash, name = text.partition("/")
    if not (namespace and slash and name) or "/" in name:
        raise InputError(f"--service-account: {text!r} is not NAMESPACE/NAME, such as trimtab-system/trimtab")
    return OperatorAccount(namespace, name)


def accounts_of(deployments: Sequence[Mapping[str, Any]]) -> tuple[OperatorAccount, ...]:
    """Return the service accounts of Deployments that run controllers, in order."""
    found = []
    for each in deployments:
        pod = each["spec"]["template"]["spec"]
        arguments = [part for container in pod["containers"] for part in container.get("args") or ()]
        named = {option: value for option, _, value in (part.partition("=") for part in arguments)}
        if "--controllers" in named:
            account = pod.get("serviceAccountName") or "default"
            found.append(OperatorAccount(each["metadata"]["namespace"], account, named))
    return tuple(sorted(found, key=lambda each: (each.namespace, each.name, each.controllers)))


def required_by(account: OperatorAccount, policies: PolicySet) -> tuple[Requirement, ...]:
    """Return the permissions that the controllers of an account need for the custom resources in the cluster."""
    namespace, running = account.namespace, account.controllers
    found: list[Requirement] = []
    if DESCHEDULER in running:
        for policy in policies.descheduler:
            found += descheduling_permissions(policy)
    if AUTOSCALER in running:
        found += _autoscaling(account, policies)
    if TAINTING in running and policies.taint_manager is not None:
        found += tainting_permissions(policies.taint_manager.spec, namespace=namespace)
    if SCHEDULER in running and policies.schedulers:
        found += scheduling_permissions()
    if PRESSURE in running:
        for each in policies.pressure:
            found += pressure_permissions(each.spec, namespace=namespace, kubelets=account.kubelets)
    name = account.arguments.get("--lease-name", Settings().lease_name)
    elected = "--no-leader-elect" not in account.arguments
    found += lease_permissions(namespace=namespace, lease_name=name, leader_elect=elected)
    return tuple(dict.fromkeys(found))


def _autoscaling(account: OperatorAccount, policies: PolicySet) -> list[Requirement]:
    references = (each.spec.scale_target_ref for each in policies.machine_autoscalers)
    kinds = (TargetKey.of_reference(each, "").resource() for each in references)
    targets = [each for each in kinds if each is not None]
    found: list[Requirement] = []
    if policies.machine_autoscalers:
        found += machine_autoscaler_permissions(targets)
    if policies.cluster_autoscaler is not None:
        found += autoscaling_permissions(
            policies.cluster_autoscaler,
            namespace=account.namespace,
            targets=targets,
            kwok="--kwok-templates-namespace" in account.arguments,
            priority_namespace=account.arguments.get("--priority-expander-namespace", ""),
        )
    return found


async def check_operator_permissions(
    api: Api, policies: PolicySet, *, given: OperatorAccount | None
) -> tuple[list[Check], list[Permission]]:
    """Return a check for each service account of the operator, and all permissions that they lack.

    Args:
        api: the API server.
        policies: the custom resources in the cluster.
        given: the account to check; ``None`` for those of the Deployments with the chart's label.

    Raises:
        ApiError: the API server refuses a review although the user may create it.
        Unreachable: there was no response.
    """
    if not await is_permitted(api, Permission("create", SUBJECT_ACCESS_REVIEWS)):
        permission = Permission("create", SUBJECT_ACCESS_REVIEWS).text
        why = f"you may not {permission}, which doctor needs to check what the operator may do"
        return [cannot_check_operator(why)], []
    accounts: tuple[OperatorAccount, ...] = () if given is None else (given,)
    if given is None:
        try:
            listed = await list_objects(api, DEPLOYMENTS, label_selector=OPERATOR_SELECTOR)
        except ApiError as error:
            return [cannot_check_operator(f"its Deployment cannot be read: {error}")], []
        accounts = accounts_of(listed.items)
    if not accounts:
        return [cannot_check_operator(f"no Deployment with the label {OPERATOR_SELECTOR} runs controllers")], []
    checks, lacking = [], []
    for account in accounts:
        wanted = required_by(account, policies)
        subject = Subject.service_account(account.namespace, account.name)
        needed = list(dict.fromkeys(each.permission for each in wanted))
        missing = await missing_permissions(api, needed, subject=subject)
        checks.append(
            check_operator_account(
                f"{account.namespace}/{account.name}",
                [each for each in wanted if each.permission in missing],
                len(needed),
            )
        )
        lacking += missing
    return checks, list(dict.fromkeys(lacking))
