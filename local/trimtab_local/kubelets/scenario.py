"""The scenario of the simulated kubelets: what nodes and pods use, when kubelets kill, and which of them are faulty.

::

    nodes:
    - labels: {pool: workers}
      memory: {capacity: 8Gi, used: {start: 1Gi}}
      measureEvery: 1s
    pods:
    - namespace: shop
      labels: {app: leak}
      memory: {start: 100Mi, perSecond: 20Mi}
    faults:
    - {names: [node-7], fault: Hang}

A node has the values of the first entry of ``nodes`` that matches it, a pod those of the first entry of ``pods``, and
a kubelet the fault of the first entry of ``faults``. Without an entry, the defaults apply. The usage of a node is what
the system uses plus the usage of the pods on it, so evicting a pod frees memory. The file is read again when it
changes. All values depend only on the file, the objects and the time, so a restart changes nothing.
"""

from __future__ import annotations

import fnmatch
import math
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta, field

from trimtab.api.base import Spec
from trimtab.api.node_pressure_policy import KUBELET_EVICTION_HARD, SIGNALS, ThresholdValue, parse_threshold
from trimtab.api.scalars import parse_duration
from trimtab.kube.errors import InputError
from trimtab.kube.objects import Node, Pod
from trimtab.kube.rules.quantity import amount
from trimtab.kube.wire.files.strict_yaml import load_all

Amount = str | int
"""A quantity in Kubernetes' format: ``500Mi``, ``2``, ``-1Mi``."""

Fault = Literal[
    "Hang",
    "Drip",
    "Reset",
    "Garbage",
    "Truncated",
    "Nested",
    "Huge",
    "Negative",
    "Absurd",
    "Frozen",
    "NoMemory",
    "OtherNode",
    "OtherCertificate",
    "Unauthorized",
    "Forbidden",
    "ServerError",
]
"""How a kubelet fails:

* ``Hang``: accepts requests and never responds. ``Drip``: sends a byte per second. ``Reset``: closes the connection.
* ``Garbage``: sends bytes that are not JSON. ``Truncated``: half of the JSON. ``Nested``: 100,000 nested lists.
  ``Huge``: 64 MiB of valid JSON.
* ``Negative``: nothing is available, and less (-1 bytes). ``Absurd``: more is available than the node has, and usage
  exceeds 2**63. ``Frozen``: values and times no longer change. ``NoMemory``: the memory is missing.
* ``OtherNode``: the summary of another node. ``OtherCertificate``: a certificate that is not valid for the address.
* ``Unauthorized``: 401. ``Forbidden``: 403. ``ServerError``: 500.
"""


class Step(Spec, frozen=True):
    """A change of a curve: from ``after`` on, it starts at ``value`` and grows by ``perSecond``."""

    after: str
    value: Amount
    per_second: Amount = 0


class Curve(Spec, frozen=True):
    """An amount over time, which begins when the pod or the node was created, or at ``since`` if that is later.

    ``{start: 1Gi, perSecond: 10Mi, max: 4Gi}`` is a ramp. With ``period``, the curve begins again after each period:
    ``{start: 1Gi, steps: [{after: 10s, value: 2Gi}], period: 20s}`` alternates between 1 and 2 GiB.
    """

    start: Amount = 0
    per_second: Amount = 0
    max: Amount | None = None
    steps: tuple[Step, ...] = ()
    """In ascending order of ``after``."""
    period: str = ""
    since: datetime | None = None

    def at(self, now: float, *, created: float) -> int:
        """Return the amount at a time, at least 0.

        Args:
            now: seconds since the epoch.
            created: when the pod or the node was created, in seconds since the epoch.
        """
        begin = created if self.since is None else max(created, self.since.timestamp())
        passed = max(0.0, now - begin)
        if self.period:
            passed = math.fmod(passed, parse_duration(self.period))
        value, rate, after = amount(self.start), amount(self.per_second), 0
        for step in self.steps:
            if passed >= parse_duration(step.after):
                value, rate, after = amount(step.value), amount(step.per_second), parse_duration(step.after)
        found = value + int(rate * (passed - after))
        return max(0, found if self.max is None else min(found, amount(self.max)))


class Selected(Spec, frozen=True):
    """An entry for the nodes whose names match one of the globs, and that have all of the labels."""

    names: tuple[str, ...] = ("*",)
    labels: dict[str, str] = field(default_factory=dict)

    def selects(self, name: str, labels: Mapping[str, str]) -> bool:
        """Return whether the entry matches a node."""
        return any(fnmatch.fnmatchcase(name, each) for each in self.names) and self.labels.items() <= labels.items()


class Memory(Spec, frozen=True):
    """The memory of a node. Its capacity is that in the node's status, unless it is given."""

    capacity: Amount | None = None
    used: Curve = Curve(start="512Mi")
    """What the system uses, in addition to the pods."""
    pressure: Curve | None = None
    """PSI: the share of time in which all tasks wait for memory, in percent. If unset, PSI is not reported."""


class Disk(Spec, frozen=True):
    """A file system of a node."""

    capacity: Amount = "100Gi"
    used: Curve = Curve(start="10Gi")
    inodes: Amount = 6_000_000
    inodes_used: Curve = Curve(start=100_000)


class Processes(Spec, frozen=True):
    """The PIDs of a node."""

    capacity: Amount = 32_768
    used: Curve = Curve(start=200)


class NodeEntry(Selected, frozen=True):
    """The resources and the kubelet of nodes."""

    memory: Memory = Memory()
    nodefs: Disk = Disk()
    imagefs: Disk | None = None
    """A dedicated file system for images and writable layers. If unset, ``nodefs`` contains them."""
    processes: Processes = Processes()
    measure_every: str = "10s"
    """How often the kubelet measures. Between two measurements, values and times do not change."""
    eviction_hard: dict[str, str] = field(default_factory=lambda: dict(KUBELET_EVICTION_HARD))
    """The kubelet's hard thresholds. At each measurement below one of them, it kills a pod."""
    kills: bool = True
    """Whether the kubelet kills pods at its hard thresholds."""
    transition_period: str = "5m"
    """How long the kubelet's own pressure conditions remain after its thresholds were met."""

    def thresholds(self) -> dict[str, ThresholdValue]:
        """Return the kubelet's hard thresholds by signal, memory first, as the kubelet sorts them."""
        parsed = {signal: parse_threshold(text) for signal, text in self.eviction_hard.items()}
        return {signal: value for signal in SIGNALS if (value := parsed.get(signal)) is not None}


class PodEntry(Selected, frozen=True):
    """The usage of pods. ``names`` and ``labels`` select pods; the other conditions must hold as well."""

    namespace: str = "*"
    nodes: Selected = Selected()
    memory: Curve = Curve(start="32Mi")
    root: Curve = Curve(start="1Mi")
    """The writable layers of the containers."""
    logs: Curve = Curve(start="1Mi")
    volumes: Curve = Curve()
    """Local volumes, such as emptyDir."""
    root_inodes: Curve = Curve(start=10)
    volume_inodes: Curve = Curve()
    processes: Curve = Curve(start=2)

    def selects_pod(self, pod: Pod, node: Node) -> bool:
        """Return whether the entry matches a pod on a node."""
        return (
            fnmatch.fnmatchcase(pod.namespace, self.namespace)
            and self.selects(pod.name, pod.labels)
            and self.nodes.selects(node.name, node.labels)
        )


class FaultEntry(Selected, frozen=True):
    """Nodes whose kubelets are faulty."""

    fault: Annotated[Fault, Meta(description="How the kubelet fails.")] = "Hang"


_DEFAULT_NODE: Final = NodeEntry()
_DEFAULT_POD: Final = PodEntry()


class Scenario(Spec, frozen=True):
    """A scenario file."""

    nodes: tuple[NodeEntry, ...] = ()
    pods: tuple[PodEntry, ...] = ()
    faults: tuple[FaultEntry, ...] = ()

    def node(self, node: Node) -> NodeEntry:
        """Return the entry of a node."""
        return next((each for each in self.nodes if each.selects(node.name, node.labels)), _DEFAULT_NODE)

    def pod(self, pod: Pod, node: Node) -> PodEntry:
        """Return the entry of a pod."""
        return next((each for each in self.pods if each.selects_pod(pod, node)), _DEFAULT_POD)

    def fault(self, node: Node) -> Fault | None:
        """Return the fault of a node's kubelet, or ``None``."""
        return next((each.fault for each in self.faults if each.selects(node.name, node.labels)), None)

    def check(self) -> None:
        """Check the quantities, durations and thresholds.

        Raises:
            ValueError: one of them is invalid.
        """
        for node in self.nodes:
            node.thresholds()
            for signal in node.eviction_hard:
                if signal not in SIGNALS:
                    raise ValueError(f"evictionHard: no signal {signal!r}; there are {', '.join(SIGNALS)}")
            parse_duration(node.measure_every)
            parse_duration(node.transition_period)
            for disk in (node.nodefs, node.imagefs):
                if disk is not None:
                    _check_curves(disk)
                    amount(disk.capacity), amount(disk.inodes)
            amount(node.memory.capacity or 0), amount(node.processes.capacity)
            _check_curves(node.memory)
            _check_curves(node.processes)
        for pod in self.pods:
            _check_curves(pod)


def _check_curves(entry: Spec) -> None:
    for name in entry.__struct_fields__:
        curve = getattr(entry, name)
        if isinstance(curve, Curve):
            if curve.period and not parse_duration(curve.period):
                raise ValueError(f"{name}: period must be longer than 0s")
            curve.at(1.0, created=0.0)
            for step in curve.steps:
                amount(step.value), amount(step.per_second), parse_duration(step.after)
            if list(curve.steps) != sorted(curve.steps, key=lambda step: parse_duration(step.after)):
                raise ValueError(f"{name}: steps are not in ascending order of after")


def read_scenario(path: Path) -> Scenario:
    """Read a scenario file.

    Raises:
        InputError: the file is not YAML, or is not a valid scenario.
    """
    try:
        found = load_all(path.read_bytes())
        scenario = msgspec.convert(found[0] if found and found[0] is not None else {}, Scenario)
        scenario.check()
    except OSError as error:
        raise InputError(error.strerror or str(error), source=str(path)) from None
    except InputError as error:
        raise InputError(error.message, source=str(path)) from None
    except ValueError as error:  # also msgspec.ValidationError and QuantityError
        raise InputError(str(error), source=str(path)) from None
    if len(found) > 1:
        raise InputError(f"contains {len(found)} documents; only one is allowed", source=str(path))
    return scenario
