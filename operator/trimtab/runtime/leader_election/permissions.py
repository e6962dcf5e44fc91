"""The permissions that a process needs for its Leases."""

from __future__ import annotations

from typing import Final

from trimtab.controller.permissions import Requirement, requirements
from trimtab.kube.resources import LEASES
from trimtab.runtime.leader_election.duplicate_operators import SUFFIX

ELECTION_VALUE: Final = "leaderElection.enabled"
CHART_VALUE: Final = "rbac.create"


def lease_permissions(*, namespace: str, lease_name: str, leader_elect: bool) -> tuple[Requirement, ...]:
    """Return the permissions for leader election, and for detecting other operators.

    Args:
        namespace: namespace of the Leases.
        lease_name: name of the Lease for leader election.
        leader_elect: whether the process must hold that Lease. If so, it exits when it cannot renew it.
    """
    found = [
        *requirements("create", LEASES, namespace=namespace, granted_by=CHART_VALUE, essential=False),
        *requirements(
            "get update", LEASES, namespace=namespace, name=lease_name + SUFFIX, granted_by=CHART_VALUE, essential=False
        ),
        *requirements("list", LEASES, granted_by=CHART_VALUE, essential=False),
    ]
    if leader_elect:
        found += requirements("get update", LEASES, namespace=namespace, name=lease_name, granted_by=ELECTION_VALUE)
        # Without a watch, this process may take over up to a second later.
        found += requirements(
            "watch", LEASES, namespace=namespace, name=lease_name, granted_by=ELECTION_VALUE, essential=False
        )
    return tuple(found)
