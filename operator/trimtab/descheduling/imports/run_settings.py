"""Converts how the upstream descheduler runs: the CronJob, Deployment or Job that starts it, and its command line.

The schedule, the interval, ``suspend`` and the flags of cmd/descheduler become fields of the DeschedulerPolicies that
the process reads. What the policy itself sets wins over a flag, as upstream. Settings that are not converted are named.

Flags: kubernetes-sigs/descheduler, cmd/descheduler/app/options/options.go, v0.1 to v0.36.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct

from trimtab.api.cron import MACROS
from trimtab.api.decode import InvalidObject, describe
from trimtab.api.differences import HIGH, LOW
from trimtab.descheduling.imports.draft import (
    ImportFindings,
    ImportResult,
    PolicyDraft,
    duration_of_go,
    take_node_selector,
)

KINDS: Final = ("CronJob", "Deployment", "Job")
_PROCESS: Final = re.compile(
    "v|policy-config-file|vmodule|logging-format|log-.*|alsologtostderr|logtostderr|stderrthreshold|add-dir-header|skip-headers|"
    "skip-log-headers|one-output|kubeconfig|kubeconfig-file|client-connection-.*|bind-address|secure-port|cert-dir|"
    "tls-.*|http2-max-streams-per-connection|enable-http2|permit-.*|leader-elect.*|disable-metrics|otel-.*|"
    "disable-http2-serving"
)
"""Flags that configure the process and not what it evicts."""

_QUIET: Final = ("v", "policy-config-file", "kubeconfig", "logging-format")
"""Flags of nearly every installation that need no report."""


class RunSettings(Struct, frozen=True):
    """How a descheduler runs.

    Attributes:
        draft: the fields of a policy's spec that result from it.
        findings: the errors and warnings.
        described: the object, as ``Kind/namespace/name``.
        config_maps: the names of the ConfigMaps that its pod mounts.
    """

    draft: PolicyDraft
    findings: ImportFindings
    described: str
    config_maps: tuple[str, ...] = ()


def read_workload(manifest: Mapping[str, Any]) -> RunSettings | None:
    """Return the settings in a CronJob, Deployment or Job, or ``None`` if it does not run the descheduler."""
    if manifest.get("kind") not in KINDS:
        return None
    kind, spec = str(manifest["kind"]), _section(manifest, "spec")
    path = ("jobTemplate", "spec", "template") if kind == "CronJob" else ("template",)
    pod = _section(spec, *path, "spec")
    for index, container in enumerate(_mappings(pod.get("containers"))):
        command = _words(container.get("command")) + _words(container.get("args"))
        if not _runs_descheduler(container, command):
            continue
        draft, findings = PolicyDraft(), ImportFindings()
        flags = parse_flags(command)
        place = f"spec.{'.'.join(path)}.spec.containers[{index}].args"
        take_flags(draft, flags, place, f"{place}[--{{}}]", findings)
        if kind == "CronJob":
            take_cron_job(draft, spec, "spec.", findings)
        elif kind == "Deployment":
            take_deployment(draft, spec, "spec.", findings)
        else:
            draft.put("suspend", True, "spec")
            message = "a Job runs once: the policy is suspended; create a DeschedulingRun to run it once"
            findings.warn("spec", message, HIGH)
        volumes = [_section(each, "configMap").get("name") for each in _mappings(pod.get("volumes"))]
        return RunSettings(draft, findings, describe(manifest), tuple(str(name) for name in volumes if name))
    return None


def parse_flags(command: Sequence[str]) -> dict[str, str]:
    """Return the flags of a command line by their names, without dashes. A flag without a value has the value true."""
    flags: dict[str, str] = {}
    pending = ""
    for word in command:
        if word.startswith("-") and word.strip("-"):
            name, equals, value = word.lstrip("-").partition("=")
            if not equals and re.fullmatch("v[0-9]+", name):
                name, equals, value = "v", "=", name[1:]
            flags[name] = value if equals else "true"
            pending = "" if equals or name in ("dry-run", "evict-local-storage-pods", "disable-metrics") else name
        elif pending:
            flags[pending] = word
            pending = ""
    return flags


def take_flags(draft: PolicyDraft, flags: Mapping[str, Any], parent: str, each: str, findings: ImportFindings) -> None:
    """Convert the descheduler's flags to fields of the spec.

    Args:
        draft: the fields of the spec.
        flags: the flags with their values.
        parent: the path of all flags in the document.
        each: the path of one flag, with ``{}`` for its name.
        findings: collects errors and warnings.
    """
    ignored = [name for name in flags if _PROCESS.fullmatch(name) and name not in _QUIET]
    if ignored:
        listed = ", ".join(f"--{name}" for name in ignored)
        findings.warn(parent, f"{listed}: not converted; the values of trimtab's chart configure it", LOW)
    for name, value in flags.items():
        if name in _FLAGS:
            _FLAGS[name](draft, "true" if value is None else str(value), each.format(name), findings)
        elif not _PROCESS.fullmatch(name):
            findings.warn(
                each.format(name), f"--{name} is not a flag of the descheduler, which does not start with it", HIGH
            )
    if "dry-run" not in flags:
        _report_mode("", findings)


def _take_interval(draft: PolicyDraft, value: str, place: str, findings: ImportFindings) -> None:
    interval = duration_of_go(value, place, findings)
    if interval is not None:
        draft.put("interval", interval, place)


def _take_dry_run(draft: PolicyDraft, value: str, place: str, findings: ImportFindings) -> None:
    if _is_true(value, place, findings):
        draft.put("mode", "Simulate", place)
    else:
        _report_mode(place, findings)


def _take_local_storage(draft: PolicyDraft, value: str, place: str, findings: ImportFindings) -> None:
    if _is_true(value, place, findings):
        draft.add("protections.disabled", "PodsWithLocalStorage", place)


def _take_gates(_draft: PolicyDraft, value: str, place: str, findings: ImportFindings) -> None:
    others = [gate for gate in value.split(",") if gate.partition("=")[0].strip() != "EvictionsInBackground"]
    if others:
        findings.warn(place, f"{','.join(others)}: not converted; trimtab has no such feature gates")


def _report_mode(place: str, findings: ImportFindings) -> None:
    message = "the descheduler evicts, and the converted policy only simulates; to evict, set spec.mode: Act"
    findings.warn(place, message, LOW)


def _take_limit(draft: PolicyDraft, value: str, place: str, findings: ImportFindings) -> None:
    if not re.fullmatch("[0-9]+", value):
        findings.error(place, f"must be a whole number, not {value!r}")
    elif int(value):  # 0 is the default and means no limit
        draft.put("limits.perNode", int(value), place)


_FLAGS: Final[Mapping[str, Callable[[PolicyDraft, str, str, ImportFindings], None]]] = {
    "descheduling-interval": _take_interval,
    "dry-run": _take_dry_run,
    "max-pods-to-evict-per-node": _take_limit,
    "node-selector": take_node_selector,
    "evict-local-storage-pods": _take_local_storage,
    "feature-gates": _take_gates,
}
"""Maps flags to the functions that convert them."""


def take_cron_job(draft: PolicyDraft, spec: Mapping[str, Any], prefix: str, findings: ImportFindings) -> None:
    """Convert ``schedule``, ``timeZone`` and ``suspend`` of a CronJob or of the chart's values.

    Args:
        draft: the fields of the spec. An interval in it, from a flag, wins: such a job never ends.
        spec: the mapping with the fields.
        prefix: the path of the mapping in the document, with a dot at the end if it is not empty.
        findings: collects errors and warnings.
    """
    text, zone = str(spec.get("schedule") or "").strip(), spec.get("timeZone")
    found = re.fullmatch(r"(?:CRON_)?TZ=(\S+)\s+(.*)", text)
    if found:
        zone, text = found[1], found[2]
    if "interval" in draft.spec:
        message = "has no effect after the first start: with --descheduling-interval the job does not end"
        findings.warn(f"{prefix}schedule", message)
        text = ""
    every = re.fullmatch(r"@every\s+(\S+)", text)
    if every:
        interval = duration_of_go(every[1], f"{prefix}schedule", findings)
        if interval is not None:
            draft.put("interval", interval, f"{prefix}schedule")
    elif text:
        cron = MACROS.get(text.lower(), text).replace("?", "*")
        schedule = {"cron": cron} if zone is None else {"cron": cron, "timeZone": zone}
        draft.put("schedule", schedule, f"{prefix}schedule")
        draft.origins["spec.schedule.cron"] = f"{prefix}schedule"
        draft.origins["spec.schedule.timeZone"] = f"{prefix}timeZone" if not found else f"{prefix}schedule"
    if spec.get("suspend"):
        draft.put("suspend", True, f"{prefix}suspend")
    for key in ("startingDeadlineSeconds", "activeDeadlineSeconds"):
        if spec.get(key):
            findings.warn(f"{prefix}{key}", "is not converted: a late cycle still starts, and runs to its end", LOW)


def take_deployment(draft: PolicyDraft, spec: Mapping[str, Any], prefix: str, findings: ImportFindings) -> None:
    """Convert ``replicas: 0`` of a Deployment or of the chart's values, and the values' ``deschedulingInterval``."""
    if spec.get("replicas") == 0:
        draft.put("suspend", True, f"{prefix}replicas")
        findings.warn(f"{prefix}replicas", "is 0: the policy is suspended")
    place, value = f"{prefix}deschedulingInterval", spec.get("deschedulingInterval")
    if value is not None and "interval" not in draft.spec:
        interval = duration_of_go(str(value), place, findings)
        if interval is not None:
            draft.put("interval", interval, place)
    if "interval" not in draft.spec:
        message = "without --descheduling-interval the descheduler runs whenever its container restarts"
        findings.warn(f"{prefix}template", message, HIGH)


def apply_settings(imported: ImportResult, settings: RunSettings, *, source: str) -> ImportResult:
    """Return converted policies with the settings of the process that reads them.

    Raises:
        InvalidObject: a setting is invalid.
    """
    findings = ImportFindings()
    findings.errors += settings.findings.errors
    policies, documents = [], []
    for document in imported.documents:
        draft = PolicyDraft(_merged(settings.draft.spec, document["spec"]), dict(settings.draft.origins))
        finished = draft.finish(document["metadata"]["name"], findings)
        if finished is not None:
            policies.append(finished[0])
            documents.append(finished[1])
    if findings.errors:
        raise InvalidObject(tuple(dict.fromkeys(findings.errors)), source=source, object=settings.described)
    return ImportResult(tuple(policies), tuple(documents), (*imported.warnings, *settings.findings.warnings))


def _merged(settings: Mapping[str, Any], spec: Mapping[str, Any]) -> dict[str, Any]:
    """Merge the settings of the process into a policy's spec, which wins, except that lists are joined."""
    merged = dict(settings)
    for key, value in spec.items():
        old = merged.get(key)
        if key == "nodeSelector":
            merged[key] = value
        elif isinstance(old, Mapping) and isinstance(value, Mapping):
            merged[key] = _merged(old, value)
        elif isinstance(old, list) and isinstance(value, list):
            merged[key] = list(dict.fromkeys((*value, *old)))
        else:
            merged[key] = value
    return merged


def _runs_descheduler(container: Mapping[str, Any], command: Sequence[str]) -> bool:
    """Return whether a container runs the descheduler, and not an operator that manages it."""
    binaries = {word.rpartition("/")[2] for word in command if not word.startswith("-")}
    image = str(container.get("image", "")).partition("@")[0].rpartition("/")[2].partition(":")[0]
    flag = any(word.lstrip("-").partition("=")[0] == "policy-config-file" for word in command)
    return flag or "descheduler" in binaries or (image == "descheduler" and not binaries)


def _is_true(value: str, place: str, findings: ImportFindings) -> bool:
    text = value.lower()
    if text not in ("true", "false", "1", "0", "t", "f"):
        findings.error(place, f"must be true or false, not {value!r}")
    return text in ("true", "1", "t")


def _words(value: Any) -> list[str]:
    """Return the words of a command or of its arguments. A script, for ``sh -c``, is split as a shell does."""
    found: list[str] = []
    for each in value if isinstance(value, list) else ():
        text = str(each)
        try:
            found += shlex.split(text) if " " in text and "descheduler" in text else [text]
        except ValueError:
            found.append(text)
    return found


def _section(value: Any, *path: str) -> Mapping[str, Any]:
    for key in path:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value if isinstance(value, Mapping) else {}


def _mappings(value: Any) -> Iterable[Mapping[str, Any]]:
    return [each for each in value if isinstance(each, Mapping)] if isinstance(value, list) else []
