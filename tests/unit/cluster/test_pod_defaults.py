"""What admission sets on new pods: priorities, default requests, and the fields of a RuntimeClass."""

from __future__ import annotations

from typing import Any

import pytest

from tests.builders import limit_range, pod, priority_class, runtime_class
from trimtab.cluster.snapshot import Snapshot
from trimtab.cluster.workloads.pod_defaults import PodDefaults, with_priorities
from trimtab.kube.objects import Pod, Toleration

SANDBOXED = {"runtimeClassName": "sandbox"}


def created(made: Any, *builders: Any) -> Pod:
    return PodDefaults.of(Snapshot([builder.build() for builder in builders])).created(made.build())


def requests(made: Any, *builders: Any) -> dict[str, int]:
    return dict(created(made, *builders).spec.requests)


class TestLimitRange:
    @pytest.mark.parametrize(
        ("stated", "expected"),
        [
            ({"defaultRequest": {"cpu": "100m"}}, 100),
            ({"default": {"cpu": "200m"}}, 200),
            ({"default": {"cpu": "200m"}, "defaultRequest": {"cpu": "100m"}}, 100),
            ({"max": {"cpu": "300m"}}, 300),
            ({"min": {"cpu": "50m"}}, 50),
            ({"min": {"cpu": "50m"}, "max": {"cpu": "300m"}}, 300),
        ],
        ids=str,
    )
    def test_request_of_a_container_without_one(self, stated: dict[str, Any], expected: int) -> None:
        """The order of the API server's own defaults: defaultRequest, default, max, min."""
        assert requests(pod(), limit_range().containers(**stated)) == {"cpu": expected}

    def test_stated_amounts_have_precedence(self) -> None:
        limits = limit_range().containers(defaultRequest={"cpu": "100m", "memory": "1Gi"})
        assert requests(pod().cpu("1"), limits) == {"cpu": 1000, "memory": 1 << 30}
        assert requests(pod().limits(cpu="2"), limits) == {"cpu": 2000, "memory": 1 << 30}

    def test_each_container_gets_them(self) -> None:
        limits = limit_range().containers(defaultRequest={"cpu": "100m"})
        made = pod().container("second").init_container("side", restartPolicy="Always").init_container("step")
        assert requests(made, limits) == {"cpu": 300}

    def test_only_limits_of_containers_in_the_namespace_count(self) -> None:
        of_pods = limit_range().merge(spec={"limits": [{"type": "Pod", "max": {"cpu": "1"}}]})
        elsewhere = limit_range(namespace="other").containers(defaultRequest={"cpu": "1"})
        assert requests(pod(), of_pods, elsewhere) == {}

    def test_the_first_of_several_has_precedence(self) -> None:
        first = limit_range("a").containers(defaultRequest={"cpu": "100m"})
        second = limit_range("b").containers(defaultRequest={"cpu": "1", "memory": "1Gi"})
        assert requests(pod(), second, first) == {"cpu": 100, "memory": 1 << 30}

    def test_scored_requests_follow(self) -> None:
        spec = created(pod(), limit_range().containers(defaultRequest={"cpu": "300m"})).spec
        assert spec.nonzero_requests["cpu"] == spec.scored_requests["cpu"] == 300


class TestRuntimeClass:
    def test_overhead_is_added(self) -> None:
        runtime = runtime_class().overhead(cpu="250m")
        assert requests(pod().cpu("1").merge(spec=SANDBOXED), runtime) == {"cpu": 1250}
        assert requests(pod().cpu("1"), runtime) == {"cpu": 1000}

    def test_overhead_in_the_pod_is_not_added_again(self) -> None:
        made = pod().cpu("1").merge(spec={**SANDBOXED, "overhead": {"cpu": "250m"}})
        assert requests(made, runtime_class().overhead(cpu="250m")) == {"cpu": 1250}

    def test_pods_get_its_nodes_and_tolerations(self) -> None:
        scheduling = {"nodeSelector": {"sandbox": "yes"}, "tolerations": [{"key": "sandbox", "operator": "Exists"}]}
        made = pod().node_selector(disk="ssd").tolerates("a").merge(spec=SANDBOXED)
        spec = created(made, runtime_class().merge(scheduling=scheduling)).spec
        assert spec.node_selector == {"disk": "ssd", "sandbox": "yes"}
        assert [each.key for each in spec.tolerations] == ["a", "sandbox"]
        assert spec.tolerations[1] == Toleration("sandbox", "Exists")

    def test_missing_class_changes_nothing(self) -> None:
        made = pod().merge(spec=SANDBOXED).build()
        assert PodDefaults(()).created(made) is made


class TestPriority:
    def test_class_default_and_system_classes(self) -> None:
        high, default = priority_class("high", 1000), priority_class("usual", 10).by_default()
        assert created(pod().merge(spec={"priorityClassName": "high"}), high, default).priority == 1000
        assert created(pod(), high, default).priority == 10
        assert created(pod().merge(spec={"priorityClassName": "system-node-critical"})).priority == 2_000_001_000
        assert created(pod().priority(5, "high"), high).priority == 5

    def test_pods_of_files_get_no_other_defaults(self) -> None:
        objects = [each.build() for each in (limit_range().containers(defaultRequest={"cpu": "1"}), pod().on("n1"))]
        [found] = [each for each in with_priorities(objects) if isinstance(each, Pod)]
        assert found.spec.requests == {}


def test_specs_stay_shared() -> None:
    first = pod("a").build()
    second = Pod("shop", "b", spec=first.spec)
    defaults = PodDefaults([limit_range().containers(defaultRequest={"cpu": "1"}).build()])
    assert defaults.created(first).spec is defaults.created(second).spec
