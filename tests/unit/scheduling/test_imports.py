"""Scheduler configurations of other programs, as SchedulerPolicies."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import deepcopy
from typing import Any

import pytest
import yaml

from tests.scheduler_samples import FRAGMENTS, MODIFIED, REGION_ZONE_RACK
from trimtab.kube.errors import InputError
from trimtab.scheduling.imports import read_scheduler, repair_policy_text


def imported(manifest: dict[str, Any]) -> tuple[list[dict[str, Any]], list[str]]:
    """The specs, and the fields that warnings name."""
    found = read_scheduler(manifest)
    assert found is not None
    assert [each["metadata"]["name"] for each in found.documents] == [each.name for each in found.policies]
    return [each["spec"] for each in found.documents], [each.field for each in found.warnings]


def legacy(**fields: Any) -> dict[str, Any]:
    return {"kind": "Policy", "apiVersion": "v1", **fields}


def configuration(**fields: Any) -> dict[str, Any]:
    return {"kind": "KubeSchedulerConfiguration", "apiVersion": "kubescheduler.config.k8s.io/v1", **fields}


POINT = {"utilization": 0, "score": 0}
CONSTRAINT = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}
REQUIRED = "spec.profile.addedAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms"


def argument(plugin: str, **args: Any) -> dict[str, Any]:
    """A configuration whose only profile has arguments of one plugin."""
    return {"profiles": [{"pluginConfig": [{"name": plugin, "args": args}]}]}


def spread(*constraints: dict[str, Any]) -> dict[str, Any]:
    return argument("PodTopologySpread", defaultingType="List", defaultConstraints=list(constraints))


def added(*terms: dict[str, Any]) -> dict[str, Any]:
    affinity = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}
    return argument("NodeAffinity", addedAffinity=affinity)


class TestLegacyPolicy:
    def test_becomes_the_policy_of_the_default_scheduler(self) -> None:
        rules = {"predicates": [{"name": "HostName"}], "priorities": [{"name": "EqualPriority", "weight": 3}]}
        specs, warnings = imported(legacy(**rules, hardPodAffinitySymmetricWeight=5))
        policy = {**rules, "hardPodAffinitySymmetricWeight": 5}
        assert specs == [{"schedulerName": "default-scheduler", "policy": policy}]
        assert warnings == []

    def test_version_is_read_as_api_version(self) -> None:
        manifest = {"kind": "Policy", "version": "v1", "predicates": []}
        assert imported(manifest)[1] == ["version"]

    def test_other_spellings_are_read_and_reported(self) -> None:
        predicates = [{"name": "podfitsresources"}, {"name": "checkServiceAffinity"}]
        specs, warnings = imported(legacy(predicates=predicates))
        assert [each["name"] for each in specs[0]["policy"]["predicates"]] == [
            "PodFitsResources",
            "CheckServiceAffinity",
        ]
        assert warnings == ["predicates[0].name", "predicates[1].name", "predicates[1]"]

    def test_label_in_a_list_of_one(self) -> None:
        argument = {"serviceAntiAffinity": {"label": ["zone"]}}
        specs, warnings = imported(legacy(priorities=[{"name": "Zone", "weight": 2, "argument": argument}]))
        assert specs[0]["policy"]["priorities"][0]["argument"] == {"serviceAntiAffinity": {"label": "zone"}}
        assert warnings == ["priorities[0].argument.serviceAntiAffinity.label"]

    @pytest.mark.parametrize(
        ("fields", "field"),
        [
            ({"predicates": [{"name": "Fits"}]}, "spec.policy.predicates[0].name"),
            ({"priorities": [{"name": "EqualPriority", "weight": 0}]}, "spec.policy.priorities[0].weight"),
            ({"priorities": [{"name": "EqualPriority"}]}, "spec.policy.priorities[0].weight"),
            ({"predicates": [{"name": "Two", "argument": {}}]}, "spec.policy.predicates[0].argument"),
            ({"predicates": [{"name": "HostName"}, {"name": "HostName"}]}, "spec.policy.predicates[1].name"),
            ({"extenders": {}, "fallback": 1}, "fallback"),
            ({"extenders": {"urlPrefix": "http://x"}}, "extenders"),
            ({"extenders": ["http://x"]}, "extenders[0]"),
            ({"extenders": [{"urlPrefix": "ftp://x"}]}, "spec.extenders[0].urlPrefix"),
            ({"extenders": [{"urlPrefix": "http://x", "prioritizeVerb": "p"}]}, "spec.extenders[0].weight"),
            (
                {"extenders": [{"urlPrefix": "https://x", "tlsConfig": {"keyData": "c2VjcmV0"}}]},
                "extenders[0].tlsConfig.keyData",
            ),
            ({"fallback": 1}, "fallback"),
        ],
    )
    def test_errors_name_the_field(self, fields: dict[str, Any], field: str) -> None:
        with pytest.raises(InputError) as raised:
            read_scheduler(legacy(**fields))
        assert raised.value.field == field


class TestExtenders:
    def test_legacy_policy(self) -> None:
        extender = {
            "urlPrefix": "https://localhost:8443/scheduler",
            "filterVerb": "filter",
            "prioritizeVerb": "prioritize",
            "weight": 5,
            "enableHttps": True,
            "httpTimeout": 2_500_000_000,
            "nodeCacheCapable": True,
            "managedResources": [{"name": "example.com/gpu", "ignoredByScheduler": True}],
            "ignorable": True,
        }
        specs, warnings = imported(legacy(extenders=[extender]))
        kept = {key: value for key, value in extender.items() if key != "enableHttps"}
        assert specs[0]["extenders"] == [kept | {"httpTimeout": "2500ms", "tlsConfig": {"insecure": True}}]
        assert "extenders" not in specs[0]["policy"]
        assert warnings == ["extenders[0].tlsConfig.insecure"]

    def test_extenders_of_a_configuration_apply_to_all_profiles(self) -> None:
        extender = {"urlPrefix": "http://localhost", "bindVerb": "bind", "httpTimeout": "0s", "tlsConfig": {}}
        specs, warnings = imported(configuration(profiles=[{}, {"schedulerName": "b"}], extenders=[extender]))
        assert [each["extenders"] for each in specs] == [[{"urlPrefix": "http://localhost", "bindVerb": "bind"}]] * 2
        assert warnings == []

    def test_verified_extender_stays_verified(self) -> None:
        tls = {"caData": "aGk=", "serverName": "", "insecure": False}
        extender = {"urlPrefix": "https://localhost", "enableHTTPS": True, "tlsConfig": tls}
        specs, warnings = imported(configuration(extenders=[extender]))
        assert specs[0]["extenders"] == [{"urlPrefix": "https://localhost", "tlsConfig": {"caData": "aGk="}}]
        assert warnings == []


def older(version: str, profile: dict[str, Any]) -> dict[str, Any]:
    return configuration(profiles=[profile]) | {"apiVersion": f"kubescheduler.config.k8s.io/{version}"}


def score(*, on: Sequence[tuple[str, int]] = (), off: Sequence[str] = ()) -> dict[str, Any]:
    """A profile that enables and disables score plugins."""
    enabled = [{"name": name, "weight": weight} for name, weight in on]
    return {"plugins": {"score": {"enabled": enabled, "disabled": [{"name": name} for name in off]}}}


class TestKubeSchedulerConfiguration:
    def test_each_profile_becomes_a_policy(self) -> None:
        profiles = [{}, {"schedulerName": "packing"}]
        specs, warnings = imported(configuration(profiles=profiles, parallelism=4))
        assert [each["schedulerName"] for each in specs] == ["default-scheduler", "packing"]
        assert warnings == ["parallelism"]

    def test_plugins_and_weights(self) -> None:
        plugins = {
            "score": {
                "disabled": [{"name": "ImageLocality"}],
                "enabled": [{"name": "TaintToleration", "weight": 9}],
            },
            "filter": {"disabled": [{"name": "NodePorts"}]},
            "preBind": {"enabled": [{"name": "VolumeBinding"}]},
        }
        specs, warnings = imported(configuration(profiles=[{"plugins": plugins}]))
        assert specs[0]["profile"] == {
            "scores": [{"name": "ImageLocality", "weight": 0}, {"name": "TaintToleration", "weight": 9}],
            "disabledFilters": ["NodePorts"],
        }
        assert warnings == ["profiles[0].plugins.preBind"]

    def test_all_disabled_and_some_enabled(self) -> None:
        plugins = {"score": {"disabled": [{"name": "*"}], "enabled": [{"name": "NodeResourcesFit", "weight": 1}]}}
        specs, _ = imported(configuration(profiles=[{"plugins": plugins}]))
        weights = {each["name"]: each["weight"] for each in specs[0]["profile"]["scores"]}
        assert "NodeResourcesFit" not in weights, "it has its default weight"
        assert set(weights.values()) == {0}

    @pytest.mark.parametrize(
        ("plugins", "weights", "disabled"),
        [
            # a weight that is not given is 1, whatever the plugin's default is
            ({"score": {"enabled": [{"name": "TaintToleration"}]}}, {"TaintToleration": 1}, set()),
            ({"multiPoint": {"enabled": [{"name": "TaintToleration"}]}}, {"TaintToleration": 1}, set()),
            # the single extension point takes precedence over multiPoint
            (
                {
                    "multiPoint": {"enabled": [{"name": "NodeAffinity", "weight": 5}]},
                    "score": {"enabled": [{"name": "NodeAffinity", "weight": 7}]},
                },
                {"NodeAffinity": 7},
                set(),
            ),
            (
                {
                    "multiPoint": {"enabled": [{"name": "NodeAffinity", "weight": 5}]},
                    "score": {"disabled": [{"name": "NodeAffinity"}]},
                },
                {"NodeAffinity": 0},
                set(),
            ),
            # disabled at every extension point, enabled again at one
            (
                {
                    "multiPoint": {"disabled": [{"name": "PodTopologySpread"}]},
                    "score": {"enabled": [{"name": "PodTopologySpread", "weight": 2}]},
                },
                {},
                {"PodTopologySpread"},
            ),
            # replaced by another weight
            (
                {
                    "multiPoint": {
                        "disabled": [{"name": "ImageLocality"}],
                        "enabled": [{"name": "ImageLocality", "weight": 9}, {"name": "PrioritySort"}],
                    }
                },
                {"ImageLocality": 9},
                set(),
            ),
            ({"filter": {"disabled": [{"name": "NodePorts"}]}}, {}, {"NodePorts"}),
        ],
    )
    def test_multi_point(self, plugins: dict[str, Any], weights: dict[str, int], disabled: set[str]) -> None:
        specs, _ = imported(configuration(profiles=[{"plugins": plugins}]))
        profile = specs[0]["profile"]
        assert {each["name"]: each["weight"] for each in profile.get("scores", ())} == weights
        assert set(profile.get("disabledFilters", ())) == disabled

    def test_older_versions_have_their_default_weights(self) -> None:
        specs, _ = imported(configuration() | {"apiVersion": "kubescheduler.config.k8s.io/v1beta2"})
        assert {each["name"]: each["weight"] for each in specs[0]["profile"]["scores"]} == {
            "InterPodAffinity": 1,
            "NodeAffinity": 1,
            "TaintToleration": 1,
        }

    @pytest.mark.parametrize(
        ("version", "profile", "fit", "strategy"),
        [
            pytest.param("v1beta1", {}, None, None, id="default"),
            pytest.param("v1beta1", score(off=["NodeResourcesLeastAllocated"]), 0, None, id="disabled"),
            pytest.param(
                "v1beta1",
                score(off=["NodeResourcesLeastAllocated"], on=[("NodeResourcesMostAllocated", 5)]),
                5,
                {"type": "MostAllocated"},
                id="bin packing",
            ),
            pytest.param(
                "v1beta1",
                score(off=["*"], on=[("NodeResourcesLeastAllocated", 3)])
                | argument("NodeResourcesLeastAllocated", resources=[{"name": "cpu"}])["profiles"][0],
                3,
                {"type": "LeastAllocated", "resources": [{"name": "cpu", "weight": 1}]},
                id="least allocated with resources",
            ),
            pytest.param(
                "v1beta1",
                argument("NodeResourcesLeastAllocated", resources=[{"name": "cpu", "weight": 2}])["profiles"][0],
                None,
                {"type": "LeastAllocated", "resources": [{"name": "cpu", "weight": 2}]},
                id="arguments of the default plugin",
            ),
            pytest.param(
                "v1beta2",
                score(off=["NodeResourcesFit"], on=[("RequestedToCapacityRatio", 2)])
                | argument("RequestedToCapacityRatio", shape=[POINT], resources=[{"name": "memory"}])["profiles"][0],
                2,
                {
                    "type": "RequestedToCapacityRatio",
                    "resources": [{"name": "memory", "weight": 1}],
                    "shape": [POINT],
                },
                id="requested to capacity ratio",
            ),
            pytest.param("v1beta2", score(off=["NodeResourcesFit"]), 0, None, id="scored by NodeResourcesFit"),
        ],
    )
    def test_resource_scores_of_older_versions_become_a_scoring_strategy(
        self, version: str, profile: dict[str, Any], fit: int | None, strategy: dict[str, Any] | None
    ) -> None:
        specs, warnings = imported(older(version, profile))
        weights = {each["name"]: each["weight"] for each in specs[0]["profile"]["scores"]}
        assert weights.get("NodeResourcesFit") == fit
        assert specs[0]["profile"].get("scoringStrategy") == strategy
        assert warnings == []

    @pytest.mark.parametrize(
        ("version", "profile", "field"),
        [
            ("v1beta1", score(on=[("NodeResourcesMostAllocated", 1)]), "plugins.score.enabled"),
            ("v1beta2", score(on=[("RequestedToCapacityRatio", 1)]), "plugins.score.enabled"),
            ("v1beta3", score(on=[("NodeResourcesMostAllocated", 1)]), "plugins.score.enabled[0].name"),
        ],
    )
    def test_two_resource_scores_are_refused(self, version: str, profile: dict[str, Any], field: str) -> None:
        with pytest.raises(InputError) as raised:
            read_scheduler(older(version, profile))
        assert raised.value.field == f"profiles[0].{field}"

    @pytest.mark.parametrize(
        ("version", "profile", "warned"),
        [
            ("v1", score(off=["ImageLocalty", "ImageLocality"]), ["plugins.score.disabled[0].name"]),
            ("v1", {"plugins": {"multiPoint": {"disabled": [{"name": "X"}]}}}, ["plugins.multiPoint.disabled[0].name"]),
            ("v1", score(off=["NodeResourcesLeastAllocated"]), ["plugins.score.disabled[0].name"]),
            ("v1beta1", score(off=["NodePreferAvoidPods", "SelectorSpread"]), []),
            (
                "v1beta1",
                score(on=[("SelectorSpread", 1), ("NodePreferAvoidPods", 9)]),
                ["plugins.score.enabled[0].name", "plugins.score.enabled[1].name"],
            ),
            (
                "v1beta2",
                {
                    "plugins": {"filter": {"enabled": [{"name": "NodeLabel"}]}},
                    "pluginConfig": [{"name": "NodeLabel", "args": {"presentLabels": ["a"]}}],
                },
                ["plugins.filter.enabled[0].name", "pluginConfig[0]"],
            ),
            ("v1beta1", argument("NodeResourcesMostAllocated", resources=[])["profiles"][0], ["pluginConfig[0]"]),
            (
                "v1beta2",
                score(off=["NodeResourcesFit"], on=[("NodeResourcesMostAllocated", 1)])
                | argument("NodeResourcesFit", scoringStrategy={"type": "LeastAllocated"})["profiles"][0],
                ["pluginConfig[0].args.scoringStrategy"],
            ),
        ],
    )
    def test_plugins_without_an_equivalent_are_reported(
        self, version: str, profile: dict[str, Any], warned: list[str]
    ) -> None:
        _, warnings = imported(older(version, profile))
        assert warnings == [f"profiles[0].{field}" for field in warned]

    @pytest.mark.parametrize(
        ("plugins", "off"),
        [
            ({}, False),
            ({"postFilter": {"disabled": [{"name": "DefaultPreemption"}]}}, True),
            ({"postFilter": {"disabled": [{"name": "*"}]}}, True),
            ({"multiPoint": {"disabled": [{"name": "DefaultPreemption"}]}}, True),
            (
                {
                    "multiPoint": {"disabled": [{"name": "*"}]},
                    "postFilter": {"enabled": [{"name": "DefaultPreemption"}]},
                },
                False,
            ),
        ],
    )
    def test_disabled_preemption(self, plugins: dict[str, Any], off: bool) -> None:
        specs, _ = imported(configuration(profiles=[{"plugins": plugins}]))
        assert specs[0].get("disablePreemption", False) is off

    def test_arguments(self) -> None:
        strategy = {
            "type": "RequestedToCapacityRatio",
            "resources": [{"name": "nvidia.com/gpu", "weight": 3}],
            "requestedToCapacityRatio": {"shape": [{"utilization": 0, "score": 0}, {"utilization": 100, "score": 10}]},
        }
        by_zone = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "matchLabelKeys": ["x"]}
        term = {"matchExpressions": [{"key": "pool", "operator": "In", "values": ["batch"]}]}
        added = {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]},
            "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 3, "preference": term}],
        }
        config = [
            {"name": "NodeResourcesFit", "args": {"scoringStrategy": strategy, "ignoredResources": ["x.com/y"]}},
            {
                "name": "InterPodAffinity",
                "args": {"hardPodAffinityWeight": 7, "ignorePreferredTermsOfExistingPods": True, "more": 1},
            },
            {"name": "VolumeBinding", "args": {"bindTimeoutSeconds": 60}},
            {"name": "PodTopologySpread", "args": {"defaultingType": "List", "defaultConstraints": [by_zone]}},
            {"name": "NodeAffinity", "args": {"addedAffinity": added}},
            {
                "name": "NodeResourcesBalancedAllocation",
                "args": {"resources": [{"name": "cpu", "weight": 1}, {"name": "x.com/y"}]},
            },
        ]
        profile = {"pluginConfig": config, "percentageOfNodesToScore": 30}
        specs, warnings = imported(configuration(profiles=[profile]))
        assert specs[0]["profile"] == {
            "scoringStrategy": {
                "type": "RequestedToCapacityRatio",
                "resources": [{"name": "nvidia.com/gpu", "weight": 3}],
                "shape": [{"utilization": 0, "score": 0}, {"utilization": 100, "score": 10}],
            },
            "ignoredResources": ["x.com/y"],
            "hardPodAffinityWeight": 7,
            "ignorePreferredTermsOfExistingPods": True,
            "podTopologySpread": {
                "defaultingType": "List",
                "defaultConstraints": [{key: value for key, value in by_zone.items() if key != "matchLabelKeys"}],
            },
            "addedAffinity": added,
            "balancedResources": ["cpu", "x.com/y"],
            "percentageOfNodesToScore": 30,
        }
        assert warnings == [
            "profiles[0].pluginConfig[1].args.more",
            "profiles[0].pluginConfig[2]",
            "profiles[0].pluginConfig[3].args.defaultConstraints[0].matchLabelKeys",
        ]

    @pytest.mark.parametrize(
        ("fields", "field"),
        [
            ({"profiles": {}, "extra": 1}, "extra"),
            ({"profiles": "x"}, "profiles"),
            (
                {"profiles": [{"plugins": {"score": {"enabled": [{"name": "Coscheduling"}]}}}]},
                "profiles[0].plugins.score.enabled[0].name",
            ),
            (
                {"profiles": [{"plugins": {"score": {"enabled": [{"name": "NodePorts"}, {"name": "NodePorts"}]}}}]},
                "profiles[0].plugins.score.enabled[1].name",
            ),
            ({"profiles": [{}, {}]}, "profiles[1].schedulerName"),
            ({"profiles": [{"plugins": []}]}, "profiles[0].plugins"),
            ({"percentageOfNodesToScore": 101}, "spec.profile.percentageOfNodesToScore"),
            (argument("InterPodAffinity", hardPodAffinityWeight=101), "spec.profile.hardPodAffinityWeight"),
            (
                {"profiles": [{"pluginConfig": [{"name": "NodeAffinity"}, {"name": "NodeAffinity"}]}]},
                "profiles[0].pluginConfig[1].name",
            ),
            (
                argument("NodeResourcesBalancedAllocation", resources=[{"name": "cpu", "weight": 2}]),
                "profiles[0].pluginConfig[0].args.resources[0].weight",
            ),
            (
                argument("NodeResourcesBalancedAllocation", resources=[{"name": "cpu"}, {"name": "cpu"}]),
                "spec.profile.balancedResources[1]",
            ),
            (
                argument("NodeResourcesFit", scoringStrategy={"resources": [{"name": "cpu", "weight": 101}]}),
                "spec.profile.scoringStrategy.resources[0].weight",
            ),
            (
                argument("NodeResourcesFit", scoringStrategy={"type": "RequestedToCapacityRatio"}),
                "spec.profile.scoringStrategy.shape",
            ),
            (
                argument("NodeResourcesFit", scoringStrategy={"requestedToCapacityRatio": {"shape": [POINT]}}),
                "spec.profile.scoringStrategy.shape",
            ),
            (argument("NodeResourcesFit", ignoredResourceGroups=["a/b"]), "spec.profile.ignoredResourceGroups[0]"),
            (
                argument("PodTopologySpread", defaultConstraints=[CONSTRAINT]),
                "spec.profile.podTopologySpread.defaultConstraints",
            ),
            (spread(CONSTRAINT, CONSTRAINT), "spec.profile.podTopologySpread.defaultConstraints[1]"),
            (spread(CONSTRAINT | {"maxSkew": 0}), "spec.profile.podTopologySpread.defaultConstraints[0].maxSkew"),
            (
                spread(CONSTRAINT | {"topologyKey": ""}),
                "spec.profile.podTopologySpread.defaultConstraints[0].topologyKey",
            ),
            (
                spread(CONSTRAINT | {"whenUnsatisfiable": "Sometimes"}),
                "spec.profile.podTopologySpread.defaultConstraints[0].whenUnsatisfiable",
            ),
            (
                spread(CONSTRAINT | {"labelSelector": {}}),
                "profiles[0].pluginConfig[0].args.defaultConstraints[0].labelSelector",
            ),
            (added(), REQUIRED),
            (added({}), f"{REQUIRED}[0]"),
            (
                added({"matchExpressions": [{"key": "a", "operator": "Is"}]}),
                f"{REQUIRED}[0].matchExpressions[0].operator",
            ),
            (
                added({"matchExpressions": [{"key": "a", "operator": "Gt", "values": ["many"]}]}),
                f"{REQUIRED}[0].matchExpressions[0].values",
            ),
            (
                added({"matchFields": [{"key": "metadata.namespace", "operator": "In", "values": ["n"]}]}),
                f"{REQUIRED}[0].matchFields[0].key",
            ),
        ],
    )
    def test_errors_name_the_field(self, fields: dict[str, Any], field: str) -> None:
        with pytest.raises(InputError) as raised:
            read_scheduler(configuration(**fields))
        assert raised.value.field == field


def test_other_documents_are_left_to_other_readers() -> None:
    assert read_scheduler({"kind": "ConfigMap", "apiVersion": "v1"}) is None
    assert read_scheduler({"kind": "Policy", "apiVersion": "audit.k8s.io/v1"}) is None


@pytest.mark.parametrize(
    ("text", "changes"),
    [(MODIFIED, 1), (REGION_ZONE_RACK, 2), (REGION_ZONE_RACK.replace("    ", "\u00a0   "), 3)],
    ids=["JSON within YAML", "ellipsis and callouts", "non-breaking spaces"],
)
def test_documented_samples_are_repaired(text: str, changes: int) -> None:
    from trimtab.kube.wire.files.documents import documents

    repaired, made = repair_policy_text(text)
    assert len(made) == changes
    [document] = documents(repaired.encode())
    assert document.fault is None


def argument_of(text: str) -> tuple[str, Any]:
    """Repair and read a fragment with one rule, and return the kind of the rule and its argument."""
    repaired, _ = repair_policy_text(text)
    [spec], _ = imported(yaml.safe_load(repaired))
    [(kind, [rule])] = spec["policy"].items()
    assert (rule["name"], rule.get("weight", 1)) == ("Racks", 1)
    return kind, rule["argument"]


@pytest.mark.parametrize("fragment", FRAGMENTS)
@pytest.mark.parametrize("kind", ["", 'kind: "Policy"\nversion: "v1"\n'], ids=["as printed", "with kind"])
def test_documented_fragments_are_repaired(fragment: str, kind: str) -> None:
    text, argument = FRAGMENTS[fragment]
    field = "predicates" if "predicates" in text else "priorities"
    assert argument_of(kind + text) == (field, argument)
    assert any("kind" in change for change in repair_policy_text(text)[1])


def test_fragments_are_combined() -> None:
    text = FRAGMENTS["service-affinity"][0] + FRAGMENTS["label-preference"][0]
    [spec], warnings = imported(yaml.safe_load(repair_policy_text(text)[0]))
    assert [len(spec["policy"][each]) for each in ("predicates", "priorities")] == [1, 1]
    assert warnings == ["apiVersion"]


def test_block_style_fragment_is_read_without_kind() -> None:
    text = "predicates:\n- name: HostName\npriorities:\n- name: EqualPriority\n  weight: 1 2\n"
    [spec], _ = imported(yaml.safe_load(repair_policy_text(text)[0]))
    assert spec["policy"] == {
        "predicates": [{"name": "HostName"}],
        "priorities": [{"name": "EqualPriority", "weight": 1}],
    }


def test_correct_policies_and_other_texts_are_left_alone() -> None:
    for text in (
        '{"kind": "Policy", "apiVersion": "v1", "predicates": [{"name": "a", "weight": 1\n, "argument": 2}]}',
        "kind: DeschedulerPolicy\n...\n",
        "priorities:\n- high\nkind: Other\n",
    ):
        assert repair_policy_text(text) == (text, ())


def test_scheduler_policy_is_read_without_its_status() -> None:
    policy = {
        "apiVersion": "trimtab.dev/v1alpha1",
        "kind": "SchedulerPolicy",
        "metadata": {"name": "ours"},
        "spec": {"schedulerName": "ours"},
    }
    found = read_scheduler({**policy, "status": {"conditions": []}})
    assert found is not None
    assert found.documents == (policy,)
    assert found.warnings == ()
    assert [(each.name, each.spec.scheduler_name) for each in found.policies] == [("ours", "ours")]


FULL_CONFIGURATION = configuration(
    percentageOfNodesToScore=50,
    leaderElection={"leaderElect": True},
    extenders=[
        {
            "urlPrefix": "https://x",
            "filterVerb": "filter",
            "weight": 1,
            "managedResources": [{"name": "example.com/gpu", "ignoredByScheduler": True}],
            "tlsConfig": {"insecure": True},
            "httpTimeout": "1s",
        }
    ],
    profiles=[
        {
            "schedulerName": "a",
            "percentageOfNodesToScore": 5,
            "plugins": {
                "multiPoint": {"enabled": [{"name": "NodeName"}], "disabled": [{"name": "*"}]},
                "score": {
                    "enabled": [{"name": "NodeResourcesFit", "weight": 2}],
                    "disabled": [{"name": "ImageLocality"}],
                },
                "filter": {"enabled": [{"name": "NodePorts"}], "disabled": [{"name": "NodePorts"}]},
            },
            "pluginConfig": [
                {
                    "name": "NodeResourcesFit",
                    "args": {
                        "ignoredResources": ["example.com/x"],
                        "ignoredResourceGroups": ["example.com"],
                        "scoringStrategy": {
                            "type": "RequestedToCapacityRatio",
                            "resources": [{"name": "cpu", "weight": 1}],
                            "requestedToCapacityRatio": {"shape": [POINT, {"utilization": 100, "score": 10}]},
                        },
                    },
                },
                {"name": "InterPodAffinity", "args": {"hardPodAffinityWeight": 5}},
                {
                    "name": "PodTopologySpread",
                    "args": {"defaultingType": "List", "defaultConstraints": [{**CONSTRAINT, "matchLabelKeys": ["x"]}]},
                },
                added({"matchExpressions": [{"key": "a", "operator": "Exists"}]})["profiles"][0]["pluginConfig"][0],
                {"name": "NodeResourcesBalancedAllocation", "args": {"resources": [{"name": "cpu", "weight": 1}]}},
                {"name": "VolumeBinding", "args": {"bindTimeoutSeconds": 600}},
            ],
        }
    ],
)
FULL_POLICY = legacy(
    predicates=[
        {"name": "PodFitsResources"},
        {"name": "Labels", "argument": {"labelsPresence": {"labels": ["a"], "presence": True}}},
        {"name": "Services", "argument": {"serviceAffinity": {"labels": ["region"]}}},
    ],
    priorities=[
        {"name": "Preferred", "weight": 1, "argument": {"labelPreference": {"label": "a", "presence": True}}},
        {"name": "Zones", "weight": 2, "argument": {"serviceAntiAffinity": {"label": ["zone"]}}},
        {"name": "Ratio", "weight": 2, "argument": {"requestedToCapacityRatioArguments": {"shape": [POINT]}}},
    ],
    hardPodAffinitySymmetricWeight=10,
    alwaysCheckAllPredicates=True,
    extenders=[{"urlPrefix": "http://x", "filterVerb": "filter", "weight": 1, "httpTimeout": 10**9}],
)
MALFORMED: list[Any] = [None, 0, -1, 1.5, 10**30, True, "", "x", [], {}, [None], ["x"], [0], [[]], [{}], {"x": 1}]


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths of all values in a document."""
    items: Any = ()
    if isinstance(value, dict):
        items = value.items()
    elif isinstance(value, list):
        items = enumerate(value)
    for key, inner in items:
        yield (*path, key)
        yield from places(inner, (*path, key))


@pytest.mark.parametrize("document", [FULL_CONFIGURATION, FULL_POLICY], ids=["configuration", "policy"])
def test_malformed_value_anywhere_is_an_input_error_or_has_a_meaning(document: dict[str, Any]) -> None:
    assert read_scheduler(deepcopy(document)) is not None
    refused = 0
    for path in places(document):
        for value in MALFORMED:
            changed = deepcopy(document)
            inner: Any = changed
            for key in path[:-1]:
                inner = inner[key]
            inner[path[-1]] = value
            try:
                read_scheduler(changed)
            except InputError:
                refused += 1
    assert refused > 500


@pytest.mark.parametrize(
    ("profile", "field"),
    [
        ({"pluginConfig": {"name": "NodeAffinity"}}, "pluginConfig"),
        ({"pluginConfig": [None]}, "pluginConfig[0]"),
        ({"pluginConfig": [{"name": "NodeAffinity", "args": []}]}, "pluginConfig[0].args"),
        ({"plugins": {"score": {"enabled": ["NodeResourcesFit"]}}}, "plugins.score.enabled[0]"),
        ({"plugins": {"score": {"enabled": [{"name": ["NodeName"]}]}}}, "plugins.score.enabled[0].name"),
        ({"plugins": {"filter": {"disabled": "NodePorts"}}}, "plugins.filter.disabled"),
        (
            argument("NodeResourcesFit", scoringStrategy={"resources": ["cpu"]})["profiles"][0],
            "pluginConfig[0].args.scoringStrategy.resources[0]",
        ),
        (spread(CONSTRAINT, "zone")["profiles"][0], "pluginConfig[0].args.defaultConstraints[1]"),  # type: ignore[arg-type]
        (
            argument("NodeResourcesBalancedAllocation", resources={"name": "cpu"})["profiles"][0],
            "pluginConfig[0].args.resources",
        ),
        (None, ""),
    ],
)
def test_wrong_type_is_reported_with_its_field(profile: Any, field: str) -> None:
    with pytest.raises(InputError) as raised:
        read_scheduler(configuration(profiles=[profile]))
    assert raised.value.field == f"profiles[0].{field}".rstrip(".")
