"""A missing permission is no failure of a node removal: the node is kept, and the removal starts after the grant."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from tests.fakes.fleet import NODES, Fleet
from tests.unit.autoscaling.removal_operator import Operator, running
from trimtab.autoscaling.actuation import RemovalResult, RemovalSettings
from trimtab.controller.permissions import PERMISSIONS, ObjectKey, PermissionRegistry, Requirement
from trimtab.kube.api import Forbidden
from trimtab.kube.permissions import Permission
from trimtab.kube.resources import CLUSTER_AUTOSCALERS, PODS

pytestmark = [pytest.mark.looptime(start=0), pytest.mark.usefixtures("no_threads")]
AT_ONCE = RemovalSettings(record_after=0.0, mark_delay=0.0)
KEY = ObjectKey(CLUSTER_AUTOSCALERS)
DENIED = 'x is forbidden: User "system:serviceaccount:t:t" cannot {verb} resource "x"'


@pytest.fixture
def registry() -> Iterator[PermissionRegistry]:
    """The permissions of the process, which no checker updates."""
    token = PERMISSIONS.set(found := PermissionRegistry())
    yield found
    PERMISSIONS.reset(token)


def forbidden(verb: str) -> Forbidden:
    return Forbidden(DENIED.format(verb=verb), status=403)


def with_pods() -> Fleet:
    fleet = Fleet()
    fleet.group("a", "n1")
    fleet.group("b", "n2", unneeded=False)
    fleet.web("w1", "n1")
    fleet.web("w2", "n2", cpu="3")
    return fleet


@pytest.mark.parametrize(
    ("method", "path", "reason"),
    [
        ("PATCH", f"{NODES}/n1", "RemovalForbidden"),
        ("POST", "/eviction", "RemovalForbidden"),
        ("PATCH", "/machines/", "ScaleForbidden"),
        ("PATCH", "/machinesets/a", "RemovalForbidden"),
        ("PATCH", "/scale", "ScaleForbidden"),
    ],
)
async def test_forbidden_removal_is_no_failure_and_is_retried_soon(method: str, path: str, reason: str) -> None:
    fleet = with_pods()
    fleet.fail(forbidden(method), times=1, method=method, path=path)
    operator = Operator(fleet, settings=AT_ONCE)
    async with running(operator):
        await operator.until(lambda: bool(operator.outcomes))
        first = operator.outcomes[0]
        await operator.until(lambda: len(fleet.nodes()) == 1, seconds=60)

    assert (first.result, first.reason) == (RemovalResult.ABORTED, reason)
    assert not first.failed
    assert first.left == ""


async def test_refusal_of_a_webhook_is_a_failure() -> None:
    fleet = with_pods()
    error = Forbidden('admission webhook "a.b" denied the request: no', status=403)
    fleet.fail(error, times=1, method="PATCH", path=f"{NODES}/n1")
    operator = Operator(fleet, settings=AT_ONCE)
    async with running(operator):
        await operator.until(lambda: bool(operator.outcomes))

    assert operator.outcomes[0].failed


async def test_removal_waits_for_a_permission_and_starts_after_the_grant(registry: PermissionRegistry) -> None:
    missing = Permission("create", PODS, "eviction")
    fleet = with_pods()
    operator = Operator(fleet, settings=AT_ONCE)
    registry.require(KEY, (Requirement(missing, "x"),))
    registry.update({missing: False})
    async with running(operator):
        await asyncio.sleep(60)
        assert fleet.traces() == {}
        assert not operator.outcomes
        registry.update({missing: True})
        await operator.until(lambda: len(fleet.nodes()) == 1, seconds=60)
