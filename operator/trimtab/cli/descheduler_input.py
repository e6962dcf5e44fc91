"""Reads what installs the upstream descheduler: its policies, its chart's values, and the workloads that run it.

A CronJob, Deployment or Job applies to the policies in the ConfigMaps that its pod mounts. If there is only one such
workload and none of its ConfigMaps is in the input, it applies to all policies of the upstream descheduler there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct

from trimtab.kube.errors import InputError

if TYPE_CHECKING:
    from trimtab.descheduling.imports.draft import ImportResult
    from trimtab.descheduling.imports.run_settings import RunSettings

NO_INTERVAL: Final = "does not say when it runs, so a cycle starts every 5m: set spec.interval or spec.schedule"


class Converted(Struct):
    """A converted document.

    Attributes:
        imported: the policies.
        source: the document's file.
        place: the file and the position of the document in it.
        config_map: name of the ConfigMap that contains the policies; ``""`` if they are in none.
        runs: whether the document also says when the policies run, as a chart's values do.
    """

    imported: ImportResult
    source: str
    place: str
    config_map: str = ""
    runs: bool = True


class DeschedulerInput:
    """Collects converted documents and workloads, and applies the settings of the workloads to the policies."""

    def __init__(self) -> None:
        self._converted: list[Converted] = []
        self._workloads: list[tuple[RunSettings, str, str]] = []

    def __bool__(self) -> bool:
        return bool(self._converted)

    def add(self, imported: ImportResult, manifest: Mapping[str, Any], *, source: str, place: str) -> None:
        """Add the result of converting a document."""
        kind, version = manifest.get("kind"), str(manifest.get("apiVersion"))
        name = str(manifest.get("metadata", {}).get("name", "")) if kind == "ConfigMap" else ""
        runs = kind != "ConfigMap" and not version.startswith("descheduler/")
        self._converted.append(Converted(imported, source, place, config_map=name, runs=runs))

    def take_workload(self, manifest: Mapping[str, Any], *, source: str, place: str) -> bool:
        """Add a workload if it runs the descheduler, and return whether it does."""
        from trimtab.descheduling.imports.run_settings import read_workload

        settings = read_workload(manifest)
        if settings is not None:
            # The differences are printed with the position of the policy, so they name the workload.
            settings.findings.warnings = [
                msgspec.structs.replace(each, field=": ".join(filter(None, (settings.described, each.field))))
                for each in settings.findings.warnings
            ]
            self._workloads.append((settings, source, place))
        return settings is not None

    def finish(self, *, converting: bool) -> Iterator[tuple[ImportResult, str]]:
        """Yield the policies with the settings of their workloads, each with its file and position.

        Args:
            converting: whether a policy is reported that has neither an interval nor a schedule.

        Raises:
            InputError: a setting is invalid, or workloads are given without a policy.
        """
        from trimtab.api.differences import HIGH, Difference
        from trimtab.descheduling.imports.draft import ImportResult
        from trimtab.descheduling.imports.run_settings import apply_settings

        for settings, source, place in self._workloads:
            targets = self._targets(settings)
            if not targets:
                wanted = " or ".join(f"ConfigMap {name}" for name in settings.config_maps) or "its ConfigMap"
                message = f"runs the descheduler, but its policy is not in the input; add {wanted}"
                if not self._converted:
                    raise InputError(message, source=place, object=settings.described)
                yield ImportResult((), (), (Difference(settings.described, message, HIGH),)), place
            for number, each in enumerate(targets):
                before = each.imported.warnings
                each.imported = apply_settings(each.imported, settings, source=source)
                if number:  # the settings of a workload are reported once
                    each.imported = _with_warnings(each.imported, before)
                each.runs = True
        for each in self._converted:
            yield (self._with_timing(each) if converting else each.imported), each.place

    def _targets(self, settings: RunSettings) -> list[Converted]:
        mounted = [each for each in self._converted if each.config_map in settings.config_maps and each.config_map]
        foreign = [each for each in self._converted if not each.runs]
        return mounted or (foreign if len(self._workloads) == 1 else [])

    def _with_timing(self, each: Converted) -> ImportResult:
        from trimtab.api.differences import HIGH, Difference

        silent = all({"interval", "schedule"} & policy["spec"].keys() for policy in each.imported.documents)
        if each.runs or silent:
            return each.imported
        return _with_warnings(each.imported, (*each.imported.warnings, Difference("", NO_INTERVAL, HIGH)))


def _with_warnings(imported: ImportResult, warnings: tuple[Any, ...]) -> ImportResult:
    return msgspec.structs.replace(imported, warnings=warnings)
