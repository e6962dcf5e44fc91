"""Autoscalers among the files of ``--policy``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import click

from trimtab.kube.errors import InputError

if TYPE_CHECKING:
    from trimtab.api.cluster_autoscaler import ClusterAutoscaler
    from trimtab.api.machine_autoscaler import MachineAutoscaler
    from trimtab.autoscaling.scale_up import Inputs

CLUSTER: Final = ("ClusterAutoscaler", "autoscaling.openshift.io/v1")
MACHINE: Final = ("MachineAutoscaler", "autoscaling.openshift.io/v1beta1")
KINDS: Final = (CLUSTER, MACHINE)
CONFIG_MAP: Final = "cluster-autoscaler-priority-expander"
"""The ConfigMap of the expander Priority."""


class Autoscalers:
    """What documents say of autoscaling, in whatever order they come."""

    kinds: Final = KINDS

    def __init__(self) -> None:
        self.cluster: ClusterAutoscaler | None = None
        self._machine: dict[str, MachineAutoscaler] = {}
        self._priorities: dict[int, tuple[str, ...]] = {}
        self._places: dict[str, str] = {}

    def __bool__(self) -> bool:
        return self.cluster is not None or bool(self._machine)

    def take(self, manifest: Mapping[str, Any], *, source: str, place: str) -> bool:
        """Read a document if it is about autoscaling; tells whether it is.

        Args:
            manifest: the document.
            source: where it came from, for messages about its fields.
            place: the same with its place in the file.

        Raises:
            InputError: it cannot be used, or is there twice.
        """
        from trimtab.api.decode import decode_cluster_autoscaler, decode_machine_autoscaler

        kind = (str(manifest.get("kind")), str(manifest.get("apiVersion")))
        if kind == CLUSTER:
            cluster = decode_cluster_autoscaler(manifest, source=source)
            self._once(f"{CLUSTER[0]}/{cluster.name}", place)
            self.cluster = cluster
            return True
        if kind == ("ConfigMap", "v1") and _name(manifest) == CONFIG_MAP:
            self._priorities = _read_priorities(manifest, source)
            self._once(f"ConfigMap/{CONFIG_MAP}", place)
            return True
        if kind == MACHINE:
            machine = decode_machine_autoscaler(manifest, source=source)
            self._once(f"{MACHINE[0]}/{machine.key}", place)
            self._machine[machine.key] = machine
            return True
        return False

    def inputs(self, *, now: float) -> Inputs:
        """What to plan with; without a ClusterAutoscaler with its defaults, which is told on stderr."""
        from trimtab.api.cluster_autoscaler import ClusterAutoscalerSpec
        from trimtab.api.cluster_autoscaler_status import ClusterAutoscalerStatus
        from trimtab.autoscaling.scale_up import Inputs

        if self.cluster is None:
            click.echo(
                "trimtab: warning: no ClusterAutoscaler among the policies: planned with its defaults; "
                "in a cluster nothing is scaled without one",
                err=True,
            )
        spec = ClusterAutoscalerSpec() if self.cluster is None else self.cluster.spec
        status = ClusterAutoscalerStatus() if self.cluster is None else self.cluster.status
        machine = tuple(self._machine[key] for key in sorted(self._machine))
        return Inputs(spec, now, machine, priorities=self._priorities, status=status)

    def _once(self, name: str, place: str) -> None:
        if name in self._places:
            raise InputError(f"is there twice: in {self._places[name]} and in {place}", object=name)
        self._places[name] = place


def _name(manifest: Mapping[str, Any]) -> object:
    metadata = manifest.get("metadata")
    return metadata.get("name") if isinstance(metadata, Mapping) else None


def _read_priorities(manifest: Mapping[str, Any], source: str) -> dict[int, tuple[str, ...]]:
    from trimtab.autoscaling.scale_up.expanders.priority import read_priorities

    data = manifest.get("data")
    try:
        return read_priorities(data if isinstance(data, Mapping) else {})
    except InputError as error:
        raise InputError(error.message, source=source, object=f"ConfigMap/{CONFIG_MAP}", field=error.field) from None
