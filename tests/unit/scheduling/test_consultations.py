"""The scheduler with extenders: pods wait for their verdicts, and others do not wait for them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.builders import node, pod
from tests.fakes.scheduler import SCHEDULER, SchedulerWorld
from tests.fakes.scheduler import plan_on_the_loop as plan_on_the_loop
from trimtab.kube.objects import Pod
from trimtab.placement.registry import DEFAULT
from trimtab.scheduling import cycle
from trimtab.scheduling.extender_verdicts import ExtenderError, Verdict

pytestmark = pytest.mark.looptime(start=0)

GPU = "example.com/gpu"


@dataclass
class FakeChain:
    """Extenders that accept `accepts` after `latency` seconds, for pods that request GPUs."""

    accepts: Sequence[str] = ("n1", "n2")
    latency: float = 1.0
    errors: int = 0
    preempts_on: Sequence[str] | None = None
    binder: bool = False
    refuses: bool = False
    asked: list[tuple[str, tuple[str, ...]]] = field(default_factory=list)
    bound: list[tuple[str, str]] = field(default_factory=list)
    closed: bool = False

    def interested(self, pod: Pod) -> bool:
        return GPU in pod.spec.requests

    async def consult(self, pod: Pod, feasible: Sequence[str]) -> Verdict:
        self.asked.append((pod.key, tuple(feasible)))
        await asyncio.sleep(self.latency)
        if self.errors:
            self.errors -= 1
            raise ExtenderError("out of order")
        return Verdict(frozenset(feasible), frozenset(self.accepts) & frozenset(feasible))

    def preempts(self, pod: Pod) -> bool:
        return self.preempts_on is not None and self.interested(pod)

    async def preempt(self, pod: Pod, proposed: Mapping[str, Sequence[Pod]]) -> Mapping[str, Sequence[Pod]]:
        await asyncio.sleep(self.latency)
        return {name: victims for name, victims in proposed.items() if name in (self.preempts_on or ())}

    def binds(self, pod: Pod) -> bool:
        return self.binder and self.interested(pod)

    async def bind(self, pod: Pod, node: str) -> None:
        self.bound.append((pod.key, node))
        if self.refuses:
            raise ExtenderError("refused")

    async def close(self) -> None:
        self.closed = True


def sized(name: str) -> Any:
    return node(name).merge(status={"allocatable": {"cpu": "4", "memory": "32Gi", "pods": "110", GPU: "8"}})


def pending(name: str, *, gpu: bool = True, cpu: str = "1", priority: int = 0) -> Any:
    made = pod(name).cpu(cpu).priority(priority).merge(spec={"schedulerName": SCHEDULER})
    return made.requests({GPU: "1"}) if gpu else made


def extended(world: SchedulerWorld, chain: FakeChain) -> FakeChain:
    world.scheduler.set_profile(SCHEDULER, DEFAULT, chain)  # type: ignore[arg-type]
    return chain


async def test_pod_is_bound_where_the_extenders_accept_it_and_others_do_not_wait() -> None:
    async with SchedulerWorld() as world:
        chain = extended(world, FakeChain(accepts=["n2"]))
        world.put(sized("n1"), sized("n2"), pending("asks"), pending("plain", gpu=False))
        await asyncio.sleep(0.5)
        assert set(world.reports.bound) == {"shop/plain"}
        await asyncio.sleep(1)
        assert world.reports.bound["shop/asks"] == "n2"
        assert world.reports.attempts["shop/asks"] == 1
        assert chain.asked == [("shop/asks", ("n1", "n2"))]
    assert chain.closed


async def test_rejected_pod_is_asked_about_again_after_a_change() -> None:
    async with SchedulerWorld() as world:
        chain = extended(world, FakeChain(accepts=["n3"]))
        world.put(sized("n1"), pending("asks"))
        await asyncio.sleep(5)
        assert [each.pod.key for each in world.reports.rejects] == ["shop/asks"]
        world.put(sized("n3"))
        await asyncio.sleep(30)
        assert world.reports.bound == {"shop/asks": "n3"}
        assert [names for _, names in chain.asked][-1] == ("n1", "n3")


async def test_pod_that_fits_nowhere_is_not_sent() -> None:
    async with SchedulerWorld() as world:
        chain = extended(world, FakeChain())
        world.put(sized("n1"), pending("large", cpu="9"))
        await asyncio.sleep(5)
        assert "Insufficient cpu" in world.reports.rejects[0].message
        assert chain.asked == []


async def test_pod_is_retried_after_an_error() -> None:
    async with SchedulerWorld() as world:
        extended(world, FakeChain(errors=2))
        world.put(sized("n1"), pending("asks"))
        await asyncio.sleep(30)
        assert [message for _, _, message in world.reports.failures] == ["out of order"] * 2
        assert world.reports.bound == {"shop/asks": "n1"}


async def test_pods_above_the_limit_back_off_and_delay_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cycle, "MAX_CONSULTATIONS", 3)
    async with SchedulerWorld() as world:
        chain = extended(world, FakeChain(latency=0.5))
        world.put(sized("n1"), sized("n2"), *(pending(f"asks-{number}", cpu="100m") for number in range(12)))
        world.put(pending("plain", gpu=False))
        await asyncio.sleep(0.2)
        assert len(chain.asked) == 3
        assert set(world.reports.bound) == {"shop/plain"}
        await asyncio.sleep(60)
        assert len(world.reports.bound) == 13
        assert not world.reports.failures


async def test_node_that_filled_up_meanwhile_is_not_used() -> None:
    async with SchedulerWorld() as world:
        extended(world, FakeChain(latency=3))
        world.put(sized("n1"), sized("n2"), pending("asks", cpu="3"))
        await asyncio.sleep(1)
        world.put(pod("taken").on("n1").cpu("3"))
        await asyncio.sleep(5)
        assert world.reports.bound == {"shop/asks": "n2"}


async def test_deleted_pod_is_forgotten() -> None:
    async with SchedulerWorld() as world:
        extended(world, FakeChain())
        world.put(sized("n1"), pending("asks"))
        await asyncio.sleep(0.5)
        world.delete("shop/asks")
        await asyncio.sleep(30)
        assert not world.sent
        assert not world.reports.failures
        assert world.scheduler._extenders.verdicts == {}


async def test_verdict_is_forgotten_if_the_pod_is_deleted_before_it_is_planned() -> None:
    async with SchedulerWorld() as world:
        extended(world, FakeChain())
        world.put(sized("n1"), pending("asks", cpu="9"))
        await asyncio.sleep(1)
        verdicts = world.scheduler._extenders.verdicts
        verdicts[world.pod("shop/asks").uid] = Verdict(frozenset(["n1"]), frozenset(["n1"]))
        world.delete("shop/asks")
        assert verdicts == {}


@pytest.mark.parametrize("refuses", [False, True])
async def test_extender_binds_instead_of_the_scheduler(refuses: bool) -> None:
    async with SchedulerWorld() as world:
        chain = extended(world, FakeChain(binder=True, refuses=refuses))
        world.put(sized("n1"), pending("asks"))
        await asyncio.sleep(1.5)
        assert chain.bound == [("shop/asks", "n1")]
        assert not world.sent
        assert world.reports.bound == ({} if refuses else {"shop/asks": "n1"})
        assert world.reports.failures == ([("shop/asks", "n1", "refused")] if refuses else [])


@pytest.mark.parametrize(("on", "started"), [(None, 1), (["n1"], 1), ([], 0)])
async def test_extender_that_preempts_may_refuse(on: Sequence[str] | None, started: int) -> None:
    async with SchedulerWorld() as world:
        extended(world, FakeChain(preempts_on=on))
        world.put(sized("n1"), pod("low").on("n1").cpu("4"), pending("urgent", priority=9))
        await asyncio.sleep(3)
        assert len(world.preemptions.started) == started


async def test_extenders_of_a_removed_policy_are_closed() -> None:
    async with SchedulerWorld() as world:
        chain = extended(world, FakeChain())
        world.scheduler.remove_profile(SCHEDULER)
        await asyncio.sleep(1)
        assert chain.closed


async def test_profiles_removed_while_the_extenders_are_called_do_not_make_the_plan_fail(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with SchedulerWorld((SCHEDULER, DEFAULT), ("second", DEFAULT), ("third", DEFAULT)) as world:
        for name in (SCHEDULER, "second"):
            world.scheduler.set_profile(name, DEFAULT, FakeChain())  # type: ignore[arg-type]
        at_once, removals = cycle.in_thread, iter(["second", "third"])

        async def remove_profiles(work: Callable[[], Any]) -> Any:
            for name in removals:
                world.scheduler.remove_profile(name)
            return await at_once(work)

        monkeypatch.setattr(cycle, "in_thread", remove_profiles)
        others = (pending("b").merge(spec={"schedulerName": "second"}), pending("c", gpu=False))
        world.put(sized("n1"), pending("a"), others[0], others[1].merge(spec={"schedulerName": "third"}))
        await asyncio.sleep(0.5)
        world.put(pending("d", gpu=False))
        await asyncio.sleep(5)
        assert world.reports.failures == []
        assert world.reports.bound == {"shop/a": "n1", "shop/d": "n1"}
        assert world.reports.attempts == {"shop/a": 1, "shop/d": 1}


async def test_bug_in_an_extender_is_reported_and_the_pod_is_retried(monkeypatch: pytest.MonkeyPatch) -> None:
    async with SchedulerWorld() as world:
        chain = extended(world, FakeChain())
        consult, bugs = chain.consult, iter([ZeroDivisionError("bug")])

        async def fail_once(asked: Pod, feasible: Sequence[str]) -> Verdict:
            for bug in bugs:
                raise bug
            return await consult(asked, feasible)

        monkeypatch.setattr(chain, "consult", fail_once)
        world.put(sized("n1"), pending("asks"))
        await asyncio.sleep(30)
        assert world.reports.failures == [("shop/asks", "", "ZeroDivisionError: bug")]
        assert world.reports.bound == {"shop/asks": "n1"}


@pytest.mark.parametrize("error", [ExtenderError("out of order"), ZeroDivisionError("bug")])
async def test_preemption_that_the_extender_cannot_judge_is_not_started(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with SchedulerWorld() as world:
        chain = extended(world, FakeChain(preempts_on=["n1"]))
        preempt, errors = chain.preempt, iter([error])

        async def fail_once(urgent: Pod, proposed: Mapping[str, Sequence[Pod]]) -> Mapping[str, Sequence[Pod]]:
            for each in errors:
                raise each
            return await preempt(urgent, proposed)

        monkeypatch.setattr(chain, "preempt", fail_once)
        world.put(sized("n1"), pod("low").on("n1").cpu("4"), pending("urgent", priority=9))
        await asyncio.sleep(1.5)
        assert world.preemptions.started == []
        await asyncio.sleep(30)
        assert [each.pod.key for each, *_ in world.preemptions.started] == ["shop/urgent"]


async def test_verdicts_of_deleted_pods_are_forgotten_at_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trimtab.scheduling.consultations.MAX_VERDICTS", 2)
    async with SchedulerWorld() as world:
        extended(world, FakeChain(latency=0.5))
        world.put(sized("n1"), sized("n2"), *(pending(f"asks-{number}", cpu="100m") for number in range(6)))
        await asyncio.sleep(60)
        assert len(world.reports.bound) == 6
        assert len(world.scheduler._extenders.verdicts) <= 2


async def test_stop_ends_requests_to_extenders_in_time() -> None:
    async with SchedulerWorld() as world:
        chain = extended(world, FakeChain(latency=3600))
        world.put(sized("n1"), pending("asks"))
        await asyncio.sleep(0.5)
        began = asyncio.get_running_loop().time()
        await world.scheduler.stop()
        assert asyncio.get_running_loop().time() - began < 60
        assert chain.closed
        assert world.reports.failures == []
        assert world.sent == []
