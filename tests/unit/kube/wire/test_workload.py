"""Services and owners of pods, as values."""

import msgspec
import pytest

from tests.builders import expression, replica_set, replication_controller, service, stateful_set
from trimtab.kube.objects import LabelRequirement, LabelSelector
from trimtab.kube.wire.decode import decode_json, decode_object
from trimtab.kube.wire.intern import Interner


@pytest.mark.parametrize("builder", [service, replication_controller], ids=["service", "replication controller"])
def test_a_plain_selector_is_read(builder):
    value = builder("web", "shop").selecting(app="web").build()
    assert (value.key, value.selector) == ("shop/web", {"app": "web"})


@pytest.mark.parametrize("builder", [service, replication_controller], ids=["service", "replication controller"])
def test_no_selector_and_an_empty_one_are_none(builder):
    assert builder().build().selector is None
    assert builder().merge(spec={"selector": {}}).build().selector is None


@pytest.mark.parametrize("builder", [replica_set, stateful_set], ids=["replica set", "stateful set"])
def test_a_label_selector_is_read(builder):
    value = builder("web", "shop").merge(
        spec={"selector": {"matchLabels": {"app": "web"}, "matchExpressions": [expression("tier", "In", "a", "b")]}}
    )
    assert value.build().key == "shop/web"
    assert value.build().selector == LabelSelector({"app": "web"}, (LabelRequirement("tier", "In", ("a", "b")),))


@pytest.mark.parametrize("builder", [replica_set, stateful_set], ids=["replica set", "stateful set"])
def test_a_missing_label_selector_is_not_an_empty_one(builder):
    assert builder().build().selector is None
    assert builder().merge(spec={"selector": {}}).build().selector == LabelSelector()


def test_replica_sets_share_equal_keys_and_values():
    interner = Interner()
    first, second = (
        msgspec.json.encode(replica_set(f"web-{each}").selecting({"app": "web", "pod-template-hash": each}).manifest())
        for each in ("6d4b75cb6d", "7f9c8d5b4f")
    )
    first, second = (decode_json("ReplicaSet", raw, interner=interner) for raw in (first, second))
    keys = [sorted(map(id, value.selector.match_labels)) for value in (first, second)]
    assert keys[0] == keys[1]
    assert first.selector.match_labels["app"] is second.selector.match_labels["app"]


def test_services_of_other_groups_are_ignored():
    assert decode_object({"apiVersion": "serving.knative.dev/v1", "kind": "Service", "metadata": {"name": "a"}}) is None
