"""What the descheduler project has, trimtab has too: nothing need be refused for want of it."""

from __future__ import annotations

import pytest

from trimtab.api.strategies import STRATEGIES
from trimtab.descheduling.imports.catalogue import ARGS, PLUGINS, SCOPE, own_params


def test_every_strategy_of_the_project_is_one_here() -> None:
    assert PLUGINS.keys() <= set(STRATEGIES)
    assert PLUGINS.keys() == ARGS.keys()


@pytest.mark.parametrize("strategy", sorted(ARGS))
def test_every_argument_of_the_project_has_its_place_here(strategy: str) -> None:
    assert set(ARGS[strategy]) - set(SCOPE) <= own_params(strategy).keys()
