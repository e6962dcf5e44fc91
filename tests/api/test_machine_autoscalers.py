"""MachineAutoscalers on a real API server, reconciled by a process with the fewest permissions."""

from __future__ import annotations

import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests import autoscalers
from tests.fixtures.autoscaling import delete_all
from tests.fixtures.machine_sets import MERGE, MachineSets
from tests.fixtures.waiting import eventually, killed_after
from trimtab.api.crds import crd_documents
from trimtab.autoscaling.machine_autoscalers import KINDS, RULES
from trimtab.kube.api import ApiError, Conflict, Invalid, NotFound
from trimtab.kube.resources import CLUSTER_AUTOSCALERS, MACHINE_AUTOSCALERS
from trimtab_local.cluster import LocalCluster

ROOT = Path(__file__).parents[2]
ROLES = "/apis/rbac.authorization.k8s.io/v1"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
MIN = "machine.openshift.io/cluster-api-autoscaler-node-group-min-size"
MAX = "machine.openshift.io/cluster-api-autoscaler-node-group-max-size"
OWNER = "autoscaling.openshift.io/machineautoscaler"
FINALIZER = "machinetarget.autoscaling.openshift.io"
WATCHING = {
    "apiGroups": sorted({kind.group for kind in KINDS}),
    "resources": sorted({kind.plural for kind in KINDS}),
    "verbs": ["list", "watch"],
}
EVENTS = {"apiGroups": ["events.k8s.io"], "resources": ["events"], "verbs": ["create", "patch"]}


@pytest.fixture(scope="module")
def served(machine_cluster: LocalCluster) -> None:
    """Create the CRDs and wait until both kinds are served."""
    client = machine_cluster.client
    for document in crd_documents():
        if document["spec"]["group"] == MACHINE_AUTOSCALERS.group:
            with suppress(Conflict):
                client.request("POST", CRDS, document)
    for resource in (CLUSTER_AUTOSCALERS, MACHINE_AUTOSCALERS):
        eventually(lambda resource=resource: _answers(client, resource.path()), what="they are served")


def _answers(client: Any, path: str) -> bool:
    try:
        return bool(client.request("GET", path))
    except ApiError:
        return False


class Autoscalers:
    """The MachineAutoscalers of a namespace, and the process that reconciles them."""

    def __init__(self, sets: MachineSets, kubeconfig: Path, log: Path) -> None:
        self.sets = sets
        self.client = sets.client
        self._kubeconfig = kubeconfig
        self._log = log
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        with self._log.open("a") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.fixtures.machine_autoscalers", str(self._kubeconfig)],
                cwd=ROOT,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        assert self._process.stdout is not None
        with killed_after(self._process, 90):
            started = self._process.stdout.readline() == "started\n"
        if not started:
            self.end(signal.SIGKILL)
        assert started, self._log.read_text()

    def end(self, how: signal.Signals = signal.SIGTERM) -> int:
        process, self._process = self._process, None
        if process is None:
            return 0
        process.send_signal(how)
        assert process.stdout is not None
        process.stdout.close()
        with killed_after(process, 30):
            return process.wait()

    def path(self, name: str) -> str:
        return MACHINE_AUTOSCALERS.path(name, namespace=self.sets.namespace)

    def make(self, name: str = "ma", *, low: int = 1, high: int = 5, target: str = "a") -> None:
        ref = {"apiVersion": "machine.openshift.io/v1beta1", "kind": "MachineSet", "name": target}
        spec = {"minReplicas": low, "maxReplicas": high, "scaleTargetRef": ref}
        manifest = autoscalers.machine_autoscaler(spec, name=name)
        manifest["metadata"]["namespace"] = self.sets.namespace
        self.client.request("POST", MACHINE_AUTOSCALERS.path(namespace=self.sets.namespace), manifest)

    def get(self, name: str = "ma") -> dict[str, Any]:
        return self.client.request("GET", self.path(name))

    def edit(self, name: str = "ma", **spec: Any) -> None:
        self.client.request("PATCH", self.path(name), {"spec": spec}, content_type=MERGE)

    def delete(self, name: str = "ma") -> None:
        self.client.request("DELETE", self.path(name))

    def gone(self, name: str = "ma") -> bool:
        try:
            self.get(name)
        except NotFound:
            return True
        return False

    def reason(self, name: str = "ma") -> str:
        conditions = self.get(name).get("status", {}).get("conditions", [])
        return next((each["reason"] for each in conditions if each["type"] == "Ready"), "")

    def becomes(self, reason: str, name: str = "ma") -> None:
        eventually(lambda: self.reason(name) == reason, what=f"{name} is {reason}, not {self.reason(name)}", seconds=30)

    def annotations(self, name: str = "a") -> dict[str, str]:
        found = self.sets.get(name)["metadata"].get("annotations", {})
        return {key: text for key, text in found.items() if not key.startswith("local.trimtab.dev/")}

    def has_limits(self, low: int, high: int, owner: str = "ma", *, name: str = "a") -> None:
        wanted = {MIN: str(low), MAX: str(high), OWNER: f"{self.sets.namespace}/{owner}"}
        eventually(lambda: wanted.items() <= self.annotations(name).items(), what=f"{name} has {wanted}", seconds=30)

    def events(self) -> list[tuple[str, str]]:
        path = f"/apis/events.k8s.io/v1/namespaces/{self.sets.namespace}/events"
        found = self.client.request("GET", path)["items"]
        return [(each["reason"], each["note"]) for each in found if each["regarding"]["kind"] == "MachineAutoscaler"]


@pytest.fixture
def autoscaler(machine_cluster: LocalCluster, served: None, sets: MachineSets, tmp_path: Path) -> Iterator[Autoscalers]:
    del served
    client, name = machine_cluster.client, sets.namespace
    role = f"{name}-{secrets.token_hex(2)}"
    client.request("POST", f"/api/v1/namespaces/{name}/serviceaccounts", {"metadata": {"name": "limits"}})
    rules = [*RULES, WATCHING, EVENTS]
    client.request("POST", f"{ROLES}/clusterroles", {"metadata": {"name": role}, "rules": rules})
    subject = {"kind": "ServiceAccount", "name": "limits", "namespace": name}
    reference = {"name": role, "kind": "ClusterRole", "apiGroup": "rbac.authorization.k8s.io"}
    binding = {"metadata": {"name": role}, "roleRef": reference, "subjects": [subject]}
    client.request("POST", f"{ROLES}/clusterrolebindings", binding)
    kubeconfig = machine_cluster.service_account_kubeconfig(name, "limits", path=tmp_path / "kubeconfig")
    found = Autoscalers(sets, kubeconfig, tmp_path / "log")
    found.start()
    try:
        yield found
    finally:
        found.end()
    delete_all(client, MACHINE_AUTOSCALERS.path(namespace=name))
    client.request("DELETE", f"{ROLES}/clusterrolebindings/{role}")
    client.request("DELETE", f"{ROLES}/clusterroles/{role}")
    log = (tmp_path / "log").read_text()
    assert "Traceback" not in log, log


def test_limit_annotations_follow_the_machine_autoscaler(autoscaler: Autoscalers, sets: MachineSets) -> None:
    own = {"machine.openshift.io/vCPU": "4", "machine.openshift.io/memoryMb": "16384", "example.com/note": "mine"}
    sets.make("a", 0, own)
    autoscaler.make(low=0)
    autoscaler.has_limits(0, 5)
    autoscaler.becomes("LimitsSet")
    assert autoscaler.get()["metadata"]["finalizers"] == [FINALIZER]
    assert autoscaler.annotations()["capacity.cluster-autoscaler.kubernetes.io/cpu"] == "4"
    assert autoscaler.annotations()["capacity.cluster-autoscaler.kubernetes.io/memory"] == "16384Mi"

    sets.annotate("a", {MAX: "50", MIN: None})
    autoscaler.has_limits(0, 5)
    autoscaler.edit(maxReplicas=7)
    autoscaler.has_limits(0, 7)
    eventually(lambda: autoscaler.get()["status"]["observedGeneration"] == 2, what="the status is about the new spec")
    eventually(
        lambda: any(note.startswith("restored annotations of ") for _, note in autoscaler.events()),
        what=f"an event tells that limits were put back: {autoscaler.events()}",
    )

    autoscaler.delete()
    eventually(autoscaler.gone, what="it is gone", seconds=30)
    assert autoscaler.annotations() == own


@pytest.mark.parametrize("annotations", [{}, {"example.com/note": "mine"}], ids=["none", "none that is read"])
def test_deleting_a_machine_autoscaler_removes_added_annotations(
    autoscaler: Autoscalers, sets: MachineSets, annotations: dict[str, str]
) -> None:
    sets.make("a", 0, annotations)
    autoscaler.make(low=0)
    autoscaler.has_limits(0, 5)
    autoscaler.delete()
    eventually(autoscaler.gone, what="it is gone", seconds=30)
    assert autoscaler.annotations() == annotations


def test_missing_target_and_second_owner_are_reported_and_resolved(autoscaler: Autoscalers, sets: MachineSets) -> None:
    autoscaler.make("first", target="a")
    autoscaler.becomes("TargetNotFound", "first")
    sets.make("a", 0)
    sets.make("b", 0)
    autoscaler.has_limits(1, 5, "first")
    autoscaler.becomes("BelowMinimum", "first")

    autoscaler.make("second", low=0, high=3, target="a")
    autoscaler.becomes("TargetAlreadyOwned", "second")
    autoscaler.edit("first", scaleTargetRef={"name": "b"})
    autoscaler.has_limits(1, 5, "first", name="b")
    autoscaler.has_limits(0, 3, "second", name="a")
    autoscaler.becomes("LimitsSet", "second")
    assert autoscaler.get("first")["status"]["lastTargetRef"]["name"] == "b"
    wanted = {"FailedGetTarget", "FailedSetOwner", "SuccessfulUpdate"}
    eventually(lambda: wanted <= {reason for reason, _ in autoscaler.events()}, what="events tell all that")


def test_changes_during_downtime_are_reconciled_after_restart(autoscaler: Autoscalers, sets: MachineSets) -> None:
    sets.make("a", 0)
    sets.make("b", 0)
    autoscaler.make("moves", low=0, target="a")
    autoscaler.make("goes", low=0, target="b")
    autoscaler.has_limits(0, 5, "moves", name="a")
    autoscaler.has_limits(0, 5, "goes", name="b")
    autoscaler.becomes("LimitsSet", "goes")
    autoscaler.becomes("LimitsSet", "moves")
    autoscaler.end(signal.SIGKILL)

    autoscaler.delete("goes")
    autoscaler.edit("moves", scaleTargetRef={"name": "c"})
    sets.make("c", 0)
    autoscaler.start()

    autoscaler.has_limits(0, 5, "moves", name="c")
    eventually(lambda: autoscaler.gone("goes"), what="the deleted one is gone", seconds=30)
    for name in "ab":
        eventually(lambda name=name: autoscaler.annotations(name) == {}, what="former targets are as they were")


@pytest.mark.live
@pytest.mark.parametrize("when", [0.0, 0.02, 0.05, 0.1, 0.2])
def test_next_process_continues_after_a_kill(autoscaler: Autoscalers, sets: MachineSets, when: float) -> None:
    sets.make("a", 0)
    sets.make("b", 0)
    autoscaler.make(low=0, target="a")
    time.sleep(when)
    autoscaler.end(signal.SIGKILL)
    autoscaler.edit(scaleTargetRef={"name": "b"})
    autoscaler.start()
    time.sleep(when)
    autoscaler.end(signal.SIGKILL)
    autoscaler.start()

    autoscaler.has_limits(0, 5, name="b")
    eventually(lambda: autoscaler.annotations("a") == {}, what="the former target is as it was", seconds=30)
    autoscaler.becomes("LimitsSet")
    autoscaler.delete()
    eventually(autoscaler.gone, what="it is gone", seconds=30)
    assert autoscaler.annotations("b") == {}


def test_stop_leaves_the_limit_annotations(autoscaler: Autoscalers, sets: MachineSets) -> None:
    sets.make("a", 0)
    autoscaler.make(low=0)
    autoscaler.has_limits(0, 5)
    autoscaler.becomes("LimitsSet")

    assert autoscaler.end() == 0

    autoscaler.has_limits(0, 5)


def written_metadata(machine_set: dict[str, Any]) -> dict[str, Any]:
    """What a MachineAutoscaler could change, and who wrote it; the machine controller writes the status."""
    metadata = machine_set["metadata"]
    fields = [each for each in metadata.get("managedFields", ()) if each.get("subresource") != "status"]
    return {
        "annotations": metadata.get("annotations"),
        "finalizers": metadata.get("finalizers"),
        "writers": [(each["manager"], each["operation"], each.get("time")) for each in fields],
    }


def test_object_of_openshifts_operator_is_adopted_and_released(autoscaler: Autoscalers, sets: MachineSets) -> None:
    """With the finalizer, annotations and status that OpenShift's operator left."""
    autoscaler.end(signal.SIGKILL)
    sets.make("a", 0, {MIN: "0", MAX: "5", OWNER: f"{sets.namespace}/ma"})
    autoscaler.make(low=0)
    autoscaler.client.request(
        "PATCH", autoscaler.path("ma"), {"metadata": {"finalizers": [FINALIZER]}}, content_type=MERGE
    )
    last = {"apiVersion": "machine.openshift.io/v1beta1", "kind": "MachineSet", "name": "a"}
    autoscaler.client.request(
        "PATCH", f"{autoscaler.path('ma')}/status", {"status": {"lastTargetRef": last}}, content_type=MERGE
    )
    before = written_metadata(sets.get("a"))

    autoscaler.start()
    autoscaler.becomes("LimitsSet")
    assert written_metadata(sets.get("a")) == before, "there was nothing to write"
    autoscaler.delete()
    eventually(autoscaler.gone, what="it is gone", seconds=30)
    assert autoscaler.annotations() == {}


def test_invalid_machine_autoscaler_is_rejected_at_admission(autoscaler: Autoscalers, sets: MachineSets) -> None:
    path = MACHINE_AUTOSCALERS.path(namespace=sets.namespace)
    for spec, words in autoscalers.TARGETS_REFUSED.values():
        manifest = autoscalers.machine_autoscaler(spec)
        manifest["metadata"]["namespace"] = sets.namespace
        with pytest.raises(Invalid) as refused:
            autoscaler.client.request("POST", path, manifest)
        assert words[0] in refused.value.message


def loosened(schema: Any) -> Any:
    """A schema without validation rules and bounds on numbers, which accepts more than OpenShift's."""
    if isinstance(schema, dict):
        dropped = ("x-kubernetes-validations", "minimum", "maximum")
        return {key: loosened(value) for key, value in schema.items() if key not in dropped}
    return [loosened(each) for each in schema] if isinstance(schema, list) else schema


@pytest.fixture
def loose_definition(machine_cluster: LocalCluster, served: None, request: pytest.FixtureRequest) -> Iterator[bool]:
    """Replaces our CRD while the block runs; yields whether it stores conditions."""
    del served
    client, path = machine_cluster.client, f"{CRDS}/{MACHINE_AUTOSCALERS.name}"
    ours = client.request("GET", path)["spec"]
    [version] = ours["versions"]
    schema = loosened(version["schema"])
    if not request.param:
        status = schema["openAPIV3Schema"]["properties"]["status"]
        status["properties"] = {"lastTargetRef": status["properties"]["lastTargetRef"]}
    patch = {"spec": {**ours, "versions": [{**version, "schema": schema}]}}
    client.request("PATCH", path, patch, content_type=MERGE)
    bad = autoscalers.machine_autoscaler(autoscalers.TARGETS_REFUSED["less at most than at least"][0])

    def takes_bad_ones() -> bool:
        try:
            client.request("POST", MACHINE_AUTOSCALERS.path(namespace="default"), bad, params={"dryRun": "All"})
        except Invalid:
            return False
        return True

    eventually(takes_bad_ones, what="the other definition holds")
    yield request.param
    client.request("PATCH", path, {"spec": ours}, content_type=MERGE)
    eventually(lambda: not takes_bad_ones(), what="ours holds again")


@pytest.mark.parametrize("loose_definition", [True, False], ids=["with our status", "with OpenShift's"], indirect=True)
def test_invalid_objects_admitted_by_another_crd_are_reported_and_block_no_other(
    loose_definition: bool, autoscaler: Autoscalers, sets: MachineSets
) -> None:
    sets.make("a", 0)
    autoscaler.make("bad", low=5, high=4)
    autoscaler.make("good", low=0)
    autoscaler.has_limits(0, 5, "good")
    reported = ("FailedValidation", "spec.maxReplicas: must be at least minReplicas: 4 is less than 5")
    eventually(lambda: reported in autoscaler.events(), what=f"an event reports it: {autoscaler.events()}")
    if loose_definition:
        autoscaler.becomes("InvalidMachineAutoscaler", "bad")
        autoscaler.becomes("LimitsSet", "good")
    else:
        eventually(lambda: autoscaler.get("good").get("status"), what="the status is written as far as it is kept")
        assert set(autoscaler.get("good")["status"]) == {"lastTargetRef"}
        sets.annotate("a", {MAX: "50"})
        autoscaler.has_limits(0, 5, "good")
        assert autoscaler.events().count(reported) == 1
    autoscaler.edit("bad", minReplicas=1)
    autoscaler.delete("good")
    autoscaler.has_limits(1, 4, "bad")
    autoscaler.delete("bad")
    eventually(lambda: autoscaler.gone("bad"), what="it is gone", seconds=30)
    assert autoscaler.annotations() == {}
