"""Reads the values of cluster-autoscaler's Helm chart: the arguments that its Deployment template makes of them.

    cloudProvider: clusterapi
    autoDiscovery: {clusterName: prod, namespace: fleet}
    extraArgs: {expander: priority, scale-down-unneeded-time: 5m}
    expanderPriorities: {10: [".*spot.*"]}

The template is that of chart 9.59.0.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from trimtab.api.differences import HIGH, LOW, MEDIUM, Difference
from trimtab.autoscaling.imports.arguments import NOT_RUNNING, CommandLine, image_version, parse_arguments
from trimtab.kube.errors import InputError
from trimtab.kube.wire.files.packages import ChartValues, merge_values

CHART: Final = "cluster-autoscaler"

_KEYS: Final = frozenset(
    {
        "autoDiscovery",
        "autoscalingGroups",
        "autoscalingGroupsnamePrefix",
        "clusterAPIMode",
        "expanderPriorities",
        "magnumClusterName",
    }
)
"""Values that only this chart has."""

DEFAULTS: Final[Mapping[str, Any]] = {
    "autoDiscovery": {
        "clusterName": None,
        "namespace": None,
        "tags": [
            "k8s.io/cluster-autoscaler/enabled",
            "k8s.io/cluster-autoscaler/{{ .Values.autoDiscovery.clusterName }}",
        ],
        "roles": ["worker"],
        "labels": [],
    },
    "autoscalingGroups": [],
    "autoscalingGroupsnamePrefix": [],
    "cloudConfigPath": "",
    "cloudProvider": "aws",
    "clusterAPIMode": "incluster-incluster",
    "customArgs": [],
    "expanderPriorities": {},
    "extraArgs": {"logtostderr": True, "stderrthreshold": "info", "v": 4},
    "magnumClusterName": "",
}
"""The chart's defaults of the values that arguments depend on."""

_RELEASES: Final = (
    ((9, 55, 1), (1, 35)),
    ((9, 52, 0), (1, 34)),
    ((9, 47, 0), (1, 33)),
    ((9, 45, 0), (1, 32)),
    ((9, 38, 0), (1, 31)),
    ((9, 37, 0), (1, 30)),
    ((9, 35, 0), (1, 29)),
    ((9, 34, 0), (1, 28)),
    ((9, 29, 0), (1, 27)),
    ((9, 28, 0), (1, 26)),
    ((9, 25, 0), (1, 24)),
    ((9, 14, 0), (1, 23)),
    ((9, 10, 0), (1, 21)),
    ((0, 0, 0), (1, 20)),
)
"""The release that a version of the chart installs by default: the first version of the chart, and the release."""

_TEMPLATE: Final = re.compile(r"\{\{-?\s*\.Values\.autoDiscovery\.clusterName\s*-?\}\}")
_KEY: Final = re.compile(r"^[^_]+")


def recognize(values: Mapping[str, Any]) -> bool:
    """Return whether values are those of the chart."""
    return not _KEYS.isdisjoint(values) or {"cloudProvider", "extraArgs"} <= values.keys()


def command_line(chart: ChartValues) -> CommandLine:
    """Return the command line that the chart's Deployment would have.

    Raises:
        InputError: a value has the wrong type.
    """
    values = _merged(chart)
    notes = [Difference(each.field, each.reason, HIGH) for each in chart.unread]
    notes += _unconverted(chart)
    arguments = [*_provider(values), *_groups(values), *_discovery(values), *_extra(values)]
    image = values.get("image")
    tag = image.get("tag") if isinstance(image, Mapping) else None
    version = image_version(f"{CHART}:{tag}") if tag else _default_release(chart.version)
    return parse_arguments(arguments, version=version, namespace=chart.namespace, notes=notes)


def priorities(chart: ChartValues) -> str | None:
    """Return ``data.priorities`` of the ConfigMap that the chart creates for the expander priority, if it does."""
    values = _merged(chart)
    found, arguments = values["expanderPriorities"], values["extraArgs"]
    expander = str(arguments.get("expander", "")) if isinstance(arguments, Mapping) else ""
    if not found or "priority" not in expander.split(","):
        return None
    if isinstance(found, str):
        return found
    if not isinstance(found, Mapping):
        raise InputError("must be a mapping from priority to regular expressions, or a string", field=_PRIORITIES)
    lines = []
    for key, patterns in found.items():
        if not isinstance(patterns, list):
            raise InputError("must be a list of regular expressions", field=f"{_PRIORITIES}.{key}")
        lines.append(f"{key}:")
        lines += [f"  - '{str(each).replace(chr(39), chr(39) * 2)}'" for each in patterns]
    return "\n".join(lines) + "\n"


_PRIORITIES: Final = "expanderPriorities"

_SILENT: Final = frozenset(
    {*DEFAULTS, "image", "nameOverride", "fullnameOverride", "enabled", "global", "replicaCount"}
)
"""Values that are converted, or that have no effect on cluster-autoscaler."""


def _unconverted(chart: ChartValues) -> Iterator[Difference]:
    """Yield the values that configure how cluster-autoscaler runs, and not what it does."""
    if chart.values.get("replicaCount") == 0:
        yield Difference("replicaCount", NOT_RUNNING, MEDIUM)
    unused = [str(key) for key in chart.values if key not in _SILENT]
    if unused:
        message = "not converted; the values of trimtab's chart configure its own process"
        yield Difference(", ".join(unused), message, LOW)


def _merged(chart: ChartValues) -> dict[str, Any]:
    """Return the values with the chart's defaults. A null in extraArgs is a flag without a value."""
    values = merge_values(DEFAULTS, {key: value for key, value in chart.values.items() if value is not None})
    given = chart.values.get("extraArgs")
    if isinstance(given, Mapping) and isinstance(values["extraArgs"], dict):
        defaults = DEFAULTS["extraArgs"]
        values["extraArgs"] |= {key: None for key, value in given.items() if value is None and key not in defaults}
    return values


def _default_release(version: str) -> tuple[int, int] | None:
    found = re.fullmatch(r"v?([0-9]+)\.([0-9]+)\.([0-9]+).*", version)
    if not found:
        return _RELEASES[0][1] if not version else None
    wanted = (int(found[1]), int(found[2]), int(found[3]))
    return next(release for first, release in _RELEASES if wanted >= first)


def _provider(values: Mapping[str, Any]) -> Iterator[str]:
    provider, mode = str(values["cloudProvider"]), values["clusterAPIMode"]
    yield f"--cloud-provider={provider}"
    if provider in ("rancher", "vultr", "aws", "magnum") and values["cloudConfigPath"]:
        yield f"--cloud-config={values['cloudConfigPath']}"
    if provider == "clusterapi" and mode in ("incluster-kubeconfig", "kubeconfig-kubeconfig"):
        yield "--cloud-config=/etc/kubernetes/mgmt-kubeconfig"
    if provider == "clusterapi" and mode == "kubeconfig-incluster":
        yield "--clusterapi-cloud-config-authoritative"


def _groups(values: Mapping[str, Any]) -> Iterator[str]:
    for index, group in enumerate(_list(values, "autoscalingGroups")):
        field = f"autoscalingGroups[{index}]"
        if not isinstance(group, Mapping):
            raise InputError("must be a mapping with name, minSize and maxSize", field=field)
        for key in ("name", "minSize", "maxSize"):
            if group.get(key) is None:
                raise InputError("is required", field=f"{field}.{key}")
        sizes = f"{_number(group['minSize'])}:{_number(group['maxSize'])}"
        kind = f"{group.get('instanceType')}:{group.get('region')}:" if values["cloudProvider"] == "hetzner" else ""
        yield f"--nodes={sizes}:{kind}{group['name']}"


def _discovery(values: Mapping[str, Any]) -> Iterator[str]:
    provider, found = values["cloudProvider"], values["autoDiscovery"]
    if not isinstance(found, Mapping):
        raise InputError("must be a mapping", field="autoDiscovery")
    name = str(found.get("clusterName") or "")
    if provider == "aws" and name:
        yield f"--node-group-auto-discovery=asg:tag={','.join(_expanded(each, name) for each in _list(found, 'tags'))}"
    elif provider == "gce":
        for each in _list(values, "autoscalingGroupsnamePrefix"):
            sizes = f"min={_number(each.get('minSize'))},max={_number(each.get('maxSize'))}"
            yield f"--node-group-auto-discovery=mig:namePrefix={each.get('name')},{sizes}"
    elif provider == "azure" and name:
        yield f"--node-group-auto-discovery=label:cluster-autoscaler-enabled=true,cluster-autoscaler-name={name}"
    elif provider == "magnum":
        yield f"--cluster-name={name or values['magnumClusterName']}"
        if name:
            yield f"--node-group-auto-discovery=magnum:role={','.join(map(str, _list(found, 'roles')))}"
    elif provider == "clusterapi":
        parts = [f"clusterName={name}"] if name else []
        parts += [f"namespace={found['namespace']}"] if found.get("namespace") else []
        labels = [each for each in _list(found, "labels") if isinstance(each, Mapping)]
        parts += [f"{key}={value}" for each in labels for key, value in each.items()]
        if parts:
            yield f"--node-group-auto-discovery=clusterapi:{','.join(parts)}"


def _extra(values: Mapping[str, Any]) -> Iterator[str]:
    """Yield the arguments of extraArgs, sorted as the template does, and customArgs.

    A key may have a suffix after an underscore, so that a flag can be given several times.
    """
    extra = values["extraArgs"]
    if not isinstance(extra, Mapping):
        raise InputError("must be a mapping from flag to value", field="extraArgs")
    for key, value in sorted(extra.items(), key=lambda item: str(item[0])):
        name = _KEY.match(str(key))
        if name is None:
            raise InputError("must begin with the name of a flag", field=f"extraArgs.{key}")
        yield f"--{name[0]}" if value is None else f"--{name[0]}={_text(value)}"
    for each in _list(values, "customArgs"):
        yield str(each)


def _expanded(text: object, cluster: str) -> str:
    return _TEMPLATE.sub(cluster, str(text))


def _list(values: Mapping[str, Any], key: str) -> list[Any]:
    found = values.get(key) or []
    if not isinstance(found, list):
        raise InputError("must be a list", field=key)
    return found


def _number(value: object) -> object:
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return str(_number(value))
