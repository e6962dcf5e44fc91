"""Loading a live cluster once."""

from __future__ import annotations

from typing import Any

import pytest

from tests.builders import machine_deployment, machine_set, node, pod
from tests.fakes.clock import SetClock
from tests.fakes.watch import Json, Opened, Protobuf, ScriptedApi
from tests.fixtures.golden import Golden
from trimtab.cluster.kinds import ABSENT_ON_OLD_SERVERS, AUTOSCALING, KINDS, OWNERS, SNAPSHOT_KINDS, VOLUMES
from trimtab.cluster.loader import LoadFailed, load
from trimtab.cluster.snapshot import Snapshot
from trimtab.kube.api import ApiError, Forbidden, Gone, NotFound, ServerError, Unreachable
from trimtab.kube.errors import InputError
from trimtab.kube.objects import Machine, MachineDeployment
from trimtab.kube.resources import MACHINE_DEPLOYMENTS, NODES, PODS, Resource
from trimtab.kube.wire.identity import JSON_ONLY

PROTOBUF, JSON = Protobuf(), Json()
CUT = Unreachable("the connection was reset")


OLD, NEW = {"major": "1", "minor": "32+"}, {"major": "1", "minor": "33"}


class Server(ScriptedApi):
    """Lists by script, of a version."""

    def __init__(self, *answers: Any, version: Any = NEW) -> None:
        super().__init__(answers=list(answers))
        self.version = version

    async def request(self, method: str, path: str, **_options: Any) -> Any:
        assert (method, path) == ("GET", "/version")
        if isinstance(self.version, Exception):
            raise self.version
        return self.version


def pods(*names: str, wire: Protobuf | Json = PROTOBUF, more: str = "") -> list[bytes]:
    """A list, or a page of it after which there are more."""
    return [wire.listed("Pod", [pod(name).on("n1").manifest() for name in names], 5, more)]


async def load_pods(*answers: Any, version: Any = NEW, **options: Any) -> tuple[list[str], list[Opened]]:
    api = Server(*answers, version=version)
    snapshot = await load(api, kinds=[PODS], clock=SetClock(), **options)
    return sorted(each.name for each in snapshot.pods.values()), api.opened


async def test_lists_of_a_streaming_server_are_not_paginated() -> None:
    (body,) = pods("a", "b")

    names, (opened,) = await load_pods([body[:50], body[50:90], body[90:]])

    assert names == ["a", "b"]
    assert opened.accept == "application/vnd.kubernetes.protobuf"
    assert opened.params == {}  # no limit, and no version: as fresh as the server can be


@pytest.mark.parametrize(
    "version",
    [
        pytest.param(OLD, id="1.32+"),
        pytest.param(Forbidden("no", status=403), id="forbidden"),
        pytest.param("ok", id="no version"),
        pytest.param({"major": "", "minor": None}, id="an empty version"),
        pytest.param({"major": "1"}, id="half a version"),
    ],
)
async def test_non_streaming_server_is_read_in_pages(version) -> None:
    names, opened = await load_pods(pods("a", more="next"), pods("b"), version=version)

    assert names == ["a", "b"]
    assert [each.params for each in opened] == [{"limit": "5000"}, {"limit": "5000", "continue": "next"}]


async def test_unreachable_server_is_not_retried_for_discovery(golden: Golden) -> None:
    api = Server(version=CUT)

    with pytest.raises(LoadFailed) as raised:
        await load(api, kinds=[PODS], clock=SetClock())
    golden(str(raised.value))

    assert not api.opened


async def test_unrequested_pages_are_read_to_the_end() -> None:
    assert (await load_pods(pods("a", more="next"), pods("b")))[0] == ["a", "b"]


async def test_truncated_list_is_restarted() -> None:
    (body,) = pods("gone by the second try", "a")

    names, opened = await load_pods([body[:-20], CUT], pods("a"))

    assert names == ["a"]
    assert len(opened) == 2


async def test_truncated_list_is_retried_in_pages() -> None:
    """A server ends every answer after a minute, whoever reads it: over a slow line the whole would never come."""
    (body,) = pods("a", "b")

    names, opened = await load_pods([body[:-20], CUT], pods("a", more="next"), pods("b"))

    assert names == ["a", "b"]
    assert [each.params for each in opened] == [{}, {"limit": "5000"}, {"limit": "5000", "continue": "next"}]


async def test_objects_before_a_format_fallback_are_dropped() -> None:
    (body,) = pods("gone by the second try", "a")
    garbled = bytearray(body)
    garbled[garbled.rindex(b"\x12", 0, garbled.rindex(b"pod-shop-a"))] = 0x1A

    names, opened = await load_pods([bytes(garbled)], pods("a", wire=JSON))

    assert names == ["a"]
    assert opened[-1].accept == "application/json"


async def test_truncated_list_is_an_error(golden: Golden) -> None:
    (body,) = pods("a")

    with pytest.raises(LoadFailed) as raised:
        await load_pods([body[:-1]], [body[:-1]], [body[:-1]])
    golden(str(raised.value))


async def test_expired_pages_restart_the_list() -> None:
    expired = Gone("the continue token has expired", status=410)

    names, _ = await load_pods(pods("a", more="next"), expired, pods("b"), version=OLD)

    assert names == ["b"]


@pytest.mark.parametrize(
    "refusal",
    [
        pytest.param(ApiError("not acceptable", status=406), id="406"),
        pytest.param([b'{"kind": "PodList"}'], id="ignored"),
    ],
)
async def test_a_server_without_protobuf_is_read_in_pages_of_json(refusal) -> None:
    names, opened = await load_pods(refusal, pods("a", wire=JSON))

    assert names == ["a"]
    assert opened[-1].accept == "application/json"
    assert opened[-1].params == {"limit": "5000"}


async def test_malformed_response_is_reported(golden: Golden) -> None:
    with pytest.raises(InputError) as raised:
        await load_pods(ApiError("no protobuf", status=406), [b"<html>"])
    golden(str(raised.value))


async def test_missing_permissions_are_reported_with_verb_and_resource() -> None:
    api = Server(*[Forbidden("no", status=403)] * len(KINDS))

    with pytest.raises(LoadFailed) as caught:
        await load(api, clock=SetClock())

    assert caught.value.action == "list nodes"
    assert len(api.opened) == len(KINDS)  # no second try: nothing would change


async def test_resources_of_other_groups_are_named_with_their_group(golden: Golden) -> None:
    budgets = next(kind for kind in KINDS if kind.plural == "poddisruptionbudgets")

    with pytest.raises(LoadFailed) as raised:
        await load(Server(Forbidden("no", status=403)), kinds=[budgets], clock=SetClock())
    golden(str(raised.value))


@pytest.mark.parametrize("kind", sorted(ABSENT_ON_OLD_SERVERS, key=str), ids=lambda kind: kind.plural)
async def test_kinds_unknown_to_older_servers_are_empty(kind) -> None:
    recorded: list[Resource] = []

    snapshot = await load(
        Server(NotFound("no such resource", status=404)),
        kinds=[kind],
        on_absent=lambda *missed: recorded.append(missed[0]),
        clock=SetClock(),
    )

    assert recorded == [kind]
    assert not snapshot.pods


async def test_cluster_api_is_read_in_the_version_that_is_served() -> None:
    listed = JSON.listed("MachineDeployment", [machine_deployment(version="v1beta1").manifest()], 5)
    api = Server(NotFound("no such version", status=404), [listed])

    snapshot = await load(api, kinds=[MACHINE_DEPLOYMENTS], clock=SetClock())

    assert [opened.path.split("/")[3] for opened in api.opened] == ["v1beta2", "v1beta1"]
    assert [each.api_version for each in snapshot.objects.of(MachineDeployment).values()] == [
        "cluster.x-k8s.io/v1beta1"
    ]


@pytest.mark.parametrize(
    "kind", [each for each in AUTOSCALING if each.type_name in JSON_ONLY], ids=lambda kind: kind.type_name
)
async def test_kinds_without_protobuf_are_listed_in_pages_of_json(kind) -> None:
    more, last = (JSON.listed(kind.kind, [], 5, token) for token in ("next", ""))
    api = Server([more], [last])

    await load(api, kinds=[kind], clock=SetClock())

    assert {opened.accept for opened in api.opened} == {"application/json"}
    assert [opened.params for opened in api.opened] == [{"limit": "5000"}, {"limit": "5000", "continue": "next"}]


async def test_kind_removed_while_reading_is_empty() -> None:
    page = JSON.listed("MachineDeployment", [machine_deployment().manifest()], 5, "next")
    deleted = NotFound("no such resource", status=404)

    snapshot = await load(Server([page], deleted, deleted), kinds=[MACHINE_DEPLOYMENTS], clock=SetClock())

    assert not list(snapshot.objects.of(MachineDeployment))


async def test_forbidden_machine_kind_is_reported_and_empty() -> None:
    recorded: list[Any] = []
    api = Server(Forbidden("no", status=403))

    await load(api, kinds=[MACHINE_DEPLOYMENTS], on_absent=lambda *missed: recorded.append(missed), clock=SetClock())

    ((resource, error),) = recorded
    assert (resource, type(error)) == (MACHINE_DEPLOYMENTS, Forbidden)


async def test_absent_kinds_are_not_reported_if_another_cannot_be_listed() -> None:
    recorded: list[Any] = []
    api = Server(Forbidden("no", status=403), Forbidden("no", status=403))

    with pytest.raises(LoadFailed):
        await load(
            api,
            kinds=[MACHINE_DEPLOYMENTS, NODES],
            on_absent=lambda *missed: recorded.append(missed),
            clock=SetClock(),
        )
    assert not recorded


async def test_server_without_pods_is_an_error(golden: Golden) -> None:
    with pytest.raises(LoadFailed) as raised:
        await load_pods(NotFound("no such resource", status=404))
    golden(str(raised.value))


@pytest.mark.parametrize("kind", [*VOLUMES, *OWNERS], ids=lambda kind: kind.plural)
async def test_forbidden_kind_is_an_error(kind) -> None:
    """Without volumes, say, a plan would evict pods that fit nowhere else."""
    with pytest.raises(LoadFailed) as caught:
        await load(Server(Forbidden("no", status=403)), kinds=[kind], clock=SetClock())

    assert caught.value.action == f"list {kind.name}"


@pytest.mark.parametrize("failure", [CUT, ServerError("etcd is away", status=503)], ids=["unreachable", "503"])
async def test_unreachable_server_is_retried_a_limited_number_of_times(failure) -> None:
    clock = SetClock()
    api = Server(*[failure] * 9)

    with pytest.raises(LoadFailed):
        await load(api, kinds=[PODS], clock=clock)

    assert len(api.opened) == 3


BAD = PROTOBUF.listed("Pod", [pod("a").manifest(), pod("bad").cpu("many").manifest()], 5)


async def test_invalid_object_fails_the_load(golden: Golden) -> None:
    with pytest.raises(InputError) as raised:
        await load_pods([BAD])
    golden(str(raised.value))


async def test_invalid_object_can_be_skipped() -> None:
    recorded: list[InputError] = []

    names, _ = await load_pods([BAD], on_invalid=recorded.append)

    assert names == ["a"]
    assert [error.object for error in recorded] == ["Pod/shop/bad"]


async def test_all_kinds_fill_one_snapshot() -> None:
    class ByPath(Server):
        """Answers by kind: the kinds are read side by side, in no order."""

        def stream(self, path: str, **options: Any) -> Any:
            plural = path.rsplit("/", 1)[-1]
            lists = {
                "nodes": [PROTOBUF.listed("Node", [node("n1").manifest()], 1)],
                "pods": pods("a"),
                "machines": [JSON.listed("Machine", [machine_set().machine("m").on("n1").manifest()], 1)],
            }
            wire = PROTOBUF if options["accept"].startswith("application/vnd") else JSON
            if "cluster.x-k8s.io" in path:
                self.answers = [NotFound("no such resource", status=404)]
            else:
                self.answers = [lists.get(plural, [wire.listed("Any", [], 1)])]
            return super().stream(path, **options)

    recorded: list[Any] = []
    snapshot = await load(ByPath(), kinds=SNAPSHOT_KINDS, on_absent=lambda *missed: recorded.append(missed))

    assert isinstance(snapshot, Snapshot)
    assert [each.node for each in snapshot.objects.of(Machine).values()] == ["n1"]
    assert not recorded  # that there is no Cluster API is nothing special
    assert [each.name for each in snapshot.pods_on("n1")] == ["a"]
