"""Values of Helm charts in the packages that install them."""

from __future__ import annotations

from collections.abc import Mapping
from textwrap import dedent
from typing import Any

import msgspec
import pytest

from trimtab.kube.errors import InputError
from trimtab.kube.wire.files.packages import ChartValues, merge_values, set_parameter, typed_parameter, unwrap

PACKAGES = {
    "HelmRelease of Flux": """
        apiVersion: helm.toolkit.fluxcd.io/v2
        kind: HelmRelease
        metadata: {name: first, namespace: system}
        spec: {chart: {spec: {chart: web, version: 1.2.x}}, values: {size: 3}}
    """,
    "HelmRelease of helm-operator": """
        apiVersion: helm.fluxcd.io/v1
        kind: HelmRelease
        metadata: {name: first, namespace: system}
        spec: {chart: {repository: "https://example.com", name: web, version: 1.2.x}, values: {size: 3}}
    """,
    "Application with values": """
        apiVersion: argoproj.io/v1alpha1
        kind: Application
        metadata: {name: first, namespace: argocd}
        spec:
          destination: {namespace: system}
          source: {chart: web, targetRevision: 1.2.x, helm: {values: "size: 3"}}
    """,
    "Application with valuesObject and parameters": """
        apiVersion: argoproj.io/v1alpha1
        kind: Application
        metadata: {name: first, namespace: argocd}
        spec:
          destination: {namespace: system}
          sources:
          - {repoURL: "https://example.com", ref: values}
          - chart: web
            targetRevision: 1.2.x
            helm: {values: "size: 1", valuesObject: {size: 2}, parameters: [{name: size, value: "3"}]}
    """,
    "ApplicationSet": """
        apiVersion: argoproj.io/v1alpha1
        kind: ApplicationSet
        metadata: {name: set}
        spec:
          template:
            spec:
              destination: {namespace: system}
              source: {chart: web, targetRevision: 1.2.x, helm: {releaseName: first, valuesObject: {size: 3}}}
    """,
    "HelmChart of K3s": """
        apiVersion: helm.cattle.io/v1
        kind: HelmChart
        metadata: {name: first, namespace: kube-system}
        spec: {chart: example/web, version: 1.2.x, targetNamespace: system, valuesContent: "size: 1", set: {size: 3}}
    """,
    "Release of Crossplane": """
        apiVersion: helm.crossplane.io/v1beta1
        kind: Release
        metadata: {name: first}
        spec: {forProvider: {namespace: system, chart: {name: web, version: 1.2.x}, values: {size: 3}}}
    """,
    "Release of Crossplane with parameters": """
        apiVersion: helm.crossplane.io/v1beta1
        kind: Release
        metadata: {name: first}
        spec: {forProvider: {namespace: system, chart: {name: web, version: 1.2.x}, set: [{name: size, value: "3"}]}}
    """,
    "HelmChartInflationGenerator of Kustomize": """
        apiVersion: builtin
        kind: HelmChartInflationGenerator
        metadata: {name: any}
        chartName: web
        chartVersion: 1.2.x
        releaseName: first
        namespace: system
        valuesInline: {size: 3}
    """,
    "Kustomization": """
        helmCharts:
        - {name: web, version: 1.2.x, releaseName: first, namespace: system, valuesInline: {size: 3}}
    """,
    "Helmfile": """
        releases:
        - {name: first, namespace: system, chart: example/web, version: 1.2.x, values: [{size: 1}, {size: 3}]}
    """,
    "Helmfile with parameters": """
        releases:
        - {name: base}
        - {name: first, namespace: system, chart: example/web, version: 1.2.x, set: [{name: size, value: 3}]}
    """,
    "fleet.yaml": """
        defaultNamespace: system
        helm: {releaseName: first, chart: "oci://example.com/web", version: 1.2.x, values: {size: 3}}
    """,
}


def manifest(text: str) -> dict[str, Any]:
    found = msgspec.yaml.decode(dedent(text))
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize("text", PACKAGES.values(), ids=PACKAGES)
def test_package_names_chart_version_release_namespace_and_values(text: str) -> None:
    (chart,) = unwrap(manifest(text))

    assert (chart.chart, chart.version, chart.release, chart.namespace) == ("web", "1.2.x", "first", "system")
    assert (chart.values, chart.unread, chart.fault) == ({"size": 3}, (), None)


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        pytest.param(
            """
            apiVersion: helm.toolkit.fluxcd.io/v2
            kind: HelmRelease
            metadata: {name: web}
            spec: {chart: {spec: {chart: web}}, valuesFrom: [{kind: ConfigMap, name: shared}]}
            """,
            {"spec.valuesFrom": "ConfigMap shared"},
            id="HelmRelease",
        ),
        pytest.param(
            """
            apiVersion: argoproj.io/v1alpha1
            kind: Application
            metadata: {name: web}
            spec: {source: {chart: web, helm: {valueFiles: [prod.yaml]}}}
            """,
            {"spec.source.helm.valueFiles": "prod.yaml"},
            id="Application",
        ),
        pytest.param(
            "{helmCharts: [{name: web, valuesFile: prod.yaml}]}",
            {"helmCharts[0].valuesFile": "prod.yaml"},
            id="Kustomization",
        ),
        pytest.param(
            "{releases: [{name: web, chart: web, values: [prod.yaml, {a: 1}]}]}",
            {"releases[0].values": "prod.yaml"},
            id="Helmfile",
        ),
    ],
)
def test_values_that_are_elsewhere_are_named(text: str, fields: dict[str, str]) -> None:
    (chart,) = unwrap(manifest(text))
    assert {each.field: each.reason.partition(":")[0] for each in chart.unread} == fields


def recognize(values: Mapping[str, Any]) -> bool:
    return "size" in values


@pytest.mark.parametrize(
    ("chart", "found"),
    [
        pytest.param(ChartValues(values={"size": 3}), "", id="values file"),
        pytest.param(ChartValues(values={}, chart="web", field="spec.values"), "spec.values", id="no values"),
        pytest.param(ChartValues(values={"size": 3}, chart="renamed"), "", id="chart of another name"),
        pytest.param(ChartValues(values={"web": {"size": 3}, "size2": 1}), "web", id="umbrella values file"),
        pytest.param(
            ChartValues(values={"web": {}}, chart="web", field="spec.values"), "spec.values.web", id="umbrella chart"
        ),
    ],
)
def test_values_of_a_chart_are_found(chart: ChartValues, found: str) -> None:
    values = chart.of("web", recognize)
    assert values is not None
    assert values.field == found


@pytest.mark.parametrize("chart", [ChartValues(values={"other": 1}), ChartValues(values={"web": {"other": 1}})])
def test_values_of_other_charts_are_not_taken(chart: ChartValues) -> None:
    assert chart.of("web", recognize) is None


@pytest.mark.parametrize("text", ["[1]", "a: [", "a: 1\na: 2"])
def test_invalid_values_are_an_error_of_their_chart_only(text: str) -> None:
    package = manifest(PACKAGES["Application with values"])
    package["spec"]["source"]["helm"]["values"] = text
    (chart,) = unwrap(package)

    assert chart.of("other", recognize) is None
    with pytest.raises(InputError) as caught:
        chart.of("web", recognize)
    assert caught.value.field == "spec.source.helm.values"


@pytest.mark.parametrize("values", ["[1]", 3, [1]])
@pytest.mark.parametrize("name", ["a[99999999]"])
def test_first_of_several_invalid_values_is_reported(values: Any, name: str) -> None:
    package = manifest(PACKAGES["Release of Crossplane with parameters"])
    package["spec"]["forProvider"]["set"][0]["name"] = name
    with pytest.raises(InputError) as caught:
        unwrap(package)[0].of("web", recognize)
    assert caught.value.field == f"spec.forProvider.set[{name}]"
    package["spec"]["forProvider"]["values"] = values
    with pytest.raises(InputError) as caught:
        unwrap(package)[0].of("web", recognize)
    assert caught.value.field == "spec.forProvider.values"


@pytest.mark.parametrize(
    "text", ["{apiVersion: v1, kind: Pod}", "{apiVersion: app.k8s.io/v1beta1, kind: Application, spec: {}}"]
)
def test_other_objects_are_no_package(text: str) -> None:
    assert unwrap(manifest(text)) == ()


def test_values_are_merged_as_helm_does() -> None:
    defaults = {"kept": 1, "removed": 2, "map": {"a": 1, "b": 2}, "list": [1, 2]}
    values = {"removed": None, "map": {"b": 3, "c": None}, "list": [3]}
    assert merge_values(defaults, values) == {"kept": 1, "map": {"a": 1, "b": 3}, "list": [3]}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("a.b", {"a": {"b": 1}}),
        ("a.b\\.c", {"a": {"b.c": 1}}),
        ("a[1].b", {"a": [None, {"b": 1}]}),
        ("a[0][1]", {"a": [[None, 1]]}),
    ],
)
def test_parameter_is_set_by_its_path(name: str, expected: Any) -> None:
    values: dict[str, Any] = {}
    set_parameter(values, name, 1)
    assert values == expected


def test_index_of_a_parameter_is_limited() -> None:
    with pytest.raises(InputError):
        set_parameter({}, "a[99999999]", 1)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("true", True), ("12", 12), ("012", "012"), ("5m", "5m"), ("null", None), ("{a,b}", ["a", "b"]), (3, 3)],
)
def test_parameters_have_types(text: object, expected: object) -> None:
    assert typed_parameter(text) == expected
