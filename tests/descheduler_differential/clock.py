"""When things happened: clusters are described as of one fixed moment, and moved to the present when they are loaded.

The real descheduler goes by the machine's clock. So all times of a description are shifted by the same amount: ages are
the same in each run, and in a case that was written to a file weeks ago.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from tests.building import NOW

_FORM: Final = "%Y-%m-%dT%H:%M:%SZ"
THEN: Final = datetime.strptime(NOW, _FORM).replace(tzinfo=UTC)
"""The moment as of which clusters are described, that of the builders."""

_MOMENT: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")


def ago(seconds: int) -> str:
    """A time so many seconds before :data:`THEN`, as Kubernetes writes it."""
    return (THEN - timedelta(seconds=seconds)).strftime(_FORM)


def shifted(value: Any, now: float) -> Any:
    """The same value with all its times moved so that :data:`THEN` becomes ``now``, seconds since the epoch."""
    if isinstance(value, dict):
        return {name: shifted(part, now) for name, part in value.items()}
    if isinstance(value, list):
        return [shifted(part, now) for part in value]
    if isinstance(value, str) and _MOMENT.fullmatch(value):
        moment = datetime.strptime(value, _FORM).replace(tzinfo=UTC)
        return (moment + (datetime.fromtimestamp(int(now), tz=UTC) - THEN)).strftime(_FORM)
    return value
