"""``trimtab migrate check`` in a real cluster."""

from __future__ import annotations

import json
import uuid

from click.testing import CliRunner

from tests.fixtures.clusters import Cluster
from trimtab.cli.main import cli
from trimtab.kube.resources import CONFIG_MAPS, CRON_JOBS

POLICY = """
apiVersion: descheduler/v1alpha2
kind: DeschedulerPolicy
profiles:
- name: default
  plugins: {deschedule: {enabled: [RemovePodsViolatingNodeTaints]}}
"""


def test_a_descheduler_is_found_and_converted(cluster: Cluster) -> None:
    name = f"descheduler-{uuid.uuid4().hex[:8]}"
    config = {"metadata": {"name": name}, "data": {"policy.yaml": POLICY}}
    cluster.client.request("POST", CONFIG_MAPS.path(namespace="default"), config)
    container = {"name": "main", "image": "registry.k8s.io/descheduler/descheduler:v0.34.0"}
    volumes = [{"name": "policy", "configMap": {"name": name}}]
    pod = {"spec": {"containers": [container], "volumes": volumes, "restartPolicy": "Never"}}
    job = {"schedule": "0 3 1 1 *", "suspend": True, "jobTemplate": {"spec": {"template": pod}}}
    cluster.client.request("POST", CRON_JOBS.path(namespace="default"), {"metadata": {"name": name}, "spec": job})

    arguments = ["migrate", "check", "--kubeconfig", str(cluster.kubeconfig), "-o", "json"]
    made = CliRunner().invoke(cli, arguments, catch_exceptions=False)

    assert made.exit_code == 0, made.output
    found = {each["object"]: each for each in json.loads(made.stdout)["programs"]}
    program = found[f"CronJob/default/{name}"]
    assert (program["active"], program["converted"]) == (False, True)
