"""Where the ConfigMap of the expander Priority is read, and which problems are reported."""

from __future__ import annotations

from tests.fakes.api import FakeApi
from tests.fixtures.golden import Golden
from trimtab.autoscaling.priorities import PriorityConfig
from trimtab.kube.api import Forbidden, Unreachable

OWN, OPENSHIFT, OTHER = "trimtab-system", "openshift-machine-api", "other"


def path(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/configmaps/cluster-autoscaler-priority-expander"


def put(api: FakeApi, namespace: str, text: str) -> None:
    api.put(path(namespace), {"kind": "ConfigMap", "metadata": {"name": "x"}, "data": {"priorities": text}})


def forbidden(api: FakeApi, namespace: str) -> None:
    api.fail(Forbidden("no"), times=9, path=path(namespace))


async def test_operators_own_namespace_comes_first() -> None:
    api = FakeApi()
    put(api, OWN, '10: ["a"]')
    put(api, OPENSHIFT, '20: ["b"]')
    assert await PriorityConfig(api, OWN).read([OPENSHIFT]) == {10: ("a",)}
    assert [call.path for call in api.sent("GET")] == [path(OWN)]


async def test_namespaces_of_machine_autoscalers_are_searched_next() -> None:
    api = FakeApi()
    put(api, OPENSHIFT, '20: ["b"]')
    priorities = PriorityConfig(api, OWN)
    assert await priorities.read([OTHER, OPENSHIFT, OPENSHIFT, OWN]) == {20: ("b",)}
    assert priorities.problem is None
    assert [call.path for call in api.sent("GET")] == [path(OWN), path(OPENSHIFT)]


async def test_configured_namespace_is_the_only_one() -> None:
    api = FakeApi()
    put(api, OWN, '10: ["a"]')
    priorities = PriorityConfig(api, OWN, configured=OPENSHIFT)
    assert await priorities.read([OTHER]) == {}
    assert priorities.problem is not None
    assert priorities.problem.namespace == OPENSHIFT
    put(api, OPENSHIFT, '20: ["b"]')
    assert await priorities.read([OTHER]) == {20: ("b",)}
    assert priorities.problem is None


async def test_problem_names_searched_and_forbidden_namespaces(golden: Golden) -> None:
    api = FakeApi()
    forbidden(api, OPENSHIFT)
    priorities = PriorityConfig(api, OWN)
    assert await priorities.read([OPENSHIFT, OTHER]) == {}
    assert priorities.problem is not None
    assert priorities.problem.namespace == OWN
    golden(priorities.problem.message)


async def test_forbidden_namespace_does_not_stop_the_search() -> None:
    api = FakeApi()
    forbidden(api, OPENSHIFT)
    put(api, OTHER, '30: ["c"]')
    assert await PriorityConfig(api, OWN).read([OPENSHIFT, OTHER]) == {30: ("c",)}


async def test_last_priorities_are_kept_while_the_api_server_is_down() -> None:
    api = FakeApi()
    put(api, OPENSHIFT, '20: ["b"]')
    priorities = PriorityConfig(api, OWN)
    await priorities.read([OPENSHIFT])
    api.fail(Unreachable("no answer"), path=path(OPENSHIFT))
    assert await priorities.read([OPENSHIFT]) == {20: ("b",)}
    assert priorities.problem is not None
    assert priorities.problem.namespace == OPENSHIFT
    assert await priorities.read([OPENSHIFT]) == {20: ("b",)}
    assert priorities.problem is None


async def test_invalid_config_map_stops_the_search(golden: Golden) -> None:
    api = FakeApi()
    put(api, OWN, "10: nothing")
    put(api, OPENSHIFT, '20: ["b"]')
    priorities = PriorityConfig(api, OWN)
    assert await priorities.read([OPENSHIFT]) == {}
    assert priorities.problem is not None
    golden(priorities.problem.message)
