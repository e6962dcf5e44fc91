"""Loading a live cluster once."""

from __future__ import annotations

from typing import Any

import pytest

from tests.builders import machine_deployment, machine_set, node, pod
from tests.fakes.clock import SetClock
from tests.fakes.watch import END, Json, Opened, Protobuf, ScriptedApi
from trimtab.cluster.kinds import EVERYTHING, KINDS, MAY_LACK, OWNERS, VOLUMES
from trimtab.cluster.load import LoadFailed, load
from trimtab.cluster.snapshot import Snapshot
from trimtab.kube.api import ApiError, Forbidden, Gone, Invalid, NotFound, ServerError, Unreachable
from trimtab.kube.errors import InputError
from trimtab.kube.objects import Machine, MachineDeployment
from trimtab.kube.resources import MACHINE_DEPLOYMENTS, PODS, Resource

PROTOBUF, JSON = Protobuf(), Json()
CUT = Unreachable("the connection was reset")


def pods(*names: str, wire: Protobuf | Json = PROTOBUF) -> list[bytes]:
    return [wire.event("ADDED", pod(name).on("n1").manifest(), 5) for name in names]


def end(wire: Protobuf | Json = PROTOBUF) -> bytes:
    return wire.bookmark("Pod", 9, END)


async def load_pods(*answers: Any, **options: Any) -> tuple[list[str], list[Opened]]:
    api = ScriptedApi(answers=list(answers))
    snapshot = await load(api, kinds=[PODS], clock=SetClock(), **options)
    return sorted(each.name for each in snapshot.pods.values()), api.opened


async def test_reading_ends_with_the_present_objects() -> None:
    names, (opened,) = await load_pods([*pods("a", "b"), end(), *pods("later")])

    assert names == ["a", "b"]
    assert opened.accept == "application/vnd.kubernetes.protobuf;stream=watch"
    assert opened.params["sendInitialEvents"] == "true"
    assert "resourceVersion" not in opened.params  # as fresh as the server can be


async def test_a_bookmark_on_the_way_is_not_the_end() -> None:
    names, _ = await load_pods([*pods("a"), PROTOBUF.bookmark("Pod", 6), *pods("b"), end()])

    assert names == ["a", "b"]


async def test_what_is_deleted_while_reading_is_left_out() -> None:
    gone = PROTOBUF.event("DELETED", pod("a").on("n1").manifest(), 6)

    assert (await load_pods([*pods("a", "b"), gone, end()]))[0] == ["b"]


async def test_a_cut_stream_is_read_anew_from_the_beginning() -> None:
    names, opened = await load_pods([*pods("gone by the second try", "a"), CUT], [*pods("a"), end()])

    assert names == ["a"]
    assert len(opened) == 2


async def test_a_stream_that_ends_early_is_not_taken_for_complete() -> None:
    with pytest.raises(LoadFailed, match="list pods: the stream of pods ended before the last object"):
        await load_pods(pods("a"), pods("a"), pods("a"))


async def test_an_error_within_the_stream_is_an_error() -> None:
    refused = PROTOBUF.error(403, "Forbidden", "no more pods for you")

    with pytest.raises(LoadFailed, match="list pods: no more pods for you") as caught:
        await load_pods([*pods("a"), refused])

    assert isinstance(caught.value.cause, Forbidden)


async def test_an_expired_version_within_the_stream_begins_it_anew() -> None:
    assert (await load_pods([*pods("a"), PROTOBUF.error(410, "Expired")], [*pods("b"), end()]))[0] == ["b"]


async def test_a_server_without_streamed_lists_is_read_in_pages() -> None:
    names, opened = await load_pods(
        Invalid("sendInitialEvents is forbidden", status=422),
        [PROTOBUF.listed("Pod", [pod("a").manifest()], 5, "next")],
        [PROTOBUF.listed("Pod", [pod("b").manifest()], 5)],
    )

    assert names == ["a", "b"]
    assert [each.params.get("continue") for each in opened] == [None, None, "next"]
    assert opened[1].accept == "application/vnd.kubernetes.protobuf"


async def test_pages_that_expire_are_read_anew() -> None:
    names, _ = await load_pods(
        Invalid("no", status=422),
        [PROTOBUF.listed("Pod", [pod("a").manifest()], 5, "next")],
        Gone("the continue token has expired", status=410),
        [PROTOBUF.listed("Pod", [pod("b").manifest()], 6)],
    )

    assert names == ["b"]


@pytest.mark.parametrize(
    "refusal",
    [
        pytest.param(ApiError("not acceptable", status=406), id="406"),
        pytest.param([b'{"type": "ADDED"}\n'], id="ignored"),
    ],
)
async def test_a_server_without_protobuf_is_read_in_json(refusal) -> None:
    names, opened = await load_pods(refusal, [*pods("a", wire=JSON), end(JSON)])

    assert names == ["a"]
    assert opened[-1].accept == "application/json"


async def test_an_answer_in_no_format_is_told() -> None:
    with pytest.raises(InputError, match="pods: the API server's answer is no watch event"):
        await load_pods(ApiError("no protobuf", status=406), [b"<html>\n"])


async def test_missing_rights_are_told_at_once_with_verb_and_resource() -> None:
    api = ScriptedApi(answers=[Forbidden("no", status=403)] * len(KINDS))

    with pytest.raises(LoadFailed) as caught:
        await load(api, clock=SetClock())

    assert caught.value.action == "list nodes"
    assert len(api.opened) == len(KINDS)  # no second try: nothing would change


async def test_resources_of_other_groups_are_named_with_their_group() -> None:
    budgets = next(kind for kind in KINDS if kind.plural == "poddisruptionbudgets")

    with pytest.raises(LoadFailed, match=r"list poddisruptionbudgets\.policy: no"):
        await load(ScriptedApi(answers=[Forbidden("no", status=403)]), kinds=[budgets], clock=SetClock())


@pytest.mark.parametrize("kind", MAY_LACK, ids=lambda kind: kind.plural)
async def test_kinds_that_an_older_server_does_not_know_have_no_objects(kind) -> None:
    told: list[Resource] = []

    snapshot = await load(
        ScriptedApi(answers=[NotFound("no such resource", status=404)]),
        kinds=[kind],
        on_absent=lambda *missed: told.append(missed[0]),
        clock=SetClock(),
    )

    assert told == [kind]
    assert not snapshot.pods


async def test_cluster_api_is_read_in_the_version_that_is_served() -> None:
    listed = [JSON.event("ADDED", machine_deployment(version="v1beta1").manifest(), 5), end(JSON)]
    api = ScriptedApi(answers=[NotFound("no such version", status=404), listed])

    snapshot = await load(api, kinds=[MACHINE_DEPLOYMENTS], clock=SetClock())

    assert [opened.path.split("/")[3] for opened in api.opened] == ["v1beta2", "v1beta1"]
    assert [each.api_version for each in snapshot.shelves.of(MachineDeployment).values()] == [
        "cluster.x-k8s.io/v1beta1"
    ]


async def test_a_kind_of_machines_that_one_may_not_read_is_told_and_has_no_objects() -> None:
    told: list[Any] = []
    api = ScriptedApi(answers=[Forbidden("no", status=403)])

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
        await load(ScriptedApi(answers=[Forbidden("no", status=403)]), kinds=[kind], clock=SetClock())

    assert caught.value.action == f"list {kind.name}"


@pytest.mark.parametrize("failure", [CUT, ServerError("etcd is away", status=503)], ids=["unreachable", "503"])
async def test_a_server_that_stays_away_is_not_waited_for_for_ever(failure) -> None:
    clock = SetClock()
    api = ScriptedApi(answers=[failure] * 9)

    with pytest.raises(LoadFailed):
        await load(api, kinds=[PODS], clock=clock)

    assert len(api.opened) == 3


async def test_an_unreadable_object_ends_the_reading() -> None:
    with pytest.raises(InputError, match=r"Pod/shop/bad: spec\.containers\[0\]\.resources\.requests"):
        await load_pods([*pods("a"), _bad(), end()])


async def test_an_unreadable_object_can_be_left_out() -> None:
    told: list[InputError] = []

    names, _ = await load_pods([*pods("a"), _bad(), end()], on_invalid=told.append)

    assert names == ["a"]
    assert [error.object for error in told] == ["Pod/shop/bad"]


async def test_all_kinds_fill_one_snapshot() -> None:
    class ByPath(ScriptedApi):
        """Answers by kind: the kinds are read side by side, in no order."""

        def stream(self, path: str, **options: Any) -> Any:
            plural = path.rsplit("/", 1)[-1]
            wire = PROTOBUF if options["accept"].startswith("application/vnd") else JSON
            objects = {
                "nodes": [PROTOBUF.event("ADDED", node("n1").manifest(), 1)],
                "pods": pods("a"),
                "machines": [JSON.event("ADDED", machine_set().machine("m").on("n1").manifest(), 1)],
            }
            if "cluster.x-k8s.io" in path:
                self.answers = [NotFound("no such resource", status=404)]
            else:
                self.answers = [[*objects.get(plural, []), wire.bookmark("Pod", 2, END)]]
            return super().stream(path, **options)

    told: list[Any] = []
    snapshot = await load(ByPath(), kinds=EVERYTHING, on_absent=lambda *missed: told.append(missed))

    assert isinstance(snapshot, Snapshot)
    assert [each.node for each in snapshot.shelves.of(Machine).values()] == ["n1"]
    assert not told  # that there is no Cluster API is nothing special
    assert [each.name for each in snapshot.pods_on("n1")] == ["a"]


def _bad() -> bytes:
    return PROTOBUF.event("ADDED", pod("bad").cpu("many").manifest(), 5)
