"""Computes a survival table with an Indexed Job in the cluster, whose pods share the failures among them.

Each pod runs ``trimtab what-if --each … --index I/N -o json`` with the image and the service account of the operator,
so it reads the live cluster itself. The tables are read from the logs of the pods and merged, and the Job is deleted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec import Struct

from trimtab.cli.errors import CommandError
from trimtab.inspection.survival import merge_tables
from trimtab.kube.api import Api
from trimtab.kube.clock import SYSTEM_CLOCK, Clock
from trimtab.kube.resources import DEPLOYMENTS, JOBS, PODS

POLL: Final = 2.0
"""Seconds between two reads of the Job's status."""

OPERATOR: Final = "app.kubernetes.io/name=trimtab"


class Worker(Struct, frozen=True):
    """The pod template of workers: their namespace, image and service account."""

    namespace: str
    image: str
    service_account: str


async def find_worker(api: Api, namespace: str, *, image: str = "") -> Worker:
    """Return the workers' image and service account: those of the operator's Deployment.

    Args:
        api: the API server.
        namespace: the namespace of the operator, in which the Job is created.
        image: another image; empty for the operator's.

    Raises:
        CommandError: there is no Deployment of the operator in the namespace.
        ApiError, Unreachable: the request failed.
    """
    found = await api.request("GET", DEPLOYMENTS.path(namespace=namespace), params={"labelSelector": OPERATOR})
    for each in found.get("items") or ():
        spec = each["spec"]["template"]["spec"]
        return Worker(namespace, image or spec["containers"][0]["image"], spec.get("serviceAccountName") or "default")
    raise CommandError(f"namespace {namespace} has no Deployment with the label {OPERATOR}; give --job-namespace")


def job_manifest(worker: Worker, arguments: Sequence[str], workers: int) -> dict[str, Any]:
    """Return the Indexed Job.

    Args:
        worker: the pods' image and service account.
        arguments: the arguments of ``trimtab what-if`` that select the scenario.
        workers: number of pods.
    """
    container = {
        "name": "what-if",
        "image": worker.image,
        "args": ["what-if", *arguments, "--index", f"$(JOB_COMPLETION_INDEX)/{workers}", "-o", "json"],
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "runAsNonRoot": True,
            "capabilities": {"drop": ["ALL"]},
            "seccompProfile": {"type": "RuntimeDefault"},
        },
    }
    return {
        "apiVersion": JOBS.api_version,
        "kind": JOBS.kind,
        "metadata": {"generateName": "trimtab-what-if-"},
        "spec": {
            "completionMode": "Indexed",
            "completions": workers,
            "parallelism": workers,
            "backoffLimit": workers,
            "ttlSecondsAfterFinished": 3600,
            "template": {
                "spec": {
                    "restartPolicy": "Never",
                    "serviceAccountName": worker.service_account,
                    "containers": [container],
                }
            },
        },
    }


async def run_job(
    api: Api, worker: Worker, arguments: Sequence[str], workers: int, *, timeout: float, clock: Clock = SYSTEM_CLOCK
) -> dict[str, Any]:
    """Create the Job, wait until it is complete, and return the merged survival table. The Job is always deleted.

    Args:
        api: the API server.
        worker: the pods' image and service account.
        arguments: the arguments of ``trimtab what-if`` that select the scenario.
        workers: number of pods.
        timeout: seconds after which the Job is given up.
        clock: waits between reads.

    Raises:
        CommandError: the Job failed or was not complete in time, or a log is no survival table.
        ApiError, Unreachable: a request failed.
    """
    body = job_manifest(worker, arguments, workers)
    made = await api.request("POST", JOBS.path(namespace=worker.namespace), body=body)
    name = made["metadata"]["name"]
    path = JOBS.path(name, namespace=worker.namespace)
    try:
        waited = 0.0
        while not _complete(await api.request("GET", path), name):
            if waited >= timeout:
                raise CommandError(f"Job {worker.namespace}/{name} was not complete within {timeout:.0f} s")
            await clock.sleep(POLL)
            waited += POLL
        return merge_tables(await _tables(api, worker.namespace, name, workers))
    finally:
        await api.request("DELETE", path, body={"propagationPolicy": "Background"})


def _complete(job: Mapping[str, Any], name: str) -> bool:
    for condition in (job.get("status") or {}).get("conditions") or ():
        if condition.get("status") != "True":
            continue
        if condition["type"] == "Complete":
            return True
        if condition["type"] == "Failed":
            raise CommandError(f"Job {name} failed: {condition.get('reason')}: {condition.get('message')}")
    return False


async def _tables(api: Api, namespace: str, job: str, workers: int) -> list[dict[str, Any]]:
    """Return the table of each worker, from the log of its pod that succeeded."""
    selector = {"labelSelector": f"job-name={job}"}
    pods = await api.request("GET", PODS.path(namespace=namespace), params=selector)
    found: dict[str, dict[str, Any]] = {}
    for pod in pods.get("items") or ():
        if (pod.get("status") or {}).get("phase") != "Succeeded":
            continue
        name = pod["metadata"]["name"]
        log = await api.request("GET", PODS.path(name, namespace=namespace, subresource="log"), accept="*/*")
        try:
            table = msgspec.json.decode(log) if isinstance(log, bytes | str) else log
        except msgspec.DecodeError as error:
            raise CommandError(f"the log of pod {namespace}/{name} is not a survival table: {error}") from error
        found[table["part"]] = table  # a retried worker may have two pods
    if len(found) != workers:
        raise CommandError(f"{len(found)} of {workers} workers of Job {namespace}/{job} have left a table")
    return list(found.values())
