"""Node groups on a real API server: MachineSets grow and shrink under the fewest rights that this takes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest

from tests.api.test_machines_live import loaded
from tests.fixtures.machine_sets import MachineSets, eventually
from trimtab.api.cluster_autoscaler import ClusterAutoscalerSpec
from trimtab.api.cluster_autoscaler_status import ClusterAutoscalerStatus
from trimtab.api.plan import ScaleUp
from trimtab.autoscaling.corrections import corrections
from trimtab.autoscaling.groups import MachineState, NodeGroup, groups
from trimtab.autoscaling.growing import Asking, Growing, Outcomes, noted
from trimtab.autoscaling.memory import Findings, advance, recall, remember
from trimtab.autoscaling.providers import DIALECTS, Failure, Provider, Scaled, api_group_of, providers, verify
from trimtab.autoscaling.report.pass_report import Grown
from trimtab.kube.api import ApiError
from trimtab.kube.connection.config import load_config
from trimtab.kube.connection.transport import Transport
from trimtab.kube.resources import MACHINE_DEPLOYMENTS
from trimtab.local.cluster import LocalCluster

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
    """Of an account that has just what the dialects say that acting takes."""
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
    """What a pass of the autoscaler does with groups: reads a snapshot, acts on what it read."""

    def __init__(self, cluster: LocalCluster, kubeconfig: Path, sets: MachineSets) -> None:
        self._cluster = cluster
        self._kubeconfig = kubeconfig
        self._sets = sets

    def group(self, id_: str = "") -> NodeGroup:
        found = groups(loaded(self._cluster.kubeconfig))
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
        return self.act(group, lambda provider: provider.remove(group, chosen, now=NOW))

    def unmark(self, group: NodeGroup, *machines: str) -> Any:
        return self.act(group, lambda provider: provider.unmark(group, machines))


@pytest.fixture
def scaler(machine_cluster: LocalCluster, kubeconfig: Path, sets: MachineSets) -> Scaler:
    return Scaler(machine_cluster, kubeconfig, sets)


def test_a_group_grows_from_nothing_and_shrinks_by_the_machines_that_were_chosen(
    scaler: Scaler, sets: MachineSets
) -> None:
    sets.make("a", 0, LIMITS)

    grown = scaler.increase(scaler.group(), 6)
    machines = sorted(sets.running("a", 6))
    removal = scaler.remove(scaler.group(), *machines[3:])

    assert (grown.done, grown.calls) == (True, 1)
    assert (removal.done, removal.calls) == (True, 4)
    assert removal.calls <= 2 * len(removal.machines)
    assert sorted(sets.running("a", 3)) == machines[:3]
    verdict = verify(removal, scaler.group())
    assert (verdict.gone, verdict.wrong, verdict.spared) == (tuple(machines[3:]), (), ())
    rest = scaler.remove(scaler.group(), *machines[:3])
    assert (rest.done, rest.after) == (True, 0)
    sets.running("a", 0)


def test_an_edit_between_reading_and_acting_is_not_lost(scaler: Scaler, sets: MachineSets) -> None:
    sets.make("a", 2, LIMITS)
    machines = sorted(sets.running("a", 2))
    group = scaler.group()
    sets.scale("a", 3)

    grown = scaler.increase(group, 4)
    removal = scaler.remove(group, machines[0])

    for outcome in (grown, removal):
        assert outcome.failure is Failure.CONFLICT
        assert outcome.message == "the plan was made on a target of 2, and it is 3 by now"
    assert set(machines) < set(sets.running("a", 3))
    assert not any(each.marked for each in scaler.group().machines)


def test_changes_of_the_status_are_no_conflict(scaler: Scaler, sets: MachineSets) -> None:
    sets.make("a", 1, LIMITS)
    sets.running("a", 1)
    group = scaler.group()
    sets.annotate("a", {f"{ORDER}/status-replicas": "7"})
    eventually(lambda: sets.get("a")["status"]["replicas"] == 7, what="the set lies")

    assert scaler.increase(group, 2).done
    sets.running("a", 2)


def test_a_set_that_takes_another_machine_is_found_out_and_repaired(scaler: Scaler, sets: MachineSets) -> None:
    sets.make("a", 3, LIMITS | {f"{ORDER}/ignore-marks": "true"})
    machines = sorted(sets.running("a", 3))

    removal = scaler.remove(scaler.group(), machines[2])
    sets.running("a", 2)
    group = scaler.group()
    verdict = verify(removal, group)

    assert (verdict.gone, verdict.spared, verdict.wrong) == ((), (machines[2],), (machines[0],))
    assert scaler.unmark(group, *verdict.spared) == ()
    assert not any(each.marked for each in scaler.group().machines)


def test_a_set_that_does_nothing_is_waited_for(scaler: Scaler, sets: MachineSets) -> None:
    sets.make("a", 2, LIMITS)
    machines = sorted(sets.running("a", 2))
    sets.annotate("a", {f"{ORDER}/hold": "true"})

    removal = scaler.remove(scaler.group(), machines[1])

    assert removal.done
    assert verify(removal, scaler.group()).waiting == (machines[1],)
    again = scaler.remove(scaler.group(), machines[0])
    assert (again.failure, again.calls) == (Failure.REFUSED, 0)
    assert "its controller has yet to catch up" in again.message


def test_failed_machines_go_along_and_none_that_works(scaler: Scaler, sets: MachineSets) -> None:
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


def test_a_set_that_was_made_anew_under_its_name_is_left_alone(scaler: Scaler, sets: MachineSets) -> None:
    sets.make("a", 0, LIMITS)
    group = scaler.group()
    sets.remove("a")
    assert scaler.increase(group, 2).failure is Failure.NOT_FOUND
    sets.make("a", 0, LIMITS)

    assert scaler.increase(group, 2).failure is Failure.NOT_FOUND
    assert sets.get("a")["spec"]["replicas"] == 0


def test_without_rights_it_is_refused_and_said_so(
    machine_cluster: LocalCluster, scaler: Scaler, sets: MachineSets, tmp_path: Path
) -> None:
    sets.make("a", 1, LIMITS)
    [name] = sets.running("a", 1)
    account = machine_cluster.service_account_kubeconfig(sets.namespace, "default", path=tmp_path / "none")
    powerless = Scaler(machine_cluster, account, sets)
    group = scaler.group()

    for outcome in (powerless.increase(group, 2), powerless.remove(group, name)):
        assert outcome.failure is Failure.REFUSED
        assert "forbidden" in outcome.message


class Pass:
    """Passes of a process that is restarted between any two of them: state goes through the status each time."""

    def __init__(self, cluster: LocalCluster, kubeconfig: Path) -> None:
        self._cluster = cluster
        self._kubeconfig = kubeconfig
        self.status = ClusterAutoscalerStatus()
        self.outcomes = Outcomes()

    def run(self, later: float = 0.0, grow: dict[str, int] | None = None, *, mute: str = "") -> Findings:
        """Look and set right what is wrong; ask groups for more.

        Args:
            later: seconds by which the clock is ahead.
            grow: new targets by the groups' names.
            mute: requests to this part of a path are never answered.
        """
        snapshot = loaded(self._cluster.kubeconfig)
        found, now = groups(snapshot), time.time() + later
        nodes = {node.name: node for node in snapshot.nodes.at if node is not None}
        state, findings = advance(recall(self.status), found, nodes, ClusterAutoscalerSpec(), now)
        actions = [
            ScaleUp(
                each.key, from_=each.target, to=(grow or {})[each.name], reason="", pods=(), message="", group=each.id
            )
            for each in found.all
            if each.name in (grow or {})
        ]

        async def act() -> tuple[Outcomes, Mapping[str, Asking]]:
            async with Transport(load_config(str(self._kubeconfig))) as api:
                growing = Growing(providers(Mute(api, mute) if mute else api))
                growing.correct(corrections(findings, found), found)
                growing.begin(actions, found)
                await growing.settled(2.0 if mute else 30.0)
                outcomes, running = growing.take(), growing.running
                await growing.finish()
                return outcomes, running

        self.outcomes, running = asyncio.run(act())
        state = noted(state, self.outcomes, running, found, ClusterAutoscalerSpec(), now=now)
        self.status = msgspec.json.decode(msgspec.json.encode(remember(state)), type=ClusterAutoscalerStatus)
        return findings


class Mute:
    """An API server of which a part never answers."""

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


def test_a_group_that_makes_fewer_machines_is_lowered_to_those_that_are_there(
    passes: Pass, sets: MachineSets, scaler: Scaler
) -> None:
    sets.make("a", 2, LIMITS)
    machines = set(sets.running("a", 2))
    sets.annotate("a", {f"{ORDER}/hold": "true"})
    passes.run(grow={"a": 5})
    id_ = scaler.group().id

    assert [each.done for each in _of(passes.outcomes.grown, sets)] == [True]
    assert passes.run().upcoming.get(id_, 3) == 3
    late = passes.run(later=901)

    assert late.upcoming[id_] == 0
    assert [each.reason for each in late.told if each.group == id_] == ["ScaleUpTimedOut"]
    assert sets.get("a")["spec"]["replicas"] == 2
    sets.annotate("a", {f"{ORDER}/hold": None})
    assert set(sets.running("a", 2)) == machines


def test_a_group_that_tells_of_more_machines_than_there_are_is_not_lowered(
    passes: Pass, sets: MachineSets, scaler: Scaler
) -> None:
    sets.make("a", 2, LIMITS)
    sets.running("a", 2)
    sets.annotate("a", {f"{ORDER}/hold": "true", f"{ORDER}/status-replicas": "7"})
    eventually(lambda: sets.get("a")["status"]["replicas"] == 7, what="the set lies")
    sets.scale("a", 4)

    lowered = scaler.lower(scaler.group(), 2)

    assert lowered.failure is Failure.CONFLICT
    assert lowered.message == "2 is fewer than the 7 machines that it tells of: one of them would go"
    assert sets.get("a")["spec"]["replicas"] == 4


def test_an_empty_group_is_lowered_to_nothing(scaler: Scaler, sets: MachineSets) -> None:
    sets.make("a", 0, LIMITS | {f"{ORDER}/hold": "true"})
    sets.scale("a", 3)

    lowered = scaler.lower(scaler.group(), 0)

    assert (lowered.done, lowered.message, lowered.calls) == (True, "", 2)
    assert sets.get("a")["spec"]["replicas"] == 0


def test_machines_that_fail_make_the_group_back_off_and_are_taken_away_at_once(
    passes: Pass, sets: MachineSets, scaler: Scaler
) -> None:
    sets.make("a", 1, LIMITS | {f"{ORDER}/quota": "1"})
    [machine] = sets.running("a", 1)
    passes.run(grow={"a": 3})
    sets.phases("a", "Running", "Failed", "Failed")
    id_ = scaler.group().id

    findings = passes.run()

    assert [each.reason for each in findings.told if each.group == id_] == ["MachineFailed"]
    assert list(sets.running("a", 1)) == [machine]
    assert [each.calls for each in passes.outcomes.corrected if each.group == id_] == [1]
    record = recall(passes.status).record(id_)
    assert record.last_error is not None
    assert (record.failures, record.last_error.reason) == (1, "InsufficientResources")
    assert recall(passes.status).scale_ups.get(id_) is None
    assert [each for each in passes.run().told if each.group == id_] == []


def test_machines_that_never_join_are_taken_away_when_their_time_is_over(
    passes: Pass, sets: MachineSets, scaler: Scaler
) -> None:
    sets.make("a", 1, LIMITS)
    [machine] = sets.running("a", 1)
    sets.annotate("a", {f"{ORDER}/never-join": "true"})
    passes.run(grow={"a": 3})
    eventually(lambda: len(sets.machines("a")) == 3, what="machines are made")
    id_ = scaler.group().id

    assert id_ not in passes.run().hopeless
    findings = passes.run(later=960)

    assert len(findings.hopeless[id_]) == 2
    assert list(sets.running("a", 1)) == [machine]


def test_a_set_that_hangs_keeps_no_other_one_waiting(passes: Pass, sets: MachineSets, scaler: Scaler) -> None:
    sets.make("a", 0, LIMITS)
    sets.make("b", 0, LIMITS)
    hanging = scaler.group().id

    passes.run(grow={"a": 2, "b": 2}, mute="/machinesets/a/scale")

    assert [each.done for each in _of(passes.outcomes.grown, sets)] == [True]
    sets.running("b", 2)
    assert sets.get("a")["spec"]["replicas"] == 0
    [asked] = recall(passes.status).scale_ups[hanging]
    assert (asked.from_, asked.to, asked.doubt) == (0, 2, True)
    assert hanging in passes.run(later=10).asked
    assert hanging not in passes.run(later=40).asked
    assert hanging not in recall(passes.status).scale_ups


def test_a_target_that_is_edited_while_nodes_are_waited_for_is_the_truth(
    passes: Pass, sets: MachineSets, scaler: Scaler
) -> None:
    sets.make("a", 1, LIMITS)
    sets.running("a", 1)
    sets.annotate("a", {f"{ORDER}/boot-time": "1h"})
    passes.run(grow={"a": 4})
    id_ = scaler.group().id
    passes.run()
    sets.scale("a", 2)

    findings = passes.run(later=120)

    assert [(each.reason, each.count) for each in findings.told if each.group == id_] == [("TargetChanged", 2)]
    [left] = recall(passes.status).scale_ups[id_]
    assert (left.from_, left.to) == (1, 2)


def _of(grown: Sequence[Grown], sets: MachineSets) -> list[Scaled]:
    return [each.scaled for each in grown if f"/{sets.namespace}/" in each.scaled.group]


@pytest.fixture
def deployments(machine_cluster: LocalCluster) -> Iterator[None]:
    """Cluster API's MachineDeployment, with its scale subresource and nothing that acts on it."""
    integer = {"type": "integer"}
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    schema = {
        "type": "object",
        "properties": {"spec": anything | {"properties": {"replicas": integer}}, "status": anything},
    }
    scale = {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}
    version = {
        "name": MACHINE_DEPLOYMENTS.version,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "subresources": {"status": {}, "scale": scale},
    }
    crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    definition = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": MACHINE_DEPLOYMENTS.name,
            "annotations": {"api-approved.kubernetes.io": "unapproved, for a test"},
        },
        "spec": {
            "group": MACHINE_DEPLOYMENTS.group,
            "scope": "Namespaced",
            "names": {"kind": MACHINE_DEPLOYMENTS.kind, "plural": MACHINE_DEPLOYMENTS.plural},
            "versions": [version],
        },
    }
    client = machine_cluster.client
    client.request("POST", crds, definition)
    eventually(lambda: _answers(client, MACHINE_DEPLOYMENTS.path()), what="it is served")
    yield
    client.request("DELETE", f"{crds}/{MACHINE_DEPLOYMENTS.name}")


def _answers(client: Any, path: str) -> bool:
    try:
        return bool(client.request("GET", path))
    except ApiError:
        return False


@pytest.mark.usefixtures("deployments")
def test_a_machine_deployment_of_cluster_api_grows_as_well(scaler: Scaler, sets: MachineSets) -> None:
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

    assert (again.failure, again.message) == (
        Failure.CONFLICT,
        "the plan was made on a target of 0, and it is 3 by now",
    )
    assert sets.client.request("GET", f"{path}/md")["spec"]["replicas"] == 3
