"""`trimtab local install` runs the operator as a process of the cluster, with the chart's permissions."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from trimtab_local.cli import local
from trimtab_local.cluster import LocalCluster
from trimtab_local.processes import alive
from trimtab_local.versions import OPERATOR

NAME = "install-test"


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalCluster]:
    """Start a cluster in its own state directory."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    cluster = LocalCluster(NAME)
    try:
        cluster.up(nodes=0, die_with_parent=True)
        yield cluster
    finally:
        cluster.down()


def test_install_replaces_the_operator_and_down_stops_it(cluster: LocalCluster) -> None:
    run = CliRunner()
    done = run.invoke(local, ["install", "--name", NAME, "--controllers", "descheduler"])
    assert done.exit_code == 0, done.output
    first = cluster.record().started[OPERATOR]
    assert first.log in done.output
    assert {c.name: c.state for c in cluster.status().components}[OPERATOR] == "Running"
    leases = cluster.client.request("GET", "/apis/coordination.k8s.io/v1/namespaces/trimtab-system/leases")
    assert leases["items"]

    assert run.invoke(local, ["install", "--name", NAME]).exit_code == 0
    second = cluster.record().started[OPERATOR]
    assert not alive(first.process)
    assert alive(second.process)

    cluster.down()
    assert not alive(second.process)
