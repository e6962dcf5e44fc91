"""Node groups on a real API server: MachineSets scale up and down with the fewest permissions."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest

from tests.api.test_machines_live import loaded
from tests.fakes.node_provider import remove_machines
from tests.fixtures.custom_resources import DEFINITIONS, definition, served
from tests.fixtures.machine_sets import MachineSets
from tests.fixtures.waiting import eventually
from trimtab.api.cluster_autoscaler import ClusterAutoscalerSpec
from trimtab.api.cluster_autoscaler_status import ClusterAutoscalerStatus
from trimtab.api.plan import ScaleUp
from trimtab.autoscaling.cluster_state import GroupFindings, advance, state_from_status, status_with_state
from trimtab.autoscaling.groups import MachineState, NodeGroup, build_groups
from trimtab.autoscaling.providers import (
    DIALECTS,
    Provider,
    ScaleFailure,
    ScaleResult,
    api_group_of,
    providers,
    verify_removal,
)
from trimtab.autoscaling.report.iteration_report import ScaleUpOutcome
from trimtab.autoscaling.scale_up_executor import (
    ExecutorResults,
    PendingIncrease,
    ScaleUpExecutor,
    plan_corrections,
    record_results,
)
from trimtab.kube.connection.config import load_config
from trimtab.kube.connection.transport import Transport
from trimtab.kube.resources import MACHINE_DEPLOYMENTS
from trimtab_local.cluster import LocalCluster

T = TypeVar("T")
LIMITS = {
    "machine.openshift.io/cluster-api-autoscaler-node-group-min-size": "0",
    "machine.openshift.io/cluster-api-autoscaler-node-group-max-size": "10",
}
ORDER = "local.trimtab.dev"
NOW = 1_795_176_000.0
ROLES = "/apis/rbac.authorization.k8s.io/v1"


@pytest.fixture
def kubeconfig(machine_cluster: LocalCluster, sets: MachineSets, tmp_path: Path) -> Iterator[Path]:
    """The kubeconfig of an account with only the permissions that the provider declares."""
    client, name = machine_cluster.client, sets.namespace
    client.request("POST", f"/api/v1/namespaces/{name}/serviceaccounts", {"metadata": {"name": "scaler"}})
    rules = [rule for dialect in DIALECTS for rule in dialect.rules()]
    client.request("POST", f"{ROLES}/clusterroles", {"metadata": {"name": name}, "rules": rules})
    subject = {"kind": "ServiceAccount", "name": "scaler", "namespace": name}
    role = {"kind": "ClusterRole", "name": name, "apiGroup": "rbac.authorization.k8s.io"}
    binding = {"metadata": {"name": name}, "roleRef": role, "subjects": [subject]}
    client.request("POST", f"{ROLES}/clusterrolebindings", binding)
    yield machine_cluster.service_account_kubeconfig(name, "scaler", path=tmp_path / "kubeconfig")
    client.request("DELETE", f"{ROLES}/clusterrolebindings/{name}")
    client.request("DELETE", f"{ROLES}/clusterroles/{name}")


class Scaler:
    """The part of an iteration that scales node groups, from a fresh snapshot."""

    def __init__(self, cluster: LocalCluster, kubeconfig: Path, sets: MachineSets) -> None:
        self._cluster = cluster
        self._kubeconfig = kubeconfig
        self._sets = sets

    def group(self, id_: str = "") -> NodeGroup:
        found = build_groups(loaded(self._cluster.kubeconfig))
        return found.by_id[id_ or f"MachineSet/{self._sets.namespace}/a"]

    def act(self, group: NodeGroup, act: Callable[[Provider], Awaitable[T]]) -> T:
        async def run() -> T:
            async with Transport(load_config(str(self._kubeconfig))) as api:
                return await act(providers(api)[api_group_of(group)])

        return asyncio.run(run())

    def increase(self, group: NodeGroup, to: int) -> Any:
        return self.act(group, lambda provider: provider.increase(group, to))

    def lower(self, group: NodeGroup, to: int) -> Any:
        return self.act(group, lambda provider: provider.lower(group, to))

    def remove(self, group: NodeGroup, *machines: str) -> Any:
        chosen = [each for each in group.machines if each.name in machines]
        return self.act(group, lambda provider: remove_machines(provider, group, chosen, now=NOW))

    def unmark(self, group: NodeGroup, *machines: str) -> Any:
        return self.act(group, lambda provider: provider.unmark(group, machines))


@pytest.fixture
def scaler(machine_cluster: LocalCluster, kubeconfig: Path, sets: MachineSets) -> Scaler:
    return Scaler(machine_cluster, kubeconfig, sets)


def test_node_group_scales_up_from_zero_and_down_by_chosen_machines(scaler: Scaler, sets: MachineSets) -> None:
    sets.make("a", 0, LIMITS)

    scale_up = scaler.increase(scaler.group(), 6)
    machines = sorted(sets.running("a", 6))
    removal = scaler.remove(scaler.group(), *machines[3:])

    assert (scale_up.done, scale_up.calls) == (True, 1)
    # A mark and a read of the mark for each machine, and one change of the size.
    assert (removal.done, removal.calls) == (True, 2 * len(removal.machines) + 1)
    assert sorted(sets.running("a", 3)) == machines[:3]
    verdict = verify_removal(removal, scaler.group())
    assert (verdict.deleted, verdict.unexpected, verdict.kept) == (tuple(machines[3:]), (), ())
    rest = scaler.remove(scaler.group(), *machines[:3])
    assert (rest.done, rest.after) == (True, 0)
    sets.running("a", 0)


def test_concurrent_edit_is_not_overwritten(scaler: Scaler, sets: MachineSets) -> None:
    sets.make("a", 2, LIMITS)
    machines = sorted(sets.running("a", 2))
    group = scaler.group()
    sets.scale("a", 3)

    scale_up = scaler.increase(group, 4)
    removal = scaler.remove(group, machines[0])

    for outcome in (scale_up, removal):
        assert outcome.failure is ScaleFailure.CONFLICT
        assert re.findall(r"\d+", outcome.message) == ["2", "3"]
    assert set(machines) < set(sets.running("a", 3))
    assert not any(each.marked for each in scaler.group().machines)


def test_status_update_causes_no_conflict(scaler: Scaler, sets: MachineSets) -> None:
    sets.make("a", 1, LIMITS)
    sets.running("a", 1)
    group = scaler.group()
    sets.annotate("a", {f"{ORDER}/status-replicas": "7"})
    eventually(lambda: sets.get("a")["status"]["replicas"] == 7, what="the set lies")

    assert scaler.increase(group, 2).done
    sets.running("a", 2)


def test_deletion_of_the_wrong_machine_is_detected_and_repaired(scaler: Scaler, sets: MachineSets) -> None:
    sets.make("a", 3, LIMITS | {f"{ORDER}/ignore-marks": "true"})
    machines = sorted(sets.running("a", 3))

    removal = scaler.remove(scaler.group(), machines[2])
    sets.running("a", 2)
    group = scaler.group()
    verdict = verify_removal(removal, group)

    assert (verdict.deleted, verdict.kept, verdict.unexpected) == ((), (machines[2],), (machines[0],))
    assert scaler.unmark(group, *verdict.kept) == ()
    assert not any(each.marked for each in scaler.group().machines)


def test_stalled_machine_set_is_waited_for(scaler: Scaler, sets: MachineSets) -> None:
    sets.make("a", 2, LIMITS)
    machines = sorted(sets.running("a", 2))
    sets.annotate("a", {f"{ORDER}/hold": "true"})

    removal = scaler.remove(scaler.group(), machines[1])

    assert removal.done
    assert verify_removal(removal, scaler.group()).pending == (machines[1],)
    again = scaler.remove(scaler.group(), machines[0])
    assert (again.failure, again.calls) == (ScaleFailure.REFUSED, 0)


def test_scale_down_also_removes_failed_machines_but_no_working_one(scaler: Scaler, sets: MachineSets) -> None:
    sets.make("a", 3, LIMITS)
    machines = sorted(sets.running("a", 3))
    sets.annotate("a", {f"{ORDER}/quota": "3"})
    assert scaler.increase(scaler.group(), 5).done
    sets.phases("a", *["Running"] * 3, "Failed", "Failed")
    group = scaler.group()
    failed = {each.name for each in group.in_state(MachineState.FAILED)}
    assert {each.reason for each in group.in_state(MachineState.FAILED)} == {"InsufficientResources"}

    removal = scaler.remove(group, machines[1])

    assert (set(removal.added), removal.after) == (failed, 2)
    assert sorted(sets.running("a", 2)) == [machines[0], machines[2]]


def test_recreated_machine_set_of_the_same_name_is_not_scaled(scaler: Scaler, sets: MachineSets) -> None:
    sets.make("a", 0, LIMITS)
    group = scaler.group()
    sets.remove("a")
    assert scaler.increase(group, 2).failure is ScaleFailure.NOT_FOUND
    sets.make("a", 0, LIMITS)

    assert scaler.increase(group, 2).failure is ScaleFailure.NOT_FOUND
    assert sets.get("a")["spec"]["replicas"] == 0


def test_missing_permission_to_scale_is_reported(
    machine_cluster: LocalCluster, scaler: Scaler, sets: MachineSets, tmp_path: Path
) -> None:
    sets.make("a", 1, LIMITS)
    [name] = sets.running("a", 1)
    account = machine_cluster.service_account_kubeconfig(sets.namespace, "default", path=tmp_path / "none")
    powerless = Scaler(machine_cluster, account, sets)
    group = scaler.group()

    for outcome in (powerless.increase(group, 2), powerless.remove(group, name)):
        assert outcome.failure is ScaleFailure.FORBIDDEN
        assert "forbidden" in outcome.message


class Pass:
    """Iterations of a process that restarts between any two: state is kept in the status only."""

    def __init__(self, cluster: LocalCluster, kubeconfig: Path) -> None:
        self._cluster = cluster
        self._kubeconfig = kubeconfig
        self.status = ClusterAutoscalerStatus()
        self.outcomes = ExecutorResults()

    def run(self, later: float = 0.0, grow: dict[str, int] | None = None, *, mute: str = "") -> GroupFindings:
        """Run one iteration: repair target sizes, then scale up.

        Args:
            later: seconds by which the clock is ahead.
            grow: new targets by the groups' names.
            mute: requests to this part of a path are never answered.
        """
        snapshot = loaded(self._cluster.kubeconfig)
        found, now = build_groups(snapshot), time.time() + later
        nodes = {node.name: node for node in snapshot.nodes.at if node is not None}
        state, findings = advance(state_from_status(self.status), found, nodes, ClusterAutoscalerSpec(), now)
        actions = [
            ScaleUp(
                each.key, from_=each.target, to=(grow or {})[each.name], reason="", pods=(), message="", group=each.id
            )
            for each in found.all
            if each.name in (grow or {})
        ]

        async def act() -> tuple[ExecutorResults, Mapping[str, PendingIncrease]]:
            async with Transport(load_config(str(self._kubeconfig))) as api:
                growing = ScaleUpExecutor(providers(Mute(api, mute) if mute else api))
                growing.correct(plan_corrections(findings, found), found)
                growing.start(actions, found)
                await growing.wait(2.0 if mute else 30.0)
                outcomes, running = growing.take_results(), growing.running
                await growing.finish()
                return outcomes, running

        self.outcomes, running = asyncio.run(act())
        state = record_results(state, self.outcomes, running, found, ClusterAutoscalerSpec(), now=now)
        self.status = msgspec.json.decode(msgspec.json.encode(status_with_state(state)), type=ClusterAutoscalerStatus)
        return findings


class Mute:
    """An API server that never responds to some paths."""

    def __init__(self, api: Transport, path: str) -> None:
        self._api = api
        self._path = path

    def __getattr__(self, name: str) -> Any:
        return getattr(self._api, name)

    async def request(self, method: str, path: str, **more: Any) -> Any:
        if self._path in path:
            await asyncio.Event().wait()
        return await self._api.request(method, path, **more)


@pytest.fixture
def passes(machine_cluster: LocalCluster, kubeconfig: Path, sets: MachineSets) -> Pass:
    return Pass(machine_cluster, kubeconfig)


def test_target_size_is_lowered_to_the_existing_machines(passes: Pass, sets: MachineSets, scaler: Scaler) -> None:
    sets.make("a", 2, LIMITS)
    machines = set(sets.running("a", 2))
    sets.annotate("a", {f"{ORDER}/hold": "true"})
    passes.run(grow={"a": 5})
    id_ = scaler.group().id

    assert [each.done for each in _of(passes.outcomes.scale_ups, sets)] == [True]
    assert passes.run().upcoming.get(id_, 3) == 3
    late = passes.run(later=901)

    assert late.upcoming[id_] == 0
    assert [each.reason for each in late.reported if each.group == id_] == ["ScaleUpTimedOut"]
    assert sets.get("a")["spec"]["replicas"] == 2
    sets.annotate("a", {f"{ORDER}/hold": None})
    assert set(sets.running("a", 2)) == machines


def test_overreported_replicas_do_not_lower_the_target_size(passes: Pass, sets: MachineSets, scaler: Scaler) -> None:
    sets.make("a", 2, LIMITS)
    sets.running("a", 2)
    sets.annotate("a", {f"{ORDER}/hold": "true", f"{ORDER}/status-replicas": "7"})
    eventually(lambda: sets.get("a")["status"]["replicas"] == 7, what="the set lies")
    sets.scale("a", 4)

    lowered = scaler.lower(scaler.group(), 2)

    assert lowered.failure is ScaleFailure.CONFLICT
    assert re.findall(r"\d+", lowered.message) == ["2", "7"]
    assert sets.get("a")["spec"]["replicas"] == 4


def test_target_size_of_an_empty_group_is_lowered_to_zero(scaler: Scaler, sets: MachineSets) -> None:
    sets.make("a", 0, LIMITS | {f"{ORDER}/hold": "true"})
    sets.scale("a", 3)

    lowered = scaler.lower(scaler.group(), 0)

    assert (lowered.done, lowered.message, lowered.calls) == (True, "", 2)
    assert sets.get("a")["spec"]["replicas"] == 0


def test_failed_machines_are_deleted_and_the_group_backs_off(passes: Pass, sets: MachineSets, scaler: Scaler) -> None:
    sets.make("a", 1, LIMITS | {f"{ORDER}/quota": "1"})
    [machine] = sets.running("a", 1)
    passes.run(grow={"a": 3})
    sets.phases("a", "Running", "Failed", "Failed")
    id_ = scaler.group().id

    findings = passes.run()

    assert [each.reason for each in findings.reported if each.group == id_] == ["MachineFailed"]
    assert list(sets.running("a", 1)) == [machine]
    assert [each.calls for each in passes.outcomes.corrections if each.group == id_] == [1]
    record = state_from_status(passes.status).record(id_)
    assert record.last_error is not None
    assert (record.failures, record.last_error.reason) == (1, "InsufficientResources")
    assert state_from_status(passes.status).scale_ups.get(id_) is None
    assert [each for each in passes.run().reported if each.group == id_] == []


@pytest.mark.live
def test_machines_that_never_register_are_deleted_after_the_provision_timeout(
    passes: Pass, sets: MachineSets, scaler: Scaler
) -> None:
    sets.make("a", 1, LIMITS)
    [machine] = sets.running("a", 1)
    sets.annotate("a", {f"{ORDER}/never-join": "true"})
    passes.run(grow={"a": 3})
    eventually(lambda: len(sets.machines("a")) == 3, what="machines are made")
    id_ = scaler.group().id

    assert id_ not in passes.run().unregistered
    findings = passes.run(later=960)

    assert len(findings.unregistered[id_]) == 2
    assert list(sets.running("a", 1)) == [machine]


def test_hung_node_group_delays_no_other(passes: Pass, sets: MachineSets, scaler: Scaler) -> None:
    sets.make("a", 0, LIMITS)
    sets.make("b", 0, LIMITS)
    hanging = scaler.group().id

    passes.run(grow={"a": 2, "b": 2}, mute="/machinesets/a/scale")

    assert [each.done for each in _of(passes.outcomes.scale_ups, sets)] == [True]
    sets.running("b", 2)
    assert sets.get("a")["spec"]["replicas"] == 0
    [requested] = state_from_status(passes.status).scale_ups[hanging]
    assert (requested.from_, requested.to, requested.doubt) == (0, 2, True)
    assert hanging in passes.run(later=10).unobserved_requests
    assert hanging not in passes.run(later=40).unobserved_requests
    assert hanging not in state_from_status(passes.status).scale_ups


def test_target_size_edited_during_scale_up_wins(passes: Pass, sets: MachineSets, scaler: Scaler) -> None:
    sets.make("a", 1, LIMITS)
    sets.running("a", 1)
    sets.annotate("a", {f"{ORDER}/boot-time": "1h"})
    passes.run(grow={"a": 4})
    id_ = scaler.group().id
    passes.run()
    sets.scale("a", 2)

    findings = passes.run(later=120)

    assert [(each.reason, each.count) for each in findings.reported if each.group == id_] == [("TargetChanged", 2)]
    [left] = state_from_status(passes.status).scale_ups[id_]
    assert (left.from_, left.to) == (1, 2)


def _of(grown: Sequence[ScaleUpOutcome], sets: MachineSets) -> list[ScaleResult]:
    return [each.scaled for each in grown if f"/{sets.namespace}/" in each.scaled.group]


@pytest.fixture
def deployments(machine_cluster: LocalCluster) -> Iterator[None]:
    """The CRD of Cluster API's MachineDeployment with a scale subresource, and no controller."""
    integer = {"type": "integer"}
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    schema = {
        "type": "object",
        "properties": {"spec": anything | {"properties": {"replicas": integer}}, "status": anything},
    }
    scale = {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}
    made = definition(MACHINE_DEPLOYMENTS)
    [version] = made["spec"]["versions"]
    version |= {"schema": {"openAPIV3Schema": schema}, "subresources": {"status": {}, "scale": scale}}
    client = machine_cluster.client
    client.request("POST", DEFINITIONS, made)
    eventually(lambda: served(client, MACHINE_DEPLOYMENTS.path()), what="it is served")
    yield
    client.request("DELETE", f"{DEFINITIONS}/{MACHINE_DEPLOYMENTS.name}")


@pytest.mark.usefixtures("deployments")
def test_machine_deployment_of_cluster_api_scales_up(scaler: Scaler, sets: MachineSets) -> None:
    prefix = "cluster.x-k8s.io/cluster-api-autoscaler-node-group"
    path = MACHINE_DEPLOYMENTS.path(namespace=sets.namespace)
    manifest = {
        "apiVersion": MACHINE_DEPLOYMENTS.api_version,
        "kind": MACHINE_DEPLOYMENTS.kind,
        "metadata": {"name": "md", "annotations": {f"{prefix}-min-size": "0", f"{prefix}-max-size": "5"}},
        "spec": {"replicas": 0},
    }
    sets.client.request("POST", path, manifest)
    group = scaler.group(f"MachineDeployment/{sets.namespace}/md")

    assert scaler.increase(group, 3).done
    again = scaler.increase(group, 4)

    assert (again.failure, re.findall(r"\d+", again.message)) == (ScaleFailure.CONFLICT, ["0", "3"])
    assert sets.client.request("GET", f"{path}/md")["spec"]["replicas"] == 3
