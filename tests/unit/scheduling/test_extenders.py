"""Scheduler extenders: requests, what is believed of their answers, and plans with their verdicts."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import node, pod
from tests.fakes.api import FakeApi
from tests.fakes.clock import SetClock
from tests.fakes.server import FakeServer, cut, fake_server, json, text
from tests.fixtures.golden import Golden
from tests.unit.kube.test_tls import CA, CLIENT, server_context
from trimtab.api.plan import Bind as PlannedBind
from trimtab.api.scheduler_extenders import Extender
from trimtab.api.scheduler_policy import SchedulerPolicy, SchedulerPolicySpec
from trimtab.cluster.snapshot import Snapshot
from trimtab.kube.api import LeaderOnlyApi
from trimtab.kube.errors import InputError
from trimtab.kube.objects import Pod
from trimtab.placement.placer import Placer
from trimtab.placement.registry import DEFAULT
from trimtab.scheduling import extenders
from trimtab.scheduling.extender_verdicts import (
    MAX_REASONS,
    NOT_ASKED,
    REJECTED,
    ExtenderError,
    Verdict,
    read_binding_answer,
    read_filter_answer,
    read_priorities,
    read_victims,
)
from trimtab.scheduling.extenders import NODES_MAX_AGE, ApiObjects, ExtenderChain, refuse_address
from trimtab.scheduling.planner import Bind, CyclePlanner, Decision, Reject
from trimtab.scheduling.preview import plan_scheduling
from trimtab.scheduling.profiles import extender_scale, profile_of

GPU = "example.com/gpu"
KEYS = ("NodeNames", "nodes", "items", "metadata", "name", "Error", "FailedNodes", "Host", "Score", "Pods", "UID", "a")


class Objects:
    """Objects that are only their names."""

    async def pod(self, pod: Pod) -> msgspec.Raw:
        return msgspec.Raw(msgspec.json.encode({"metadata": {"name": pod.name, "uid": pod.uid}}))

    async def nodes(self, names: Sequence[str]) -> list[msgspec.Raw]:
        return [msgspec.Raw(msgspec.json.encode({"metadata": {"name": name}})) for name in names]


def chain(*specs: dict[str, Any], scale: int = 1) -> ExtenderChain:
    return ExtenderChain([msgspec.convert(spec, Extender) for spec in specs], Objects(), scale=scale)


def named(url: str, **fields: Any) -> dict[str, Any]:
    """An extender that knows the nodes and filters."""
    return {"urlPrefix": url, "filterVerb": "filter", "nodeCacheCapable": True, **fields}


def asking(name: str = "p", **requests: str) -> Any:
    return pod(name).requests({GPU: "1", **requests}).merge(metadata={"uid": f"uid-{name}"}).build()


def bodies(server: FakeServer) -> list[tuple[str, Any]]:
    return [(path, msgspec.json.decode(body)) for _, path, _, body in server.requests]


class TestInterest:
    @pytest.mark.parametrize(
        ("fields", "expected"),
        [
            ({"filterVerb": "f"}, True),
            ({"filterVerb": "f", "managedResources": [{"name": GPU}]}, True),
            ({"filterVerb": "f", "managedResources": [{"name": "example.com/other"}]}, False),
            ({"prioritizeVerb": "p", "weight": 1}, True),
            ({"bindVerb": "b"}, False),
        ],
    )
    def test_pod_waits_only_for_extenders_that_filter_or_score_it(self, fields: dict[str, Any], expected: bool) -> None:
        assert chain({"urlPrefix": "http://localhost", **fields}).interested(asking()) is expected

    def test_pods_without_a_managed_resource_are_not_sent(self) -> None:
        made = chain({"urlPrefix": "http://localhost", "filterVerb": "f", "managedResources": [{"name": GPU}]})
        assert not made.interested(pod("plain").cpu("1").build())


class TestRequests:
    async def test_names_of_nodes_are_sent_to_extenders_that_know_them(self) -> None:
        async with fake_server() as server:
            server.answer(json({"NodeNames": ["a"], "FailedNodes": {"b": "no license"}}))
            made = chain(named(f"{server.url}/api/"))
            verdict = await made.consult(asking(), ["a", "b"])
            await made.close()
        assert bodies(server) == [
            ("/api/filter", {"Pod": {"metadata": {"name": "p", "uid": "uid-p"}}, "NodeNames": ["a", "b"]})
        ]
        assert (verdict.asked, verdict.passed, verdict.failed) == ({"a", "b"}, {"a"}, {"b": "no license"})

    async def test_nodes_are_sent_to_others(self) -> None:
        async with fake_server() as server:
            server.answer(json({"nodes": {"items": [{"metadata": {"name": "b"}}]}}))
            made = chain({"urlPrefix": server.url, "filterVerb": "filter"})
            verdict = await made.consult(asking(), ["a", "b"])
            await made.close()
        [(_, body)] = bodies(server)
        assert [each["metadata"]["name"] for each in body["Nodes"]["items"]] == ["a", "b"]
        assert verdict.passed == {"b"}

    async def test_each_filters_what_the_one_before_left_and_scores_are_added(self) -> None:
        async with fake_server() as server:
            server.answer(
                json({"NodeNames": ["a", "b"]}),
                json({"NodeNames": ["b", "a"]}),
                json([{"Host": "a", "Score": 10}, {"Host": "elsewhere", "Score": 3}]),
                json([{"host": "a", "score": 1}, {"host": "b", "score": 4}]),
            )
            made = chain(
                named(f"{server.url}/1", prioritizeVerb="p", weight=2),
                named(f"{server.url}/2", prioritizeVerb="p", weight=5),
                scale=10,
            )
            verdict = await made.consult(asking(), ["a", "b", "c"])
            await made.close()
        sent = bodies(server)
        assert [body["NodeNames"] for _, body in sent[:2]] == [["a", "b", "c"], ["a", "b"]]
        weights = {"/1/p": 2, "/2/p": 5}
        first, second = (weights[path] for path, _ in sent[2:])
        assert verdict.scores == {"a": 10 * first * 10 + 1 * second * 10, "b": 4 * second * 10}

    async def test_no_node_left_ends_the_chain(self) -> None:
        async with fake_server() as server:
            server.answer(json({"NodeNames": []}))
            made = chain(named(f"{server.url}/1", prioritizeVerb="p", weight=2), named(f"{server.url}/2"))
            verdict = await made.consult(asking(), ["a"])
            await made.close()
        assert len(server.requests) == 1
        assert verdict.passed == frozenset()

    @pytest.mark.parametrize(
        "answer",
        [
            json({"Error": "out of licenses"}),
            json({"NodeNames": ["other"]}),
            json({"NodeNames": "a"}),
            json([]),
            json({}, status=500),
            json({"NodeNames": ["a"]}, status=302, headers={"Location": "http://169.254.169.254/"}),
            text("no JSON"),
            text("[" * 100_000),
            cut,
        ],
    )
    async def test_error_fails_the_attempt_unless_the_extender_is_ignorable(self, answer: Any) -> None:
        async with fake_server() as server:
            server.answer(answer)
            strict, ignorable = chain(named(server.url)), chain(named(server.url, ignorable=True))
            with pytest.raises(ExtenderError):
                await strict.consult(asking(), ["a", "b"])
            verdict = await ignorable.consult(asking(), ["a", "b"])
            await strict.close()
            await ignorable.close()
        assert verdict.passed == {"a", "b"}

    async def test_timeout(self) -> None:
        async def hang(_request: web.Request) -> web.StreamResponse:
            await asyncio.sleep(60)
            return web.Response()

        async with fake_server() as server:
            server.answer(hang)
            made = chain(named(server.url, httpTimeout="50ms"))
            with pytest.raises(ExtenderError, match=r"timed out|[Tt]imeout"):
                await made.consult(asking(), ["a"])
            await made.close()

    async def test_answer_that_is_too_large_is_not_read_to_its_end(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(extenders, "MAX_RESPONSE", 1000)
        async with fake_server() as server:
            server.answer(text("x" * 100_000))
            made = chain(named(server.url))
            with pytest.raises(ExtenderError, match="larger than 1000 bytes"):
                await made.consult(asking(), ["a"])
            await made.close()

    async def test_errors_of_scores_are_always_ignored(self) -> None:
        async with fake_server() as server:
            server.answer(json({"NodeNames": ["a", "b"]}), json([{"Host": "a", "Score": 11}]))
            made = chain(named(server.url, prioritizeVerb="p", weight=2))
            verdict = await made.consult(asking(), ["a", "b"])
            await made.close()
        assert verdict.scores == {}

    async def test_metadata_service_is_not_connected_to(self) -> None:
        made = chain(named("http://169.254.169.254"))
        with pytest.raises(ExtenderError, match="are refused: the address is not one of an extender"):
            await made.consult(asking(), ["a"])
        await made.close()

    async def test_binder_gets_the_pod_and_the_node(self) -> None:
        async with fake_server() as server:
            server.answer(json({"Error": ""}), json({"Error": "taken"}))
            made = chain(named(server.url), {"urlPrefix": server.url, "bindVerb": "bind"})
            assert made.binds(asking())
            await made.bind(asking(), "a")
            with pytest.raises(ExtenderError, match="taken"):
                await made.bind(asking(), "a")
            await made.close()
        assert bodies(server)[0] == (
            "/bind",
            {"PodName": "p", "PodNamespace": "shop", "PodUID": "uid-p", "Node": "a"},
        )

    async def test_victims_are_narrowed(self) -> None:
        low = [asking("low-1"), asking("low-2")]
        async with fake_server() as server:
            server.answer(json({"NodeNameToMetaVictims": {"a": {"Pods": [{"UID": "uid-low-2"}]}}}))
            made = chain(named(server.url, preemptVerb="preempt"))
            left = await made.preempt(asking(), {"a": low, "b": low[:1]})
            await made.close()
        assert left == {"a": (low[1],)}
        assert bodies(server)[0][1]["NodeNameToMetaVictims"]["b"]["Pods"] == [{"UID": "uid-low-1"}]


class TestTLS:
    async def test_certificates_are_verified_and_presented(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        files = {"/etc/trimtab/tls.crt": CLIENT.pem, "/etc/trimtab/tls.key": CLIENT.key_pem}
        monkeypatch.setattr(extenders, "_read", lambda file: files[file] if file else b"")
        tls = {
            "caData": base64.b64encode(CA.pem).decode(),
            "serverName": "extender",
            "certFile": "/etc/trimtab/tls.crt",
            "keyFile": "/etc/trimtab/tls.key",
        }

        async def accept(request: web.Request) -> web.StreamResponse:
            return web.json_response({"NodeNames": ["a"] if request.get_extra_info("peercert") else []})

        async with fake_server(ssl=server_context(tmp_path, "extender")) as server:
            server.answer(accept)
            made = chain(named(server.url, tlsConfig=tls))
            assert (await made.consult(asking(), ["a"])).passed == {"a"}
            await made.close()

    @pytest.mark.parametrize(("tls", "trusted"), [({}, False), ({"caData": "own"}, False), ({"insecure": True}, True)])
    async def test_server_of_another_name_or_authority(
        self, tmp_path: Path, tls: dict[str, Any], trusted: bool
    ) -> None:
        if "caData" in tls:
            tls = {"caData": base64.b64encode(CA.pem).decode()}
        async with fake_server(ssl=server_context(tmp_path, "elsewhere")) as server:
            server.answer(json({"NodeNames": ["a"]}))
            made = chain(named(server.url, tlsConfig=tls, ignorable=False))
            if trusted:
                assert (await made.consult(asking(), ["a"])).passed == {"a"}
            else:
                with pytest.raises(ExtenderError, match="certificate"):
                    await made.consult(asking(), ["a"])
            await made.close()

    @pytest.mark.parametrize("tls", [{"caData": "no base64"}, {"caData": "aGk="}, {"caFile": "/etc/trimtab/none"}])
    def test_unusable_certificates_are_an_error_of_the_policy(self, tls: dict[str, Any]) -> None:
        with pytest.raises(InputError, match="extender https://localhost"):
            chain(named("https://localhost", tlsConfig=tls))


class TestApiObjects:
    NODES = "/api/v1/nodes"
    POD = "/api/v1/namespaces/shop/pods/p"

    @pytest.fixture
    def api(self) -> FakeApi:
        api = FakeApi()
        for name in ("a", "b"):
            api.put(f"{self.NODES}/{name}", {"metadata": {"name": name}, "spec": {"podCIDR": "10.0.0.0/24"}})
        api.put(self.POD, {"metadata": {"name": "p", "namespace": "shop", "uid": "uid-p"}, "spec": {"hostname": "x"}})
        return api

    async def test_complete_objects_are_read(self, api: FakeApi) -> None:
        objects = ApiObjects(api, SetClock())
        found = msgspec.json.decode(await objects.pod(asking()))
        assert (found["kind"], found["spec"]["hostname"]) == ("Pod", "x")
        [node_b] = [msgspec.json.decode(each) for each in await objects.nodes(["b", "none"])]
        assert (node_b["kind"], node_b["metadata"]["name"], node_b["spec"]["podCIDR"]) == ("Node", "b", "10.0.0.0/24")

    async def test_pod_of_another_uid_was_deleted(self, api: FakeApi) -> None:
        objects = ApiObjects(api, SetClock())
        with pytest.raises(ExtenderError, match="deleted"):
            await objects.pod(pod("p").merge(metadata={"uid": "uid-old"}).build())
        with pytest.raises(ExtenderError, match="deleted"):
            await objects.pod(asking("other"))

    async def test_nodes_are_listed_once_while_they_are_fresh(self, api: FakeApi) -> None:
        clock = SetClock()
        objects = ApiObjects(api, clock)
        for _ in range(3):
            await objects.nodes(["a"])
        assert len(api.sent("GET", self.NODES)) == 1
        api.put(f"{self.NODES}/c", {"metadata": {"name": "c"}})
        assert len(await objects.nodes(["c"])) == 1, "a new node is read at once"
        await clock.sleep(NODES_MAX_AGE + 1)
        await objects.nodes(["a"])
        assert len(api.sent("GET", self.NODES)) == 3

    @pytest.mark.parametrize("leading", [True, False])
    async def test_errors_of_the_api_server(self, api: FakeApi, leading: bool) -> None:
        api.down = True
        objects = ApiObjects(LeaderOnlyApi(api, lambda: leading), SetClock())
        with pytest.raises(ExtenderError, match="cannot read the pod"):
            await objects.pod(asking())
        with pytest.raises(ExtenderError, match="cannot read the nodes"):
            await objects.nodes(["a"])


@pytest.mark.parametrize(
    ("address", "refused"),
    [
        ("169.254.169.254", True),
        ("fe80::1%eth0", True),
        ("::ffff:169.254.169.254", True),
        ("0.0.0.0", True),
        ("::", True),
        ("224.0.0.1", True),
        ("127.0.0.1", False),
        ("10.1.2.3", False),
        ("fd00::1", False),
    ],
)
def test_addresses_that_no_extender_has(address: str, refused: bool) -> None:
    if refused:
        with pytest.raises(PermissionError):
            refuse_address(address)
    else:
        refuse_address(address)


class TestAnswers:
    def test_keys_are_read_in_any_case(self) -> None:
        for key in ("NodeNames", "nodenames", "nodeNames"):
            assert read_filter_answer({key: ["a"]}, ["a", "b"], names_only=True).passed == {"a"}

    def test_neither_list_means_that_no_node_passes(self) -> None:
        assert read_filter_answer({"error": ""}, ["a"], names_only=True).passed == frozenset()

    def test_unresolvable_nodes_take_precedence(self) -> None:
        answer = {"NodeNames": [], "FailedNodes": {"a": "x"}, "FailedAndUnresolvableNodes": {"a": "y", "other": "z"}}
        found = read_filter_answer(answer, ["a"], names_only=True)
        assert (found.failed, found.unresolvable) == ({"a": "y"}, {"a"})

    def test_reasons_are_few_short_and_printable(self) -> None:
        names = [f"n{number:03}" for number in range(100)]
        failed = {name: f"{name}\n\x1b[31m{'x' * 1000}" for name in names}
        found = read_filter_answer({"NodeNames": [], "FailedNodes": failed}, names, names_only=True)
        assert len(set(found.failed.values())) == MAX_REASONS + 1
        assert REJECTED in found.failed.values()
        assert all(len(text) <= 256 and text.isprintable() for text in found.failed.values())

    def test_victims_that_were_not_proposed_are_an_error(self) -> None:
        proposed = {"a": [asking("low")]}
        for victims in ([], [{"UID": "uid-other"}], [{"UID": "uid-low"}, {"UID": "uid-other"}], [{"UID": {}}]):
            with pytest.raises(ExtenderError):
                read_victims({"NodeNameToMetaVictims": {"a": {"Pods": victims}}}, proposed)
        with pytest.raises(ExtenderError):
            read_victims({"NodeNameToMetaVictims": {"b": {"Pods": [{"UID": "uid-low"}]}}}, proposed)

    @given(
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=9),
            lambda inner: (
                st.lists(inner, max_size=3)
                | st.dictionaries(
                    st.sampled_from(
                        [
                            "NodeNames",
                            "nodes",
                            "items",
                            "metadata",
                            "name",
                            "Error",
                            "FailedNodes",
                            "Host",
                            "Score",
                            "Pods",
                            "UID",
                            "a",
                        ]
                    ),
                    inner,
                    max_size=3,
                )
            ),
            max_leaves=12,
        )
    )
    def test_random_answers_are_read_or_refused_and_never_widen(self, answer: Any) -> None:
        victim = asking("low")
        for names_only in (True, False):
            with suppress(ExtenderError):
                found = read_filter_answer(answer, ["a", "b"], names_only=names_only)
                assert found.passed <= {"a", "b"}
                assert found.failed.keys() <= {"a", "b"}
        with suppress(ExtenderError):
            assert all(0 <= score <= 10 for score in read_priorities(answer, ["a"]).values())
        with suppress(ExtenderError):
            victims = {"NodeNameToMetaVictims": {"a": answer}}
            assert read_victims(victims, {"a": [victim]}) in ({}, {"a": (victim,)})
        with suppress(ExtenderError):
            read_binding_answer(answer)


def three_nodes() -> list[Any]:
    return [node(name).merge(status={"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "9"}}) for name in "abc"]


class TestPlans:
    @staticmethod
    def planned(candidate: Pod, verdict: Verdict, *things: Any) -> Decision:
        snapshot = Snapshot([each.build() for each in (*three_nodes(), *things)])
        with snapshot.fork():
            planner = CyclePlanner(snapshot, {"default-scheduler": Placer(snapshot, DEFAULT)})
            planner.verdicts = {candidate.uid: verdict}
            [decision] = planner.plan([candidate])
        return decision

    def test_verdict_narrows_and_scores(self) -> None:
        candidate = pod("p").cpu("1").merge(metadata={"uid": "u"}).build()
        everywhere = frozenset("abc")
        found = self.planned(candidate, Verdict(everywhere, frozenset("bc")))
        assert isinstance(found, Bind)
        assert (found.node, found.feasible) == ("b", 2)
        found = self.planned(candidate, Verdict(everywhere, everywhere, scores={"c": 1}))
        assert isinstance(found, Bind)
        assert found.node == "c"

    def test_verdict_never_widens(self) -> None:
        candidate = pod("p").cpu("9").merge(metadata={"uid": "u"}).build()
        found = self.planned(candidate, Verdict(frozenset("abc"), frozenset("abc"), scores={"a": 10**6}))
        assert isinstance(found, Reject)

    def test_node_that_was_not_asked_about_is_not_used(self) -> None:
        candidate = pod("p").cpu("1").merge(metadata={"uid": "u"}).build()
        found = self.planned(candidate, Verdict(frozenset("a"), frozenset(), {"a": "no license"}))
        assert isinstance(found, Reject)
        assert found.message.startswith(f"0/3 nodes are available: 1 no license, 2 {NOT_ASKED}.")
        assert found.rejected_by == frozenset(), "every change may help"

    def test_reasons_of_filters_and_extenders_are_counted(self) -> None:
        candidate = pod("p").cpu("3").merge(metadata={"uid": "u"}).build()
        there = pod("there").on("a").cpu("2")
        verdict = Verdict(frozenset("bc"), frozenset(), {"b": "no license"})
        found = self.planned(candidate, verdict, there)
        assert isinstance(found, Reject)
        assert "1 Insufficient cpu, 1 no license, 1 " + REJECTED in found.message

    @pytest.mark.parametrize("unresolvable", [False, True])
    def test_preemption_where_the_extender_says_it_helps(self, unresolvable: bool) -> None:
        candidate = pod("p").cpu("3").priority(9).merge(metadata={"uid": "u"}).build()
        full = [pod(f"low-{name}").on(name).cpu("2") for name in "abc"]
        on = frozenset("abc") if unresolvable else frozenset()
        found = self.planned(candidate, Verdict(frozenset(), frozenset(), {}, on), *full)
        assert isinstance(found, Reject)
        assert (found.preemption is None) is unresolvable


def test_plan_says_that_extenders_were_not_asked(golden: Golden) -> None:
    extender = {"urlPrefix": "http://localhost", "filterVerb": "filter", "managedResources": [{"name": GPU}]}
    spec = msgspec.convert({"schedulerName": "default-scheduler", "extenders": [extender]}, SchedulerPolicySpec)
    capacity = {"cpu": "4", "memory": "8Gi", "pods": "9", GPU: "1"}
    snapshot = Snapshot([node("n").merge(status={"allocatable": capacity}).build(), pod("plain").build(), asking()])
    with snapshot.fork():
        plan = plan_scheduling(snapshot, [SchedulerPolicy(spec=spec)])
    messages = {action.pod: action.message for action in plan.actions if isinstance(action, PlannedBind)}
    assert messages.keys() == {"p", "plain"}
    for name, message in messages.items():
        golden(message, name)


@pytest.mark.parametrize(
    ("form", "scale"),
    [
        ({}, 10),
        ({"profile": {"ignoredResources": ["example.com/other"]}}, 10),
        ({"policy": {}}, 1),
        ({"provider": "DefaultProvider"}, 1),
    ],
)
def test_resources_that_an_extender_compares_are_ignored(form: dict[str, Any], scale: int) -> None:
    managed = [{"name": GPU, "ignoredByScheduler": True}, {"name": "example.com/kept"}]
    extender = {"urlPrefix": "http://localhost", "filterVerb": "filter", "managedResources": managed}
    spec = msgspec.convert({"schedulerName": "s", "extenders": [extender], **form}, SchedulerPolicySpec)
    snapshot = Snapshot([each.build() for each in three_nodes()])
    placer = Placer(snapshot, profile_of(spec))
    assert placer.feasible(asking()).sum() == 3
    assert placer.feasible(asking(**{"example.com/kept": "1"})).sum() == 0
    assert extender_scale(spec) == scale
