"""An ``externalgrpc`` provider: reads, changes, and misbehaving servers."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc
import pytest
from msgspec.structs import replace

from tests.builders import node, pod
from tests.fakes.node_provider import remove_machines
from tests.fixtures.external_provider import FakeGroup, FakeProvider
from tests.fixtures.golden import Golden
from tests.protobuf import encode_object
from trimtab.api.cluster_autoscaler import ClusterAutoscalerSpec, ScaleDown
from trimtab.autoscaling.external import GrpcEndpoint
from trimtab.autoscaling.external.externalgrpc import cloud_provider_pb2 as pb
from trimtab.autoscaling.external.externalgrpc import external_grpc, values
from trimtab.autoscaling.external.externalgrpc.source import ExternalGrpc
from trimtab.autoscaling.groups import (
    ExternalGroup,
    ExternalGroups,
    GroupOptions,
    MachineState,
    NodeGroup,
    build_groups,
)
from trimtab.autoscaling.planner import plan
from trimtab.autoscaling.providers import ScaleFailure, verify_removal
from trimtab.autoscaling.scale_up import PlanInputs
from trimtab.cluster.snapshot import Snapshot
from trimtab.kube.objects import Node
from trimtab_local.certificates import Keys, make_keys

NOW = 1_795_176_000.0  # 2026-11-20T12:00:00Z
SPEC = ClusterAutoscalerSpec()
UNAVAILABLE = grpc.StatusCode.UNAVAILABLE
TOO_LATE = grpc.StatusCode.DEADLINE_EXCEEDED

Opening = Callable[..., Awaitable[ExternalGrpc]]


@pytest.fixture
async def fake() -> AsyncIterator[FakeProvider]:
    provider = await FakeProvider().start()
    yield provider
    await provider.stop()


@pytest.fixture
async def opened(fake: FakeProvider) -> AsyncIterator[Opening]:
    """Return a function that opens the source, with nodes of the cluster if given."""
    sources: list[ExternalGrpc] = []

    async def open_(*nodes: Node, call_seconds: float = 5.0, patience: float = 5.0, **files: str) -> ExternalGrpc:
        known = {each.name: each for each in nodes}
        endpoint = GrpcEndpoint(fake.address, **files)
        made = external_grpc(endpoint, node_of=known.get, call_seconds=call_seconds, patience=patience)
        sources.append(made)
        return made

    yield open_
    for source in sources:
        await source.close()


def like(group: str = "", cpu: str = "4", memory: str = "16Gi") -> bytes:
    built = node("template").allocatable(cpu=cpu, memory=memory, pods=110).labels(group=group)
    return encode_object(built.manifest())


def by_name(recorded: ExternalGroups) -> dict[str, ExternalGroup]:
    return {group.name: group for group in recorded.groups}


def joined(recorded: ExternalGroups, *nodes: Node) -> NodeGroup:
    (group,) = build_groups(Snapshot(nodes), external=recorded).all
    return group


def cloud(number: int, group: str = "a") -> Node:
    return node(f"n{number}").provider_id(f"fake://{group}/{number}").labels(zone="z").build()


class TestReading:
    """Answers of the provider become values."""

    async def test_groups_have_sizes_instances_template_and_price(
        self, fake: FakeProvider, opened: Opening, golden: Golden
    ) -> None:
        fake.groups["a"] = FakeGroup(
            least=1,
            most=5,
            target=4,
            instances={
                "fake://a/0": (pb.RUNNING, ""),
                "fake://a/1": (pb.CREATING, ""),
                "fake://a/2": (pb.DELETING, ""),
                "fake://a/3": (pb.CREATING, "QUOTA_EXCEEDED"),
            },
            template=like("a"),
            price=0.192,
        )
        source = await opened()
        recorded = await source.observe(SPEC)
        assert recorded.problems == ()
        (group,) = recorded.groups
        assert (group.id, group.minimum, group.maximum, group.target) == ("external/a", 1, 5, 4)
        assert group.node is not None
        assert (group.node.allocatable["cpu"], group.node.labels["group"]) == (4000, "a")
        assert (group.price, group.options, group.paused) == ("0.192", GroupOptions(), "")
        made = joined(recorded, cloud(0))
        assert [(each.name, each.state, each.node) for each in made.machines] == [
            ("fake://a/0", MachineState.RUNNING, "n0"),
            ("fake://a/1", MachineState.PENDING, ""),
            ("fake://a/2", MachineState.DELETING, ""),
            ("fake://a/3", MachineState.FAILED, ""),
        ]
        assert made.machines[3].reason == "QUOTA_EXCEEDED"
        golden(made.machines[3].message)

    async def test_template_and_price_are_read_once_and_the_rest_each_time(
        self, fake: FakeProvider, opened: Opening
    ) -> None:
        fake.groups["a"] = FakeGroup(template=like("a"), price=1.0, options=lambda defaults: defaults)
        source = await opened()
        for _ in range(3):
            await source.observe(SPEC)
        assert {name: count for name, count in fake.calls.items() if "/" not in name} == {
            "Refresh": 3,
            "NodeGroups": 3,
            "NodeGroupTargetSize": 3,
            "NodeGroupNodes": 3,
            "NodeGroupGetOptions": 3,
            "NodeGroupTemplateNodeInfo": 1,
            "PricingNodePrice": 1,
        }

    async def test_unimplemented_calls_are_not_repeated(
        self, fake: FakeProvider, opened: Opening, golden: Golden
    ) -> None:
        fake.groups["a"] = FakeGroup()
        source = await opened()
        for _ in range(3):
            recorded = await source.observe(SPEC)
        assert fake.calls["NodeGroupTemplateNodeInfo"] == fake.calls["NodeGroupGetOptions"] == 1
        golden(by_name(recorded)["a"].no_node_reason)

    async def test_template_of_a_returning_group_is_read_again(self, fake: FakeProvider, opened: Opening) -> None:
        fake.groups["a"] = FakeGroup(template=like("a"))
        source = await opened()
        await source.observe(SPEC)
        group = fake.groups.pop("a")
        assert (await source.observe(SPEC)).groups == ()
        fake.groups["a"] = group
        await source.observe(SPEC)
        assert fake.calls["NodeGroupTemplateNodeInfo"] == 2

    async def test_old_fields_of_the_schema_are_read(self, fake: FakeProvider, opened: Opening) -> None:
        def old(defaults: pb.Options) -> pb.Options:
            assert defaults.old_unneeded.nanoseconds == 600 * 10**9
            return pb.Options(
                utilization_threshold=0.7,
                gpu_utilization_threshold=defaults.gpu_utilization_threshold,
                old_unneeded=pb.OldSpan(nanoseconds=90 * 10**9),
                old_unready=defaults.old_unready,
                old_provision=defaults.old_provision,
            )

        fake.groups["a"] = FakeGroup(template=like("a"), options=old, old=True)
        (group,) = (await (await opened()).observe(SPEC)).groups
        assert group.options == GroupOptions(utilization_threshold=0.7, unneeded_seconds=90)
        assert group.node is not None

    @pytest.mark.parametrize(
        ("said", "found"),
        [
            (lambda defaults: defaults, GroupOptions()),
            (lambda _: pb.Options(), GroupOptions()),
            (lambda _: pb.Options(unready=pb.Span(seconds=1, nanos=500_000_000)), GroupOptions(unready_seconds=1.5)),
            (lambda _: pb.Options(utilization_threshold=1.5), GroupOptions()),
            (lambda _: pb.Options(utilization_threshold=float("nan")), GroupOptions()),
            (lambda _: pb.Options(provision=pb.Span(seconds=-5)), GroupOptions()),
            (lambda _: pb.Options(startup=pb.Span(seconds=60)), GroupOptions(startup_seconds=60)),
        ],
        ids=["the defaults", "nothing", "a part of a second", "above 1", "no number", "negative", "startup"],
    )
    async def test_only_options_that_differ_from_the_defaults_are_kept(
        self, fake: FakeProvider, opened: Opening, said: Any, found: GroupOptions
    ) -> None:
        fake.groups["a"] = FakeGroup(options=said)
        spec = ClusterAutoscalerSpec(scale_down=ScaleDown(enabled=True, unneeded_time="90s"))
        (group,) = (await (await opened()).observe(spec)).groups
        assert group.options == found


class TestFailures:
    """Providers that fail, hang, or return impossible values."""

    async def test_failure_of_one_group_does_not_affect_others(
        self, fake: FakeProvider, opened: Opening, golden: Golden
    ) -> None:
        fake.groups.update(a=FakeGroup(target=1), b=FakeGroup(target=2))
        source = await opened()
        await source.observe(SPEC)
        fake.fails["NodeGroupNodes/a"] = grpc.StatusCode.INTERNAL
        fake.groups["b"].target = 3
        found = by_name(await source.observe(SPEC))
        golden(found["a"].paused)
        assert (found["b"].paused, found["b"].target) == ("", 3)

    async def test_group_that_was_never_read_is_left_out_and_reported(
        self, fake: FakeProvider, opened: Opening, golden: Golden
    ) -> None:
        fake.groups.update(a=FakeGroup(target=1), b=FakeGroup(target=2))
        fake.fails["NodeGroupTargetSize/a"] = UNAVAILABLE
        recorded = await (await opened()).observe(SPEC)
        assert list(by_name(recorded)) == ["b"]
        (problem,) = recorded.problems
        assert (problem.name, problem.reason) == ("external/a", "ProviderUnreachable")
        golden(problem.message)

    async def test_unreachable_server_is_reported_until_it_is_back(self, fake: FakeProvider, opened: Opening) -> None:
        fake.groups["a"] = FakeGroup(target=1)
        fake.fails["Refresh"] = UNAVAILABLE
        source = await opened()
        recorded = await source.observe(SPEC)
        assert (recorded.groups, [each.reason for each in recorded.problems]) == ((), ["ProviderUnreachable"])
        fake.fails.clear()
        assert [group.paused for group in (await source.observe(SPEC)).groups] == [""]

    async def test_groups_are_paused_while_the_server_is_down(
        self, fake: FakeProvider, opened: Opening, golden: Golden
    ) -> None:
        fake.groups["a"] = FakeGroup(target=1)
        source = await opened(call_seconds=2.0)
        await source.observe(SPEC)
        await fake.stop()
        recorded = await source.observe(SPEC)
        assert [group.target for group in recorded.groups] == [1]
        golden(recorded.groups[0].paused.partition("Refresh: ")[0])
        assert [each.reason for each in recorded.problems] == ["ProviderUnreachable"]

    async def test_hanging_call_times_out(self, fake: FakeProvider, opened: Opening) -> None:
        fake.groups["a"] = FakeGroup(target=1)
        source = await opened(call_seconds=0.2)
        await source.observe(SPEC)
        fake.hangs.add("NodeGroupNodes")
        (group,) = (await source.observe(SPEC)).groups
        assert "DEADLINE_EXCEEDED" in group.paused

    async def test_slow_read_is_used_by_the_next_iteration(
        self, fake: FakeProvider, opened: Opening, golden: Golden
    ) -> None:
        fake.groups["a"] = FakeGroup(target=1)
        source = await opened(patience=0.1, call_seconds=30)
        while not (await source.observe(SPEC)).groups:  # the first connection may take longer than the patience
            pass
        fake.hangs.add("NodeGroupTargetSize")
        fake.calls.clear()
        for _ in range(3):
            recorded = await source.observe(SPEC)
            golden(re.sub(r"\d+", "…", recorded.groups[0].paused))
            assert [each.reason for each in recorded.problems] == ["ProviderUnreachable"]
        assert fake.calls["NodeGroupTargetSize"] == 1
        fake.groups["a"].target = 7
        fake.release()
        while (found := (await source.observe(SPEC)).groups[0]).paused:
            pass
        assert found.target == 7

    async def test_hanging_read_is_waited_for_once(self, fake: FakeProvider, opened: Opening) -> None:
        fake.groups["a"] = FakeGroup(target=1)
        source = await opened(patience=0.5, call_seconds=30)
        fake.hangs.add("NodeGroupTargetSize")
        await source.observe(SPEC)
        began = asyncio.get_running_loop().time()
        for _ in range(20):
            await source.observe(SPEC)
        assert asyncio.get_running_loop().time() - began < 5, "not half a second each time"

    async def test_invalid_group_does_not_stop_the_read(
        self, fake: FakeProvider, opened: Opening, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        fake.groups.update(a=FakeGroup(target=1), b=FakeGroup(target=2))
        source = await opened()
        await source.observe(SPEC)

        def machines(instances: Any) -> Any:
            raise ValueError("an unexpected value")

        fake.groups.update(c=FakeGroup(target=3))
        monkeypatch.setattr(values, "machines", machines)
        recorded = await source.observe(SPEC)
        assert all("an unexpected value" in group.paused for group in recorded.groups)
        assert [problem.name for problem in recorded.problems] == ["external/c"]

    async def test_impossible_times_are_ignored(self, fake: FakeProvider, opened: Opening) -> None:
        fake.groups["a"] = FakeGroup(options=lambda _: pb.Options(provision=pb.Span(seconds=2**62)))
        (group,) = (await (await opened()).observe(SPEC)).groups
        assert group.options == GroupOptions()

    async def test_invalid_template_is_reported(self, fake: FakeProvider, opened: Opening, golden: Golden) -> None:
        fake.groups["a"] = FakeGroup(template=b"\xff\xff\xff")
        (group,) = (await (await opened()).observe(SPEC)).groups
        assert group.node is None
        golden(group.no_node_reason)

    async def test_failed_template_is_read_again(self, fake: FakeProvider, opened: Opening, golden: Golden) -> None:
        fake.groups["a"] = FakeGroup(template=like("a"))
        fake.fails["NodeGroupTemplateNodeInfo"] = UNAVAILABLE
        source = await opened()
        (group,) = (await source.observe(SPEC)).groups
        golden(group.no_node_reason)
        fake.fails.clear()
        (group,) = (await source.observe(SPEC)).groups
        assert (group.node is None, group.no_node_reason) == (False, "")

    async def test_failed_options_keep_their_last_values(self, fake: FakeProvider, opened: Opening) -> None:
        fake.groups["a"] = FakeGroup(options=lambda _: pb.Options(startup=pb.Span(seconds=60)))
        source = await opened()
        await source.observe(SPEC)
        fake.fails["NodeGroupGetOptions"] = grpc.StatusCode.INTERNAL
        (group,) = (await source.observe(SPEC)).groups
        assert (group.options, group.paused) == (GroupOptions(startup_seconds=60), "")

    async def test_zero_or_max_group_is_paused(self, fake: FakeProvider, opened: Opening) -> None:
        fake.groups["a"] = FakeGroup(options=lambda _: pb.Options(zero_or_max=True))
        source = await opened()
        (group,) = (await source.observe(SPEC)).groups
        assert "zeroOrMaxNodeScaling" in group.paused
        fake.groups["a"].options = lambda _: pb.Options()
        (group,) = (await source.observe(SPEC)).groups
        assert not group.paused

    async def test_group_listed_twice_counts_once(self, fake: FakeProvider, opened: Opening) -> None:
        fake.groups["a"] = FakeGroup(most=3)
        fake.twice.append(pb.Group(id="a", max_size=99))
        (group,) = (await (await opened()).observe(SPEC)).groups
        assert group.maximum == 3

    async def test_impossible_size_is_no_group(self, fake: FakeProvider, opened: Opening) -> None:
        fake.groups["a"] = FakeGroup(target=-3)
        recorded = await (await opened()).observe(SPEC)
        found = build_groups(Snapshot([]), external=recorded)
        assert (found.all, [each.reason for each in found.problems]) == ((), ["InvalidLimits"])


class TestIncreasing:
    """Raising targets."""

    async def test_target_is_raised_by_the_difference(self, fake: FakeProvider, opened: Opening) -> None:
        fake.groups["a"] = FakeGroup(target=2)
        source = await opened()
        group = joined(await source.observe(SPEC))
        scaled = await source.provider.increase(group, 5)
        assert (scaled.done, scaled.before, scaled.after, fake.groups["a"].target) == (True, 2, 5, 5)

    async def test_changed_group_is_paused_until_it_is_read_again(self, fake: FakeProvider, opened: Opening) -> None:
        fake.groups["a"] = FakeGroup(target=2)
        source = await opened(patience=0.2, call_seconds=30)
        while not (recorded := await source.observe(SPEC)).groups:
            pass
        fake.hangs.add("NodeGroupNodes")
        while fake.calls["NodeGroupTargetSize"] < 2:
            await source.observe(SPEC)  # this reading has seen 2, and still waits
        assert (await source.provider.increase(joined(recorded), 5)).done
        fake.release()
        stale = await source.observe(SPEC)
        assert [(each.target, bool(each.paused)) for each in stale.groups] == [(5, True)]
        while (fresh := (await source.observe(SPEC)).groups[0]).paused:
            assert fresh.target == 5
        assert fresh.target == 5

    @pytest.mark.parametrize(
        ("failing", "failure", "doubt", "target"),
        [
            ({"fails": grpc.StatusCode.RESOURCE_EXHAUSTED}, ScaleFailure.REFUSED, False, 2),
            ({"fails": grpc.StatusCode.NOT_FOUND}, ScaleFailure.NOT_FOUND, False, 2),
            ({"fails": UNAVAILABLE}, ScaleFailure.UNREACHABLE, True, 2),
            ({"fails_after": UNAVAILABLE}, None, False, 5),
            ({"fails_after": grpc.StatusCode.UNKNOWN}, None, False, 5),
        ],
        ids=["no stock", "no such group", "unreachable", "answer lost", "done with an error"],
    )
    async def test_failed_increase_is_reported_and_a_lost_response_is_verified(
        self,
        fake: FakeProvider,
        opened: Opening,
        failing: dict[str, grpc.StatusCode],
        failure: ScaleFailure | None,
        doubt: bool,
        target: int,
    ) -> None:
        fake.groups["a"] = FakeGroup(target=2)
        source = await opened()
        group = joined(await source.observe(SPEC))
        for how, code in failing.items():
            getattr(fake, how)["NodeGroupIncreaseSize"] = code
        scaled = await source.provider.increase(group, 5)
        assert (scaled.failure, scaled.doubt, fake.groups["a"].target) == (failure, doubt, target)
        assert bool(scaled.message) is (failure is not None)

    async def test_hanging_provider_times_out_with_unknown_outcome(self, fake: FakeProvider, opened: Opening) -> None:
        fake.groups["a"] = FakeGroup(target=2)
        source = await opened(call_seconds=0.5)
        group = joined(await source.observe(SPEC))
        fake.hangs.add("NodeGroupIncreaseSize")
        scaled = await source.provider.increase(group, 5)
        assert (scaled.failure, scaled.doubt) == (ScaleFailure.TIMED_OUT, True)

    async def test_provider_that_ignores_requests_is_detected(
        self, fake: FakeProvider, opened: Opening, golden: Golden
    ) -> None:
        fake.groups["a"] = FakeGroup(target=2)
        source = await opened()
        group = joined(await source.observe(SPEC))
        fake.deaf.add("NodeGroupIncreaseSize")
        scaled = await source.provider.increase(group, 5)
        assert (scaled.failure, scaled.doubt) == (ScaleFailure.CONFLICT, True)
        golden(scaled.message)

    async def test_concurrently_changed_target_is_a_conflict_without_request(
        self, fake: FakeProvider, opened: Opening, golden: Golden
    ) -> None:
        fake.groups["a"] = FakeGroup(target=2)
        source = await opened()
        group = joined(await source.observe(SPEC))
        fake.groups["a"].target = 4
        scaled = await source.provider.increase(group, 5)
        assert (scaled.failure, fake.calls["NodeGroupIncreaseSize"]) == (ScaleFailure.CONFLICT, 0)
        golden(scaled.message)

    async def test_missing_instances_stay_upcoming_and_can_be_given_up(
        self, fake: FakeProvider, opened: Opening
    ) -> None:
        fake.groups["a"] = FakeGroup(makes=1)
        source = await opened()
        assert (await source.provider.increase(joined(await source.observe(SPEC)), 3)).done
        group = joined(await source.observe(SPEC), cloud(0))
        assert (group.target, len(group.nodes), group.upcoming) == (3, 1, 2)
        lowered = await source.provider.lower(group, 1)
        assert (lowered.done, fake.groups["a"].target, list(fake.groups["a"].instances)) == (True, 1, ["fake://a/0"])

    async def test_lowering_the_target_deletes_no_instance(self, fake: FakeProvider, opened: Opening) -> None:
        fake.groups["a"] = FakeGroup(target=3, instances={"fake://a/0": (pb.RUNNING, "")})
        source = await opened()
        group = joined(await source.observe(SPEC), cloud(0))
        fake.groups["a"].instances["fake://a/1"] = (pb.CREATING, "")
        lowered = await source.provider.lower(group, 1)
        assert (lowered.failure, fake.calls["NodeGroupDecreaseTargetSize"]) == (ScaleFailure.CONFLICT, 0)


class TestRemoving:
    """Deleting instances."""

    async def two(self, fake: FakeProvider, opened: Opening, **more: Any) -> tuple[ExternalGrpc, NodeGroup]:
        fake.groups["a"] = FakeGroup(
            target=2, instances={"fake://a/0": (pb.RUNNING, ""), "fake://a/1": (pb.RUNNING, "")}, **more
        )
        nodes = cloud(0), cloud(1)
        source = await opened(*nodes)
        return source, joined(await source.observe(SPEC), *nodes)

    async def test_request_has_labels_and_annotations_of_the_nodes(self, fake: FakeProvider, opened: Opening) -> None:
        source, group = await self.two(fake, opened)
        removal = await remove_machines(source.provider, group, group.machines[1:], now=NOW)
        assert (removal.done, removal.machines, removal.others) == (True, ("fake://a/1",), ("fake://a/0",))
        assert (fake.groups["a"].target, list(fake.groups["a"].instances)) == (1, ["fake://a/0"])
        (recorded,) = fake.deleted
        assert (recorded.provider_id, recorded.name, dict(recorded.labels)["zone"]) == ("fake://a/1", "n1", "z")
        after = joined(await source.observe(SPEC), cloud(0), cloud(1))
        verdict = verify_removal(removal, after)
        assert (verdict.deleted, verdict.unexpected, verdict.settled) == (("fake://a/1",), (), True)

    async def test_unregistered_instance_is_named_by_its_id(self, fake: FakeProvider, opened: Opening) -> None:
        fake.groups["a"] = FakeGroup(target=1, instances={"fake://a/0": (pb.CREATING, "STOCKOUT")})
        source = await opened()
        group = joined(await source.observe(SPEC))
        assert (await remove_machines(source.provider, group, group.machines, now=NOW)).done
        (recorded,) = fake.deleted
        assert (recorded.provider_id, recorded.name) == ("fake://a/0", "fake://a/0")
        assert dict(recorded.annotations) == {"k8s.io/cluster-autoscaler/fake-node-reason": "create-error"}

    async def test_instance_whose_node_another_machine_claims_is_not_deleted(
        self, fake: FakeProvider, opened: Opening
    ) -> None:
        source, group = await self.two(fake, opened)
        unconfirmed = replace(group.machines[1], node="", unconfirmed_node="n1")
        group = replace(group, machines=(group.machines[0], unconfirmed))
        removal = await remove_machines(source.provider, group, [unconfirmed], now=NOW)
        assert (removal.failure, fake.deleted) == (ScaleFailure.REFUSED, [])

    @pytest.mark.parametrize(
        ("failing", "failure", "doubt", "left"),
        [
            ({"fails": grpc.StatusCode.PERMISSION_DENIED}, ScaleFailure.REFUSED, False, 2),
            ({"fails": UNAVAILABLE}, ScaleFailure.UNREACHABLE, True, 2),
            ({"fails_after": UNAVAILABLE}, None, False, 1),
        ],
        ids=["refused", "unreachable", "answer lost"],
    )
    async def test_failed_removal_is_reported_and_a_lost_response_is_verified(
        self,
        fake: FakeProvider,
        opened: Opening,
        failing: dict[str, grpc.StatusCode],
        failure: ScaleFailure | None,
        doubt: bool,
        left: int,
    ) -> None:
        source, group = await self.two(fake, opened)
        for how, code in failing.items():
            getattr(fake, how)["NodeGroupDeleteNodes"] = code
        removal = await remove_machines(source.provider, group, group.machines[1:], now=NOW)
        assert (removal.failure, removal.doubt, fake.groups["a"].target) == (failure, doubt, left)

    async def test_partial_removal_has_an_unknown_outcome(self, fake: FakeProvider, opened: Opening) -> None:
        source, group = await self.two(fake, opened)
        del fake.groups["a"].instances["fake://a/1"]
        fake.groups["a"].instances["fake://a/2"] = (pb.RUNNING, "")
        removal = await remove_machines(source.provider, group, group.machines, now=NOW)
        assert removal.done  # one was gone already, and the other went before the error
        assert list(fake.groups["a"].instances) == ["fake://a/2"]

    @pytest.mark.parametrize(
        ("least", "after", "message"),
        [
            (2, 2, "a target size of 2 less 1 is below the minimum of 2"),
            (1, 1, "the size is 1 now, and a decrease by 1 would take it below the minimum of 1"),
        ],
        ids=["stale target", "current target"],
    )
    async def test_minimum_size_is_respected(
        self, fake: FakeProvider, opened: Opening, least: int, after: int, message: str
    ) -> None:
        source, group = await self.two(fake, opened, least=least)
        fake.groups["a"].target = after
        removal = await remove_machines(source.provider, group, group.machines[:1], now=NOW)
        assert (removal.done, removal.message, fake.deleted) == (False, message, [])

    async def test_instances_of_other_or_paused_groups_are_kept(
        self, fake: FakeProvider, opened: Opening, golden: Golden
    ) -> None:
        source, group = await self.two(fake, opened)
        foreign = group.machines[0].__class__("", "fake://b/0", MachineState.RUNNING)
        removal = await remove_machines(source.provider, group, [foreign], now=NOW)
        golden(removal.message)
        fake.fails["Refresh"] = UNAVAILABLE
        paused = joined(await source.observe(SPEC), cloud(0), cloud(1))
        removal = await remove_machines(source.provider, paused, paused.machines[:1], now=NOW)
        assert (removal.failure, fake.calls["NodeGroupDeleteNodes"]) == (ScaleFailure.REFUSED, 0)
        assert await source.provider.unmark(group, ["fake://a/0"]) == ()


class TestEncryption:
    """TLS with certificate files that are renewed while the process runs."""

    async def served(self, keys: Keys) -> FakeProvider:
        pair = keys.serving_key.read_bytes(), keys.serving.read_bytes()
        credentials = grpc.ssl_server_credentials([pair], keys.ca.read_bytes(), require_client_auth=False)
        fake = FakeProvider()
        fake.groups["a"] = FakeGroup(target=1)
        return await fake.start(credentials=credentials)

    async def test_server_is_verified_with_the_given_ca(self, tmp_path: Path, golden: Golden) -> None:
        fake = await self.served(make_keys(tmp_path / "keys"))
        ca = tmp_path / "ca.crt"
        source = external_grpc(GrpcEndpoint(fake.address, ca_file=str(ca)), node_of=lambda _: None)
        try:
            recorded = await source.observe(SPEC)
            assert [each.reason for each in recorded.problems] == ["ProviderUnreachable"]
            golden(recorded.problems[0].message.replace(str(ca), "ca.crt"))
            ca.write_bytes(make_keys(tmp_path / "others").ca.read_bytes())
            recorded = await source.observe(SPEC)
            assert (recorded.groups, [each.reason for each in recorded.problems]) == ((), ["ProviderUnreachable"])
            ca.write_bytes((tmp_path / "keys" / "ca.crt").read_bytes())
            assert [group.id for group in (await source.observe(SPEC)).groups] == ["external/a"]
            ca.write_text("no certificate")
            recorded = await source.observe(SPEC)
            assert [bool(group.paused) for group in recorded.groups] == [True]
        finally:
            await source.close()
            await fake.stop()


async def test_plan_and_scale_up_of_two_groups(fake: FakeProvider, opened: Opening) -> None:
    fake.groups["small"] = FakeGroup(template=like("small", "2", "8Gi"), most=2)
    fake.groups["large"] = FakeGroup(template=like("large", "8", "32Gi"))
    source = await opened()
    recorded = await source.observe(SPEC)
    snapshot = Snapshot([pod(f"w{each}").cpu("2").memory("8Gi").unschedulable().build() for each in range(3)])
    made, _ = plan(snapshot, PlanInputs(SPEC, NOW, external=recorded))
    assert {action.group: (action.from_, action.to) for action in made.scaling} == {
        "external/large": (0, 1),
        "external/small": (0, 2),
    }
    found = build_groups(snapshot, external=recorded)
    for action in made.scaling:
        assert (await source.provider.increase(found.by_id[action.group], action.to)).done
    again, _ = plan(snapshot, PlanInputs(SPEC, NOW, external=await source.observe(SPEC)))
    assert again.scaling == ()
    assert {each.reason for each in again.kept} == {"FitsOnUpcomingNode"}


async def test_grpc_is_not_imported_before_the_first_call() -> None:
    code = (
        "import sys; from trimtab.autoscaling.external import ExternalSettings, GrpcEndpoint, open_sources;"
        "from trimtab.cluster.lister import Lister; from trimtab.kube.watching.store import Store;"
        "lister = Lister(Store(), Store(), Store());"
        "open_sources(ExternalSettings(cloud_provider=GrpcEndpoint('localhost:1')), api=None, lister=lister);"
        "print(sorted(name for name in sys.modules if name.partition('.')[0] == 'grpc'))"
    )
    process = await asyncio.create_subprocess_exec(
        __import__("sys").executable, "-c", code, stdout=asyncio.subprocess.PIPE
    )
    output, _ = await process.communicate()
    assert output.decode().strip() == "[]"


def test_generated_code_matches_the_schema(tmp_path: Path) -> None:
    protoc = pytest.importorskip("grpc_tools.protoc", reason="protoc comes with the dev dependencies")
    code = Path(pb.__file__)
    schema, source = code.with_name("cloud_provider.proto"), code.parents[4]
    assert protoc.main(["", f"--proto_path={source}", f"--python_out={tmp_path}", str(schema)]) == 0
    made = tmp_path / code.relative_to(source)
    assert _descriptor(made) == _descriptor(code), "run `make proto`"


def _descriptor(code: Path) -> str:
    return next(line for line in code.read_text().splitlines() if line.startswith("DESCRIPTOR = "))
