"""Times of generated clusters, which are relative to a fixed time and shifted to the present on loading.

The real descheduler uses the system clock. All times of a cluster are shifted by the same amount, so that ages are the
same in each run, and in a case that is loaded from a file.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from tests.building import NOW

_FORMAT: Final = "%Y-%m-%dT%H:%M:%SZ"
REFERENCE_TIME: Final = datetime.strptime(NOW, _FORMAT).replace(tzinfo=UTC)
"""The reference time of generated clusters, which is the builders' time."""

_TIMESTAMP: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")


def ago(seconds: int) -> str:
    """The time that many seconds before :data:`REFERENCE_TIME`, in RFC 3339."""
    return (REFERENCE_TIME - timedelta(seconds=seconds)).strftime(_FORMAT)


def shifted(value: Any, now: float) -> Any:
    """Copy the value and shift all its times so that :data:`REFERENCE_TIME` becomes ``now``, in epoch seconds."""
    if isinstance(value, dict):
        return {name: shifted(part, now) for name, part in value.items()}
    if isinstance(value, list):
        return [shifted(part, now) for part in value]
    if isinstance(value, str) and _TIMESTAMP.fullmatch(value):
        moment = datetime.strptime(value, _FORMAT).replace(tzinfo=UTC)
        return (moment + (datetime.fromtimestamp(int(now), tz=UTC) - REFERENCE_TIME)).strftime(_FORMAT)
    return value
