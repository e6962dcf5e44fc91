"""Reads the existing objects for the audit of a PlacementAdmission, from files or from the live cluster."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import click

from trimtab.admission.audit import KINDS, NAMESPACE, Audit, AuditResult, decode
from trimtab.admission.requests import POD, TEMPLATE_PATHS
from trimtab.admission.reviewer import compile_rules
from trimtab.api.placement_admission import PlacementAdmissionSpec
from trimtab.cli.errors import InvalidObjectReporter
from trimtab.cli.options import OPERATOR_NAMESPACE
from trimtab.kube.errors import InputError
from trimtab.kube.resources import (
    CRON_JOBS,
    DAEMON_SETS,
    DEPLOYMENT_CONFIGS,
    DEPLOYMENTS,
    JOBS,
    NAMESPACES,
    POD_TEMPLATES,
    PODS,
    REPLICA_SETS,
    REPLICATION_CONTROLLERS,
    STATEFUL_SETS,
    Resource,
)

if TYPE_CHECKING:
    import msgspec

    from trimtab.cli.live import Progress
    from trimtab.kube.api import Api
    from trimtab.kube.wire.files.reader import OnInvalid
    from trimtab.kube.wire.identity import ObjectIdentity

RESOURCES: Final = (
    NAMESPACES,
    CRON_JOBS,
    DAEMON_SETS,
    DEPLOYMENTS,
    DEPLOYMENT_CONFIGS,
    JOBS,
    POD_TEMPLATES,
    REPLICA_SETS,
    REPLICATION_CONTROLLERS,
    STATEFUL_SETS,
    PODS,
)
"""What is listed in a live cluster: owners before pods, so that pods need not be kept in memory."""

RESTARTS: Final = 2
"""Maximum number of times that the list of a kind is restarted because its continue token has expired."""

_GROUPS: Final = {(kind, group) for group, kind in TEMPLATE_PATHS} | {(NAMESPACE, ""), (POD, "")}


class ClusterAudit:
    """Audits the objects of a cluster against the rules of a PlacementAdmission.

    Args:
        spec: the rules.
        groups: the groups of the user who is assumed to create the objects.
        operator_namespace: the namespace of the operator, which is exempt.
    """

    def __init__(
        self,
        spec: PlacementAdmissionSpec,
        *,
        groups: Sequence[str] = (),
        operator_namespace: str = OPERATOR_NAMESPACE,
    ) -> None:
        self.spec = spec
        self._new_audit = partial(
            Audit, compile_rules(spec), exempt=(operator_namespace, *spec.exempt_namespaces), groups=groups
        )
        self._objects: list[tuple[str, msgspec.Raw | Mapping[str, Any]]] = []
        self._result: AuditResult | None = None

    def take(self, identity: ObjectIdentity, content: msgspec.Raw | Mapping[str, Any]) -> bool:
        """Add an object of a file, and return whether the audit uses its kind.

        The object is kept as it is in the file, which takes less memory than decoded objects, and decoded again later.

        Raises:
            InputError: a field that the audit reads is invalid.
        """
        group = str(identity.api_version or "").rpartition("/")[0]
        known = (identity.kind, group) in _GROUPS or (not identity.api_version and identity.kind in KINDS)
        if known:
            decode(identity.kind, content)
            self._objects.append((identity.kind, content))
        return known

    async def read_live(self, api: Api, progress: Progress, on_invalid: OnInvalid | None = None) -> None:
        """Audit a live cluster. Only one page of a kind is in memory at a time.

        Args:
            api: the API server.
            progress: shows the progress after each page.
            on_invalid: called with each object that cannot be decoded; ``None`` to raise the error.

        Raises:
            InputError: an object cannot be decoded.
            LoadFailed: a kind cannot be listed.
        """
        from trimtab.cluster.loader import LoadFailed
        from trimtab.kube.api import ApiError, Gone, NotFound, Unreachable

        found = self._new_audit()
        for resource in RESOURCES:
            for attempt in range(RESTARTS + 1):
                try:
                    await _list(api, resource, found, progress, on_invalid)
                    break
                except NotFound:
                    break  # DeploymentConfigs exist only in OpenShift
                except Gone as error:
                    if attempt == RESTARTS:
                        raise LoadFailed(resource, error) from error
                    found.forget_pods()
                except (ApiError, Unreachable) as error:
                    raise LoadFailed(resource, error) from error
        progress.end()
        self._result = found.result()

    def result(self) -> AuditResult:
        """Return the actions and kept objects. Warn on stderr if files contain no Namespace that a rule needs."""
        if self._result is None:
            needed = (self.spec.pod_node_selector, self.spec.pod_toleration_restriction)
            if any(needed) and all(kind != NAMESPACE for kind, _ in self._objects):
                click.echo(
                    "trimtab: warning: no Namespace found, so the annotations of namespaces are unknown: their node "
                    "selectors, default tolerations and whitelists",
                    err=True,
                )
            # Pods are most of the objects, and decoded one at a time.
            found = self._new_audit()
            for wanted in KINDS:
                for kind, content in self._objects:
                    if kind == wanted:
                        found.add(decode(kind, content))
            self._result = found.result()
        return self._result


async def _list(api: Api, resource: Resource, found: Audit, progress: Progress, on_invalid: OnInvalid | None) -> None:
    from trimtab.cli.live import list_pages

    async for items in list_pages(api, resource, progress):
        for item in items:
            try:
                each = decode(resource.kind, item)
            except InputError as error:
                if on_invalid is None:
                    raise
                on_invalid(error)
            else:
                found.add(each)


def audit_live(found: ClusterAudit, *, kubeconfig: str | None, context: str | None, skip_invalid: bool) -> None:
    """Audit the live cluster, and show the progress on stderr.

    Raises:
        InputError: the kubeconfig is invalid.
        CommandError: the API server does not respond or refuses a request.
    """
    from trimtab.cli.live import Progress, with_api

    progress, skipping = Progress(sys.stderr), InvalidObjectReporter() if skip_invalid else None
    with_api(lambda api: found.read_live(api, progress, skipping), kubeconfig=kubeconfig, context=context)
