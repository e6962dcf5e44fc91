"""Loading a live cluster once."""

from __future__ import annotations

from typing import Any

import pytest

from tests.builders import machine_deployment, machine_set, node, pod
from tests.fakes.clock import SetClock
from tests.fakes.watch import Json, Opened, Protobuf, ScriptedApi
from trimtab.cluster.kinds import AUTOSCALING, EVERYTHING, KINDS, MAY_LACK, OWNERS, VOLUMES
from trimtab.cluster.load import LoadFailed, load
from trimtab.cluster.snapshot import Snapshot
from trimtab.kube.api import ApiError, Forbidden, Gone, NotFound, ServerError, Unreachable
from trimtab.kube.errors import InputError
from trimtab.kube.objects import Machine, MachineDeployment
from trimtab.kube.resources import MACHINE_DEPLOYMENTS, PODS, Resource

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


async def test_a_server_that_writes_lists_as_it_goes_is_asked_for_the_whole() -> None:
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
async def test_another_server_is_read_in_pages(version) -> None:
    names, opened = await load_pods(pods("a", more="next"), pods("b"), version=version)

    assert names == ["a", "b"]
    assert [each.params for each in opened] == [{"limit": "5000"}, {"limit": "5000", "continue": "next"}]


async def test_a_server_that_is_not_there_is_not_asked_again() -> None:
    api = Server(version=CUT)

    with pytest.raises(LoadFailed, match="list pods: the connection was reset"):
        await load(api, kinds=[PODS], clock=SetClock())

    assert not api.opened


async def test_a_server_that_sends_pages_unasked_is_read_to_the_end() -> None:
    assert (await load_pods(pods("a", more="next"), pods("b")))[0] == ["a", "b"]


async def test_a_cut_list_is_read_anew_from_the_beginning() -> None:
    (body,) = pods("gone by the second try", "a")

    names, opened = await load_pods([body[:-20], CUT], pods("a"))

    assert names == ["a"]
    assert len(opened) == 2


async def test_a_list_that_was_cut_is_asked_for_in_pages() -> None:
    """A server ends every answer after a minute, whoever reads it: over a slow line the whole would never come."""
    (body,) = pods("a", "b")

    names, opened = await load_pods([body[:-20], CUT], pods("a", more="next"), pods("b"))

    assert names == ["a", "b"]
    assert [each.params for each in opened] == [{}, {"limit": "5000"}, {"limit": "5000", "continue": "next"}]


async def test_what_came_before_another_format_is_forgotten() -> None:
    (body,) = pods("gone by the second try", "a")
    garbled = bytearray(body)
    garbled[garbled.rindex(b"\x12", 0, garbled.rindex(b"pod-shop-a"))] = 0x1A

    names, opened = await load_pods([bytes(garbled)], pods("a", wire=JSON))

    assert names == ["a"]
    assert opened[-1].accept == "application/json"


async def test_a_list_that_ends_early_is_not_taken_for_complete() -> None:
    (body,) = pods("a")

    with pytest.raises(LoadFailed, match="list pods: the list of pods ended before its last object"):
        await load_pods([body[:-1]], [body[:-1]], [body[:-1]])


async def test_pages_that_expire_are_read_anew() -> None:
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


async def test_an_answer_in_no_format_is_told() -> None:
    with pytest.raises(InputError, match="pods: the API server's answer is no list"):
        await load_pods(ApiError("no protobuf", status=406), [b"<html>"])


async def test_missing_rights_are_told_at_once_with_verb_and_resource() -> None:
    api = Server(*[Forbidden("no", status=403)] * len(KINDS))

    with pytest.raises(LoadFailed) as caught:
        await load(api, clock=SetClock())

    assert caught.value.action == "list nodes"
    assert len(api.opened) == len(KINDS)  # no second try: nothing would change


async def test_resources_of_other_groups_are_named_with_their_group() -> None:
    budgets = next(kind for kind in KINDS if kind.plural == "poddisruptionbudgets")

    with pytest.raises(LoadFailed, match=r"list poddisruptionbudgets\.policy: no"):
        await load(Server(Forbidden("no", status=403)), kinds=[budgets], clock=SetClock())


@pytest.mark.parametrize("kind", MAY_LACK, ids=lambda kind: kind.plural)
async def test_kinds_that_an_older_server_does_not_know_have_no_objects(kind) -> None:
    told: list[Resource] = []

    snapshot = await load(
        Server(NotFound("no such resource", status=404)),
        kinds=[kind],
        on_absent=lambda *missed: told.append(missed[0]),
        clock=SetClock(),
    )

    assert told == [kind]
    assert not snapshot.pods


async def test_cluster_api_is_read_in_the_version_that_is_served() -> None:
    listed = JSON.listed("MachineDeployment", [machine_deployment(version="v1beta1").manifest()], 5)
    api = Server(NotFound("no such version", status=404), [listed])

    snapshot = await load(api, kinds=[MACHINE_DEPLOYMENTS], clock=SetClock())

    assert [opened.path.split("/")[3] for opened in api.opened] == ["v1beta2", "v1beta1"]
    assert [each.api_version for each in snapshot.shelves.of(MachineDeployment).values()] == [
        "cluster.x-k8s.io/v1beta1"
    ]


@pytest.mark.parametrize("kind", AUTOSCALING, ids=lambda kind: kind.type_name)
async def test_kinds_that_no_server_has_in_protobuf_are_asked_for_in_pages_of_json(kind) -> None:
    more, last = (JSON.listed(kind.kind, [], 5, token) for token in ("next", ""))
    api = Server([more], [last])

    await load(api, kinds=[kind], clock=SetClock())

    assert {opened.accept for opened in api.opened} == {"application/json"}
    assert [opened.params for opened in api.opened] == [{"limit": "5000"}, {"limit": "5000", "continue": "next"}]


async def test_a_kind_that_goes_while_it_is_read_has_no_objects() -> None:
    page = JSON.listed("MachineDeployment", [machine_deployment().manifest()], 5, "next")
    gone = NotFound("no such resource", status=404)

    snapshot = await load(Server([page], gone, gone), kinds=[MACHINE_DEPLOYMENTS], clock=SetClock())

    assert not list(snapshot.shelves.of(MachineDeployment))


async def test_a_kind_of_machines_that_one_may_not_read_is_told_and_has_no_objects() -> None:
    told: list[Any] = []
    api = Server(Forbidden("no", status=403))

    await load(api, kinds=[MACHINE_DEPLOYMENTS], on_absent=lambda *missed: told.append(missed), clock=SetClock())

    ((resource, error),) = told
    assert (resource, type(error)) == (MACHINE_DEPLOYMENTS, Forbidden)


async def test_a_server_that_knows_no_pods_is_none() -> None:
    with pytest.raises(LoadFailed, match="list pods: no such resource"):
        await load_pods(NotFound("no such resource", status=404))


@pytest.mark.parametrize("kind", [*VOLUMES, *OWNERS], ids=lambda kind: kind.plural)
async def test_a_kind_that_may_not_be_listed_is_never_taken_as_empty(kind) -> None:
    """Without volumes, say, a plan would evict pods that fit nowhere else."""
    with pytest.raises(LoadFailed) as caught:
        await load(Server(Forbidden("no", status=403)), kinds=[kind], clock=SetClock())

    assert caught.value.action == f"list {kind.name}"


@pytest.mark.parametrize("failure", [CUT, ServerError("etcd is away", status=503)], ids=["unreachable", "503"])
async def test_a_server_that_stays_away_is_not_waited_for_for_ever(failure) -> None:
    clock = SetClock()
    api = Server(*[failure] * 9)

    with pytest.raises(LoadFailed):
        await load(api, kinds=[PODS], clock=clock)

    assert len(api.opened) == 3


BAD = PROTOBUF.listed("Pod", [pod("a").manifest(), pod("bad").cpu("many").manifest()], 5)


async def test_an_unreadable_object_ends_the_reading() -> None:
    with pytest.raises(InputError, match=r"Pod/shop/bad: spec\.containers\[0\]\.resources\.requests"):
        await load_pods([BAD])


async def test_an_unreadable_object_can_be_left_out() -> None:
    told: list[InputError] = []

    names, _ = await load_pods([BAD], on_invalid=told.append)

    assert names == ["a"]
    assert [error.object for error in told] == ["Pod/shop/bad"]


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

    told: list[Any] = []
    snapshot = await load(ByPath(), kinds=EVERYTHING, on_absent=lambda *missed: told.append(missed))

    assert isinstance(snapshot, Snapshot)
    assert [each.node for each in snapshot.shelves.of(Machine).values()] == ["n1"]
    assert not told  # that there is no Cluster API is nothing special
    assert [each.name for each in snapshot.pods_on("n1")] == ["a"]
