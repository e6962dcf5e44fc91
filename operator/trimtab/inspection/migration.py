"""Compares the programs in a cluster that trimtab can replace with what trimtab would do in their place.

The programs are descheduler, cluster-autoscaler, karpenter, OpenShift's operators for the first two, and the taint
controllers of kube-controller-manager. The report has who does which job, the steps of a migration in order, a plan
with the converted settings, and what the programs did in the last 24 hours according to events.

Example::

    document = migration_report(ClusterInput(snapshot=snapshot, now=now, policies=policies), manifests)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from trimtab.inspection.cluster import ClusterInput, PolicySet
from trimtab.kube.errors import InputError

if TYPE_CHECKING:
    from trimtab.api.descheduler_policy import DeschedulerPolicy
    from trimtab.api.machine_autoscaler import MachineAutoscaler

Document = dict[str, Any]
Job = Literal["MovePods", "ScaleNodes", "TaintNodes", "EvictTaintedPods"]

WINDOW: Final = timedelta(hours=24)
"""How far back events are compared."""

JOBS: Final[tuple[Job, ...]] = ("MovePods", "ScaleNodes", "TaintNodes", "EvictTaintedPods")

_OWN: Final[Mapping[Job, str]] = {
    "MovePods": "DeschedulerPolicy",
    "ScaleNodes": "ClusterAutoscaler",
    "TaintNodes": "TaintManager",
    "EvictTaintedPods": "TaintManager",
}
_WORKLOADS: Final = ("Deployment", "StatefulSet", "DaemonSet", "CronJob", "Pod")
_DESCHEDULER: Final = "descheduler"
_AUTOSCALER: Final = "cluster-autoscaler"
_KARPENTER: Final = "karpenter"
_CONTROLLER_MANAGER: Final = "kube-controller-manager"
_KUBE_DESCHEDULER: Final = ("KubeDescheduler", "operator.openshift.io/v1")
_DESCHEDULER_NAMESPACE: Final = "openshift-kube-descheduler-operator"
_AUTOSCALER_OPERATOR: Final = "cluster-autoscaler-operator"
_CONTROLLERS: Final[Mapping[str, tuple[Job, str]]] = {
    "node-lifecycle-controller": ("TaintNodes", "nodelifecycle"),
    "taint-eviction-controller": ("EvictTaintedPods", "tainteviction"),
}
"""The controllers of kube-controller-manager that do jobs of a TaintManager, with their older names."""

_EVENTS: Final[Mapping[str, str]] = {
    "Descheduled": "Evict",
    "Evicted": "Evict",
    "ScaleDown": "RemoveNode",
    "TriggeredScaleUp": "ScaleUp",
}
"""The action that an event reports, by its reason or, for descheduler, by its action."""


class Program(Struct, frozen=True, rename="camel"):
    """A program, or a custom resource of an operator, that does jobs of trimtab.

    Attributes:
        program: its name.
        object: the object that runs or configures it, as ``Kind/namespace/name``.
        jobs: what it does.
        active: whether it runs: false if it is scaled to 0 or suspended.
        converted: whether its settings could be converted.
        warnings: the differences in behaviour after a conversion, or why it is not possible.
        stop: the command that stops it; empty if it is not stopped.
    """

    program: str
    object: str
    jobs: tuple[Job, ...]
    active: bool = True
    converted: bool = False
    warnings: tuple[str, ...] = ()
    stop: str = ""


class _Action(Struct, frozen=True):
    """An action that an event reports."""

    action: str
    object: str


def migration_report(cluster: ClusterInput, manifests: Iterable[Mapping[str, Any]]) -> Document:
    """Return the report, ready for JSON.

    Args:
        cluster: the cluster, with the policies of trimtab in it.
        manifests: workloads, ConfigMaps, custom resources and events of the cluster, in any order.
    """
    found = _Programs(cluster, [each for each in manifests if isinstance(each.get("metadata"), Mapping)])
    programs = sorted(found.programs, key=lambda each: (each.program, each.object))
    planned = _plan(replace(cluster, policies=found.policies))
    observed = _observed(found.manifests, now=cluster.now)
    return {
        "apiVersion": "trimtab.dev/v1alpha1",
        "kind": "MigrationReport",
        "message": _message(programs, found.problems),
        "programs": [
            {**msgspec.to_builtins(each), "jobs": list(each.jobs), "warnings": list(each.warnings)} for each in programs
        ],
        "jobs": [_job(job, programs, cluster.policies) for job in JOBS],
        "steps": _steps(programs),
        "plan": planned,
        "comparison": [_compared(action, observed, planned) for action in ("Evict", "ScaleUp", "RemoveNode")],
        "problems": list(found.problems),
    }


class _Programs:
    """Finds the programs in a cluster and converts their settings.

    Attributes:
        manifests: the objects.
        programs: the programs.
        policies: the converted settings. Jobs without one keep the policies of trimtab in the cluster.
        problems: settings that could not be converted.
    """

    def __init__(self, cluster: ClusterInput, manifests: Sequence[Mapping[str, Any]]) -> None:
        self.manifests = manifests
        self.programs: list[Program] = []
        self.problems: list[str] = []
        self._descheduler: list[DeschedulerPolicy] = []
        self.policies = cluster.policies
        for manifest in manifests:
            self._find(manifest)
        if self._descheduler:
            named = {policy.name: policy for policy in self._descheduler}
            self.policies = replace(self.policies, descheduler=tuple(named[name] for name in sorted(named)))

    def _find(self, manifest: Mapping[str, Any]) -> None:
        kind = str(manifest.get("kind"))
        if (kind, str(manifest.get("apiVersion"))) == _KUBE_DESCHEDULER:
            self._add_kube_descheduler(manifest)
        elif kind == "NodePool" and str(manifest.get("apiVersion")).startswith("karpenter.sh/"):
            reason = "NodePools are not converted: trimtab scales node groups, not instance types"
            self.programs.append(Program(_KARPENTER, _label(manifest), ("ScaleNodes",), warnings=(reason,)))
        elif kind == "Pod" and not _is_static(manifest):
            return  # the workload that owns it is reported
        elif kind in _WORKLOADS and not _is_managed(manifest):
            for container in _containers(manifest):
                self._find_container(manifest, container)

    def _find_container(self, manifest: Mapping[str, Any], container: Mapping[str, Any]) -> None:
        from trimtab.autoscaling.imports.arguments import is_autoscaler

        names = _names(container)
        if is_autoscaler(container):
            self._add_autoscaler(manifest)
        elif _DESCHEDULER in names:
            self._add_descheduler(manifest)
        elif _CONTROLLER_MANAGER in names:
            self._add_controller_manager(manifest, container)
        elif any(name.endswith(_AUTOSCALER_OPERATOR) for name in names):
            note = "its ClusterAutoscaler and MachineAutoscalers apply unchanged"
            self._add(manifest, _AUTOSCALER_OPERATOR, ("ScaleNodes",), converted=True, warnings=(note,))
        elif _KARPENTER in names or "/karpenter/" in str(container.get("image")):
            self._add(manifest, _KARPENTER, ("ScaleNodes",), warnings=("its settings are not converted",))

    def _add(self, manifest: Mapping[str, Any], program: str, jobs: tuple[Job, ...], **more: Any) -> None:
        found = Program(program, _label(manifest), jobs, active=_is_active(manifest), stop=_stop(manifest), **more)
        self.programs.append(found)

    def _add_autoscaler(self, manifest: Mapping[str, Any]) -> None:
        from trimtab.api.decode import decode_cluster_autoscaler
        from trimtab.autoscaling.imports import convert_command_line, read_workload

        try:
            line = read_workload(manifest)
            assert line is not None
            imported = convert_command_line(line)
            autoscaler = decode_cluster_autoscaler(imported.document)
            machines, warnings = self._targets(imported.nodes, imported.provider)
        except InputError as error:
            self._not_converted(manifest, _AUTOSCALER, ("ScaleNodes",), error)
            return
        texts = tuple(str(each) for each in (*imported.warnings, *warnings))
        self._add(manifest, _AUTOSCALER, ("ScaleNodes",), converted=True, warnings=texts)
        known = {each.key for each in self.policies.machine_autoscalers}
        added = tuple(each for each in machines if each.key not in known)
        self.policies = replace(
            self.policies,
            cluster_autoscaler=autoscaler,
            machine_autoscalers=(*self.policies.machine_autoscalers, *added),
        )

    def _targets(self, nodes: Sequence[str], provider: str) -> tuple[list[MachineAutoscaler], list[Any]]:
        from trimtab.api.decode import decode_machine_autoscaler
        from trimtab.autoscaling.imports import node_group_object, target_autoscalers

        groups = [group for each in self.manifests if (group := node_group_object(each)) is not None]
        found, warnings = target_autoscalers(nodes, provider, groups)
        return [decode_machine_autoscaler(document) for _, document in found], warnings

    def _add_descheduler(self, manifest: Mapping[str, Any]) -> None:
        warnings: list[str] = []
        converted = False
        wanted = _config_maps(manifest)
        for each in self.manifests:
            if each.get("kind") == "ConfigMap" and _key(each) in wanted:
                try:
                    for policy, notes in _policies_of(each):
                        self._descheduler.append(policy)
                        warnings += notes
                        converted = True
                except InputError as error:
                    self._not_converted(manifest, _DESCHEDULER, ("MovePods",), error)
                    return
        if not converted:
            names = ", ".join(sorted(wanted)) or "none"
            warnings.append(f"its policy was not found in a ConfigMap (mounted: {names})")
        self._add(manifest, _DESCHEDULER, ("MovePods",), converted=converted, warnings=tuple(warnings))

    def _add_kube_descheduler(self, manifest: Mapping[str, Any]) -> None:
        from trimtab.descheduling.imports import FORMATS

        namespace, _, name = _key(manifest).rpartition("/")
        stop = (
            f"kubectl -n {namespace or _DESCHEDULER_NAMESPACE} patch kubedescheduler {name} --type merge "
            """--patch '{"spec": {"mode": "Predictive"}}'"""
        )
        try:
            imported = FORMATS[_KUBE_DESCHEDULER](dict(manifest), source="")
        except InputError as error:
            self._not_converted(manifest, _KUBE_DESCHEDULER[0], ("MovePods",), error)
            return
        self._descheduler += imported.policies
        spec = manifest.get("spec")
        active = not isinstance(spec, Mapping) or spec.get("mode", "Predictive") == "Automatic"
        warnings = tuple(str(each) for each in imported.warnings)
        self.programs.append(
            Program(_KUBE_DESCHEDULER[0], _label(manifest), ("MovePods",), active, True, warnings, stop)
        )

    def _add_controller_manager(self, manifest: Mapping[str, Any], container: Mapping[str, Any]) -> None:
        arguments = [*_strings(container.get("command")), *_strings(container.get("args"))]
        value = next((each.partition("=")[2] for each in arguments if each.startswith("--controllers=")), "*")
        listed = set(value.split(","))
        jobs: list[Job] = []
        for name, (job, older) in _CONTROLLERS.items():
            enabled = "*" in listed or name in listed or older in listed
            if enabled and not {f"-{name}", f"-{older}"} & listed:
                jobs.append(job)
        flags = tuple(each for each in arguments if each.startswith(("--controllers=", "--node-", "--unhealthy-")))
        self.programs.append(
            Program(_CONTROLLER_MANAGER, _label(manifest), tuple(jobs), bool(jobs), warnings=flags, stop="")
        )

    def _not_converted(
        self, manifest: Mapping[str, Any], program: str, jobs: tuple[Job, ...], error: InputError
    ) -> None:
        self.problems.append(f"{_label(manifest)}: {error}")
        self._add(manifest, program, jobs, warnings=(f"is not converted: {error}",))


# ── The report ──────────────────────────────────────────────────────────────────────────────────────────────────────


def _message(programs: Sequence[Program], problems: Sequence[str]) -> str:
    active = sorted({each.program for each in programs if each.active})
    if not active:
        return "no other program does a job of trimtab"
    failed = f"; {len(problems)} could not be converted" if problems else ""
    return f"do jobs of trimtab: {', '.join(active)}{failed}"


def _job(job: Job, programs: Sequence[Program], policies: PolicySet) -> Document:
    """Return who does a job at present. It is a conflict if trimtab and another program do it."""
    doing = [each for each in programs if job in each.jobs and each.active]
    others = [each.object for each in doing]
    own = _own_mode(job, policies)
    return {
        "job": job,
        "owners": others,
        "trimtab": {"kind": _OWN[job], "mode": own} if own else None,
        "conflict": (bool(others) and own not in ("", "Simulate", "Observe"))
        or len({each.program for each in doing}) > 1,
    }


def _own_mode(job: Job, policies: PolicySet) -> str:
    """Return the mode of trimtab's own resource for a job; empty if there is none."""
    if job == "MovePods":
        modes = {str(policy.spec.mode) for policy in policies.descheduler}
        return "Act" if "Act" in modes else next(iter(sorted(modes)), "")
    if job == "ScaleNodes":
        return str(policies.cluster_autoscaler.spec.mode) if policies.cluster_autoscaler is not None else ""
    mode = str(policies.taint_manager.spec.mode) if policies.taint_manager is not None else ""
    return "Observe" if job == "TaintNodes" and mode == "EvictPods" else mode


def _steps(programs: Sequence[Program]) -> list[Document]:
    """Return the steps in order: observe, then for each program stop it and let trimtab act."""
    found: list[tuple[str, str]] = [("install trimtab; without custom resources it changes nothing", "")]
    replaced = [each for each in programs if each.converted and each.active]
    if replaced:
        names = ", ".join(each.object for each in replaced)
        found.append(
            (
                f"convert the settings of {names} and apply the result, which has mode: Simulate",
                "trimtab convert FILE > trimtab.yaml && kubectl apply -f trimtab.yaml",
            )
        )
        found.append(("compare the events and the status of trimtab with the other programs for some days", ""))
    for each in replaced:
        found.append((f"stop {each.program} ({each.object})", each.stop))
        kind = _OWN[each.jobs[0]]
        patch = """--type merge --patch '{"spec": {"mode": "Act"}}'"""
        found.append((f"let the {kind} act", f"kubectl patch {kind.lower()} NAME {patch}"))
    for each in programs:
        if each.program == _KARPENTER and each.active:
            found.append((f"keep {each.object}, and create no MachineAutoscaler for its nodes", ""))
        if each.program == _CONTROLLER_MANAGER and "EvictTaintedPods" in each.jobs:
            text = (
                "keep the TaintManager in Observe mode, or disable the controller in kube-controller-manager before "
                "its mode is EvictPods: --controllers=*,-taint-eviction-controller"
            )
            found.append((text, ""))
    return [{"step": number, "text": text, "command": command} for number, (text, command) in enumerate(found, 1)]


def _plan(cluster: ClusterInput) -> Document:
    """Plan with the converted settings; ``Plan`` without its kept candidates."""
    from trimtab.inspection.planning import joint_plan

    policies = cluster.policies
    if not (policies.descheduler or policies.autoscaled):
        return {"actions": [], "summary": {}}
    document = joint_plan(replace(cluster, policies=replace(policies, schedulers=(), pressure=()))).document()
    return {"actions": document["actions"], "summary": document["summary"]}


def _compared(action: str, observed: Sequence[_Action], planned: Document) -> Document:
    """Compare what the events report for an action with what is planned.

    Evicted pods do not exist any more, so evictions are compared by namespace.
    """
    before = Counter(_group(each.object, action) for each in observed if each.action == action)
    after = Counter(_group(_target(each), action) for each in planned["actions"] if each["action"] == action)
    return {
        "action": action,
        "observed": before.total(),
        "planned": after.total(),
        "both": sorted(before.keys() & after.keys()),
        "onlyObserved": sorted(before.keys() - after.keys()),
        "onlyPlanned": sorted(after.keys() - before.keys()),
    }


def _group(name: str, action: str) -> str:
    return name.partition("/")[0] if action == "Evict" else name


def _target(action: Mapping[str, Any]) -> str:
    if action["action"] == "Evict":
        return f"{action['namespace']}/{action['pod']}"
    if action["action"] == "ScaleUp":
        pods = action.get("pods") or [""]
        return str(pods[0])
    return str(action.get("node", ""))


def _observed(manifests: Iterable[Mapping[str, Any]], *, now: float) -> list[_Action]:
    """Return the actions of the last 24 hours according to events, without those of the kubelet and of trimtab."""
    found: dict[_Action, None] = {}
    for event in manifests:
        if event.get("kind") != "Event":
            continue
        action = _EVENTS.get(str(event.get("action")), "") or _EVENTS.get(str(event.get("reason")), "")
        regarding = event.get("regarding") or event.get("involvedObject")
        if not action or not isinstance(regarding, Mapping) or not _is_of_program(event):
            continue
        if action == "RemoveNode" and regarding.get("kind") != "Node":
            continue
        when = _time(event)
        if when is not None and not 0 <= now - when <= WINDOW.total_seconds():
            continue
        namespace = regarding.get("namespace") if regarding.get("kind") != "Node" else None
        name = str(regarding.get("name"))
        found[_Action(action, f"{namespace}/{name}" if namespace else name)] = None
    return list(found)


def _is_of_program(event: Mapping[str, Any]) -> bool:
    source = event.get("source") or event.get("deprecatedSource")
    component = source.get("component") if isinstance(source, Mapping) else ""
    reporter = str(event.get("reportingController") or event.get("reportingComponent") or component or "")
    return reporter.rpartition("/")[2] in (_DESCHEDULER, _AUTOSCALER)


def _time(event: Mapping[str, Any]) -> float | None:
    series = event.get("series")
    last = series.get("lastObservedTime") if isinstance(series, Mapping) else None
    for text in (last, event.get("lastTimestamp"), event.get("deprecatedLastTimestamp"), event.get("eventTime")):
        if text:
            try:
                return datetime.fromisoformat(str(text)).timestamp()
            except ValueError:
                return None
    return None


# ── Objects ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def _policies_of(config_map: Mapping[str, Any]) -> Iterator[tuple[DeschedulerPolicy, list[str]]]:
    """Yield the converted policies in a ConfigMap, each with its warnings.

    Raises:
        InputError: a policy is invalid.
    """
    from trimtab.descheduling.imports import FORMATS
    from trimtab.kube.wire.files.documents import documents

    data = config_map.get("data")
    for key, text in sorted(data.items()) if isinstance(data, Mapping) else ():
        if not isinstance(text, str) or "DeschedulerPolicy" not in text:
            continue
        for document in documents(text.encode()):
            content = document.content
            manifest = msgspec.json.decode(content) if isinstance(content, msgspec.Raw) else dict(content)
            convert = FORMATS.get((str(manifest.get("kind")), str(manifest.get("apiVersion"))))
            if convert is not None:
                imported = convert(manifest, source=f"{_label(config_map)} (data[{key}])")
                notes = [str(each) for each in imported.warnings]
                for number, policy in enumerate(imported.policies):
                    yield policy, [] if number else notes


def _config_maps(manifest: Mapping[str, Any]) -> set[str]:
    """Return the ConfigMaps that the pods of a workload mount, as ``namespace/name``."""
    namespace = _key(manifest).rpartition("/")[0]
    volumes = _pod_spec(manifest).get("volumes")
    mounted = [each.get("configMap") for each in volumes or () if isinstance(each, Mapping)]
    return {f"{namespace}/{each['name']}" for each in mounted if isinstance(each, Mapping) and each.get("name")}


def _pod_spec(manifest: Mapping[str, Any]) -> Mapping[str, Any]:
    spec: Any = manifest.get("spec")
    if manifest.get("kind") == "CronJob":
        spec = _section(_section(spec, "jobTemplate"), "spec")
    return _section(spec) if manifest.get("kind") == "Pod" else _section(_section(spec, "template"), "spec")


def _section(value: Any, key: str = "") -> Mapping[str, Any]:
    found = value.get(key) if key and isinstance(value, Mapping) else value
    return found if isinstance(found, Mapping) else {}


def _containers(manifest: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    containers = _pod_spec(manifest).get("containers")
    return [each for each in containers if isinstance(each, Mapping)] if isinstance(containers, list) else []


def _names(container: Mapping[str, Any]) -> set[str]:
    """Return the names by which a program is recognized: those of its image and of its command."""
    image = str(container.get("image") or "").partition("@")[0].rpartition("/")[2].partition(":")[0]
    command = _strings(container.get("command"))[:1]
    return {image, *(each.rpartition("/")[2] for each in command)}


def _is_active(manifest: Mapping[str, Any]) -> bool:
    """Return whether a workload runs and acts: it is not scaled to 0, suspended or a dry run."""
    spec = _section(manifest.get("spec"))
    words = [word for each in _containers(manifest) for key in ("command", "args") for word in _strings(each.get(key))]
    is_dry_run = "--dry-run" in words or "--dry-run=true" in words
    return spec.get("replicas") != 0 and spec.get("suspend") is not True and not is_dry_run


def _is_managed(manifest: Mapping[str, Any]) -> bool:
    """Return whether a custom resource of OpenShift, which is reported itself, owns the workload."""
    owners = _section(manifest.get("metadata")).get("ownerReferences")
    listed = owners if isinstance(owners, list) else []
    return any(_section(each).get("kind") in ("ClusterAutoscaler", "KubeDescheduler") for each in listed)


def _stop(manifest: Mapping[str, Any]) -> str:
    namespace, _, name = _key(manifest).rpartition("/")
    kind = str(manifest.get("kind")).lower()
    if kind == "cronjob":
        return f"""kubectl -n {namespace} patch cronjob {name} --patch '{{"spec": {{"suspend": true}}}}'"""
    if kind in ("deployment", "statefulset"):
        return f"kubectl -n {namespace} scale {kind} {name} --replicas=0"
    return f"kubectl -n {namespace} delete {kind} {name}"


def _is_static(pod: Mapping[str, Any]) -> bool:
    annotations = _section(_section(pod.get("metadata")), "annotations")
    return "kubernetes.io/config.mirror" in annotations or "kubernetes.io/config.source" in annotations


def _key(manifest: Mapping[str, Any]) -> str:
    metadata = _section(manifest.get("metadata"))
    namespace, name = metadata.get("namespace"), str(metadata.get("name") or "")
    return f"{namespace}/{name}" if namespace else name


def _label(manifest: Mapping[str, Any]) -> str:
    return f"{manifest.get('kind')}/{_key(manifest)}"


def _strings(value: object) -> list[str]:
    return [str(each) for each in value] if isinstance(value, list | tuple) else []
