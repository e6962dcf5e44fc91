"""Measures ``trimtab plan`` on a live cluster, next to the Kubernetes descheduler.

``python benchmarks/live.py --kubeconfig FILE [--peer DESCHEDULER] [--node-fit] [--runs N] [--json]``

Both use the same policy with five strategies. They only plan, so the cluster is not changed. They run alternately,
because the speed of a shared machine varies. ``--peer`` is the binary of sigs.k8s.io/descheduler, built by ``go install
sigs.k8s.io/descheduler/cmd/descheduler@v0.36.0``. By default it does not check whether a node can run an evicted pod.
With ``--node-fit``, it also runs with that check, which takes minutes in a large cluster. trimtab always finds and
reserves a node for each pod.

docs/performance.md uses the cluster that ``trimtab local load examples/local/5k.yaml`` creates.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

ROOT: Final = Path(__file__).resolve().parent.parent

POLICY: Final = """\
apiVersion: descheduler/v1alpha2
kind: DeschedulerPolicy
profiles:
- name: default
  pluginConfig:
  - name: DefaultEvictor
    args: {nodeFit: NODE_FIT}
  - name: RemoveDuplicates
  - name: LowNodeUtilization
    args:
      thresholds: {cpu: 20, memory: 20, pods: 20}
      targetThresholds: {cpu: 50, memory: 50, pods: 50}
  - name: RemovePodsViolatingInterPodAntiAffinity
  - name: RemovePodsViolatingNodeAffinity
    args:
      nodeAffinityType: [requiredDuringSchedulingIgnoredDuringExecution]
  - name: RemovePodsViolatingNodeTaints
  plugins:
    balance:
      enabled: [RemoveDuplicates, LowNodeUtilization]
    deschedule:
      enabled: [RemovePodsViolatingInterPodAntiAffinity, RemovePodsViolatingNodeAffinity, RemovePodsViolatingNodeTaints]
"""


class Run(Struct, frozen=True):
    """One run of a process.

    Attributes:
        name: the name of the program.
        wall: the elapsed time in seconds.
        cpu: the user and system time in seconds.
        peak: the peak resident memory in MiB.
        evictions: the number of planned evictions.
    """

    name: str
    wall: float
    cpu: float
    peak: int
    evictions: int


class Contestant(Struct, frozen=True):
    """A program to measure.

    Attributes:
        name: the displayed name.
        command: the command and its arguments.
        planned: returns the number of planned evictions in its output.
    """

    name: str
    command: list[str]
    planned: Callable[[Path], int]


def trimtab(policy: Path, kubeconfig: Path) -> Contestant:
    """Return trimtab from this repository, run by this interpreter."""
    command = [sys.executable, "-m", "trimtab", "plan", "--policy", str(policy), "--kubeconfig", str(kubeconfig)]
    return Contestant("trimtab", [*command, "-o", "json"], planned_by_trimtab)


def peer(name: str, binary: Path, policy: Path, kubeconfig: Path) -> Contestant:
    """Return one dry-run cycle of sigs.k8s.io/descheduler."""
    options = ["--dry-run", "--descheduling-interval=0", "-v=1", "--kubeconfig", str(kubeconfig)]
    return Contestant(name, [str(binary), *options, "--policy-config-file", str(policy)], planned_by_peer)


def planned_by_trimtab(output: Path) -> int:
    """Return the number of evictions in the summary at the end of trimtab's plan."""
    return int(msgspec.json.decode(output.read_bytes())["summary"].get("Evict", 0))


def planned_by_peer(output: Path) -> int:
    """Return the number of evictions in the last lines of the descheduler's log."""
    sums = re.findall(r"totalEvicted=(\d+)", output.read_text(errors="replace"))
    return int(sums[-1]) if sums else 0


def run(contestant: Contestant, output: Path) -> Run:
    """Run the program once.

    Raises:
        SystemExit: the program failed. The message contains the end of its output.
    """
    environ = {**os.environ, "PYTHONPATH": str(ROOT / "operator")}
    said = output.with_suffix(".err")
    with output.open("wb") as stdout, said.open("wb") as stderr:
        began = time.perf_counter()
        process = subprocess.Popen(contestant.command, stdout=stdout, stderr=stderr, env=environ)
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.perf_counter() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"{contestant.name} failed:\n{said.read_text(errors='replace')[-2000:]}")
    evictions = contestant.planned(output if output.stat().st_size else said)
    cpu = usage.ru_utime + usage.ru_stime
    return Run(contestant.name, round(wall, 2), round(cpu, 2), usage.ru_maxrss // 1024, evictions)


def contestants(options: argparse.Namespace, directory: Path) -> list[Contestant]:
    """Return the programs that run in each round."""
    plain, checked = directory / "policy.yaml", directory / "policy-node-fit.yaml"
    plain.write_text(POLICY.replace("NODE_FIT", "false"))
    checked.write_text(POLICY.replace("NODE_FIT", "true"))
    found = [trimtab(checked, options.kubeconfig)]
    if options.peer:
        found.append(peer("descheduler", options.peer, plain, options.kubeconfig))
    if options.peer and options.node_fit:
        found.append(peer("descheduler, nodeFit", options.peer, checked, options.kubeconfig))
    return found


def table(runs: Iterable[Run]) -> str:
    """Format all runs and the median of each program."""
    rows, by_name = [], dict[str, list[Run]]()
    for each in runs:
        by_name.setdefault(each.name, []).append(each)
        rows.append(_row(each.name, each.wall, each.cpu, each.peak, each.evictions))
    for name, turns in by_name.items():
        numbers = [msgspec.structs.astuple(each)[1:] for each in turns]
        columns = [statistics.median(column) for column in zip(*numbers, strict=True)]
        rows.append(_row(f"{name}: median", *columns))
    return "\n".join([f"{'':32}{'wall':>9}{'cpu':>9}{'peak':>11}{'evictions':>11}", *rows])


def _row(name: str, wall: float, cpu: float, peak: float, evictions: float) -> str:
    return f"{name:32}{wall:7.2f} s{cpu:7.2f} s{peak:7.0f} MB{evictions:11,.0f}"


def main() -> None:
    """Run the benchmark and print the results."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--kubeconfig", type=Path, required=True, metavar="FILE")
    parser.add_argument("--peer", type=Path, metavar="DESCHEDULER", help="path of sigs.k8s.io/descheduler's binary")
    parser.add_argument("--node-fit", action="store_true", help="let the peer run with nodeFit as well")
    parser.add_argument("--runs", type=int, default=3, metavar="N", help="turns of each (default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="one JSON object a run")
    options = parser.parse_args()
    runs = []
    with tempfile.TemporaryDirectory(prefix="trimtab-bench-") as directory:
        turn = contestants(options, Path(directory))
        for _ in range(options.runs):
            for contestant in turn:
                runs.append(run(contestant, Path(directory, "output")))
                if options.json:
                    print(json.dumps(msgspec.to_builtins(runs[-1])), flush=True)
    if not options.json:
        print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
        print(table(runs))


if __name__ == "__main__":
    main()
