"""``trimtab status``."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.fakes.api import Call
from tests.fakes.cluster import FakeCluster
from tests.unit.inspection.test_history import entry, record
from trimtab.kube.api import Forbidden, Unauthorized
from trimtab.kube.resources import DEPLOYMENTS, DESCHEDULER_POLICIES, HISTORY_RECORDS, LEASES, PLACEMENT_ADMISSIONS

DEGRADED = """\
apiVersion: trimtab.dev/v1alpha1
kind: DeschedulerPolicy
metadata: {name: nightly, generation: 1}
spec: {strategies: {RemoveDuplicates: {}}, mode: Act}
status:
  observedGeneration: 1
  conditions:
  - {type: Ready, status: "True", reason: CycleCompleted, message: m, lastTransitionTime: "2026-11-20T11:00:00Z"}
  - {type: Degraded, status: "True", reason: EvictionsFailed, message: 403, lastTransitionTime: "2026-11-20T11:00:00Z"}
"""
IDLE = DEGRADED.replace("nightly", "idle").replace('type: Degraded, status: "True"', 'type: Degraded, status: "False"')
DEGRADED = DEGRADED.replace("403", "'403'")
IDLE = IDLE.replace("403", "'403'")
ADMISSION = """\
apiVersion: trimtab.dev/v1alpha1
kind: PlacementAdmission
metadata: {name: default, generation: 1}
spec: {podNodeConstraints: {}}
status:
  observedGeneration: 1
  conditions:
  - {type: Ready, status: "True", reason: Enforcing, message: m, lastTransitionTime: "2026-11-20T11:00:00Z"}
  replicas: [{name: r, lastSeen: "2026-11-20T12:00:00Z"}]
"""


def test_first_line_names_what_is_wrong(run, policy) -> None:
    result = run("status", "--cluster", policy(IDLE, DEGRADED))

    assert (result.exit_code, result.stderr) == (0, "")
    lines = result.stdout.splitlines()
    assert "DeschedulerPolicy nightly" in lines[0]
    rows = [line.split()[:3] for line in lines if line.startswith("DeschedulerPolicy")]
    assert rows == [["DeschedulerPolicy", "nightly", "Degraded"], ["DeschedulerPolicy", "idle", "Idle"]]


def test_exit_code_is_one_only_on_request(run, policy) -> None:
    path = policy(DEGRADED)
    assert run("status", "--cluster", path, "--exit-code").exit_code == 1
    assert run("status", "--cluster", policy(IDLE), "--exit-code").exit_code == 0


def test_json_contains_every_resource(run, policy) -> None:
    document = msgspec.json.decode(run("status", "--cluster", policy(IDLE, DEGRADED), "-o", "json").stdout)

    assert document["degraded"] is True
    assert document["operator"] is None
    assert [(each["name"], each["state"]) for each in document["resources"]] == [
        ("nightly", "Degraded"),
        ("idle", "Idle"),
    ]


@pytest.mark.parametrize(
    ("heartbeat", "more", "state"),
    [
        ("12:00:30", (), "Idle"),
        ("12:05:00", (), "NotReady"),
        ("12:00:30", ("--now", "2026-11-20T13:00:00Z"), "NotReady"),
    ],
    ids=["file read at once", "replica killed before", "--now"],
)
def test_replicas_are_compared_with_the_time_of_the_file(run, policy, heartbeat: str, more: Any, state: str) -> None:
    """The file is days old, so that the current time would say nothing about the replicas."""
    node = f"""\
apiVersion: v1
kind: Node
metadata: {{name: n1}}
status: {{conditions: [{{type: Ready, status: "True", lastHeartbeatTime: "2026-11-20T{heartbeat}Z"}}]}}
"""
    result = run("status", "--cluster", policy(ADMISSION, node), *more, "-o", "json")
    assert [each["state"] for each in msgspec.json.decode(result.stdout)["resources"]] == [state]


def test_watch_needs_a_live_cluster(run, policy) -> None:
    assert run("status", "--watch", "--cluster", policy(IDLE)).exit_code == 2


def test_invalid_resource_is_a_problem(run, policy) -> None:
    wrong = IDLE.replace("mode: Act", "mode: Ask")
    result = run("status", "--cluster", policy(wrong, name="wrong.yaml"), "-o", "json")

    document = msgspec.json.decode(result.stdout)
    assert document["degraded"] is True
    assert "DeschedulerPolicy/idle: spec.mode" in document["invalid"][0]


def test_status_is_that_at_the_given_time(run, policy) -> None:
    windows = IDLE.replace("mode: Act", 'mode: Act, windows: [{schedule: "0 20 * * *", duration: 1h}]')
    path = policy(windows)
    for now, is_open in (("2026-11-20T20:30:00Z", True), ("2026-11-20T12:00:00Z", False)):
        document = msgspec.json.decode(run("status", "--cluster", path, "--now", now, "-o", "json").stdout)
        assert (document["time"], document["resources"][0]["window"]["open"]) == (now, is_open)
    assert run("status", "--watch", "--now", "2026-11-20T12:00:00Z").exit_code == 2


LEASE = {
    "metadata": {
        "name": "trimtab-acting",
        "namespace": "trimtab-system",
        "labels": {"trimtab.dev/acting": "true"},
        "annotations": {"trimtab.dev/controllers": "descheduler,tainting"},
    },
    "spec": {
        "holderIdentity": "trimtab-1",
        "acquireTime": "2026-11-20T09:00:00.123456Z",
        "renewTime": "2026-11-20T11:59:58.000000Z",
    },
}
NOW = ("--now", "2026-11-20T12:00:00Z")


def add_policy(server: FakeCluster, text: str) -> None:
    server.add(DESCHEDULER_POLICIES, msgspec.yaml.decode(text))


def add_operator(server: FakeCluster) -> None:
    labels = {"app.kubernetes.io/name": "trimtab", "app.kubernetes.io/version": "1.2.3"}
    metadata = {"name": "trimtab", "namespace": "trimtab-system", "labels": labels}
    server.add(LEASES, LEASE)
    server.add(DEPLOYMENTS, {"metadata": metadata, "spec": {"replicas": 2}, "status": {"readyReplicas": 1}})


def live(run, kubeconfig, *options: str) -> Any:
    return msgspec.json.decode(run("status", "--kubeconfig", kubeconfig, "-o", "json", *options).stdout)


def test_live_status_names_the_process_that_runs_the_controllers(run, server, kubeconfig) -> None:
    add_operator(server)
    add_policy(server, DEGRADED)

    document = live(run, kubeconfig, *NOW)

    operator = document["operator"]
    assert (operator["running"], operator["readyReplicas"], operator["replicas"]) == (True, 1, 2)
    assert operator["version"] == "1.2.3"
    [leader] = operator["leaders"]
    assert (leader["identity"], leader["controllers"]) == ("trimtab-1", ["descheduler", "tainting"])
    assert leader["since"] == "2026-11-20T09:00:00Z"
    assert [(each["name"], each["state"]) for each in document["resources"]] == [("nightly", "Degraded")]
    assert {call.method for call in server.calls} == {"GET"}


def test_operator_is_stopped_once_its_lease_is_not_renewed(run, server, kubeconfig) -> None:
    add_operator(server)
    add_policy(server, IDLE)

    options = "--kubeconfig", kubeconfig, "--exit-code"
    assert run("status", *options, *NOW).exit_code == 0
    assert run("status", *options, "--now", "2026-11-20T12:10:00Z").exit_code == 1


def test_lease_without_a_readable_time_counts_as_stopped(run, server, kubeconfig) -> None:
    server.add(LEASES, {**LEASE, "spec": {"holderIdentity": "trimtab-1", "renewTime": "yesterday"}})

    assert live(run, kubeconfig, *NOW)["operator"]["running"] is False


@pytest.mark.parametrize(("renewed", "state"), [("2026-11-20T12:00:30Z", "Idle"), ("2026-11-20T12:05:00Z", "NotReady")])
def test_replicas_are_compared_with_the_time_of_the_cluster(run, server, kubeconfig, renewed: str, state: str) -> None:
    """The clock of the user's machine is months ahead, and the operator does not run."""
    server.add(LEASES, LEASE)
    metadata = {"name": "kube-scheduler", "namespace": "kube-system"}
    server.add(LEASES, {"metadata": metadata, "spec": {"holderIdentity": "m1", "renewTime": renewed}})
    server.add(PLACEMENT_ADMISSIONS, msgspec.yaml.decode(ADMISSION))

    assert [each["state"] for each in live(run, kubeconfig)["resources"]] == [state]


def test_what_the_user_may_not_read_is_unknown(run, server, kubeconfig) -> None:
    server.fail(Forbidden("may not list leases", status=403), times=9, path="/leases")
    server.fail(Forbidden("may not list historyrecords", status=403), times=9, path="/historyrecords")

    result = run("status", "--kubeconfig", kubeconfig, "-o", "json")

    assert msgspec.json.decode(result.stdout)["operator"]["running"] is None
    assert "historyrecords.trimtab.dev" in result.stderr


def test_replicas_are_unknown_without_access_to_the_deployment(run, server, kubeconfig) -> None:
    add_operator(server)
    server.fail(Forbidden("may not list deployments", status=403), times=9, path="/deployments")

    operator = live(run, kubeconfig, *NOW)["operator"]
    assert (operator["running"], operator["replicas"], operator["version"]) == (True, None, None)


def test_table_has_the_operator_and_what_blocks_each_resource(run, server, kubeconfig) -> None:
    add_operator(server)
    other = {**LEASE["metadata"], "name": "second-acting"}
    server.add(LEASES, {"metadata": other, "spec": {**LEASE["spec"], "holderIdentity": "trimtab-2"}})
    add_policy(server, DEGRADED)
    server.add(HISTORY_RECORDS, record("h-1", entry("web-1", result="Evicted")))

    lines = run("status", "--kubeconfig", kubeconfig, *NOW).stdout.splitlines()

    operator = next(line for line in lines if line.startswith("Operator:"))
    assert {"1 of 2 replicas are ready", "version 1.2.3", "2 processes run controllers"} <= set(
        operator.rstrip(".").split("; ")
    )
    assert any("DeschedulerPolicy nightly: EvictionsFailed (since 2026-11-20T11:00:00Z)" in line for line in lines)
    assert lines[-1] == "Next: trimtab explain policy deschedulerpolicy/nightly"


def test_watch_prints_again_only_after_a_change(run, server, kubeconfig, monkeypatch) -> None:
    monkeypatch.setattr("trimtab.cli.status.PERIOD", 0.0)
    add_policy(server, IDLE)
    server.fail(Forbidden("may not list historyrecords", status=403), times=100, path="/historyrecords")
    reads = 0

    async def change(call: Call) -> None:
        nonlocal reads
        if not call.path.endswith("/deschedulerpolicies"):
            return
        reads += 1
        if reads == 3:
            add_policy(server, DEGRADED)
        elif reads == 5:
            server.fail(Unauthorized("the token has expired", status=401), times=100)

    server.before = change
    result = run("status", "--kubeconfig", kubeconfig, "--watch")

    assert result.exit_code != 0
    headings = [line for line in result.stdout.splitlines() if line.startswith("RESOURCE")]
    assert (reads, len(headings)) == (5, 2)
    assert result.stderr.count("historyrecords.trimtab.dev") == 1
    assert "the token has expired" in result.stderr
