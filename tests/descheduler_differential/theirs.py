"""The real descheduler: started once for each policy, as a simulation, and asked by its log whom it would evict.

Its simulation works on a copy of the cluster that is filled behind its back. The first cycle begins before the copy is
complete and finds next to nothing (kubernetes-sigs/descheduler #1917), so that it is the second one that counts: each
begins with the same pods, as those that were evicted from the copy are put back.
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

from tests.differential.server import Manifest

INTERVAL: Final = 0.4
"""Seconds between two cycles: enough for a few hundred objects to arrive in the copy."""
CYCLES: Final = 2
_PATIENCE: Final = 60.0
_EVICTED: Final = re.compile(
    r'"Evicted pod in dry run mode" pod="(?P<pod>[^"]+)" reason="[^"]*" strategy="(?P<strategy>[^"]+)"'
    r' node="(?P<node>[^"]*)" profile="(?P<profile>[^"]*)"'
)
_END: Final = '"Number of evictions/requests"'


@dataclass(frozen=True)
class Eviction:
    """One pod that it would evict, by ``namespace/name``."""

    pod: str
    strategy: str
    node: str
    profile: str


class DeschedulerFailed(Exception):
    """It ended, or said nothing: the message has the end of its log."""


class Descheduler:
    """Asks the real descheduler.

    Args:
        binary: of it.
        kubeconfig: of the cluster.
    """

    def __init__(self, binary: Path, kubeconfig: Path) -> None:
        self._binary = binary
        self._kubeconfig = kubeconfig

    def evictions(self, policy: Manifest, *, interval: float = INTERVAL) -> tuple[Eviction, ...]:
        """Whom it would evict under a v1alpha2 policy, in its order.

        Raises:
            DeschedulerFailed: it does not take the policy, or does not get that far.
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
                ["timeout", "--kill-after=5", str(int(_PATIENCE)), *command],
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
                    for _ in process.stderr:  # or it might wait for somebody to read
                        pass


def _last_cycle(log: IO[str]) -> tuple[Eviction, ...]:
    found: list[Eviction] = []
    said: list[str] = []
    cycles = 0
    for line in log:
        said.append(line)
        if evicted := _EVICTED.search(line):
            found.append(Eviction(**evicted.groupdict()))
        elif _END in line:
            cycles += 1
            if cycles == CYCLES:
                return tuple(_once(found))
            found.clear()
    raise DeschedulerFailed("".join(said[-15:]))


def _once(evictions: list[Eviction]) -> Iterator[Eviction]:
    """Each pod once: what is evicted is listed a moment longer, and a later strategy may evict it again."""
    seen: set[str] = set()
    for each in evictions:
        if each.pod not in seen:
            seen.add(each.pod)
            yield each
