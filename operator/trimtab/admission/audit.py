"""Audits existing objects: which of them the rules would refuse or change if an ordinary user created them now.

The audit calls the same reviewer as the webhooks. It assumes a user who may not create pods/binding and is only in the
groups that are given, none by default, so it shows the results for a typical user or for a team. Pods with a controller
are assumed to be created by that controller, as in the cluster.

A workload is reported once, whatever its number of pods: the result for its pod template, with the number of its pods
that have the same result. If a rule does not apply to templates, the workload is reported with the result for its pods,
and also if it has none and its pods would be refused. Only pods without a controller are reported one by one.

DaemonSets are kept with the warning that their author would receive: kubelets reject their pods again and again if
PodNodeSelector adds a node selector that the DaemonSet controller does not know.

Terminated pods, mirror pods, finished Jobs, and objects that are being deleted are not audited, because nothing creates
them again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import Raw, Struct, field
from msgspec.structs import replace

from trimtab.admission.requests import (
    CREATE,
    DAEMON_SET,
    KUBE_SYSTEM,
    MIRROR_ANNOTATION,
    POD,
    TEMPLATE_PATHS,
    Attributes,
    Metadata,
    NamespaceInfo,
    Owner,
    PodSpec,
    PodTemplate,
    Toleration,
    UserInfo,
    pointer,
)
from trimtab.admission.rules import AdmissionRule, Refusal
from trimtab.api.placement_admission import RuleName
from trimtab.api.plan import Admission, Kept, Mutate, PlannedToleration, Refuse
from trimtab.api.reasons import (
    ADMISSION_MUTATED,
    ADMISSION_REFUSED,
    ADMISSION_WARNED,
    NAMESPACE_EXEMPT,
    REQUIRES_PODS_BINDING,
)
from trimtab.kube.wire.decode import decode_as

NAMESPACE: Final = "Namespace"

KINDS: Final = (NAMESPACE, *sorted({kind for _, kind in TEMPLATE_PATHS}), POD)
"""The kinds that an audit reads, in the order in which it needs them."""

ORDINARY_USER: Final = UserInfo(username="trimtab:audit")
"""The user who is assumed to create workloads and pods without a controller."""

_CONTROLLERS: Final = {
    "CronJob": "cronjob-controller",
    "DaemonSet": "daemon-set-controller",
    "Job": "job-controller",
    "ReplicaSet": "replicaset-controller",
    "ReplicationController": "replication-controller",
    "StatefulSet": "statefulset-controller",
}
"""The service accounts in kube-system with which kube-controller-manager creates pods, by kind of the owner."""

_CREATORS: Final = {"CronJob": "Job", "Deployment": "ReplicaSet", "DeploymentConfig": "ReplicationController"}
"""The kinds of the objects that own the pods of a workload, where it is not the workload itself."""

_MAY_BIND: Final = frozenset({"daemon-set-controller"})
"""The service accounts of :data:`_CONTROLLERS` that may create pods/binding, by Kubernetes' own RBAC rules."""


# --- objects ---------------------------------------------------------------------------------------------------------


class _ManagedFields(Struct, rename="camel"):
    fields: Any = field(name="fieldsV1", default=None)


class _Metadata(Metadata, frozen=True, rename="camel"):
    namespace: str = ""
    deletion_timestamp: str | None = None
    managed_fields: tuple[_ManagedFields, ...] | None = None


class _Condition(Struct, frozen=True):
    type: str = ""
    status: str = ""


class _Status(Struct, frozen=True):
    phase: str = ""
    conditions: tuple[_Condition, ...] | None = None


class _Object(Struct, frozen=True, rename="camel"):
    metadata: _Metadata = _Metadata()


class _Pod(_Object, frozen=True):
    spec: PodSpec = PodSpec()
    status: _Status = _Status()


class _PodTemplate(_Object, frozen=True):
    template: PodTemplate = PodTemplate()


class _WorkloadSpec(Struct, frozen=True):
    template: PodTemplate | None = None


class _Workload(_Object, frozen=True):
    spec: _WorkloadSpec = _WorkloadSpec()
    status: _Status = _Status()


class _JobTemplate(Struct, frozen=True):
    spec: _WorkloadSpec = _WorkloadSpec()


class _CronJobSpec(Struct, frozen=True, rename="camel"):
    job_template: _JobTemplate = _JobTemplate()


class _CronJob(_Object, frozen=True):
    spec: _CronJobSpec = _CronJobSpec()


_TYPES: Final[Mapping[str, type[_Object]]] = {
    NAMESPACE: _Object,
    POD: _Pod,
    "PodTemplate": _PodTemplate,
    "CronJob": _CronJob,
}
_DECODERS: Final[Mapping[str, msgspec.json.Decoder[Any]]] = {
    kind: msgspec.json.Decoder(_TYPES.get(kind, _Workload)) for kind in KINDS
}
_GROUPS: Final = {kind: group for group, kind in TEMPLATE_PATHS}


class AuditedObject(Struct, frozen=True):
    """A namespace, a pod, or a workload with a pod template.

    Attributes:
        kind: kind of the object, one of :data:`KINDS`.
        metadata: its metadata.
        template: the pod, or the pod template of a workload; ``None`` if the workload has none.
        finished: whether the pod has terminated or the Job is complete.
        running: whether the pod has a status.
    """

    kind: str
    metadata: _Metadata
    template: PodTemplate | None = None
    finished: bool = False
    running: bool = False

    @property
    def bound(self) -> bool:
        """Return whether a scheduler has set ``spec.nodeName`` of the pod, and not the user who created it.

        Binding a pod leaves no entry in ``managedFields``. Without that metadata, every pod with a status counts as
        bound, because only few pods are created with a node name.
        """
        managed = self.metadata.managed_fields
        if not managed:
            return self.running
        return not any(_has_path(each.fields, "f:spec", "f:nodeName") for each in managed)

    @property
    def controller(self) -> Owner | None:
        """Return the reference to the object's controller, or ``None``."""
        return next((each for each in self.metadata.owner_references or () if each.controller), None)


def decode(kind: str, content: Raw | bytes | Mapping[str, Any]) -> AuditedObject:
    """Decode an object of one of :data:`KINDS`. Fields that no rule reads are ignored.

    Raises:
        InputError: a field has the wrong type. The error names the object and the field.
    """
    found = decode_as(kind, content, _DECODERS[kind])
    match found:
        case _Pod():
            template = PodTemplate(found.metadata, found.spec)
            phase = found.status.phase
            return AuditedObject(kind, found.metadata, template, phase in ("Succeeded", "Failed"), bool(phase))
        case _PodTemplate():
            return AuditedObject(kind, found.metadata, found.template)
        case _CronJob():
            return AuditedObject(kind, found.metadata, found.spec.job_template.spec.template)
        case _Workload():
            finished = kind == "Job" and any(
                each.type in ("Complete", "Failed") and each.status == "True" for each in found.status.conditions or ()
            )
            return AuditedObject(kind, found.metadata, found.spec.template, finished)
    assert isinstance(found, _Object)
    return AuditedObject(kind, found.metadata)


def _has_path(value: Any, *path: str) -> bool:
    for key in path:
        if not isinstance(value, dict) or key not in value:
            return False
        value = value[key]
    return True


# --- audit -----------------------------------------------------------------------------------------------------------


class AuditResult(NamedTuple):
    """The actions and kept objects of an audit, ordered by namespace, kind and name."""

    admissions: tuple[Admission, ...]
    kept: tuple[Kept, ...]


class _Key(NamedTuple):
    namespace: str
    kind: str
    name: str


class _Finding(NamedTuple):
    """One result of a rule: a refusal, or the difference of two pod specs."""

    rule: RuleName
    refused: bool
    reason: str
    message: str
    before: PodSpec
    after: PodSpec

    @property
    def identity(self) -> _Identity:
        """Return the key by which equal results for the pods of a workload are counted together."""
        return self.rule, self.refused, self.message


_Identity = tuple[RuleName, bool, str]


class Audit:
    """Collects the results for objects, which are added in the order of :data:`KINDS`.

    Args:
        rules: the rules, in order.
        exempt: namespaces to which the rules do not apply, in addition to kube-system.
        groups: the groups of the user who is assumed to create workloads and pods without a controller.
    """

    def __init__(
        self, rules: Sequence[AdmissionRule], *, exempt: Collection[str] = (), groups: Iterable[str] = ()
    ) -> None:
        self._rules = rules
        self._user = replace(ORDINARY_USER, groups=tuple(groups))
        self._exempt = frozenset((KUBE_SYSTEM, *exempt))
        self._namespaces: dict[str, NamespaceInfo] = {}
        self._controllers: dict[_Key, Owner] = {}
        self._templates: dict[_Key, dict[_Identity, _Finding]] = {}
        self._warnings: dict[_Key, list[tuple[RuleName, str]]] = {}
        self._pods: dict[_Key, dict[_Identity, tuple[_Finding, int]]] = {}
        self._counts: dict[_Key, Counter[tuple[RuleName, bool]]] = {}

    def add(self, found: AuditedObject) -> None:
        """Audit an object. Namespaces must be added first and pods last."""
        metadata = found.metadata
        if found.kind == NAMESPACE:
            labels, annotations = metadata.labels or {}, metadata.annotations or {}
            self._namespaces[metadata.name] = NamespaceInfo(metadata.name, labels, annotations)
            return
        key = _Key(metadata.namespace or "default", found.kind, metadata.name or metadata.generate_name)
        if found.kind == POD:
            self._add_pod(key, found)
            return
        if found.controller is not None:
            self._controllers[key] = found.controller
            if found.controller.kind in _GROUPS:
                return  # the template of the owner is audited
        if found.template is None or found.finished or metadata.deletion_timestamp:
            return
        controlled = found.controller is not None
        findings = {
            each.identity: each for each in self._review(key, found.template, self._user, controlled=controlled)
        }
        refused = {each.rule for each in findings.values() if each.refused}
        for each in self._refusals_of_pods(key, found.template):
            if each.rule not in refused:
                findings.setdefault(each.identity, each)
        self._templates[key] = findings
        if key.kind == DAEMON_SET:
            refused = {each.rule for each in findings.values() if each.refused}
            self._warnings[key] = [each for each in self._warnings_of(key, found.template) if each[0] not in refused]

    def _refusals_of_pods(self, key: _Key, template: PodTemplate) -> list[_Finding]:
        """Return the refusals of a pod that the workload's controller creates now, for rules that ignore templates.

        The workload may have no pods at present. Changes of its pods are no result: existing pods may have them.
        """
        account = _CONTROLLERS.get(_CREATORS.get(key.kind, key.kind))
        if account is None:
            return []
        owner = Owner(kind=_CREATORS.get(key.kind, key.kind), name=key.name, controller=True)
        pod = replace(template, metadata=replace(template.metadata, owner_references=(owner,)))
        pods = self._review(_Key(key.namespace, POD, key.name), pod, _service_account(account))
        may_bind = account in _MAY_BIND
        return [each for each in pods if each.refused and not (may_bind and each.reason == REQUIRES_PODS_BINDING)]

    def forget_pods(self) -> None:
        """Remove the results of all pods, because they are listed again."""
        self._pods.clear()
        self._counts.clear()

    def result(self) -> AuditResult:
        """Return the actions and kept objects."""
        admissions: list[Admission] = []
        kept: list[Kept] = []
        for key in sorted({*self._templates, *self._pods}):
            if key.namespace not in self._exempt:
                for rule, message in self._warnings.get(key, ()):
                    kept.append(Kept(key.kind, key.namespace, key.name, rule, ADMISSION_WARNED, message))
            for found, pods in self._summary(key):
                if key.namespace not in self._exempt:
                    admissions.append(_action(key, found, pods))
                elif found.refused:
                    kept.append(Kept(key.kind, key.namespace, key.name, found.rule, NAMESPACE_EXEMPT, found.message))
        return AuditResult(tuple(admissions), tuple(kept))

    def _summary(self, key: _Key) -> Iterator[tuple[_Finding, int]]:
        """Yield the results for an object, ordered by rule, each with the number of pods that have it.

        The messages of a rule for a template and for its pods differ. If a rule refuses (or changes) both, only the
        result for the template is reported, with the number of these pods.
        """
        templates = self._templates.get(key, {})
        counts: Mapping[tuple[RuleName, bool], int] = self._counts.get(key, {})
        of_template = {each[:2] for each in templates}
        pods = {each: found for each, found in self._pods.get(key, {}).items() if each[:2] not in of_template}
        findings = templates | {each: found for each, (found, _) in pods.items()}
        for identity in sorted(findings):
            number = pods[identity][1] if identity in pods else counts.get(identity[:2], 0)
            yield findings[identity], 0 if key.kind == POD else number

    def _add_pod(self, key: _Key, found: AuditedObject) -> None:
        metadata, pod = found.metadata, found.template
        if (
            pod is None
            or found.finished
            or metadata.deletion_timestamp
            or MIRROR_ANNOTATION in (metadata.annotations or {})
        ):
            return
        if pod.spec.node_name and found.bound:
            pod = replace(pod, spec=replace(pod.spec, node_name=""))
        top, user, may_bind = key, self._user, False
        if found.controller is not None:
            top = self._top(_Key(key.namespace, found.controller.kind, found.controller.name))
            account = _CONTROLLERS.get(found.controller.kind, "")
            user, may_bind = _service_account(account) if account else self._user, account in _MAY_BIND
        findings = {
            each.identity: each
            for each in self._review(key, pod, user)
            if not (may_bind and each.reason == REQUIRES_PODS_BINDING)
        }
        if not findings:
            return
        known = self._pods.setdefault(top, {})
        for identity, each in findings.items():
            first, number = known.get(identity, (each, 0))
            known[identity] = first, number + 1
        self._counts.setdefault(top, Counter()).update({identity[:2] for identity in findings})

    def _top(self, key: _Key) -> _Key:
        """Return the workload at the top of the chain of controllers, e.g. the Deployment of a ReplicaSet."""
        for _ in range(_LONGEST_CHAIN):
            owner = self._controllers.get(key)
            if owner is None:
                break
            key = _Key(key.namespace, owner.kind, owner.name)
        return key

    def _review(self, key: _Key, pod: PodTemplate, user: UserInfo, *, controlled: bool = False) -> Iterator[_Finding]:
        """Apply the rules to a pod or template as the webhooks do: all changes first, then the checks."""
        request = self._creation(key, pod, user, controlled=controlled)
        spec = pod.spec
        for rule in self._rules:
            try:
                changed = rule.mutate(request, spec)
            except Refusal as error:
                yield _refused(rule, error, spec)
                continue
            if changed != spec:
                message = "; ".join(_describe(spec, changed))
                yield _Finding(rule.name, False, ADMISSION_MUTATED, message, spec, changed)
                spec = changed
        final = replace(request, pod=replace(pod, spec=spec))
        for rule in self._rules:
            for refusal in rule.validate(final):
                yield _refused(rule, refusal, spec)

    def _warnings_of(self, key: _Key, template: PodTemplate) -> Iterator[tuple[RuleName, str]]:
        """Yield the warnings of rules for the author of a template."""
        request = self._creation(key, template, self._user)
        for rule in self._rules:
            for message in rule.warnings(request):
                yield rule.name, message

    def _creation(self, key: _Key, pod: PodTemplate, user: UserInfo, *, controlled: bool = False) -> Attributes:
        """Return the request with which a user creates a pod or workload."""
        return Attributes(
            kind=key.kind,
            group=_GROUPS.get(key.kind, ""),
            operation=CREATE,
            name=key.name,
            namespace=self._namespaces.get(key.namespace) or NamespaceInfo(key.namespace),
            user=user,
            pod=pod,
            path="" if key.kind == POD else pointer(TEMPLATE_PATHS[_GROUPS[key.kind], key.kind]),
            controlled=controlled,
        )


_LONGEST_CHAIN: Final = 4
"""Limit of the search for the topmost owner. The longest chains of Kubernetes and OpenShift have two owners."""


def _service_account(name: str) -> UserInfo:
    groups = ("system:serviceaccounts", f"system:serviceaccounts:{KUBE_SYSTEM}", "system:authenticated")
    return UserInfo(username=f"system:serviceaccount:{KUBE_SYSTEM}:{name}", groups=groups)


def _refused(rule: AdmissionRule, refusal: Refusal, spec: PodSpec) -> _Finding:
    reason = REQUIRES_PODS_BINDING if refusal.unless_may_bind else ADMISSION_REFUSED
    return _Finding(rule.name, True, reason, refusal.message, spec, spec)


# --- descriptions of results -----------------------------------------------------------------------------------------


def _action(key: _Key, found: _Finding, pods: int) -> Admission:
    counted = f"{found.message} ({pods} pod{'s' if pods > 1 else ''})" if pods else found.message
    if found.refused:
        return Refuse(key.kind, key.namespace, key.name, found.rule, found.reason, counted, pods)
    added, removed = _tolerations(found.before, found.after)
    return Mutate(
        kind=key.kind,
        namespace=key.namespace,
        name=key.name,
        rule=found.rule,
        reason=found.reason,
        message=counted,
        pods=pods,
        tolerations=tuple(map(_planned, added)),
        removed_tolerations=tuple(map(_planned, removed)),
        node_selector=_selector(found.before, found.after),
        node_affinity=_affinity(found.before, found.after),
    )


def _describe(before: PodSpec, after: PodSpec) -> Iterator[str]:
    """Yield one phrase for each change of a pod spec."""
    added, removed = _tolerations(before, after)
    if added:
        yield f"adds toleration {', '.join(map(_text, added))}"
    if removed:
        yield f"removes toleration {', '.join(map(_text, removed))}"
    selector = _selector(before, after)
    if selector:
        yield f"adds node selector {','.join(f'{key}={value}' for key, value in selector.items())}"
    affinity = _affinity(before, after)
    if affinity:
        yield f"requires node affinity {', '.join(affinity)}"


def _tolerations(before: PodSpec, after: PodSpec) -> tuple[list[Toleration], list[Toleration]]:
    """Return the added and the removed tolerations."""
    old, new = before.tolerations or (), after.tolerations or ()
    return [each for each in new if each not in old], [each for each in old if each not in new]


def _planned(toleration: Toleration) -> PlannedToleration:
    return PlannedToleration(
        toleration.key, toleration.operator, toleration.value, toleration.effect, toleration.toleration_seconds
    )


def _text(toleration: Toleration) -> str:
    """Return e.g. ``dedicated=team-a:NoSchedule`` or ``node.kubernetes.io/not-ready:NoExecute for 60s``."""
    value = "" if toleration.operator == "Exists" else f"={toleration.value}"
    effect = f":{toleration.effect}" if toleration.effect else ""
    seconds = "" if toleration.toleration_seconds is None else f" for {toleration.toleration_seconds}s"
    return f"{toleration.key or '*'}{value}{effect}{seconds}"


def _selector(before: PodSpec, after: PodSpec) -> dict[str, str]:
    old = before.node_selector or {}
    return {key: value for key, value in sorted((after.node_selector or {}).items()) if old.get(key) != value}


def _affinity(before: PodSpec, after: PodSpec) -> tuple[str, ...]:
    """Return the requirements that were added to any term of the required node affinity."""
    return tuple(sorted(set(_requirements(after)) - set(_requirements(before))))


def _requirements(spec: PodSpec) -> Iterator[str]:
    required = spec.node_affinity.required
    for term in (required.node_selector_terms if required is not None else None) or ():
        for each in (*(term.match_expressions or ()), *(term.match_fields or ())):
            yield f"{each.key} {each.operator.lower()} [{', '.join(each.values or ())}]"
