"""Runs the real descheduler with ``--dry-run`` once per policy, and reads its evictions from its log.

The dry run evicts from a fake cluster that is filled asynchronously. The first cycle starts before the fake cluster is
complete and finds almost nothing (kubernetes-sigs/descheduler #1917), so the second cycle counts. Each cycle starts
with the same pods, because evicted pods are restored.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

import msgspec

from tests.differential.api_client import Manifest

INTERVAL: Final = 0.4
"""Seconds between two cycles, enough to copy a few hundred objects."""
CYCLES: Final = 2
_TIMEOUT: Final = 60.0
_EVICTED: Final = re.compile(
    r'"Evicted pod in dry run mode" pod="(?P<pod>[^"]+)" reason="[^"]*" strategy="(?P<strategy>[^"]+)"'
    r' node="(?P<node>[^"]*)" profile="(?P<profile>[^"]*)"'
)
_END: Final = '"Number of evictions/requests"'


@dataclass(frozen=True)
class Eviction:
    """A pod, ``namespace/name``, that the descheduler evicts."""

    pod: str
    strategy: str
    node: str
    profile: str


class DeschedulerFailed(Exception):
    """The descheduler ended early or timed out. The message contains the end of its log."""


class Descheduler:
    """Runs the real descheduler.

    Args:
        binary: the path of its binary.
        kubeconfig: the kubeconfig of the cluster.
    """

    def __init__(self, binary: Path, kubeconfig: Path) -> None:
        self._binary = binary
        self._kubeconfig = kubeconfig

    def evictions(self, policy: Manifest, *, interval: float = INTERVAL) -> tuple[Eviction, ...]:
        """Return the evictions under a v1alpha2 policy, in order.

        Raises:
            DeschedulerFailed: the descheduler rejected the policy or did not finish two cycles.
        """
        with tempfile.TemporaryDirectory() as directory:
            file = Path(directory) / "policy.json"
            file.write_bytes(msgspec.json.encode(policy))
            command = [
                str(self._binary),
                "--dry-run",
                f"--kubeconfig={self._kubeconfig}",
                f"--policy-config-file={file}",
                f"--descheduling-interval={int(interval * 1000)}ms",
                "--secure-port=0",
                "--disable-metrics",
                "--client-connection-qps=1000",
                "--client-connection-burst=1000",
                "--v=1",
            ]
            with subprocess.Popen(
                ["timeout", "--kill-after=5", str(int(_TIMEOUT)), *command],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
            ) as process:
                assert process.stderr is not None
                try:
                    return _last_cycle(process.stderr)
                finally:
                    process.terminate()
                    for _ in process.stderr:  # a full pipe would block it
                        pass


def _last_cycle(log: IO[str]) -> tuple[Eviction, ...]:
    found: list[Eviction] = []
    lines: list[str] = []
    cycles = 0
    for line in log:
        lines.append(line)
        if evicted := _EVICTED.search(line):
            found.append(Eviction(**evicted.groupdict()))
        elif _END in line:
            cycles += 1
            if cycles == CYCLES:
                return tuple(_without_repeats(found))
            found.clear()
    raise DeschedulerFailed("".join(lines[-15:]))


def _without_repeats(evictions: list[Eviction]) -> Iterator[Eviction]:
    """Remove repeated evictions: a later strategy may still list an evicted pod and evict it again."""
    observed: set[str] = set()
    for each in evictions:
        if each.pod not in observed:
            observed.add(each.pod)
            yield each
