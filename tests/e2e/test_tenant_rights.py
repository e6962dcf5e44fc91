"""A process, an account and a Lease for each controller: all of them work, and no request is rejected.

What a stolen token of each account can do is in tests/api/test_stolen_token.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest

from tests.fixtures.audit import Audit, AuditEvent
from tests.fixtures.clusters import MACHINES_AND_AUDIT, require_local_cluster
from tests.fixtures.joint import VALUES, JointCluster, joint_cluster, joint_settings
from tests.fixtures.tainting import UNREACHABLE
from trimtab.kube.resources import CLUSTER_AUTOSCALERS, DESCHEDULER_POLICIES, LEASES, TAINT_MANAGERS
from trimtab_local.cluster import LocalCluster
from trimtab_local.install import NAMESPACE, OperatorProcess, install

POLICY: Final = f"""\
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Request
  userGroups: ["system:serviceaccounts:{NAMESPACE}"]
- level: None
"""

PROCESSES: Final = {
    "descheduler": ("--controllers=descheduler",),
    "cluster-autoscaler": ("--controllers=autoscaler", "--machine-mark-delay=5s"),
    "taint-manager": ("--controllers=tainting",),
}
"""Component of the chart, and the arguments of its Deployment."""


class Apart:
    """A cluster with a process for each controller, and its audit log."""

    def __init__(self, joint: JointCluster, audit: Audit) -> None:
        self.joint = joint
        self._audit = audit

    def granted(self, what: str, verb: str, *, by: str) -> list[AuditEvent]:
        """The granted requests of a component's account."""
        user = f"system:serviceaccount:{NAMESPACE}:trimtab-{by}"
        return self._audit.of(what, user=user, verbs=(verb,), granted=True)

    def refused(self) -> list[str]:
        """The requests that RBAC or admission policies rejected."""
        codes = (401, 403)
        return [
            f"{each.summary} {each.request_object}" for each in self._audit.all() if each.response_status.code in codes
        ]


@pytest.fixture
def apart(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Apart]:
    require_local_cluster(request, MACHINES_AND_AUDIT)
    audit = Audit(tmp_path, POLICY)
    cluster: LocalCluster = request.getfixturevalue("make_cluster")(joint_settings(audit), nodes=0)
    with ExitStack() as stack:
        joint = stack.enter_context(joint_cluster(cluster, audit, tmp_path))
        install(cluster, *VALUES, "deployments=PerController")
        joint.manage_taints()
        joint.autoscale()
        for component, arguments in PROCESSES.items():
            account = f"trimtab-{component}"
            process = OperatorProcess(
                cluster, tmp_path, *arguments, f"--lease-name={account}", name=component, account=account
            )
            stack.callback(lambda process=process: process.running() and process.stop())  # type: ignore[misc]
            process.start()
            joint.operator = process
        yield Apart(joint, audit)


def test_split_controllers_work_with_their_own_rbac(apart: Apart) -> None:
    joint, client = apart.joint, apart.joint.client
    joint.group("flaky", replicas=3, minimum=1, maximum=6)  # the taint manager frees its nodes of their first taint
    nodes = sorted(joint.nodes("flaky"))
    for node in nodes[1:]:
        joint.cordon(node)
    joint.deploy("duplicated", 4, cpu="100m")
    joint.until_running("duplicated", 4)
    for node in nodes[1:]:
        joint.cordon(node, on=False)

    joint.write_policy()
    joint.until(lambda: apart.granted("pods/eviction", "create", by="descheduler"), "the descheduler evicts")

    joint.deploy("web", 10, cpu="1")
    joint.until(lambda: joint.size("flaky") > 3, "the autoscaler adds nodes")
    joint.until_running("web", 10)

    silent = min(joint.where("web"))
    joint.silence(silent)
    joint.until(lambda: UNREACHABLE in str(joint.all_nodes()[silent]["spec"]), "the silent node is tainted")
    joint.until(lambda: apart.granted("pods", "delete", by="taint-manager"), "its pods are deleted")
    joint.silence(silent, on=False)
    joint.until(lambda: UNREACHABLE not in str(joint.all_nodes()[silent]["spec"]), "the node is freed of its taint")

    joint.resize("web", 1)
    removed = "the autoscaler removes nodes"
    joint.until(lambda: apart.granted("machines", "patch", by="cluster-autoscaler"), removed, seconds=120)
    joint.until(lambda: joint.size("flaky") < 4, removed)

    for resource in (DESCHEDULER_POLICIES, CLUSTER_AUTOSCALERS, TAINT_MANAGERS):
        client.request("DELETE", resource.path("default"))
        path = resource.path()
        joint.until(lambda path=path: not client.request("GET", path)["items"], f"{resource.kind} is gone")  # type: ignore[misc]
    leases = {each["metadata"]["name"] for each in client.request("GET", LEASES.path(namespace=NAMESPACE))["items"]}
    assert {f"trimtab-{component}" for component in PROCESSES} <= leases
    assert apart.refused() == []
