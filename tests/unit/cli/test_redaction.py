"""What a snapshot keeps of an object."""

from __future__ import annotations

import copy
from typing import Any

import msgspec
import pytest

from tests.builders import budget, node, pod
from trimtab.cli.redaction import redact
from trimtab.kube.wire import decode_object

SECRET = "s3cr3t"


def loaded_pod() -> dict[str, Any]:
    """A pod with something private wherever a pod can have it, and something planners read beside it."""
    private: dict[str, Any] = {
        "command": ["run", f"--password={SECRET}"],
        "args": [SECRET],
        "env": [{"name": "PASSWORD", "value": SECRET}],
        "envFrom": [{"secretRef": {"name": SECRET}}],
        "livenessProbe": {"httpGet": {"port": 80, "httpHeaders": [{"name": "Authorization", "value": SECRET}]}},
        "lifecycle": {"preStop": {"exec": {"command": [SECRET]}}},
        "fieldOfALaterKubernetes": SECRET,
    }
    manifest = (
        pod("web-1", namespace="shop")
        .on("n1")
        .cpu("500m", "1")
        .host_port(8080)
        .anti_affinity()
        .volume("emptyDir")
        .volume("persistentVolumeClaim", claimName="data")
        .volume("secret", secretName=SECRET)
        .volume("projected", sources=[{"secret": {"name": SECRET}}])
        .volume("csi", driver="d", volumeAttributes={"token": SECRET})
        .volume("gitRepo", repository=f"https://{SECRET}@example.com/x.git")
        .init_container("sidecar", restartPolicy="Always", resources={"requests": {"cpu": "1"}}, **private)
        .annotations({"kubectl.kubernetes.io/last-applied-configuration": SECRET, "team": "shop"})
        .ready()
        .restarted(3)
        .manifest()
    )
    manifest["metadata"]["managedFields"] = [{"manager": SECRET}]
    manifest["spec"]["containers"][0] |= private
    manifest["spec"]["ephemeralContainers"] = [{"name": "debug", "command": [SECRET]}]
    state = {"terminated": {"exitCode": 1, "reason": "Error", "message": f"log: {SECRET}"}}
    manifest["status"]["containerStatuses"][0] |= {"lastState": state, "state": {"running": {"startedAt": None}}}
    manifest["status"]["ephemeralContainerStatuses"] = [{"name": "debug", "state": state}]
    return manifest


def test_nothing_private_is_left_of_a_pod() -> None:
    assert SECRET not in msgspec.json.encode(redact("Pod", loaded_pod())).decode()


def test_planners_read_the_same_before_and_after() -> None:
    before = loaded_pod()

    assert decode_object(redact("Pod", copy.deepcopy(before))) == decode_object(before)


def test_reasons_of_container_states_stay_for_strategies_that_ask_for_them() -> None:
    redacted = redact("Pod", loaded_pod())

    assert redacted["status"]["containerStatuses"][0]["lastState"] == {"terminated": {"exitCode": 1, "reason": "Error"}}


def test_other_annotations_stay() -> None:
    assert redact("Pod", loaded_pod())["metadata"]["annotations"] == {"team": "shop"}


@pytest.mark.parametrize("built", [node("n1").zone("a").taint("x"), budget("b").selecting(app="web")], ids=str)
def test_other_kinds_lose_their_managed_fields_only(built) -> None:
    manifest = built.manifest()
    managed = copy.deepcopy(manifest)
    managed["metadata"]["managedFields"] = [{"manager": "kubectl"}]

    assert redact(manifest["kind"], managed) == manifest


@pytest.mark.parametrize(
    "sparse",
    [{}, {"metadata": None, "spec": None, "status": None}, {"spec": {"containers": None, "volumes": None}}],
    ids=["empty", "nulls", "null lists"],
)
def test_sparse_objects_are_no_trouble(sparse) -> None:
    redact("Pod", sparse)
