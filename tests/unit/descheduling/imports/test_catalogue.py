"""What the descheduler project has, trimtab has too: nothing need be refused for want of it."""

from __future__ import annotations

import pytest

from trimtab.api.strategies import STRATEGIES
from trimtab.descheduling.imports.strategy_mapping import ARGS, PLUGINS, SCOPE, own_params


def test_every_upstream_strategy_exists() -> None:
    assert PLUGINS.keys() <= set(STRATEGIES)
    assert PLUGINS.keys() == ARGS.keys()


@pytest.mark.parametrize("strategy", sorted(ARGS))
def test_every_upstream_argument_is_supported(strategy: str) -> None:
    assert set(ARGS[strategy]) - set(SCOPE) <= own_params(strategy).keys()
