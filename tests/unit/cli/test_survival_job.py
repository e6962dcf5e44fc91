"""The Indexed Job of ``trimtab what-if --each … --job N``, with a fake API server and kubelet."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.builders import node, pod
from trimtab.cli.errors import CommandError
from trimtab.cli.survival_job import find_worker, run_job


class Server:
    """An API server whose Job completes at the second read; the logs come from real runs of the command."""

    def __init__(self, run: Any, cluster: Any, *, condition: str = "Complete", absent: int = -1) -> None:
        self.run, self.cluster, self.condition, self.absent = run, cluster, condition, absent
        self.job: dict[str, Any] = {}
        self.deleted = False
        self.reads = 0

    async def request(self, method: str, path: str, **options: Any) -> Any:
        if path.endswith("/deployments"):
            spec = {"serviceAccountName": "trimtab", "containers": [{"image": "example/trimtab:1"}]}
            return {"items": [{"spec": {"template": {"spec": spec}}}]}
        if method == "POST":
            self.job = options["body"]
            return {"metadata": {"name": "job-1"}}
        if method == "DELETE":
            self.deleted = True
            return {}
        if path.endswith("/jobs/job-1"):
            self.reads += 1
            done = [{"type": self.condition, "status": "True", "reason": "R", "message": "m"}]
            return {"status": {"conditions": done if self.reads > 1 else []}}
        if path.endswith("/pods"):
            return {"items": [self._pod(index) for index in range(self.job["spec"]["completions"])]}
        return self._log(path.split("/")[-2].removeprefix("pod-"))

    def _pod(self, index: int) -> dict[str, Any]:
        phase = "Failed" if index == self.absent else "Succeeded"
        return {"metadata": {"name": f"pod-{index}"}, "status": {"phase": phase}}

    def _log(self, index: str) -> bytes:
        [container] = self.job["spec"]["template"]["spec"]["containers"]
        arguments = [each.replace("$(JOB_COMPLETION_INDEX)", index) for each in container["args"]]
        return bytes(self.run(*arguments, "--cluster", self.cluster).stdout, "utf-8")


class NoWait:
    """A clock that does not wait."""

    async def sleep(self, seconds: float) -> None:
        del seconds


@pytest.fixture
def cluster(write: Any) -> Any:
    pods = [pod(f"web-{number}").on("n1").cpu("1").owned_by("ReplicaSet", "web") for number in range(3)]
    return write("c.json", *(node(f"n{number}") for number in range(5)), *pods)


async def table(server: Any, workers: int = 3) -> dict[str, Any]:
    worker = await find_worker(server, "trimtab")
    return await run_job(server, worker, ["--each", "node"], workers, timeout=60, clock=NoWait())  # type: ignore[arg-type]


async def test_merged_table_of_the_job_equals_the_unsplit_table(run: Any, cluster: Any) -> None:
    server = Server(run, cluster)

    found = await table(server)

    assert found == msgspec.json.decode(run("what-if", "--cluster", cluster, "--each", "node", "-o", "json").stdout)
    spec = server.job["spec"]
    assert (spec["completionMode"], spec["completions"], spec["parallelism"]) == ("Indexed", 3, 3)
    assert spec["template"]["spec"]["serviceAccountName"] == "trimtab"
    assert spec["template"]["spec"]["containers"][0]["image"] == "example/trimtab:1"
    assert server.deleted


async def test_failed_job_is_reported_and_deleted(run: Any, cluster: Any) -> None:
    server = Server(run, cluster, condition="Failed")
    with pytest.raises(CommandError, match="failed: R"):
        await table(server)
    assert server.deleted


async def test_missing_table_is_reported(run: Any, cluster: Any) -> None:
    server = Server(run, cluster, absent=1)
    with pytest.raises(CommandError, match="2 of 3 workers"):
        await table(server)
    assert server.deleted
