"""Reads the documents of ``--policy``: policies of all kinds, policies to convert, autoscalers and the TaintManager."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, Protocol, TypeVar, runtime_checkable

import click
import msgspec

from trimtab.cli.conversion_report import print_differences, print_skipped
from trimtab.cli.descheduler_input import DeschedulerInput
from trimtab.cli.errors import InvalidObjectReporter
from trimtab.cli.options import STDIN
from trimtab.kube.errors import InputError
from trimtab.kube.printable import printable

if TYPE_CHECKING:
    from trimtab.api.cluster_autoscaler import ClusterAutoscaler
    from trimtab.api.descheduler_policy import DeschedulerPolicy
    from trimtab.api.machine_autoscaler import MachineAutoscaler
    from trimtab.api.node_pressure_policy import NodePressurePolicy
    from trimtab.api.placement_admission import PlacementAdmission
    from trimtab.api.scheduler_policy import SchedulerPolicy
    from trimtab.api.taint_manager import TaintManager
    from trimtab.descheduling.imports.draft import ImportResult
    from trimtab.descheduling.policy_conflicts import Scoring
    from trimtab.kube.wire.files.documents import Document
    from trimtab.kube.wire.files.packages import ChartValues

T = TypeVar("T")

KIND: Final = "DeschedulerPolicy"


class DocumentReader(Protocol):
    """Reads documents of kinds other than DeschedulerPolicy among the policies."""

    @property
    def kinds(self) -> Sequence[tuple[str, str]]:
        """Kind and API version of each kind of document that this reader supports."""
        ...

    def __bool__(self) -> bool: ...

    def take(self, manifest: Mapping[str, Any], *, source: str, place: str) -> bool:
        """Read a document if its kind is one of :attr:`kinds`, and return whether it was read."""
        ...


@runtime_checkable
class ChartReader(Protocol):
    """A :class:`DocumentReader` that also reads the values of a Helm chart, from any package that installs it."""

    def take_chart(self, chart: ChartValues, *, source: str, place: str) -> bool:
        """Read the values of a chart if they are those of the reader's chart, and return whether they are."""
        ...


class UnsupportedObject(InputError):
    """An object of a kind that configures nothing that trimtab reads. It is skipped if the input contains policies.

    Attributes:
        kind: the object's kind.
    """

    def __init__(self, message: str, *, kind: str, object: str = "") -> None:  # noqa: A002
        super().__init__(message, object=object)
        self.kind = kind


def load_policies(
    sources: Sequence[str], *, skip_invalid: bool = False, readers: Sequence[DocumentReader] = ()
) -> tuple[DeschedulerPolicy, ...]:
    """Load DeschedulerPolicies from files, and return them ordered by name.

    The order of files and documents does not matter.

    Args:
        sources: files, or ``-`` for standard input.
        skip_invalid: report invalid documents and continue, instead of raising.
        readers: readers for documents of other kinds. A document that no reader supports is an error.

    Raises:
        InputError: a file, document or field is invalid, two policies have the same name, or there is no policy.
    """
    return sorted_policies(read_policies(sources, skip_invalid=skip_invalid, readers=readers))


def sorted_policies(imported: Iterable[ImportResult]) -> tuple[DeschedulerPolicy, ...]:
    """Return the DeschedulerPolicies, ordered by name."""
    found = {policy.name: policy for each in imported for policy in each.policies}
    return tuple(found[name] for name in sorted(found))


def refuse_conflicts(policies: Sequence[DeschedulerPolicy], scoring: Scoring | None = None) -> None:
    """Reject policies that the operator would not run, because they would undo each other.

    Raises:
        InputError: two policies, or a policy and the scheduler, would undo each other. The message contains the first
            conflict.
    """
    from trimtab.api.reasons import POLICY_CONFLICT
    from trimtab.descheduling.policy_conflicts import REMEDY, conflicts

    for found in conflicts(policies, scoring=scoring):
        remedy = ""
        if found.reason == POLICY_CONFLICT:
            remedy = f"; plan them separately ({REMEDY} in a cluster)"
        raise InputError(f"{found.message}{remedy}", object=f"{KIND}/{found.first}")


def read_policies(
    sources: Sequence[str],
    *,
    skip_invalid: bool = False,
    readers: Sequence[DocumentReader] = (),
    converting: bool = False,
) -> list[ImportResult]:
    """Convert each document of the files, in order. Settings that are ignored are reported on stderr.

    With ``converting``, so are policies that do not say when they run.

    Raises:
        InputError: see :func:`load_policies`.
    """
    documents = ((source, document) for source in sources for document in _documents(source))
    found = decode_policies(documents, skip_invalid=skip_invalid, readers=readers, converting=converting)
    if not found and not any(readers):
        raise InputError(f"no policy found; supported are {_allowed(readers)}", source=", ".join(sources))
    return found


def decode_policies(
    documents: Iterable[tuple[str, Document]],
    *,
    skip_invalid: bool = False,
    readers: Sequence[DocumentReader] = (),
    on_invalid: Callable[[InputError], None] | None = None,
    converting: bool = False,
) -> list[ImportResult]:
    """Convert each document, in order. Settings that are ignored are reported on stderr.

    Args:
        documents: the documents, each with its file.
        skip_invalid: report invalid documents and continue, instead of raising.
        readers: readers for documents of other kinds. A document that no reader supports is an error.
        on_invalid: called with the error of each invalid document, instead of raising.
        converting: whether policies that do not say when they run are reported.

    Raises:
        InputError: a document or field is invalid, or two policies have the same name.
    """
    names, deschedulers = _PolicyNames(), DeschedulerInput()
    skipping = InvalidObjectReporter() if skip_invalid and on_invalid is None else on_invalid
    unsupported: list[tuple[str, InputError]] = []
    for source, document in documents:
        place = _location(source, document.place)
        try:
            if _read_by_other_reader(document, source, readers):
                continue
            manifest = _manifest(document)
            for imported in _decode_all(document, source, readers=readers, deschedulers=deschedulers):
                names.add(imported, place)
                deschedulers.add(imported, manifest, source=source, place=place)
        except UnsupportedObject as error:
            unsupported.append((error.kind, _with_location(error, source, document.place)))
        except InputError as error:
            _refuse([_with_location(error, source, document.place)], skipping)
    found = []
    for imported, place in deschedulers.finish(converting=converting):
        print_differences(imported.warnings, place)
        found.append(imported)
    if found or any(readers):
        print_skipped(kind for kind, _ in unsupported)
    else:
        _refuse([reason for _, reason in unsupported], skipping)
    return found


def _refuse(reasons: Sequence[InputError], skipping: Callable[[InputError], None] | None) -> None:
    """Raise the first error, or report all of them if invalid documents are skipped."""
    for reason in reasons:
        if skipping is None:
            raise reason
        skipping(reason)


def _decode_all(
    document: Document, source: str, *, readers: Sequence[DocumentReader], deschedulers: DeschedulerInput
) -> list[ImportResult]:
    """Convert a document, or each installation of the descheduler's chart in it.

    The result is empty for a workload that runs the descheduler, whose settings apply to policies.
    """
    from trimtab.descheduling.imports.chart import CHART, import_chart, is_chart_values
    from trimtab.kube.wire.files.packages import unwrap

    manifest = _manifest(document)
    if deschedulers.take_workload(manifest, source=source, place=_location(source, document.place)):
        return []
    charts = [chart.of(CHART, is_chart_values) for chart in unwrap(manifest)]
    found = [import_chart(chart, source=_location(source, document.place)) for chart in charts if chart is not None]
    return found or [_decode(document, source, readers=readers)]


class _PolicyNames:
    """Detects duplicate policy names."""

    def __init__(self) -> None:
        self._places: dict[str, str] = {}

    def add(self, imported: ImportResult, place: str) -> None:
        for policy in imported.policies:
            if policy.name in self._places:
                raise InputError(
                    f"is defined twice: in {self._places[policy.name]} and in {place}",
                    object=f"{KIND}/{policy.name}",
                )
            self._places[policy.name] = place


def _documents(source: str) -> list[Document]:
    from trimtab.kube.wire.files.documents import documents

    try:
        text = sys.stdin.buffer.read() if source == STDIN else Path(source).read_bytes()
        found = list(documents(_repaired(text, source)))
        fault = next((document.fault for document in found if document.fault is not None), None)
        if fault is not None:
            raise fault
        return found
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", source=source) from None
    except InputError as error:
        raise _with_location(error, source) from None


def _repaired(text: bytes, source: str) -> bytes:
    """Correct known mistakes in published examples, report each on stderr, and return the text.

    These are legacy scheduler Policies and OpenShift's admission configuration.
    """
    if b"predicates" in text or b"priorities" in text:
        from trimtab.scheduling.imports import repair_policy_text as repair
    elif b"admissionConfig" in text or b"podNodeSelectorPluginConfig" in text:
        from trimtab.admission.imports import repair_admission_text as repair
    else:
        return text
    try:
        repaired, changes = repair(text.decode())
    except UnicodeDecodeError:
        return text  # the reader reports the error with its position
    for change in changes:
        click.echo(f"trimtab: warning: {printable(source)}: {change}", err=True)
    return repaired.encode() if changes else text


def _read_by_other_reader(document: Document, source: str, readers: Sequence[DocumentReader]) -> bool:
    """Let the first reader that supports a document read it, and return whether one did.

    A document that installs several charts is read by all of their readers.
    """
    from trimtab.kube.wire.files.packages import unwrap

    manifest, place = _manifest(document), _location(source, document.place)
    if any(other.take(manifest, source=source, place=place) for other in readers):
        return True
    read = [
        other.take_chart(chart, source=source, place=place)
        for chart in unwrap(manifest)
        for other in readers
        if isinstance(other, ChartReader)
    ]
    return any(read)


def _decode(document: Document, source: str, *, readers: Sequence[DocumentReader] = ()) -> ImportResult:
    manifest = _manifest(document)
    kind, version = manifest.get("kind") or document.kind, manifest.get("apiVersion")
    decode = _readers().get((str(kind), str(version)))
    if decode is None:
        this = f"{kind} of {version}" if kind and version else _describe_untyped(kind, version)
        message = f"{this} is not a policy; supported are {_allowed(readers)}"
        kinds = _kinds(readers)
        other = (str(kind), str(version)) in kinds or kind not in {each for each, _ in kinds}
        if kind and version and other:  # else it is of an unknown version of a known kind
            raise UnsupportedObject(message, kind=str(kind))
        raise InputError(message)
    metadata = manifest.get("metadata")
    named = isinstance(metadata, dict) and metadata.get("name")
    return decode({**manifest, "kind": kind}, source=source if named else _location(source, document.place))


def _describe_untyped(kind: object, version: object) -> str:
    """Describe an object that lacks its kind, its apiVersion or both."""
    if kind:
        return f"{kind} without apiVersion"
    return f"an object of {version} without kind" if version else "an object without apiVersion and kind"


def _read_own_policy(manifest: dict[str, Any], *, source: str) -> ImportResult:
    from trimtab.api.decode import decode_policy, read_status
    from trimtab.api.differences import Difference
    from trimtab.descheduling.imports.draft import ImportResult

    policy = decode_policy(manifest, source=source)
    _, problem = read_status(manifest.get("status"))
    warnings = (Difference("status", f"is invalid and ignored: {problem}"),) if problem else ()
    return ImportResult((policy,), ({key: value for key, value in manifest.items() if key != "status"},), warnings)


def _read_config_map(manifest: dict[str, Any], *, source: str) -> ImportResult:
    """Read the policies in a ConfigMap, where the Kubernetes descheduler stores them."""
    from trimtab.api.decode import describe
    from trimtab.descheduling.imports.draft import ImportResult

    data = manifest.get("data")
    found = []
    for key, text in sorted(data.items()) if isinstance(data, dict) else ():
        inner = f"{source} (data[{key}])"
        try:
            each_imported = [_decode(document, inner) for document in _policies_in(text)]
        except InputError as error:
            raise _with_location(error, inner) from None
        for imported in each_imported:
            warnings = (
                msgspec.structs.replace(warning, field=f"data[{key}]: {warning.field}") for warning in imported.warnings
            )
            found.append(ImportResult(imported.policies, imported.documents, tuple(warnings)))
    if not found:
        message = "contains no policy: no key of data has a DeschedulerPolicy"
        raise UnsupportedObject(message, kind="ConfigMap", object=describe(manifest))
    return ImportResult(
        tuple(policy for each in found for policy in each.policies),
        tuple(document for each in found for document in each.documents),
        tuple(warning for each in found for warning in each.warnings),
    )


def _policies_in(text: Any) -> list[Document]:
    """Return the policy documents in a string; empty if it contains none.

    Raises:
        InputError: the string is invalid YAML and contains the word DeschedulerPolicy.
    """
    from trimtab.kube.wire.files.documents import documents

    try:
        found = list(documents(text.encode())) if isinstance(text, str) else []
    except InputError:
        if KIND in text:
            raise
        return []
    return [each for each in found if _manifest(each).get("kind") == KIND]


def _scheduler_documents(text: Any, source: str) -> list[Document]:
    """Return the documents in a string with a configuration of kube-scheduler; empty for another string.

    Raises:
        InputError: the string contains a configuration and is invalid YAML.
    """
    from trimtab.kube.wire.files.documents import documents
    from trimtab.scheduling.imports import configures_scheduler

    if not isinstance(text, str) or not configures_scheduler(text):
        return []
    try:
        return list(documents(_repaired(text.encode(), source)))
    except InputError as error:
        raise _with_location(error, source) from None


def _manifest(document: Document) -> dict[str, Any]:
    content = document.content
    return msgspec.json.decode(content) if isinstance(content, msgspec.Raw) else dict(content)


def _readers() -> dict[tuple[str, str], Callable[..., ImportResult]]:
    """Return the reader function for each kind and API version."""
    from trimtab.descheduling.imports import FORMATS

    return {(KIND, "trimtab.dev/v1alpha1"): _read_own_policy, **FORMATS, ("ConfigMap", "v1"): _read_config_map}


def _allowed(readers: Sequence[DocumentReader]) -> str:
    """Return the supported kinds, including those of the readers, as a string for error messages."""
    *first, last = (f"{kind} of {version}" for kind, version in _kinds(readers))
    return f"{', '.join(first)} and {last}"


def _kinds(readers: Sequence[DocumentReader]) -> list[tuple[str, str]]:
    return [*_readers(), *(kind for other in readers for kind in other.kinds)]


def _location(source: str, place: str) -> str:
    return f"{source} ({place})" if place else source


def _with_location(error: InputError, source: str, place: str = "") -> InputError:
    """Return the error with its file and, if the object has no name, with the document's position."""
    if error.source and error.object:
        return error
    return InputError(error.message, source=error.source or source, object=error.object or place, field=error.field)


CLUSTER: Final = ("ClusterAutoscaler", "autoscaling.openshift.io/v1")
MACHINE: Final = ("MachineAutoscaler", "autoscaling.openshift.io/v1beta1")
KINDS: Final = (CLUSTER, MACHINE)
CONFIG_MAP: Final = "cluster-autoscaler-priority-expander"
"""The name of the ConfigMap with the priorities of the expander Priority."""


class Autoscalers:
    """Reads the documents that configure autoscaling, in any order."""

    kinds: Final = KINDS

    def __init__(self) -> None:
        self.cluster: ClusterAutoscaler | None = None
        self._machine: dict[str, MachineAutoscaler] = {}
        self.priorities: dict[int, tuple[str, ...]] = {}
        self._places: dict[str, str] = {}

    def __bool__(self) -> bool:
        return self.cluster is not None or bool(self._machine)

    def take(self, manifest: Mapping[str, Any], *, source: str, place: str) -> bool:
        """Read a document if it configures autoscaling, and return whether it does.

        Args:
            manifest: the document.
            source: the file, for error messages about fields.
            place: the file and the position of the document in it, for error messages.

        Raises:
            InputError: the document is invalid or a duplicate.
        """
        from trimtab.api.decode import decode_cluster_autoscaler, decode_machine_autoscaler

        kind = (str(manifest.get("kind")), str(manifest.get("apiVersion")))
        if kind == CLUSTER:
            cluster = decode_cluster_autoscaler(manifest, source=source)
            self._add_name(f"{CLUSTER[0]}/{cluster.name}", place)
            self.cluster = cluster
            return True
        if kind == ("ConfigMap", "v1") and _name(manifest) == CONFIG_MAP:
            self.priorities = _read_priorities(manifest, source)
            self._add_name(f"ConfigMap/{CONFIG_MAP}", place)
            return True
        if kind == MACHINE:
            manifest = self._with_name(manifest)
            machine = decode_machine_autoscaler(manifest, source=source)
            self._add_name(f"{MACHINE[0]}/{machine.key}", place)
            self._machine[machine.key] = machine
            return True
        return False

    @property
    def machine(self) -> tuple[MachineAutoscaler, ...]:
        """Return the MachineAutoscalers, ordered by namespace and name."""
        return tuple(self._machine[key] for key in sorted(self._machine))

    def _with_name(self, manifest: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the manifest with a unique name if it only has ``generateName``, as for `kubectl create`."""
        metadata = manifest.get("metadata")
        if not isinstance(metadata, Mapping) or metadata.get("name") or not metadata.get("generateName"):
            return manifest
        return {**manifest, "metadata": {**metadata, "name": f"{metadata['generateName']}{len(self._machine) + 1}"}}

    def _add_name(self, name: str, place: str) -> None:
        if name in self._places:
            raise InputError(f"is defined twice: in {self._places[name]} and in {place}", object=name)
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


class SingletonReader(ABC, Generic[T]):
    """Reads the object of a kind of which a cluster has at most one.

    Attributes:
        kinds: the kind and its API version, and the kinds that are converted to it.
        object: the object; ``None`` if no document has defined it.
    """

    kinds: ClassVar[tuple[tuple[str, str], ...]]

    def __init__(self) -> None:
        self.object: T | None = None
        self._place = ""

    def __bool__(self) -> bool:
        return self.object is not None

    def take(self, manifest: Mapping[str, Any], *, source: str, place: str) -> bool:
        """Read a document if it has the reader's kind, and return whether it has.

        Args:
            manifest: the document.
            source: the file, for error messages about fields.
            place: the file and the position of the document in it, for error messages.

        Raises:
            InputError: the document is invalid or a duplicate.
        """
        if (str(manifest.get("kind")), str(manifest.get("apiVersion"))) not in self.kinds:
            return False
        found = self._decode(manifest, source)
        if self.object is not None:
            name = f"{manifest['kind']}/{manifest['metadata']['name']}"
            raise InputError(f"is defined twice: in {self._place} and in {place}", object=name)
        self.object, self._place = found, place
        return True

    @abstractmethod
    def _decode(self, manifest: Mapping[str, Any], source: str) -> T:
        """Decode the object.

        Raises:
            InputError: it is invalid.
        """


class TaintManagers(SingletonReader["TaintManager"]):
    """Reads the TaintManager."""

    kinds = (("TaintManager", "trimtab.dev/v1alpha1"),)

    def _decode(self, manifest: Mapping[str, Any], source: str) -> TaintManager:
        from trimtab.api.decode import TAINT_MANAGER, decode_taint_manager, find_former_values

        manager = decode_taint_manager(manifest, source=source)
        for each in find_former_values(manifest, TAINT_MANAGER):
            click.echo(f"trimtab: warning: {printable(source)}: {each}", err=True)
        return manager


class PlacementAdmissions(SingletonReader["PlacementAdmission"]):
    """Reads the PlacementAdmission, or the admission configuration of OpenShift or kube-apiserver.

    Such a configuration may consist of several documents. Together they become one PlacementAdmission with mode Warn.

    Attributes:
        documents: the PlacementAdmission as plain data; empty if there is none.
    """

    kinds = (
        ("PlacementAdmission", "trimtab.dev/v1alpha1"),
        ("MasterConfig", "v1"),
        ("AdmissionConfiguration", "apiserver.config.k8s.io/v1"),
        ("Configuration", "podtolerationrestriction.admission.k8s.io/v1alpha1"),
    )

    def __init__(self) -> None:
        super().__init__()
        self.documents: list[dict[str, Any]] = []
        self._imported: dict[str, dict[str, Any]] | None = None

    def take(self, manifest: Mapping[str, Any], *, source: str, place: str) -> bool:
        """See :meth:`SingletonReader.take`."""
        from trimtab.admission.imports import merge_blocks, read_admission

        imported = read_admission(manifest, source=source)
        if imported is None:
            return (manifest.get("kind"), manifest.get("apiVersion")) == self.kinds[0] and super().take(
                manifest, source=source, place=place
            )
        print_differences(imported.warnings, place)
        blocks = merge_blocks(self._imported or {}, imported.blocks)
        if self._imported is not None:
            self.object = None  # the documents together define one object
        kind, api_version = self.kinds[0]
        spec = {"mode": "Warn", **blocks}
        document = {"apiVersion": api_version, "kind": kind, "metadata": {"name": "default"}, "spec": spec}
        super().take(document, source=source, place=place)
        self._imported = blocks
        return True

    def _decode(self, manifest: Mapping[str, Any], source: str) -> PlacementAdmission:
        from trimtab.api.decode import decode_placement_admission

        admission = decode_placement_admission(manifest, source=source)
        self.documents = [{key: value for key, value in manifest.items() if key != "status"}]
        return admission


class SchedulerPolicies:
    """Reads SchedulerPolicies, and configurations of kube-scheduler, which are converted to SchedulerPolicies."""

    kinds: Final = (
        ("SchedulerPolicy", "trimtab.dev/v1alpha1"),
        ("Policy", "v1"),
        ("KubeSchedulerConfiguration", "kubescheduler.config.k8s.io/v1"),
    )

    def __init__(self) -> None:
        self.policies: list[SchedulerPolicy] = []
        self.documents: list[dict[str, Any]] = []
        self._places: dict[str, str] = {}

    def __bool__(self) -> bool:
        return bool(self.policies)

    def take(self, manifest: Mapping[str, Any], *, source: str, place: str) -> bool:
        """Read a document if it configures a scheduler, and return whether it does.

        kube-scheduler also reads its configuration from a ConfigMap, of which every value is a file.

        Args:
            manifest: the document.
            source: the file, for error messages about fields.
            place: the file and the position of the document in it, for error messages.

        Raises:
            InputError: the document is invalid or not supported, or another document has the same scheduler name.
        """
        if (manifest.get("kind"), manifest.get("apiVersion")) != ("ConfigMap", "v1"):
            return self._take(manifest, source=source, place=place)
        data = manifest.get("data")
        read = [
            self._take(_manifest(document), source=f"{source} (data[{key}])", place=f"{place} (data[{key}])")
            for key, text in (sorted(data.items()) if isinstance(data, dict) else ())
            for document in _scheduler_documents(text, f"{source} (data[{key}])")
        ]
        return any(read)

    def _take(self, manifest: Mapping[str, Any], *, source: str, place: str) -> bool:
        from trimtab.scheduling.imports import read_scheduler

        imported = read_scheduler(manifest, source=source)
        if imported is None:
            return False
        for policy in imported.policies:
            name = policy.spec.scheduler_name
            if name in self._places:
                raise InputError(
                    f"schedulerName {name} is defined twice: in {self._places[name]} and in {place}",
                    object=f"SchedulerPolicy/{policy.name}",
                )
            self._places[name] = place
        print_differences(imported.warnings, place)
        self.policies += imported.policies
        self.documents += imported.documents
        return True


class NodePressurePolicies:
    """Reads NodePressurePolicies, and settings of kubelets, which are converted to NodePressurePolicies.

    Attributes:
        policies: the policies, in the order of the documents.
        documents: the same policies as plain data.
    """

    kinds: Final = (
        ("NodePressurePolicy", "trimtab.dev/v1alpha1"),
        ("KubeletConfiguration", "kubelet.config.k8s.io/v1beta1"),
        ("KubeletConfig", "machineconfiguration.openshift.io/v1"),
    )

    def __init__(self) -> None:
        self.policies: list[NodePressurePolicy] = []
        self.documents: list[dict[str, Any]] = []
        self._places: dict[str, str] = {}

    def __bool__(self) -> bool:
        return bool(self.policies)

    def take(self, manifest: Mapping[str, Any], *, source: str, place: str) -> bool:
        """Read a document if it configures node-pressure eviction, and return whether it does.

        Args:
            manifest: the document.
            source: the file, for error messages about fields.
            place: the file and the position of the document in it, for error messages.

        Raises:
            InputError: the document is invalid, or another policy has the same name.
        """
        from trimtab.pressure.imports import read_pressure_policy

        imported = read_pressure_policy(manifest, source=source)
        if imported is None:
            return False
        name = imported.policy.name
        if name in self._places:
            raise InputError(
                f"is defined twice: in {self._places[name]} and in {place}", object=f"NodePressurePolicy/{name}"
            )
        self._places[name] = place
        print_differences(imported.warnings, place)
        self.policies.append(imported.policy)
        self.documents.append(imported.document)
        return True
