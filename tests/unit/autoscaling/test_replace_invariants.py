"""Invariants of single and consecutive replacements for random clusters."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.builders import HOSTNAME, budget
from tests.strategies import examples
from tests.unit.autoscaling.replacement_cluster import World, group, removals, ups, web, worker
from trimtab.api.plan import Plan

APPS = ("a", "b", "c")
SHARE = Fraction("0.15")
ROUNDS = 60


class Market:
    """A cluster with prices of its node groups."""

    def __init__(self, prices: dict[str, str | None], cpus: dict[str, str], allowed: dict[str, int], *parts: Any):
        self.prices = {name: Fraction(price) for name, price in prices.items() if price is not None}
        self.cpus = cpus
        self.allowed = allowed
        self.world = World(*parts)

    def check(self, made: Plan) -> None:
        """Check what a replacement plan promises."""
        assert self.world.promises is not None
        begun = self.world.promises.replacements[-1]
        old = [each.name for each in begun.nodes]
        owners = [self.owner(name) for name in old]
        before = sum((self.prices[owner] for owner in owners), start=Fraction(0))
        after = sum(((to - from_) * self.prices[name] for name, (from_, to) in ups(made).items()), start=Fraction(0))
        assert after <= (1 - SHARE) * before
        assert not set(owners) & set(ups(made))
        for app, allowed in self.allowed.items():
            assert sum(self.on(name, app) for name in old) <= allowed

    def owner(self, node: str) -> str:
        machine = self.world.builders[f"Machine/openshift-machine-api/m-{node}"].manifest()
        return str(machine["metadata"]["ownerReferences"][0]["name"])

    def on(self, node: str, app: str) -> int:
        pods = (each.manifest() for key, each in self.world.builders.items() if key.startswith("Pod/"))
        return sum(each["spec"]["nodeName"] == node and each["metadata"]["labels"]["app"] == app for each in pods)

    def priced(self) -> Fraction:
        """The price per hour of all nodes with a known price."""
        machines = [key.partition("/m-")[2] for key in self.world.builders if key.startswith("Machine/")]
        return sum((self.prices.get(self.owner(name), Fraction(0)) for name in machines), start=Fraction(0))


@st.composite
def markets(draw: st.DrawFn) -> Market:
    """Up to ten nodes of up to four groups with random utilization, PDBs and scheduling constraints."""
    built: list[Any] = []
    prices: dict[str, str | None] = {}
    cpus: dict[str, str] = {}
    rules = {app: draw(st.sampled_from(("", "", "", "hosts"))) for app in APPS}
    allowed = {app: draw(st.sampled_from((0, 1, 3, 9))) for app in APPS if draw(st.booleans())}
    pods = 0
    for letter in "wxyz"[: draw(st.integers(2, 4))]:
        cpus[letter] = draw(st.sampled_from(("2", "4", "8")))
        prices[letter] = draw(st.sampled_from(("0.1", "0.2", "0.3", "0.35", "0.8", None)))
        size = draw(st.integers(0, 3))
        of = group(letter, prices[letter], size=size, cpu=cpus[letter], least=draw(st.sampled_from((0, 0, 1))), most=6)
        built.append(of)
        for number in range(size):
            name = f"{letter}{number}"
            built += worker(name, of, cpu=cpus[letter])
            free, observed = int(cpus[letter]) * 1000, set[str]()
            while (cpu := draw(st.sampled_from((500, 1000, 1500, 0)))) and cpu <= free:
                app = draw(st.sampled_from(APPS))
                if rules[app] and app in observed:
                    continue
                made = web(f"{app}-{pods}", name, f"{cpu}m", app)
                built.append(made.anti_affinity(HOSTNAME) if rules[app] else made)
                observed.add(app)
                free, pods = free - cpu, pods + 1
    built += [budget(app).selecting(app=app).allowing(number) for app, number in allowed.items()]
    return Market(prices, cpus, allowed, built)


@settings(deadline=None, max_examples=examples(100))
@given(markets())
def test_replacements_lower_the_price_and_terminate(market: Market) -> None:
    world, before, quiet = market.world, market.priced(), 0
    for _ in range(ROUNDS):
        made = world.plan()
        growing = bool(ups(made))
        if growing:
            market.check(made)
            assert not removals(made)
        world.keep()
        world.grow(made, cpus=market.cpus)
        going = bool(world.shrink(made))
        world.now += 700
        assert world.promises is not None
        open_ = [each for each in world.status.replacements if each.given_up is None]
        if not open_ and not growing and not world.status.unneeded:
            assert market.priced() <= before
            before = market.priced()
            quiet = 0 if going else quiet + 1
        if quiet == 2:
            return
    raise AssertionError("replacing does not come to an end")


@settings(deadline=None, max_examples=examples(80))
@given(markets())
def test_replacement_in_progress_is_not_planned_again(market: Market) -> None:
    world = market.world
    made = world.plan()
    world.keep()
    if not ups(made):
        return

    assert world.plan().document() == world.plan().document()
    assert not ups(world.plan())
