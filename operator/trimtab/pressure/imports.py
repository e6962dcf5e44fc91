"""Converts the eviction settings of kubelets to NodePressurePolicies.

    apiVersion: kubelet.config.k8s.io/v1beta1         # a kubelet's configuration file
    kind: KubeletConfiguration
    evictionHard: {memory.available: 500Mi}

    kubeletArguments:                                 # node-config.yaml of OpenShift 3
      eviction-hard: ["memory.available<500Mi,nodefs.available<10%"]

Flags are also read from ``kubeletExtraArgs`` of kubeadm (InitConfiguration and JoinConfiguration) and ``kubelet-arg``
of K3s and RKE2. The KubeletConfig of OpenShift 4 contains a KubeletConfiguration.

The result has ``mode: Simulate``. The kubelet's thresholds become those of the policy and, as
``kubeletEvictionHard``, those that the policy is compared with. Settings with which the kubelet would not start, or
which have no effect in the kubelet, are corrected, with a warning for each.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from msgspec import Struct

from trimtab.api.base import API_VERSION
from trimtab.api.decode import decode_node_pressure_policy
from trimtab.api.node_pressure_policy import (
    KIND,
    KUBELET_EVICTION_HARD,
    SIGNALS,
    SIMULATE,
    NodePressurePolicy,
    parse_reclaim,
    parse_threshold,
)
from trimtab.api.rules import soft_above_hard
from trimtab.api.scalars import LONGEST_INTERVAL, format_duration, parse_duration, parse_go_duration
from trimtab.api.schema import FieldError, unknown_key
from trimtab.kube.errors import InputError
from trimtab.kube.rules.quantity import QuantityError, amount

CONFIGURATION: Final = ("KubeletConfiguration", "kubelet.config.k8s.io/v1beta1")
OPENSHIFT_CONFIG: Final = ("KubeletConfig", "machineconfiguration.openshift.io/v1")
OPENSHIFT_NODE: Final = ("NodeConfig", "v1")
KUBEADM_KINDS: Final = ("InitConfiguration", "JoinConfiguration")
KUBEADM_GROUP: Final = "kubeadm.k8s.io/"
KINDS: Final = (CONFIGURATION, OPENSHIFT_CONFIG, OPENSHIFT_NODE)

DEFAULT_NAME: Final = "default"
DEFAULT_GRACE: Final = "1m30s"
"""Grace period of soft thresholds that have none, as in the example of OpenShift's documentation."""

FLAGS: Final[Mapping[str, tuple[str, str]]] = {
    "eviction-hard": ("evictionHard", "<"),
    "eviction-soft": ("evictionSoft", "<"),
    "eviction-soft-grace-period": ("evictionSoftGracePeriod", "="),
    "eviction-minimum-reclaim": ("evictionMinimumReclaim", "="),
    "eviction-max-pod-grace-period": ("evictionMaxPodGracePeriod", ""),
    "eviction-pressure-transition-period": ("evictionPressureTransitionPeriod", ""),
    "system-reserved": ("systemReserved", "="),
    "kube-reserved": ("kubeReserved", "="),
}
"""The flags that are read: their fields in a KubeletConfiguration, and the separator in the entries of a map."""

_FIELDS: Final = (
    *(field for field, _ in FLAGS.values() if field.startswith("eviction")),
    "mergeDefaultEvictionSettings",
)
_POOL_LABEL: Final = "pools.operator.machineconfiguration.openshift.io/"
_ROLE_LABEL: Final = "node-role.kubernetes.io/"


class KubeletDocument(Struct, frozen=True):
    """The settings of kubelets in one document, under the names that a KubeletConfiguration uses.

    Attributes:
        kind: the kind of the document, for messages; ``kubeletArguments`` if it has none.
        fields: the settings by field of a KubeletConfiguration. Values of flags are strings or maps of strings.
        places: where each field is in the document.
        name: ``metadata.name``; may be empty.
        pool: the label selector of the machine config pools that a KubeletConfig of OpenShift selects.
        notes: problems that do not prevent the settings from being read.
    """

    kind: str
    fields: Mapping[str, Any]
    places: Mapping[str, str]
    name: str = ""
    pool: Mapping[str, Any] | None = None
    notes: tuple[FieldError, ...] = ()


class ImportedPressurePolicy(Struct, frozen=True):
    """The NodePressurePolicy that was read from one document.

    Attributes:
        policy: the decoded and validated policy.
        document: the same policy as plain data, for ``trimtab convert``.
        warnings: one message for each setting that was corrected or ignored.
    """

    policy: NodePressurePolicy
    document: dict[str, Any]
    warnings: tuple[FieldError, ...] = ()


def read_pressure_policy(manifest: Mapping[str, Any], *, source: str = "") -> ImportedPressurePolicy | None:
    """Read a NodePressurePolicy, or the settings of kubelets; return ``None`` if the document is something else.

    Raises:
        InputError: the policy or the settings are invalid. The message names the field.
    """
    if (manifest.get("kind"), manifest.get("apiVersion")) == (KIND, API_VERSION):
        plain = {key: value for key, value in manifest.items() if key != "status"}
        return ImportedPressurePolicy(decode_node_pressure_policy(manifest, source=source), plain)
    found = read_kubelet_document(manifest, source=source)
    if found is None:
        return None
    converter = _Converter(found, source)
    spec = converter.convert()
    document = {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {"name": found.name or DEFAULT_NAME},
        "spec": {"mode": SIMULATE, **spec},
    }
    return ImportedPressurePolicy(
        decode_node_pressure_policy(document, source=source), document, tuple(converter.warnings)
    )


# ── The documents ───────────────────────────────────────────────────────────────────────────────────────────────────


def read_kubelet_document(manifest: Mapping[str, Any], *, source: str = "") -> KubeletDocument | None:
    """Return the settings of kubelets in a document; ``None`` if it is no configuration of kubelets.

    Raises:
        InputError: a part of the document has another form.
    """
    kind, version = manifest.get("kind"), str(manifest.get("apiVersion") or "")
    if kind == CONFIGURATION[0] and version in ("", CONFIGURATION[1]):
        return _of_configuration(manifest, str(kind), "", name=_name(manifest))
    if kind == OPENSHIFT_CONFIG[0] and version == OPENSHIFT_CONFIG[1]:
        spec = _mapping(manifest.get("spec"), "spec", str(kind), source)
        config = _mapping(spec.get("kubeletConfig"), "spec.kubeletConfig", str(kind), source)
        pool = _mapping(spec.get("machineConfigPoolSelector"), "spec.machineConfigPoolSelector", str(kind), source)
        return _of_configuration(config, str(kind), "spec.kubeletConfig.", name=_name(manifest), pool=pool)
    for place, value in _flag_blocks(manifest, str(kind or ""), version, source):
        return _of_flags(value, str(kind or place), place, source)
    return None


def _flag_blocks(manifest: Mapping[str, Any], kind: str, version: str, source: str) -> Iterator[tuple[str, Any]]:
    """Yield the part of a document that contains flags of kubelets, with its place."""
    if "kubeletArguments" in manifest and kind in ("", OPENSHIFT_NODE[0]):
        yield "kubeletArguments", manifest["kubeletArguments"]
    elif "kubelet-arg" in manifest and not kind:
        yield "kubelet-arg", manifest["kubelet-arg"]
    elif kind in KUBEADM_KINDS and version.startswith(KUBEADM_GROUP):
        registration = _mapping(manifest.get("nodeRegistration"), "nodeRegistration", kind, source)
        if "kubeletExtraArgs" in registration:
            yield "nodeRegistration.kubeletExtraArgs", registration["kubeletExtraArgs"]


def _of_configuration(
    config: Mapping[str, Any], kind: str, prefix: str, *, name: str, pool: Mapping[str, Any] | None = None
) -> KubeletDocument:
    fields = {str(key): value for key, value in config.items() if value is not None}
    return KubeletDocument(kind, fields, {key: f"{prefix}{key}" for key in fields}, name=name, pool=pool)


def _of_flags(value: Any, kind: str, place: str, source: str) -> KubeletDocument:
    """Read flags: a map of names to values or lists of values, or a list of ``name=value`` or name and value."""
    given: dict[str, list[str]] = {}
    places: dict[str, str] = {}
    if isinstance(value, Mapping):
        pairs: list[tuple[str, Any]] = [(str(flag), text) for flag, text in value.items()]
    elif isinstance(value, list):
        pairs = [_pair(each, f"{place}[{number}]", kind, source) for number, each in enumerate(value)]
    else:
        raise InputError("must be a mapping or a list of flags", source=source, object=kind, field=place)
    for flag, texts in pairs:
        flag = flag.lstrip("-")
        listed = texts if isinstance(texts, list) else [texts]
        given.setdefault(flag, []).extend("" if text is None else str(text) for text in listed)
        places[flag] = f"{place}.{flag}"
    fields: dict[str, Any] = {}
    notes: list[FieldError] = []
    for flag, texts in given.items():
        if flag not in FLAGS:
            if flag.startswith("eviction"):
                message = unknown_key(flag, tuple(each for each in FLAGS if each.startswith("eviction")), what="flag")
                raise InputError(message, source=source, object=kind, field=places[flag])
            continue
        field, separator = FLAGS[flag]
        if separator:
            fields[field] = _entries(texts, separator, places[flag], kind, source, notes)
        else:
            fields[field] = texts[-1] if texts else ""
    by_field = {FLAGS[flag][0]: at for flag, at in places.items() if flag in FLAGS}
    return KubeletDocument(kind, fields, by_field, notes=tuple(notes))


def _pair(value: Any, place: str, kind: str, source: str) -> tuple[str, Any]:
    if isinstance(value, Mapping) and "name" in value:  # kubeadm v1beta4
        return str(value["name"]), value.get("value")
    flag, equals, text = str(value).partition("=")
    if isinstance(value, Mapping | list) or not equals:
        raise InputError("must be a flag as name=value", source=source, object=kind, field=place)
    return flag, text


def _entries(
    texts: list[str], separator: str, place: str, kind: str, source: str, notes: list[FieldError]
) -> dict[str, str]:
    """Parse the value of a flag that is a map: ``memory.available<500Mi,nodefs.available<10%``."""
    found: dict[str, str] = {}
    for entry in (part.strip() for text in texts for part in text.split(",")):
        if not entry:
            continue
        name, operator, value = (part.strip() for part in entry.partition(separator))
        if not (operator and name and value):
            raise InputError(f"must be name{separator}value; not {entry!r}", source=source, object=kind, field=place)
        if found.get(name, value) != value:
            notes.append(FieldError(place, f"{name} is given twice; the last value, {value}, counts"))
        found[name] = value
    return found


def _name(manifest: Mapping[str, Any]) -> str:
    metadata = manifest.get("metadata")
    return str(metadata.get("name") or "") if isinstance(metadata, Mapping) else ""


def _mapping(value: Any, place: str, kind: str, source: str) -> Mapping[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise InputError("must be a mapping", source=source, object=kind, field=place)
    return value


# ── The settings ────────────────────────────────────────────────────────────────────────────────────────────────────


class _Converter:
    """Converts the settings of one document, and collects the warnings."""

    def __init__(self, document: KubeletDocument, source: str) -> None:
        self.warnings: list[FieldError] = list(document.notes)
        self._document = document
        self._source = source

    def convert(self) -> dict[str, Any]:
        """Return the spec of the policy without its mode.

        Raises:
            InputError: a setting is invalid, so that the kubelet does not start.
        """
        self._refuse_unknown_fields()
        given = self._thresholds("evictionHard")
        merged = self._document.fields.get("mergeDefaultEvictionSettings")
        hard = dict(given or KUBELET_EVICTION_HARD) if merged is not True else {**KUBELET_EVICTION_HARD, **given}
        soft = self._soft(hard)
        spec: dict[str, Any] = {**self._node_selector(), "evictionHard": hard}
        if soft:
            spec |= {"evictionSoft": soft, "evictionSoftGracePeriod": self._grace_periods(soft)}
        elif self._document.fields.get("evictionSoftGracePeriod"):
            self._warn("evictionSoftGracePeriod", "is ignored: there is no soft threshold")
        reclaim = self._by_signal("evictionMinimumReclaim", self._reclaim)
        if reclaim:
            spec["evictionMinimumReclaim"] = reclaim
        spec |= self._max_pod_grace_period() | self._transition_period()
        if given:
            spec["kubeletEvictionHard"] = dict(hard)
        else:
            self._warn("evictionHard", "is not set: the kubelet's defaults are used")
        if any(parse_threshold(text) is not None for text in hard.values()):
            self._warn(
                "evictionHard",
                "the kubelet kills pods at these thresholds itself; raise evictionHard of the policy above "
                "kubeletEvictionHard, or remove it and use evictionSoft",
            )
        return spec

    def _refuse_unknown_fields(self) -> None:
        for field in self._document.fields:
            if "eviction" in field.lower() and field not in _FIELDS:
                raise self._error(field, unknown_key(field, _FIELDS))

    def _node_selector(self) -> dict[str, Any]:
        """Return the selector of the nodes of a machine config pool, if the label names the pool."""
        labels = (self._document.pool or {}).get("matchLabels")
        pools = [str(key).removeprefix(_POOL_LABEL) for key in labels or () if str(key).startswith(_POOL_LABEL)]
        if len(pools) == 1 and len(labels or ()) == 1:
            label = f"{_ROLE_LABEL}{pools[0]}"
            place = "spec.machineConfigPoolSelector"
            self.warnings.append(FieldError(place, f"is converted to the nodes with the label {label}; check it"))
            return {"nodeSelector": {"matchLabels": {label: ""}}}
        message = "the policy selects all nodes; set nodeSelector if kubelets of other nodes have other settings"
        self.warnings.append(FieldError("nodeSelector", message))
        return {}

    def _thresholds(self, field: str) -> dict[str, str]:
        return self._by_signal(field, lambda signal, text: self._threshold(field, signal, text))

    def _soft(self, hard: Mapping[str, str]) -> dict[str, str]:
        found = self._thresholds("evictionSoft")
        for signal in sorted(found.keys() & hard.keys()):
            if not soft_above_hard(found[signal], hard[signal]):
                message = (
                    f"{signal}: the soft threshold {found[signal]} is not above the hard one, {hard[signal]}, which is "
                    "met first; the soft threshold has no effect and is left out"
                )
                self._warn("evictionSoft", message)
                del found[signal]
        return found

    def _grace_periods(self, soft: Mapping[str, str]) -> dict[str, str]:
        given = self._by_signal("evictionSoftGracePeriod", self._grace)
        for signal in sorted(given.keys() - soft.keys()):
            self._warn("evictionSoftGracePeriod", f"{signal} is ignored: it has no soft threshold")
        for signal in sorted(soft.keys() - given.keys()):
            message = f"{signal}: the kubelet does not start without a grace period; {DEFAULT_GRACE} is used"
            self._warn("evictionSoftGracePeriod" if given else "evictionSoft", message)
        return {signal: given.get(signal, DEFAULT_GRACE) for signal in soft}

    def _max_pod_grace_period(self) -> dict[str, int]:
        field = "evictionMaxPodGracePeriod"
        value = self._document.fields.get(field)
        if value is None:
            return {}
        if not re.fullmatch("-?[0-9]{1,10}", str(value)) or isinstance(value, bool):
            raise self._error(field, f"must be a number of seconds; not {value!r}")
        seconds = int(value)
        if seconds == 0:
            self._warn(field, "with 0, the kubelet kills pods at once; the policy gives pods their own grace period")
        return {field: min(seconds, 2**31 - 1)} if seconds > 0 else {}

    def _transition_period(self) -> dict[str, str]:
        field = "evictionPressureTransitionPeriod"
        value = self._document.fields.get(field)
        if value is None:
            return {}
        text = self._duration(field, "", str(value))
        if parse_duration(text) == 0:
            self._warn(field, "with 0, the kubelet uses its default, 5m")
            return {}
        return {field: text}

    # ── Values ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def _by_signal(self, field: str, convert: Callable[[str, str], str | None]) -> dict[str, str]:
        """Convert the values of a map by signal. Unknown signals are left out, with a warning."""
        value = self._document.fields.get(field)
        if value is not None and not isinstance(value, Mapping):
            raise self._error(field, "must be a mapping of signals to values")
        found: dict[str, str] = {}
        for signal, text in (value or {}).items():
            if signal not in SIGNALS:
                near = difflib.get_close_matches(str(signal), SIGNALS, n=1, cutoff=0.6)
                hint = f"; did you mean {near[0]}?" if near else ""
                self._warn(field, f"{signal} is not an eviction signal, so the kubelet does not start; left out{hint}")
                continue
            converted = convert(signal, str(text).strip())
            if converted is not None:
                found[signal] = converted
        return found

    def _threshold(self, field: str, signal: str, text: str) -> str:
        text = self._canonical(field, signal, text)
        try:
            value = parse_threshold(text)
        except ValueError as error:
            raise self._error(field, f"{signal}: {error}") from None
        if value is None:
            self._warn(field, f"{signal}: {text} switches the threshold off")
        return text

    def _reclaim(self, signal: str, text: str) -> str:
        field = "evictionMinimumReclaim"
        text = self._canonical(field, signal, text)
        try:
            parse_reclaim(text)
        except ValueError as error:
            raise self._error(field, f"{signal}: {error}") from None
        return text

    def _canonical(self, field: str, signal: str, text: str) -> str:
        """Return a quantity that the kubelet accepts in a form that a policy accepts: ``1e9`` as ``1000000000``."""
        if text.endswith("%"):
            return text
        try:
            parse_reclaim(text)
        except ValueError:
            pass
        else:
            return text
        try:
            return str(amount(text))
        except QuantityError as error:
            raise self._error(field, f"{signal}: {error}") from None

    def _grace(self, signal: str, text: str) -> str:
        return self._duration("evictionSoftGracePeriod", f"{signal}: ", text)

    def _duration(self, field: str, what: str, text: str) -> str:
        """Return a Go duration in whole seconds, rounded up."""
        try:
            seconds = parse_go_duration(text)
        except ValueError as error:
            raise self._error(field, f"{what}{error}") from None
        whole = min(int(-(-seconds // 1)), LONGEST_INTERVAL)
        if whole != seconds:
            self._warn(field, f"{what}{text} is converted to {format_duration(whole)}")
        return format_duration(whole)

    def _warn(self, field: str, message: str) -> None:
        self.warnings.append(FieldError(self._place(field), message))

    def _error(self, field: str, message: str) -> InputError:
        return InputError(message, source=self._source, object=self._document.kind, field=self._place(field))

    def _place(self, field: str) -> str:
        return self._document.places.get(field, field)
