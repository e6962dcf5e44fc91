"""The expander Grpc: plans with a server's answers, and without them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import msgspec
import pytest

from tests.fixtures.golden import Golden
from tests.unit.autoscaling.scale_up_helpers import NOW, group, pending_pod, pending_pods, sizes
from trimtab.api.cluster_autoscaler import ClusterAutoscalerSpec
from trimtab.autoscaling.external import GrpcEndpoint
from trimtab.autoscaling.external.expander import advisor
from trimtab.autoscaling.external.expander import expander_pb2 as pb
from trimtab.autoscaling.external.expander.advisor import MAX_QUESTIONS, Advisor
from trimtab.autoscaling.scale_up import PlanInputs, ScaleUpPlan, scale_up
from trimtab.autoscaling.scale_up.expanders.advice import EXAMPLES, Advice
from trimtab.cluster.snapshot import Snapshot
from trimtab.kube.objects import Node, Pod
from trimtab.kube.wire.intern import Interner
from trimtab.kube.wire.protobuf import decode_protobuf

SMALL = "MachineSet/openshift-machine-api/small"
LARGE = "MachineSet/openshift-machine-api/large"


def two() -> list[Any]:
    """Groups of which LeastWaste prefers the small and LeastNodes the large nodes."""
    return [group("large", cpu="8", memory="32Gi"), group("small", cpu="2", memory="8Gi")]


def planned(advice: Advice | None, *builders: Any, expanders: Sequence[str] = ("Grpc",)) -> ScaleUpPlan:
    spec = msgspec.convert({"expanders": list(expanders)}, ClusterAutoscalerSpec)
    return scale_up(Snapshot([each.build() for each in builders]), PlanInputs(spec, NOW, advice=advice))


class TestPlanning:
    """The planner reads answers as data."""

    def test_answer_decides(self, golden: Golden) -> None:
        advice = Advice()
        planned(advice, *two(), *pending_pods(4))
        assert advice.unanswered is not None
        assert [offer.key for offer in advice.unanswered.offers] == [(LARGE, 1, 4), (SMALL, 2, 4)]
        advice.add(advice.unanswered, [LARGE])
        made = planned(advice, *two(), *pending_pods(4))
        assert (sizes(made), advice.unanswered) == ({"large": (0, 1)}, None)
        golden(made.actions[0].message)

    @pytest.mark.parametrize(
        ("expanders", "decided"),
        [
            (["Grpc"], "LeastWaste (Grpc made no choice) chose it"),
            (["Grpc", "LeastNodes"], "LeastNodes (Grpc made no choice) chose it"),
            (["LeastNodes", "Grpc"], "LeastNodes chose it"),
        ],
        ids=["the default", "the next", "not needed"],
    )
    @pytest.mark.parametrize("advice", [None, Advice()], ids=["no server", "no answer"])
    def test_without_an_answer_the_next_expander_decides(
        self, advice: Advice | None, expanders: list[str], decided: str
    ) -> None:
        (action,) = planned(advice, *two(), *pending_pods(4), expanders=expanders).actions
        assert f"; {decided} (" in action.message

    def test_answer_without_an_offered_group_is_ignored(self) -> None:
        advice = Advice()
        planned(advice, *two(), *pending_pods(4))
        assert advice.unanswered is not None
        advice.add(advice.unanswered, ["MachineSet/elsewhere/x"])
        assert sizes(planned(advice, *two(), *pending_pods(4))) == {"small": (0, 2)}
        assert advice.unanswered is None

    def test_next_expander_decides_among_several_preferred_groups(self) -> None:
        third = group("wide", cpu="8", memory="64Gi")
        advice = Advice()
        planned(advice, *two(), third, *pending_pods(4))
        assert advice.unanswered is not None
        advice.add(advice.unanswered, [LARGE, "MachineSet/openshift-machine-api/wide"])
        assert sizes(planned(advice, *two(), third, *pending_pods(4))) == {"large": (0, 1)}

    def test_plan_depends_only_on_the_answers(self) -> None:
        advice = Advice()
        builders = [*two(), *pending_pods(4)]
        planned(advice, *builders)
        assert advice.unanswered is not None
        advice.add(advice.unanswered, [LARGE])
        assert planned(advice, *builders) == planned(advice, *reversed(builders))

    def test_question_holds_examples_of_its_pods(self) -> None:
        advice = Advice()
        planned(advice, *two(), *(pending_pod(f"w{each:04}", cpu="10m", memory="1Mi") for each in range(150)))
        assert advice.unanswered is not None
        assert {len(offer.examples) for offer in advice.unanswered.offers} == {EXAMPLES}

    def test_coscheduled_pods_are_sent_too(self) -> None:
        apart = [pending_pod(f"w{each}").labels(app="w").spread() for each in range(2)]
        advice = Advice()
        planned(advice, *(each.node_labels({"topology.kubernetes.io/zone": "z"}) for each in two()), *apart)
        assert advice.unanswered is not None
        assert [[each.name for each in offer.examples] for offer in advice.unanswered.offers] == [
            ["w0", "w1"],
            ["w0", "w1"],
        ]


class FakeServer:
    """A server with programmable answers."""

    def __init__(self) -> None:
        self.answer: Callable[[pb.Request], list[str]] = lambda _: []
        self.fails: grpc.StatusCode | None = None
        self.hangs = False
        self.requests: list[pb.Request] = []
        self.address = ""

    async def start(self) -> None:
        self.server = grpc.aio.server()
        handler = grpc.unary_unary_rpc_method_handler(
            self.handle,
            request_deserializer=pb.Request.FromString,
            response_serializer=lambda message: message.SerializeToString(),
        )
        handlers = grpc.method_handlers_generic_handler("grpcplugin.Expander", {"BestOptions": handler})
        self.server.add_generic_rpc_handlers((handlers,))
        self.address = f"localhost:{self.server.add_insecure_port('localhost:0')}"
        await self.server.start()

    async def handle(self, request: pb.Request, context: Any) -> pb.Answer:
        self.requests.append(request)
        if self.hangs:
            await asyncio.Event().wait()
        if self.fails is not None:
            await context.abort(self.fails, "as configured")
        return pb.Answer(options=[pb.Option(group=each) for each in self.answer(request)])


@pytest.fixture
async def server() -> AsyncIterator[FakeServer]:
    found = FakeServer()
    await found.start()
    yield found
    await found.server.stop(None)


@pytest.fixture
async def asking(server: FakeServer) -> AsyncIterator[Advisor]:
    found = advisor(GrpcEndpoint(server.address), seconds=1.0)
    yield found
    await found.close()


async def advised(by: Advisor, *builders: Any) -> ScaleUpPlan:
    async def plan(advice: Advice) -> ScaleUpPlan:
        return planned(advice, *builders)

    return await by.plan_with_answers(plan)


class TestAsking:
    """The controller sends questions to the server."""

    async def test_request_has_both_versions_of_the_fields(
        self, server: FakeServer, asking: Advisor, golden: Golden
    ) -> None:
        server.answer = lambda _: [LARGE]
        labelled = [each.labels(team="x").tolerates("a") for each in pending_pods(4)]
        assert sizes(await advised(asking, *two(), *labelled)) == {"large": (0, 1)}
        assert asking.problem is None
        (request,) = server.requests
        assert [(each.group, each.nodes) for each in request.options] == [(LARGE, 1), (SMALL, 2)]
        golden("\n".join(each.debug for each in request.options))
        assert list(request.options[0].pods) == list(request.options[0].old_pods)
        found = decode_protobuf("Pod", request.options[0].pods[0], interner=Interner())
        assert isinstance(found, Pod)
        assert (found.namespace, found.labels["team"]) == (pending_pods(1)[0].build().namespace, "x")
        assert found.spec.requests["cpu"] == 1000
        assert dict(request.node_of) == dict(request.old_node_of)
        node = decode_protobuf("Node", request.node_of[SMALL], interner=Interner())
        assert isinstance(node, Node)
        assert (node.allocatable["cpu"], node.allocatable["memory"]) == (2000, 8 << 30)

    async def test_dependent_questions_are_sent_one_after_the_other(self, server: FakeServer, asking: Advisor) -> None:
        server.answer = lambda request: [min(each.group for each in request.options)]
        groups = [group(name, most=1, cpu="2", memory="8Gi") for name in ("a", "b", "c")]
        made = await advised(asking, *groups, *pending_pods(6))
        assert sizes(made) == {"a": (0, 1), "b": (0, 1), "c": (0, 1)}
        assert [len(request.options) for request in server.requests] == [3, 2]

    @pytest.mark.parametrize("how", ["fails", "hangs", "gone", "absent"])
    async def test_unreachable_server_is_reported_and_the_next_expander_decides(
        self, server: FakeServer, asking: Advisor, how: str
    ) -> None:
        server.fails = grpc.StatusCode.INTERNAL if how == "fails" else None
        server.hangs = how == "hangs"
        if how == "gone":
            await server.server.stop(None)
        by = advisor(None) if how == "absent" else asking
        made = await advised(by, *two(), *pending_pods(4))
        assert sizes(made) == {"small": (0, 2)}
        assert by.problem is not None
        assert by.problem.reason == "ProviderUnreachable"
        server.fails, server.hangs = None, False
        if how == "fails":
            await advised(by, *two(), *pending_pods(4))
            assert by.problem is None

    async def test_single_option_is_not_sent(self, server: FakeServer, asking: Advisor) -> None:
        await advised(asking, two()[0], *pending_pods(4))
        assert server.requests == []

    async def test_number_of_questions_is_limited(self, asking: Advisor, server: FakeServer) -> None:
        groups = [group(f"g{each:02}", most=1, cpu="1", memory="4Gi") for each in range(MAX_QUESTIONS + 5)]
        made = await advised(asking, *groups, *pending_pods(MAX_QUESTIONS + 5))
        assert len(made.actions) == MAX_QUESTIONS + 5
        assert len(server.requests) <= MAX_QUESTIONS


def test_generated_code_matches_the_schema(tmp_path: Path) -> None:
    protoc = pytest.importorskip("grpc_tools.protoc", reason="protoc comes with the dev dependencies")
    code = Path(pb.__file__)
    schema, source = code.with_name("expander.proto"), code.parents[4]
    assert protoc.main(["", f"--proto_path={source}", f"--python_out={tmp_path}", str(schema)]) == 0
    made = tmp_path / code.relative_to(source)
    assert _descriptor(made) == _descriptor(code), "run `make proto`"


def _descriptor(code: Path) -> str:
    return next(line for line in code.read_text().splitlines() if line.startswith("DESCRIPTOR = "))
