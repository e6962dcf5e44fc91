"""Converts the command line of cluster-autoscaler to a ClusterAutoscaler.

The result has ``mode: Simulate``. All defaults of the release are written explicitly, because trimtab's differ in part.
Each flag that is not converted is reported with its effect, see :mod:`trimtab.autoscaling.imports.flags`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from typing import Any, Final, get_args

from msgspec import Struct

from trimtab.api.cluster_autoscaler import API_VERSION, KIND, NAME, Architecture
from trimtab.api.differences import HIGH, LOW, MEDIUM, Difference, Severity
from trimtab.api.scalars import go_duration_seconds, parse_go_duration
from trimtab.autoscaling.imports.arguments import CommandLine, assumed_version
from trimtab.autoscaling.imports.flags import CURRENT, DEPRECATED, FLAGS, REMOVED, Flag, default_of
from trimtab.kube.errors import InputError

SUPPORTED_PROVIDERS: Final = ("clusterapi", "externalgrpc", "kwok")

_EXPANDERS: Final = {
    "grpc": "Grpc",
    "least-nodes": "LeastNodes",
    "least-waste": "LeastWaste",
    "most-pods": "MostPods",
    "price": "Price",
    "priority": "Priority",
    "random": "Random",
}
_BOOLEANS: Final = {
    **dict.fromkeys(("1", "t", "T", "true", "TRUE", "True"), True),
    **dict.fromkeys(("0", "f", "F", "false", "FALSE", "False"), False),
}


_QUIET: Final = ("logtostderr", "stderrthreshold", "v")
"""Flags of nearly every installation that need no report."""

_ZEROES: Final = re.compile(r"(?<=[hm])0[ms](?:0s)?$")


class ImportedAutoscaler(Struct, frozen=True):
    """The result of a conversion.

    Attributes:
        document: the ClusterAutoscaler as plain data.
        warnings: the differences in behaviour, each with the flag that it concerns.
        nodes: the values of ``--nodes``.
        provider: the value of ``--cloud-provider``.
    """

    document: dict[str, Any]
    warnings: tuple[Difference, ...] = ()
    nodes: tuple[str, ...] = ()
    provider: str = ""


def convert_command_line(line: CommandLine) -> ImportedAutoscaler:
    """Convert a command line of cluster-autoscaler to a ClusterAutoscaler.

    Raises:
        InputError: a flag has a value with which cluster-autoscaler does not start.
    """
    return _Converter(line).convert()


class _Converter:
    """Converts one command line.

    Attributes:
        warnings: the differences in behaviour so far.
    """

    def __init__(self, line: CommandLine) -> None:
        self._line = line
        self._version = assumed_version(line)
        self.warnings: list[Difference] = list(line.notes)

    def convert(self) -> ImportedAutoscaler:
        self._check_values()
        self._note_release()
        parts = {
            "mode": "Simulate",
            "resourceLimits": self._limits(),
            "scaleDown": self._scale_down(),
            "scaleUp": self._scale_up(),
        }
        spec: dict[str, Any] = {key: value for key, value in parts.items() if value}
        spec |= self._plain()
        spec["expanders"] = self._expanders()
        if startup := self._all("startup-taint", "ignore-taint"):
            spec["startupTaints"] = [each.partition("=")[0].partition(":")[0] for each in startup]
        if discovery := self._discovery():
            spec["nodeGroupAutoDiscovery"] = discovery
        self._note_unconverted()
        document = {"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": NAME}, "spec": spec}
        return ImportedAutoscaler(
            document, tuple(self.warnings), self._line.values.get("nodes", ()), self._value("cloud-provider")
        )

    # ── Values ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _value(self, name: str) -> str:
        """Return the value of a flag, or its default in the release."""
        given = self._line.last(name)
        return default_of(name, self._version) if given is None else given

    def _given(self, name: str) -> bool:
        return self._line.last(name) is not None

    def _all(self, *names: str) -> list[str]:
        return list(dict.fromkeys(value for name in names for value in self._line.values.get(name, ())))

    def _bool(self, name: str) -> bool:
        return _BOOLEANS[self._value(name)]

    def _duration(self, name: str) -> str:
        text = self._value(name)
        if not self._given(name):
            text = _ZEROES.sub("", text) or text
        return "0s" if text in ("0", "+0", "-0") else text.removeprefix("+")

    def _check_values(self) -> None:
        """Check the values of all flags, also of those that are not converted.

        Raises:
            InputError: a value has the wrong type.
        """
        for name, values in self._line.values.items():
            flag = _known(name)
            bounded = flag.type == "duration" and flag.fate == "converted"
            check = _bounded_seconds if bounded else _CHECKS.get(flag.type)
            for value in values:
                try:
                    if check is not None:
                        check(value)
                except ValueError as error:
                    raise InputError(f"{error}; not {value!r}", field=f"--{name}") from None

    # ── Fields ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _limits(self) -> dict[str, Any]:
        limits: dict[str, Any] = {}
        total = int(self._value("max-nodes-total"))
        if total > 0:
            limits["maxNodesTotal"] = total
        for name, key in (("cores-total", "cores"), ("memory-total", "memory")):
            if self._given(name):
                limits[key] = _range(self._value(name), f"--{name}")
        gpus = [self._gpu(each) for each in self._all("gpu-total")]
        if gpus:
            limits["gpus"] = gpus
        return limits

    def _gpu(self, text: str) -> dict[str, Any]:
        kind, _, sizes = text.partition(":")
        if not kind:
            raise InputError(f"must have the form TYPE:MIN:MAX; not {text!r}", field="--gpu-total")
        return {"type": kind, **_range(sizes, "--gpu-total")}

    def _scale_down(self) -> dict[str, Any]:
        if not self._bool("scale-down-enabled"):
            return {"enabled": False}
        found: dict[str, Any] = {
            "enabled": True,
            "delayAfterAdd": self._duration("scale-down-delay-after-add"),
            "delayAfterDelete": self._duration("scale-down-delay-after-delete"),
            "delayAfterFailure": self._duration("scale-down-delay-after-failure"),
            "unneededTime": self._duration("scale-down-unneeded-time"),
            "unreadyTime": self._duration("scale-down-unready-time"),
            "utilizationThreshold": self._threshold("scale-down-utilization-threshold"),
            "gpuUtilizationThreshold": self._threshold("scale-down-gpu-utilization-threshold"),
        }
        cordon = self._bool("cordon-node-before-terminating")
        found["cordonNodeBeforeTerminating"] = "Enabled" if cordon else "Disabled"
        return found

    def _threshold(self, name: str) -> str:
        """Return a threshold. A ClusterAutoscaler allows numbers above 0 and below 1 only."""
        value = Decimal(self._value(name))
        limited = min(max(value, Decimal("0.000000001")), Decimal("0.999999999"))
        limited = round(limited, 9)
        if limited != value:
            self._warn(name, f"is {value}; the closest value that utilizationThreshold allows is {limited}", LOW)
        text = f"{limited:f}"
        return text.rstrip("0") if "." in text else text

    def _scale_up(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        delay = self._duration("new-pod-scale-up-delay")
        if parse_go_duration(delay):
            found["newPodScaleUpDelay"] = delay
        schedulers = [name for text in self._all("bypassed-scheduler-names") for name in text.split(",") if name]
        if schedulers:
            found["bypassedSchedulers"] = list(dict.fromkeys(schedulers))
        if self._bool("force-ds"):
            found["forceDaemonSets"] = True
        if architecture := self._line.architecture:
            if architecture in get_args(Architecture):
                found["defaultArchitecture"] = architecture
            else:
                allowed = ", ".join(get_args(Architecture))
                message = f"is {architecture}, and must be of {allowed}; left out"
                self.warnings.append(Difference("CAPI_SCALE_ZERO_DEFAULT_ARCH", message, MEDIUM))
        return found

    def _plain(self) -> dict[str, Any]:
        found: dict[str, Any] = {
            "maxPodGracePeriod": int(self._value("max-graceful-termination-sec")),
            "maxNodeProvisionTime": self._duration("max-node-provision-time"),
            "podPriorityThreshold": int(self._value("expendable-pods-priority-cutoff")),
            "balanceSimilarNodeGroups": self._bool("balance-similar-node-groups"),
            "ignoreDaemonsetsUtilization": self._bool("ignore-daemonsets-utilization"),
            "ignoreMirrorPodsUtilization": self._bool("ignore-mirror-pods-utilization"),
            "skipNodesWithLocalStorage": self._bool("skip-nodes-with-local-storage"),
            "enforceNodeGroupMinSize": "Enabled" if self._bool("enforce-node-group-min-size") else "Disabled",
        }
        if labels := self._all("balancing-ignore-label"):
            found["balancingIgnoredLabels"] = labels
        return found

    def _expanders(self) -> list[str]:
        names = self._value("expander").split(",")
        unknown = next((name for name in names if name not in _EXPANDERS), None)
        if unknown is not None:
            raise InputError(f"must be of {', '.join(_EXPANDERS)}; not {unknown!r}", field="--expander")
        if len(set(names)) < len(names):
            raise InputError("must not have an expander twice", field="--expander")
        if "price" in names:
            message = "price: prices are those of the annotation trimtab.dev/price of the node groups"
            self._warn("expander", message, HIGH)
        if "random" in names:
            self._warn("expander", "random: the choice has a fixed seed, so the same input gives the same choice", LOW)
        if "priority" in names:
            namespace = self._line.last("namespace") or self._line.namespace or "kube-system"
            self._warn(
                "expander",
                "priority: the ConfigMap cluster-autoscaler-priority-expander is read in the namespace of the chart "
                f"value expander.priority.namespace; set it to {namespace}",
                HIGH,
            )
        return [_EXPANDERS[name] for name in names]

    def _discovery(self) -> dict[str, Any]:
        """Return nodeGroupAutoDiscovery. Several definitions are united if they name the same cluster."""
        name, clusters, namespaces = "node-group-auto-discovery", set(), []
        for text in self._all(name):
            discoverer, _, selector = text.partition(":")
            if discoverer != "clusterapi":
                message = f"{text}: trimtab does not discover node groups of {discoverer or 'this provider'}"
                self._warn(name, message, HIGH)
                continue
            pairs = dict(part.partition("=")[::2] for part in selector.split(",") if part)
            clusters.add(pairs.pop("clusterName", ""))
            namespaces.append(pairs.pop("namespace", ""))
            if pairs:
                message = f"{text}: labels do not select node groups, so all node groups of the cluster are scaled"
                self._warn(name, message, HIGH)
        if len(clusters) > 1:
            self._warn(name, "names several clusters; trimtab scales those of one, so clusterName is not set", HIGH)
        found: dict[str, Any] = {}
        if len(clusters) == 1 and "" not in clusters:
            found["clusterName"] = clusters.pop()
        if namespaces and "" not in namespaces:
            found["namespaces"] = list(dict.fromkeys(namespaces))
        return found

    # ── Differences ───────────────────────────────────────────────────────────────────────────────────────────────

    def _warn(self, name: str, message: str, severity: Severity) -> None:
        self.warnings.append(Difference(f"--{name}", message, severity))

    def _warn_lost(self, name: str, value: str) -> None:
        flag = _known(name)
        self._warn(name, f"{value}: has no equivalent: {flag.note}", flag.severity)

    def _note_release(self) -> None:
        if self._line.version is None:
            release = ".".join(map(str, CURRENT))
            message = f"has no known version: the defaults of {release} are assumed"
            self.warnings.append(Difference("image", message, MEDIUM))

    def _note_unconverted(self) -> None:
        """Report the flags that are lost, unnecessary or deprecated, and defaults that trimtab cannot keep."""
        unnecessary = []
        for name, values in self._line.values.items():
            flag = _known(name)
            if name in DEPRECATED:
                instead = DEPRECATED[name]
                self._warn(name, "is deprecated upstream" + (f"; it is now --{instead}" if instead else ""), LOW)
            if name == "cloud-provider":
                self._note_provider(self._value(name))
            elif flag.fate == "lost" and not _is_default(flag, values):
                self._warn_lost(name, ", ".join(values))
            elif flag.fate == "unnecessary" and name not in _QUIET and not _is_default(flag, values):
                unnecessary.append(f"--{name}")
        if unnecessary:
            message = f"{', '.join(unnecessary)}: not converted; trimtab needs no such settings, or has its own"
            self.warnings.append(Difference("arguments", message, LOW))
        if not self._given("max-drain-parallelism") and self._bool("scale-down-enabled"):
            self._warn_lost("max-drain-parallelism", "1 by default")
        if (
            self._version >= (1, 33)
            and self._bool("scale-down-enabled")
            and not self._given("blocking-system-pod-distruption-timeout")
            and _BOOLEANS[self._value("skip-nodes-with-system-pods")]
        ):
            self._warn_lost("blocking-system-pod-distruption-timeout", "1h by default")

    def _note_provider(self, provider: str) -> None:
        name = "cloud-provider"
        if provider == "externalgrpc":
            self._warn(name, "externalgrpc: set the chart value cloudProvider.grpc.address", HIGH)
        elif provider == "kwok":
            self._warn(name, "kwok: set the chart value cloudProvider.kwok.enabled", HIGH)
        elif provider not in SUPPORTED_PROVIDERS:
            note = FLAGS[name].note
            message = f"{provider}: has no equivalent: {note}; it does not resize groups of {provider} itself"
            self._warn(name, message, HIGH)


def _known(name: str) -> Flag:
    return FLAGS.get(name) or REMOVED[name]


def _is_default(flag: Flag, values: tuple[str, ...]) -> bool:
    """Return whether the value of a flag is its default."""
    value = values[-1]
    if flag.type in ("list", "repeated"):
        return False
    if flag.type == "bool":
        return _BOOLEANS[value] == _BOOLEANS[flag.default]
    if flag.type == "duration":
        return _seconds(value) == _seconds(flag.default)
    if flag.type in ("int", "float"):
        return Decimal(value) == Decimal(flag.default)
    return value == flag.default


def _range(text: str, field: str) -> dict[str, int]:
    low, _, high = text.partition(":")
    if not (low.isdecimal() and high.isdecimal()):
        raise InputError(f"must have the form MIN:MAX; not {text!r}", field=field)
    if int(low) > int(high):
        raise InputError(f"must not have a minimum above the maximum; not {text!r}", field=field)
    return {"min": int(low), "max": int(high)}


def _unsigned(text: str) -> str:
    return "0s" if text.lstrip("+-") == "0" else text.removeprefix("+")


def _seconds(text: str) -> Fraction:
    return go_duration_seconds(_unsigned(text))


def _bounded_seconds(text: str) -> float:
    """Return the seconds of a duration that a field of the ClusterAutoscaler allows."""
    return parse_go_duration(_unsigned(text))


def _check_bool(text: str) -> None:
    if text not in _BOOLEANS:
        raise ValueError("must be true or false")


def _check_number(text: str) -> None:
    try:
        if not Decimal(text).is_finite():
            raise ValueError("must be a number")
    except InvalidOperation:
        raise ValueError("must be a number") from None


def _check_int(text: str) -> None:
    if not re.fullmatch(r"[+-]?[0-9]+", text):
        raise ValueError("must be a whole number")


_CHECKS: Final[Mapping[str, Callable[[str], object]]] = {
    "bool": _check_bool,
    "duration": _seconds,
    "float": _check_number,
    "int": _check_int,
}
