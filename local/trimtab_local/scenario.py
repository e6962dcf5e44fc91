"""The scenario file of ``trimtab local load``: YAML that defines nodes and workloads. Unknown keys are errors.

::

    nodes:
    - {count: 12, cpu: 8, memory: 32Gi}
    namespaces:
    - {name: shop}
    workloads:
    - {kind: Deployment, namespace: shop, name: web, replicas: 6, requests: {cpu: 250m, memory: 256Mi}}

The types are the schema: every key that is not named here is refused with its path and what is allowed.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta, field

from trimtab.api.base import Spec
from trimtab.api.schema import FieldError, check, structural_schema
from trimtab.kube.errors import InputError
from trimtab.kube.rules.quantity import resource_amount
from trimtab.kube.wire.files.strict_yaml import load_all
from trimtab_local.nodes import ZONES

Amount = str | int
"""A quantity in Kubernetes' format: ``250m``, ``2``, ``32Gi``."""

_DNS: Final = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
Prefix = Annotated[str, Meta(min_length=1, max_length=50, pattern=_DNS)]
"""A name, or the prefix of numbered names."""

DIRECT_KINDS: Final = ("ReplicaSet", "Pod")


class Taint(Spec, frozen=True):
    """A taint, as in ``Node.spec.taints``."""

    key: str
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"]
    value: str = ""


class NodeGroup(Spec, frozen=True):
    """Equal nodes named ``<prefix>-1`` to ``<prefix>-<count>``, distributed over the zones in turn."""

    count: Annotated[int, Meta(ge=1, le=20_000)]
    prefix: Prefix = "node"
    cpu: Amount = "8"
    memory: Amount = "32Gi"
    pods: Annotated[int, Meta(ge=1, le=10_000)] = 110
    capacity: dict[str, Amount] = field(default_factory=dict)
    """Additional resources, such as ``ephemeral-storage`` and ``nvidia.com/gpu``."""
    zones: Annotated[tuple[str, ...], Meta(min_length=1)] = ZONES
    labels: dict[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False

    def names(self) -> list[str]:
        """Return the names of its nodes."""
        return [f"{self.prefix}-{number + 1}" for number in range(self.count)]

    def resources(self) -> dict[str, Amount]:
        """Return the capacity, all of which is allocatable."""
        return {
            "cpu": self.cpu,
            "memory": self.memory,
            "ephemeral-storage": "100Gi",
            "pods": self.pods,
            **self.capacity,
        }


class NamespaceGroup(Spec, frozen=True):
    """A namespace, or the namespaces ``<name>-1`` to ``<name>-<count>`` if ``count`` is set."""

    name: Prefix
    count: Annotated[int, Meta(ge=1, le=10_000)] | None = None
    labels: dict[str, str] = field(default_factory=dict)

    def names(self) -> list[str]:
        """Return the names of its namespaces."""
        return [self.name] if self.count is None else [f"{self.name}-{number + 1}" for number in range(self.count)]


class Placement(Spec, frozen=True):
    """The nodes of pods that are created directly. By default, they are distributed evenly over all nodes.

    For example, with ``{heavyShare: 0.4, heavyFactor: 3}`` the first two fifths of the nodes have three times as many
    pods as the others.
    """

    node_groups: tuple[str, ...] = ()
    """Prefixes of the groups whose nodes are used. The default is all groups."""
    heavy_share: Annotated[float, Meta(ge=0, le=1)] = 0.0
    heavy_factor: Annotated[float, Meta(ge=0)] = 1.0
    seed: int = 0
    """The seed that determines the node of each pod."""


class Budget(Spec, frozen=True):
    """A PodDisruptionBudget for each owner. Exactly one of the two fields must be set."""

    min_available: Amount | None = None
    max_unavailable: Amount | None = None


class Workload(Spec, frozen=True):
    """Equal owners with their pods."""

    kind: Literal["Deployment", "ReplicaSet", "StatefulSet", "DaemonSet", "Job", "Pod"]
    name: Prefix
    namespace: Prefix = "default"
    """A namespace of the list above. If that has a count, the owners are distributed over its namespaces in turn."""
    owners: Annotated[int, Meta(ge=1, le=100_000)] = 1
    """The number of owners. If it is greater than one, they are named ``<name>-1`` to ``<name>-<owners>``."""
    replicas: Annotated[int, Meta(ge=0, le=500_000)] = 1
    """The number of pods of each owner."""
    requests: dict[str, Amount] = field(default_factory=dict)
    limits: dict[str, Amount] = field(default_factory=dict)
    image: str = "registry.k8s.io/pause:3.10"
    labels: dict[str, str] = field(default_factory=dict)
    """Labels of the pods in addition to ``app: <owner>``."""
    annotations: dict[str, str] = field(default_factory=dict)
    """Annotations of the pods."""
    pod_spec: dict[str, Any] = field(default_factory=dict)
    """Further fields of the pod spec, such as tolerations, affinity and priorityClassName. ``{owner}`` is replaced by
    the owner's name.
    """
    via: Literal["scheduler", "direct"] = "scheduler"
    """``scheduler``: controllers create the pods, the real scheduler places them, and kwok runs them. ``direct``: the
    pods are created on their nodes as running, as ``placement`` defines. Use it for large numbers of pods.
    """
    placement: Placement | None = None
    budget: Budget | None = None

    def owner_names(self) -> list[str]:
        """Return the names of its owners."""
        return [self.name] if self.owners == 1 else [f"{self.name}-{number + 1}" for number in range(self.owners)]

    @property
    def pod_count(self) -> int:
        """Return the number of pods. For DaemonSets, it depends on the number of nodes."""
        return 0 if self.kind == "DaemonSet" else self.owners * (1 if self.kind == "Pod" else self.replicas)


class Scenario(Spec, frozen=True):
    """The nodes, namespaces and workloads of a cluster."""

    nodes: tuple[NodeGroup, ...] = ()
    namespaces: tuple[NamespaceGroup, ...] = ()
    workloads: tuple[Workload, ...] = ()

    @property
    def pod_count(self) -> int:
        """Return the total number of pods."""
        return sum(workload.pod_count for workload in self.workloads)

    @property
    def node_count(self) -> int:
        """Return the total number of nodes."""
        return sum(group.count for group in self.nodes)


def read_scenario(path: Path) -> Scenario:
    """Read a scenario file.

    Raises:
        InputError: the file is not YAML, or is not a valid scenario. The message has a line per error.
    """
    try:
        found = load_all(path.read_bytes())
    except OSError as error:
        raise InputError(error.strerror or str(error), source=str(path)) from None
    except InputError as error:
        raise InputError(error.message, source=str(path)) from None
    if len(found) > 1:
        raise InputError(f"holds {len(found)} documents: allowed is one", source=str(path))
    data = found[0] if found else None
    return decode_scenario({} if data is None else data, source=str(path))


def decode_scenario(data: object, *, source: str = "") -> Scenario:
    """Decode a scenario from plain data.

    Raises:
        InputError: the data is invalid. The message has a line per error.
    """
    errors = check(data, structural_schema(Scenario))
    if not errors:
        try:
            scenario = msgspec.convert(data, Scenario)
        except msgspec.ValidationError as error:
            errors = (FieldError("", str(error)),)
        else:
            errors = tuple(_faults(scenario))
            if not errors:
                return scenario
    first, *rest = errors
    more = "".join(f"\n{source}: {error}" if source else f"\n{error}" for error in rest)
    raise InputError(first.message + more, source=source, field=first.field)


def _faults(scenario: Scenario) -> list[FieldError]:
    """Return the errors that the types cannot express."""
    faults = [
        fault for index, group in enumerate(scenario.nodes) for fault in _amounts(group.resources(), f"nodes[{index}]")
    ]
    faults += _twice((group.prefix for group in scenario.nodes), "nodes", "prefix")
    faults += _twice((group.name for group in scenario.namespaces), "namespaces", "name")
    faults += _twice(
        (f"{w.kind} {w.namespace}/{w.name}" for w in scenario.workloads), "workloads", "kind, namespace and name"
    )
    for index, workload in enumerate(scenario.workloads):
        faults += _workload_faults(workload, scenario, f"workloads[{index}]")
    return faults


def _workload_faults(workload: Workload, scenario: Scenario, path: str) -> list[FieldError]:
    faults = [
        *_amounts(workload.requests, f"{path}.requests"),
        *_amounts(workload.limits, f"{path}.limits"),
    ]
    known = ["default", *(group.name for group in scenario.namespaces)]
    if workload.namespace not in known:
        faults.append(FieldError(f"{path}.namespace", f"is not in namespaces; there are {', '.join(known)}"))
    if workload.via == "direct" and workload.kind not in DIRECT_KINDS:
        faults.append(FieldError(f"{path}.kind", f"via: direct makes {' or '.join(DIRECT_KINDS)}, not {workload.kind}"))
    if workload.via == "direct" and not scenario.nodes:
        faults.append(FieldError(f"{path}.via", "direct needs nodes to put the pods on; the scenario has none"))
    if workload.via == "scheduler" and workload.placement is not None:
        faults.append(FieldError(f"{path}.placement", "is for via: direct; otherwise the scheduler chooses"))
    if workload.pod_spec.get("containers") and (workload.requests or workload.limits):
        faults.append(
            FieldError(f"{path}.podSpec.containers", "brings its own resources; leave out requests and limits")
        )
    budget = workload.budget
    if budget is not None and (budget.min_available is None) == (budget.max_unavailable is None):
        faults.append(FieldError(f"{path}.budget", "needs one of minAvailable and maxUnavailable, and not both"))
    prefixes = [group.prefix for group in scenario.nodes]
    faults += [
        FieldError(
            f"{path}.placement.nodeGroups[{place}]", f"no nodes have the prefix {name}; there are {', '.join(prefixes)}"
        )
        for place, name in enumerate(workload.placement.node_groups if workload.placement else ())
        if name not in prefixes
    ]
    return faults


def _amounts(amounts: dict[str, Amount], path: str) -> list[FieldError]:
    faults = []
    for name, amount in amounts.items():
        try:
            resource_amount(name, amount)
        except ValueError as error:
            faults.append(FieldError(f"{path}.{name}", str(error)))
    return faults


def _twice(names: Any, path: str, key: str) -> list[FieldError]:
    return [FieldError(path, f"two have the same {key}: {name}") for name, count in Counter(names).items() if count > 1]
