"""What the taint manager tells: events, metrics and status.

:mod:`.teller` is what its loops see of it. Once in :data:`LOOK_EVERY` seconds the controller makes a :class:`Seen`, has
:func:`build_status` make a status of it, and hands that to the :class:`StatusKeeper` and to :meth:`Teller.observe`.
"""

from trimtab.tainting.report.events import EventTeller
from trimtab.tainting.report.metrics import TaintManagerMetrics
from trimtab.tainting.report.reporter import Reporter
from trimtab.tainting.report.seen import Seen
from trimtab.tainting.report.status import LOOK_EVERY, build_status, with_conditions
from trimtab.tainting.report.status_keeper import StatusKeeper
from trimtab.tainting.report.teller import Teller

__all__ = [
    "LOOK_EVERY",
    "EventTeller",
    "Reporter",
    "Seen",
    "StatusKeeper",
    "TaintManagerMetrics",
    "Teller",
    "build_status",
    "with_conditions",
]
