"""Unwraps packages: finds the values of Helm charts in the objects that install them.

These are values files, Flux HelmReleases, Argo CD Applications and ApplicationSets, HelmCharts of K3s, Releases of
Crossplane, ``helmCharts`` of a Kustomization, releases of a Helmfile, and Fleet's ``fleet.yaml``. The converters of
descheduler and cluster-autoscaler read their chart's values from the result. Nothing is rendered or downloaded: what is
elsewhere (``valuesFrom``, ``valueFiles``) is named in :attr:`ChartValues.unread`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from msgspec import Struct

from trimtab.kube.errors import InputError


class Unread(Struct, frozen=True):
    """A part of a package that is not read.

    Attributes:
        field: its path in the document.
        reason: what it refers to.
    """

    field: str
    reason: str


class ChartValues(Struct, frozen=True, kw_only=True):
    """The values with which a package installs a Helm chart.

    Attributes:
        chart: name of the chart without its repository; ``""`` for a values file, which does not name it.
        version: version of the chart as the package gives it; ``""`` if it gives none.
        release: name of the release.
        namespace: the namespace of the release.
        values: the values as plain data, without the chart's defaults. ``null`` removes a default.
        field: path of the values in the document, for messages; ``""`` for a values file.
        unread: the parts of the package that also define values and are not read.
        fault: why the values cannot be read, or ``None`` if they can. :meth:`of` raises it for the chart in question.
    """

    values: Mapping[str, Any]
    chart: str = ""
    version: str = ""
    release: str = ""
    namespace: str = ""
    field: str = ""
    unread: tuple[Unread, ...] = ()
    fault: InputError | None = None

    def of(self, chart: str, recognize: Callable[[Mapping[str, Any]], bool]) -> ChartValues | None:
        """Return the values for a chart, or ``None`` if the package does not install that chart.

        The chart may be a dependency of the installed one (an umbrella chart). Its values are then under its name.

        Args:
            chart: name of the chart.
            recognize: whether values are those of the chart, for values without the name of a chart.

        Raises:
            InputError: the values are not YAML, or not a mapping.
        """
        if self.fault is not None and self.chart in (chart, f"{chart}-helm-chart"):
            raise self.fault
        if self.chart in (chart, f"{chart}-helm-chart"):
            inner = self.values.get(chart)
            if not isinstance(inner, Mapping) or recognize(self.values):
                return self
        elif recognize(self.values):
            return self
        inner = self.values.get(chart)
        if isinstance(inner, Mapping) and (self.chart == chart or recognize(inner)):
            # The version is the umbrella chart's own, unless that chart is named after its dependency.
            return ChartValues(
                values=inner,
                chart=chart,
                release=self.release,
                namespace=self.namespace,
                field=f"{self.field}.{chart}" if self.field else chart,
                unread=self.unread,
            )
        return None


def unwrap(manifest: Mapping[str, Any]) -> tuple[ChartValues, ...]:
    """Return the values of each chart that an object installs.

    Args:
        manifest: the object. An object without apiVersion may be a values file, and is returned as one.

    Returns:
        the values; empty if the object installs no chart.
    """
    group, kind = str(manifest.get("apiVersion", "")).partition("/")[0], manifest.get("kind")
    read = _PACKAGES.get((group, str(kind)))
    if read is not None:
        return tuple(read(manifest))
    if "apiVersion" in manifest:
        return ()
    for key, of_key in _UNTYPED.items():
        if key in manifest:
            found = tuple(of_key(manifest))
            if found:
                return found
    return (ChartValues(values=manifest),)


def merge_values(defaults: Mapping[str, Any], values: Mapping[str, Any], *, keep_null: bool = False) -> dict[str, Any]:
    """Merge values into defaults as Helm does: mappings are merged, lists are replaced, ``null`` removes a default.

    With ``keep_null``, a null is kept, to remove a default of the chart later.
    """
    merged = dict(defaults)
    for key, value in values.items():
        old = merged.get(key)
        if value is None and not keep_null:
            merged.pop(key, None)
        elif isinstance(value, Mapping) and isinstance(old, Mapping):
            merged[key] = merge_values(old, value, keep_null=keep_null)
        else:
            merged[key] = value
    return merged


def parse_values(text: Any, field: str) -> dict[str, Any]:
    """Return values that a package contains as a mapping or as a string.

    Raises:
        InputError: the string is not YAML, or not a mapping.
    """
    from trimtab.kube.wire.files.strict_yaml import load_all

    if isinstance(text, Mapping):
        return dict(text)
    if text is None:
        return {}
    if not isinstance(text, str):
        raise InputError("must be a mapping, or a string with YAML", field=field)
    try:
        found = [each for each in load_all(text.encode()) if each is not None]
    except InputError as error:
        raise InputError(error.message, field=field) from None
    if len(found) > 1 or (found and not isinstance(found[0], dict)):
        raise InputError("must be one mapping", field=field)
    return found[0] if found else {}


class _Collector:
    """Collects the values of one chart, and the first error in them."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self.fault: InputError | None = None

    def merge(self, values: Any, field: str) -> None:
        try:
            self.values = merge_values(self.values, parse_values(values, field), keep_null=True)
        except InputError as error:
            self.fault = self.fault or error

    def set(self, name: Any, value: Any, field: str) -> None:
        try:
            set_parameter(self.values, _text(name), value)
        except InputError as error:
            self.fault = self.fault or InputError(error.message, field=f"{field}[{name}]")


_INDEX: Final = re.compile(r"^([^\[\]]*)((?:\[[0-9]+\])+)$")
_MAX_INDEX: Final = 1000


def set_parameter(values: dict[str, Any], name: str, value: Any) -> None:
    """Set one value by its path, such as ``image.tag`` or ``list[0].name``, as Helm's ``--set`` does."""
    where: Any = values
    keys: list[str | int] = []
    for part in re.split(r"(?<!\\)\.", name):
        found = _INDEX.match(part)
        keys.append((found[1] if found else part).replace("\\.", "."))
        keys += [int(index) for index in re.findall(r"[0-9]+", found[2])] if found else ()
    for key, following in zip(keys, [*keys[1:], None], strict=True):
        if isinstance(key, int):
            if key > _MAX_INDEX:
                raise InputError(f"the index {key} is above {_MAX_INDEX}")
            where += [None] * (key + 1 - len(where))
        if following is None:
            where[key] = value
            return
        old = where[key] if isinstance(key, int) else where.get(key)
        if isinstance(following, int):
            where[key] = list(old) if isinstance(old, list) else []
        else:
            where[key] = dict(old) if isinstance(old, dict) else {}
        where = where[key]


def typed_parameter(text: Any) -> Any:
    """Return the value of a parameter as Helm's ``--set`` reads it: true, false, null and whole numbers have types."""
    if not isinstance(text, str):
        return text
    words = {"true": True, "false": False, "null": None}
    if text in words:
        return words[text]
    if text.startswith("{") and text.endswith("}"):
        return [typed_parameter(part.strip()) for part in text[1:-1].split(",") if part.strip()]
    return int(text) if re.fullmatch(r"0|-?[1-9][0-9]*", text) else text


def _section(value: Any, *path: str) -> Mapping[str, Any]:
    """Return a nested mapping; empty if it or one of its parents is missing or of another type."""
    for key in path:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value if isinstance(value, Mapping) else {}


def _items(value: Any) -> list[Mapping[str, Any]]:
    return [each for each in value if isinstance(each, Mapping)] if isinstance(value, list) else []


def _text(value: Any) -> str:
    return "" if value is None or isinstance(value, Mapping | list) else str(value)


def _chart_name(value: Any) -> str:
    """Return the last part of a chart's name, path or address, without a tag."""
    return _text(value).rstrip("/").rpartition("/")[2].partition(":")[0]


def _names(value: Any) -> str:
    """Describe the objects or files that a list refers to."""
    described = []
    for each in value if isinstance(value, list) else ():
        if isinstance(each, Mapping):
            inner = next((each[key] for key in each if isinstance(each[key], Mapping)), None)
            shown = each if inner is None else {"kind": next(key for key in each if each[key] is inner), **inner}
            described.append(f"{shown.get('kind', '')} {shown.get('name', '')}".strip())
        else:
            described.append(str(each))
    return ", ".join(each for each in described if each)


def _unread(section: Mapping[str, Any], *fields: tuple[str, str]) -> tuple[Unread, ...]:
    return tuple(
        Unread(path, f"{_names(section[key]) or 'its values'}: not read; merge these values into the document")
        for key, path in fields
        if section.get(key)
    )


def _metadata(manifest: Mapping[str, Any], key: str) -> str:
    return _text(_section(manifest, "metadata").get(key))


def _helm_release(manifest: Mapping[str, Any]) -> Iterator[ChartValues]:
    """Read a HelmRelease of Flux or of the older helm-operator, whose ``spec.chart`` has ``name`` and ``version``."""
    spec = _section(manifest, "spec")
    chart = _section(spec, "chart", "spec") or _section(spec, "chart")
    name = chart.get("chart") or chart.get("name") or chart.get("path")
    if not name:  # chartRef names an object with the chart
        name = _section(spec, "chartRef").get("name") or spec.get("releaseName") or _metadata(manifest, "name")
    found = _Collector()
    found.merge(spec.get("values"), "spec.values")
    yield ChartValues(
        chart=_chart_name(name),
        version=_text(chart.get("version") or chart.get("ref")),
        release=_text(spec.get("releaseName")) or _metadata(manifest, "name"),
        namespace=_text(spec.get("targetNamespace")) or _metadata(manifest, "namespace"),
        values=found.values,
        fault=found.fault,
        field="spec.values",
        unread=(
            *_unread(spec, ("valuesFrom", "spec.valuesFrom"), ("valueFileSecrets", "spec.valueFileSecrets")),
            *_unread(
                chart, ("valuesFiles", "spec.chart.spec.valuesFiles"), ("valuesFile", "spec.chart.spec.valuesFile")
            ),
        ),
    )


def _application(manifest: Mapping[str, Any]) -> Iterator[ChartValues]:
    yield from _sources(manifest, _section(manifest, "spec"), "spec")


def _application_set(manifest: Mapping[str, Any]) -> Iterator[ChartValues]:
    template = _section(manifest, "spec", "template")
    yield from _sources(manifest, _section(template, "spec"), "spec.template.spec")


def _sources(manifest: Mapping[str, Any], spec: Mapping[str, Any], place: str) -> Iterator[ChartValues]:
    sources = [(f"{place}.source", spec["source"])] if isinstance(spec.get("source"), Mapping) else []
    sources += [(f"{place}.sources[{index}]", each) for index, each in enumerate(_items(spec.get("sources")))]
    for field, source in sources:
        if source.get("chart") or _section(source, "helm"):  # another path may contain anything
            yield _source(manifest, spec, source, field)


def _source(manifest: Mapping[str, Any], spec: Mapping[str, Any], source: Mapping[str, Any], place: str) -> ChartValues:
    """Read a source of an Application: its parameters override valuesObject, which replaces values."""
    helm = _section(source, "helm")
    key = "valuesObject" if helm.get("valuesObject") else "values"
    found = _Collector()
    found.merge(helm.get(key), f"{place}.helm.{key}")
    for each in _items(helm.get("parameters")):
        value = each.get("value")
        typed = value if each.get("forceString") else typed_parameter(value)
        found.set(each.get("name"), typed, f"{place}.helm.parameters")
    return ChartValues(
        chart=_chart_name(source.get("chart") or source.get("path")),
        version=_text(source.get("targetRevision")) if source.get("chart") else "",
        release=_text(helm.get("releaseName")) or _metadata(manifest, "name"),
        namespace=_text(_section(spec, "destination").get("namespace")),
        values=found.values,
        fault=found.fault,
        field=f"{place}.helm.{key}",
        unread=_unread(
            helm, ("valueFiles", f"{place}.helm.valueFiles"), ("fileParameters", f"{place}.helm.fileParameters")
        ),
    )


def _k3s_chart(manifest: Mapping[str, Any]) -> Iterator[ChartValues]:
    """Read a HelmChart or HelmChartConfig of K3s."""
    spec = _section(manifest, "spec")
    found = _Collector()
    found.merge(spec.get("valuesContent") or spec.get("values"), "spec.valuesContent")
    for name, value in _section(spec, "set").items():
        found.set(name, typed_parameter(value), "spec.set")
    yield ChartValues(
        chart=_chart_name(spec.get("chart") or _metadata(manifest, "name")),
        version=_text(spec.get("version")),
        release=_metadata(manifest, "name"),
        namespace=_text(spec.get("targetNamespace")) or _metadata(manifest, "namespace"),
        values=found.values,
        fault=found.fault,
        field="spec.valuesContent",
        unread=_unread(spec, ("valuesSecrets", "spec.valuesSecrets")),
    )


def _crossplane_release(manifest: Mapping[str, Any]) -> Iterator[ChartValues]:
    parameters = _section(manifest, "spec", "forProvider")
    found = _Collector()
    found.merge(parameters.get("values"), "spec.forProvider.values")
    for each in _items(parameters.get("set")):
        found.set(each.get("name"), typed_parameter(each.get("value")), "spec.forProvider.set")
    chart = _section(parameters, "chart")
    yield ChartValues(
        chart=_chart_name(chart.get("name") or chart.get("url")),
        version=_text(chart.get("version")),
        release=_metadata(manifest, "name"),
        namespace=_text(parameters.get("namespace")),
        values=found.values,
        fault=found.fault,
        field="spec.forProvider.values",
        unread=_unread(parameters, ("valuesFrom", "spec.forProvider.valuesFrom")),
    )


def _kustomization(manifest: Mapping[str, Any]) -> Iterator[ChartValues]:
    """Read the charts that Kustomize inflates."""
    for index, each in enumerate(_items(manifest.get("helmCharts"))):
        yield _inflated(each, f"helmCharts[{index}].")


def _inflator(manifest: Mapping[str, Any]) -> Iterator[ChartValues]:
    yield _inflated(manifest, "")


def _inflated(chart: Mapping[str, Any], place: str) -> ChartValues:
    found = _Collector()
    found.merge(chart.get("valuesInline"), f"{place}valuesInline")
    return ChartValues(
        chart=_chart_name(chart.get("name") or chart.get("chartName")),
        version=_text(chart.get("version") or chart.get("chartVersion")),
        release=_text(chart.get("releaseName")),
        namespace=_text(chart.get("namespace")),
        values=found.values,
        fault=found.fault,
        field=f"{place}valuesInline",
        unread=_unread_files(chart, place, "valuesFile", "additionalValuesFiles"),
    )


def _unread_files(section: Mapping[str, Any], place: str, *keys: str) -> tuple[Unread, ...]:
    listed = {key: value if isinstance(value, list) else [value] for key, value in section.items() if value}
    return _unread(listed, *((key, f"{place}{key}") for key in keys))


def _helmfile(manifest: Mapping[str, Any]) -> Iterator[ChartValues]:
    for index, each in enumerate(_items(manifest.get("releases"))):
        if not each.get("chart"):
            continue
        place = f"releases[{index}].values"
        found = _Collector()
        files = []
        for number, part in enumerate(each["values"] if isinstance(each.get("values"), list) else ()):
            if isinstance(part, Mapping):
                found.merge(part, f"{place}[{number}]")
            else:
                files.append(part)
        for parameter in _items(each.get("set")):
            found.set(parameter.get("name"), typed_parameter(parameter.get("value")), f"releases[{index}].set")
        yield ChartValues(
            chart=_chart_name(each["chart"]),
            version=_text(each.get("version")),
            release=_text(each.get("name")),
            namespace=_text(each.get("namespace")),
            values=found.values,
            fault=found.fault,
            field=place,
            unread=_unread({"values": files}, ("values", place)),
        )


def _fleet(manifest: Mapping[str, Any]) -> Iterator[ChartValues]:
    """Read the section ``helm`` of Fleet's ``fleet.yaml``."""
    helm = _section(manifest, "helm")
    if helm.get("chart"):
        found = _Collector()
        found.merge(helm.get("values"), "helm.values")
        yield ChartValues(
            chart=_chart_name(helm["chart"]),
            version=_text(helm.get("version")),
            release=_text(helm.get("releaseName")),
            namespace=_text(manifest.get("defaultNamespace") or manifest.get("namespace")),
            values=found.values,
            fault=found.fault,
            field="helm.values",
            unread=_unread(helm, ("valuesFiles", "helm.valuesFiles"), ("valuesFrom", "helm.valuesFrom")),
        )


_Reader = Callable[[Mapping[str, Any]], Iterator[ChartValues]]

_PACKAGES: Final[Mapping[tuple[str, str], _Reader]] = {
    ("helm.toolkit.fluxcd.io", "HelmRelease"): _helm_release,
    ("helm.fluxcd.io", "HelmRelease"): _helm_release,
    ("flux.weave.works", "HelmRelease"): _helm_release,
    ("argoproj.io", "Application"): _application,
    ("argoproj.io", "ApplicationSet"): _application_set,
    ("helm.cattle.io", "HelmChart"): _k3s_chart,
    ("helm.cattle.io", "HelmChartConfig"): _k3s_chart,
    ("helm.crossplane.io", "Release"): _crossplane_release,
    ("kustomize.config.k8s.io", "Kustomization"): _kustomization,
    ("builtin", "HelmChartInflationGenerator"): _inflator,
}
"""Maps API group and kind of a package to the function that reads it."""

_UNTYPED: Final[Mapping[str, _Reader]] = {"helmCharts": _kustomization, "releases": _helmfile, "helm": _fleet}
"""Maps a key of files without apiVersion to the function that reads them."""
