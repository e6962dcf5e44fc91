"""Effective requests and quality of service: tables after component-helpers' and the QoS helper's rules."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import pod
from trimtab.kube.frozen import FrozenMap
from trimtab.kube.objects import Container
from trimtab.kube.rules.pod_requests import (
    PodLevelResources,
    effective_requests,
    nonzero_requests,
    qos_class,
    scored_requests,
    with_default_pod_level,
    with_default_requests,
)
from trimtab.kube.rules.quantity import MAX_AMOUNT


def container(*, limits=None, sidecar=False, **requests):
    return Container(
        name="c",
        requests=FrozenMap(requests),
        limits=FrozenMap(limits or {}),
        restart_policy="Always" if sidecar else "",
    )


REQUESTS = {
    "nothing": ([], [], {}, {}, {}),
    "one container": ([container(cpu=100, memory=5)], [], {}, {}, {"cpu": 100, "memory": 5}),
    "containers add up": ([container(cpu=100), container(cpu=200, memory=1)], [], {}, {}, {"cpu": 300, "memory": 1}),
    "a small init step is hidden": ([container(cpu=100)], [container(cpu=50)], {}, {}, {"cpu": 100}),
    "a large init step counts": ([container(cpu=100)], [container(cpu=500)], {}, {}, {"cpu": 500}),
    "init steps follow each other": ([container(cpu=1)], [container(cpu=5), container(cpu=7)], {}, {}, {"cpu": 7}),
    "each resource has its own largest": (
        [container(cpu=100, memory=9)],
        [container(cpu=500, memory=1), container(gpu=1)],
        {},
        {},
        {"cpu": 500, "memory": 9, "gpu": 1},
    ),
    "sidecars run on": ([container(cpu=100)], [container(cpu=10, sidecar=True)], {}, {}, {"cpu": 110}),
    "a step after a sidecar runs beside it": (
        [container(cpu=100)],
        [container(cpu=10, sidecar=True), container(cpu=200)],
        {},
        {},
        {"cpu": 210},
    ),
    "a step before a sidecar runs alone": (
        [container(cpu=100)],
        [container(cpu=200), container(cpu=10, sidecar=True)],
        {},
        {},
        {"cpu": 200},
    ),
    "sidecars add up in their order": (
        [container(cpu=1)],
        [container(cpu=10, sidecar=True), container(cpu=50), container(cpu=20, sidecar=True), container(cpu=45)],
        {},
        {},
        {"cpu": 75},
    ),
    "overhead is added": ([container(cpu=1)], [container(cpu=5)], {"cpu": 5, "a": 7}, {}, {"cpu": 10, "a": 7}),
    "the pod's own request counts instead": ([container(cpu=9, memory=3)], [], {}, {"cpu": 5}, {"cpu": 5, "memory": 3}),
    "overhead is added to the pod's own request": ([container(cpu=100)], [], {"cpu": 5}, {"cpu": 50}, {"cpu": 55}),
    "huge pages may be the pod's own": ([], [], {}, {"hugepages-2Mi": 4}, {"hugepages-2Mi": 4}),
    "what adds up to more than an amount can be ends there": (
        [container(memory=MAX_AMOUNT), container(memory=1)],
        [],
        {"memory": 1},
        {},
        {"memory": MAX_AMOUNT},
    ),
    "other resources may not": ([container(gpu=1)], [], {}, {"gpu": 5, "ephemeral-storage": 1}, {"gpu": 1}),
}


@pytest.mark.parametrize(("containers", "init", "overhead", "pod_level", "want"), REQUESTS.values(), ids=REQUESTS)
def test_requests_equal_kube_schedulers(containers, init, overhead, pod_level, want):
    assert effective_requests(containers, init, overhead=overhead, pod_level=pod_level) == want


BOTH = {"cpu": 100, "memory": 5}
QOS = {
    "nothing stated": ([container()], [], None, "BestEffort"),
    "only zeros": ([container(cpu=0, limits={"memory": 0})], [], None, "BestEffort"),
    "only other resources": ([container(gpu=1, limits={"gpu": 1})], [], None, "BestEffort"),
    "equal requests and limits": ([container(**BOTH, limits=BOTH)], [], None, "Guaranteed"),
    "limits alone, before defaults": ([container(limits=BOTH)], [], None, "Burstable"),
    "a lower request": ([container(cpu=50, memory=5, limits=BOTH)], [], None, "Burstable"),
    "only one resource": ([container(cpu=100, limits={"cpu": 100})], [], None, "Burstable"),
    "one container of two": ([container(**BOTH, limits=BOTH), container()], [], None, "Burstable"),
    "two equal containers": ([container(**BOTH, limits=BOTH)] * 2, [], None, "Guaranteed"),
    "an init container without": ([container(**BOTH, limits=BOTH)], [container()], None, "Burstable"),
    "an init container with": ([container(**BOTH, limits=BOTH)], [container(**BOTH, limits=BOTH)], None, "Guaranteed"),
    "differences that cancel out": (
        [
            container(cpu=100, memory=5, limits={"cpu": 200, "memory": 5}),
            container(cpu=200, memory=5, limits={"cpu": 100, "memory": 5}),
        ],
        [],
        None,
        "Guaranteed",
    ),
    "the pod's own, nothing stated": ([container(**BOTH, limits=BOTH)], [], PodLevelResources(), "BestEffort"),
    "the pod's own requests": ([], [], PodLevelResources(requests=FrozenMap(BOTH)), "Burstable"),
    "the pod's own, equal": ([container()], [], PodLevelResources(FrozenMap(BOTH), FrozenMap(BOTH)), "Guaranteed"),
    "the pod's own, one resource": (
        [],
        [],
        PodLevelResources(FrozenMap(cpu=1), FrozenMap(cpu=1)),
        "Burstable",
    ),
}


@pytest.mark.parametrize(("containers", "init", "pod_level", "want"), QOS.values(), ids=QOS)
def test_qos_class_equals_the_api_servers(containers, init, pod_level, want):
    assert qos_class(containers, init, pod_level=pod_level) == want


def test_limit_is_the_default_for_a_missing_request():
    given_requests, limits = FrozenMap(cpu=1), FrozenMap(cpu=5, memory=7)
    assert with_default_requests(given_requests, limits) == {"cpu": 1, "memory": 7}
    assert with_default_requests(limits, given_requests) is limits


POD_LEVEL = {
    "nothing stays nothing": ({}, {}, [container(cpu=1)], {}, {}),
    "requests alone stay": ({"cpu": 5}, {}, [container(cpu=1, memory=2)], {"cpu": 5}, {}),
    "containers' requests come first": (
        {},
        {"cpu": 9},
        [container(cpu=1, memory=2)],
        {"cpu": 1, "memory": 2},
        {"cpu": 9},
    ),
    "then the pod's limits": (
        {},
        {"cpu": 9, "memory": 8},
        [container(cpu=1)],
        {"cpu": 1, "memory": 8},
        {"cpu": 9, "memory": 8},
    ),
    "stated requests stay": ({"cpu": 3}, {"cpu": 9}, [container(cpu=1)], {"cpu": 3}, {"cpu": 9}),
    "huge pages come from the containers": (
        {"cpu": 1},
        {},
        [container(limits={"hugepages-2Mi": 4})],
        {"cpu": 1, "hugepages-2Mi": 4},
        {"hugepages-2Mi": 4},
    ),
    "requested huge pages get no limit": (
        {"hugepages-2Mi": 1},
        {},
        [container(limits={"hugepages-2Mi": 4})],
        {"hugepages-2Mi": 1},
        {},
    ),
    "other resources are none of the pod's": ({}, {"cpu": 1}, [container(gpu=1)], {"cpu": 1}, {"cpu": 1}),
}


@pytest.mark.parametrize(
    ("requests", "limits", "containers", "want_requests", "want_limits"), POD_LEVEL.values(), ids=POD_LEVEL
)
def test_the_pods_own_resources_are_completed(requests, limits, containers, want_requests, want_limits):
    stated = PodLevelResources(FrozenMap(requests), FrozenMap(limits))
    assert with_default_pod_level(stated, containers, []) == PodLevelResources(
        FrozenMap(want_requests), FrozenMap(want_limits)
    )


def test_pod_with_only_limits_is_guaranteed():
    spec = pod().limits(cpu="1", memory="1Gi").build().spec
    assert (spec.qos, spec.requests) == ("Guaranteed", {"cpu": 1000, "memory": 2**30})


def test_pod_level_resources_have_precedence():
    spec = pod().cpu("1").merge(spec={"resources": {"limits": {"cpu": "3", "memory": "1Gi"}}}).build().spec
    assert spec.requests == {"cpu": 1000, "memory": 2**30}
    assert spec.pod_resources == {"cpu": 1000, "memory": 2**30}
    assert spec.qos == "Burstable"


MI = 2**20
SCORED = {
    "a container without requests counts 100m and 200Mi": (pod(), (100, 200 * MI), (100, 200 * MI)),
    "so does a sidecar": (pod().init_container("side", restartPolicy="Always"), (200, 400 * MI), (200, 400 * MI)),
    "what is stated counts": (pod().cpu("1").memory("1Gi"), (1000, 1024 * MI), (1000, 1024 * MI)),
    "an explicit 0 stays 0": (pod().cpu("0"), (0, 200 * MI), (0, 200 * MI)),
    "the pod's own requests count of placed pods only": (
        pod().merge(spec={"resources": {"requests": {"memory": "8Gi"}}}),
        (100, 8192 * MI),
        (100, 200 * MI),
    ),
}


@pytest.mark.parametrize(("made", "on_node", "to_place"), SCORED.values(), ids=SCORED)
def test_score_requests_default_for_missing_requests(made, on_node, to_place):
    spec = made.build().spec
    assert (spec.nonzero_requests["cpu"], spec.nonzero_requests["memory"]) == on_node
    assert (spec.scored_requests["cpu"], spec.scored_requests["memory"]) == to_place


AMOUNTS = st.dictionaries(st.sampled_from(["cpu", "memory", "gpu"]), st.integers(0, 100))
CONTAINERS = st.lists(
    st.builds(lambda requests, sidecar: container(**requests, sidecar=sidecar), AMOUNTS, st.booleans()), max_size=4
)


@given(CONTAINERS, CONTAINERS)
def test_requests_cover_running_containers_and_every_init_step(containers, init):
    total = effective_requests(containers, init)
    running = [*containers, *(each for each in init if each.restart_policy)]
    for name in ("cpu", "memory", "gpu"):
        together = sum(each.requests.get(name, 0) for each in running)
        steps = [0]
        for index, step in enumerate(init):
            before = sum(each.requests.get(name, 0) for each in init[:index] if each.restart_policy)
            steps.append(before + step.requests.get(name, 0))
        assert total.get(name, 0) == max(together, *steps)


NONZERO = {
    "a container that states nothing": ([container()], [], {}, {}, (100, 200 * MI)),
    "each container for itself": ([container(cpu=1), container(memory=5)], [], {}, {}, (101, 200 * MI + 5)),
    "an explicit zero stays": ([container(cpu=0, memory=0)], [], {}, {}, (0, 0)),
    "an init step too": ([container(cpu=1, memory=1)], [container(cpu=7)], {}, {}, (7, 200 * MI)),
    "a sidecar too": ([container(cpu=1, memory=1)], [container(sidecar=True)], {}, {}, (101, 200 * MI + 1)),
    "overhead is added": ([container()], [], {"cpu": 10}, {}, (110, 200 * MI)),
    "no containers": ([], [], {}, {}, (0, 0)),
    "pod-level requests replace the sum": ([container()], [], {}, {"cpu": 5, "memory": 6}, (5, 6)),
    "what a pod leaves out on both levels": ([container(), container()], [], {}, {"cpu": 5}, (5, 400 * MI)),
    "huge pages are pod-level requests": ([container()], [], {}, {"hugepages-2Mi": 1}, (100, 200 * MI)),
    "other resources are none": ([container(cpu=1), container()], [], {}, {"gpu": 1}, (101, 400 * MI)),
}


@pytest.mark.parametrize(("containers", "steps", "overhead", "pod_level", "expected"), NONZERO.values(), ids=NONZERO)
def test_containers_that_state_nothing_count_defaults(containers, steps, overhead, pod_level, expected):
    found = nonzero_requests(containers, steps, overhead=overhead, pod_level=pod_level)
    assert found == {"cpu": expected[0], "memory": expected[1]}
    if not pod_level:
        assert scored_requests(containers, steps, overhead=overhead) == found


def test_defaults_do_not_replace_pod_level_requests():
    assert nonzero_requests([container(memory=5), container()], pod_level={"cpu": 7}) == {"cpu": 7, "memory": 5}
    with_overhead = nonzero_requests([container()], overhead={"memory": 3}, pod_level={"cpu": 7})
    assert with_overhead == {"cpu": 7, "memory": 3}


def test_scores_use_running_resources_of_a_resized_pod():
    running = {"name": "main", "resources": {"requests": {"cpu": "2"}}, "allocatedResources": {"cpu": "1"}}
    resized = pod().cpu("1").condition("PodResizeInProgress", "True").merge(status={"containerStatuses": [running]})
    spec = resized.build().spec
    assert spec.requests == {"cpu": 2000}
    assert spec.nonzero_requests == {"cpu": 2000, "memory": 200 * MI}
    assert spec.scored_requests == {"cpu": 1000, "memory": 200 * MI}
