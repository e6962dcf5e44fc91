"""Reads what configures autoscaling: trimtab's own kinds, and the settings of cluster-autoscaler."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar

from trimtab.cli.conversion_report import print_differences
from trimtab.cli.policies import CONFIG_MAP, Autoscalers
from trimtab.kube.errors import InputError

if TYPE_CHECKING:
    from trimtab.api.differences import Difference
    from trimtab.api.machine_autoscaler import MachineAutoscaler
    from trimtab.autoscaling.imports import CommandLine, NodeGroupObject
    from trimtab.kube.wire.files.packages import ChartValues

T = TypeVar("T")

_WORKLOADS: Final = ("Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "Pod")


class AutoscalerDocuments(Autoscalers):
    """Reads the documents that configure autoscaling, in any order, and converts those of cluster-autoscaler.

    These are the workload or the chart's values that run cluster-autoscaler, and node groups with size annotations.
    """

    def __init__(self) -> None:
        super().__init__()
        self._documents: list[dict[str, Any]] = []
        self._groups: list[tuple[NodeGroupObject, str]] = []
        self._pending: list[tuple[tuple[str, ...], str, str]] = []
        self._annotated: list[tuple[NodeGroupObject, dict[str, Any], str]] = []

    def __bool__(self) -> bool:
        return super().__bool__() or bool(self._annotated) or bool(self._pending)

    def take(self, manifest: Mapping[str, Any], *, source: str, place: str) -> bool:
        """See :meth:`Autoscalers.take`."""
        if super().take(manifest, source=source, place=place):
            self._documents.append({key: value for key, value in manifest.items() if key != "status"})
            return True
        if manifest.get("kind") in _WORKLOADS:
            return self._take_workload(manifest, source, place)
        return self._take_group(manifest, place)

    def take_chart(self, chart: ChartValues, *, source: str, place: str) -> bool:
        """Read the values of cluster-autoscaler's chart, and return whether they are.

        Raises:
            InputError: a value is invalid.
        """
        from trimtab.autoscaling.imports.chart import CHART, command_line, priorities, recognize

        values = chart.of(CHART, recognize)
        if values is None:
            return False
        with_place = _located(lambda: (command_line(values), priorities(values)), values.field)
        line, text = with_place
        self._convert(line, source, place, prefix=values.field)
        if text is not None:
            metadata = {"name": CONFIG_MAP, "namespace": values.namespace or "kube-system"}
            document = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"priorities": text}}
            self.take(document, source=source, place=place)
        return True

    @property
    def machine(self) -> tuple[MachineAutoscaler, ...]:
        """Return the MachineAutoscalers, ordered by namespace and name."""
        self._add_machine_autoscalers()
        return super().machine

    @property
    def documents(self) -> list[dict[str, Any]]:
        """Return all documents as plain data, those that were read before those that were converted to."""
        self._add_machine_autoscalers()
        return self._documents

    def _take_workload(self, manifest: Mapping[str, Any], source: str, place: str) -> bool:
        from trimtab.autoscaling.imports import read_workload

        line = read_workload(manifest)
        if line is None:
            return False
        metadata = manifest.get("metadata")
        name = metadata.get("name") if isinstance(metadata, Mapping) else ""
        self._convert(line, source, place, prefix=f"{manifest['kind']}/{name}")
        return True

    def _take_group(self, manifest: Mapping[str, Any], place: str) -> bool:
        from trimtab.autoscaling.imports import group_autoscaler, node_group_object

        group = node_group_object(manifest)
        if group is None:
            return False
        self._groups.append((group, place))
        document, warnings = group_autoscaler(group)
        _warn(warnings, place, prefix=f"{group.kind}/{group.namespace}/{group.name}")
        if document is not None:
            self._annotated.append((group, document, place))
        return True

    def _convert(self, line: CommandLine, source: str, place: str, *, prefix: str) -> None:
        """Convert a command line. MachineAutoscalers follow once all node groups are known."""
        from trimtab.autoscaling.imports import convert_command_line

        imported = _located(lambda: convert_command_line(line), prefix)
        _warn(imported.warnings, place, prefix=prefix)
        self.take(imported.document, source=source, place=place)
        if imported.nodes:
            self._pending.append((imported.nodes, imported.provider, place))

    def _add_machine_autoscalers(self) -> None:
        """Add the MachineAutoscalers that annotations and --nodes are converted to.

        A MachineAutoscaler in the input takes precedence over both, and --nodes over annotations, as the annotations of
        a group count for Cluster API only.
        """
        from trimtab.autoscaling.imports import target_autoscalers

        pending, self._pending = self._pending, []
        annotated, self._annotated = self._annotated, []
        targets = {_target(each) for each in super().machine}
        candidates = list(annotated)
        for nodes, provider, place in pending:
            found, warnings = target_autoscalers(nodes, provider, [group for group, _ in self._groups])
            _warn(warnings, place, prefix="")
            candidates = [(group, document, place) for group, document in found] + candidates
        names = {each.key for each in super().machine}
        for group, document, place in candidates:
            if group.target in targets:
                continue
            targets.add(group.target)
            metadata = document["metadata"]
            if f"{metadata['namespace']}/{metadata['name']}" in names:
                metadata["name"] = f"{metadata['name']}-{group.kind.lower()}"
            names.add(f"{metadata['namespace']}/{metadata['name']}")
            self.take(document, source=place, place=place)


def _target(autoscaler: MachineAutoscaler) -> tuple[str, str, str, str]:
    target = autoscaler.spec.scale_target_ref
    return (target.api_version.partition("/")[0], target.kind, autoscaler.metadata.namespace, target.name)


def _located(convert: Callable[[], T], prefix: str) -> T:
    """Call ``convert``; add the object or field to an error that has none."""
    try:
        return convert()
    except InputError as error:
        raise InputError(error.message, source=error.source, object=error.object or prefix, field=error.field) from None


def _warn(warnings: tuple[Difference, ...] | list[Difference], place: str, *, prefix: str) -> None:
    print_differences(warnings, f"{place}: {prefix}" if prefix else place)
