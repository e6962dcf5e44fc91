"""A watchdog timer that ends the process when the supervisor's event loop hangs.

It uses the timer of :mod:`faulthandler`, a C thread that does not need the GIL. So it fires even if an extension module
never releases the GIL, or if the interpreter, while exiting, waits for a hung thread. Before it exits, it writes the
stack of every thread to stderr.
"""

from __future__ import annotations

import faulthandler
import sys
from typing import Final

MAX_HANG: Final = 60.0
"""Maximum seconds for which the supervisor's loop may hang.

The Lease expires after 15 s, so a follower takes over before the process ends.
"""


class Watchdog:
    """The watchdog timer of this process; :mod:`faulthandler` supports only one."""

    def __init__(self) -> None:
        self._final = False

    def rearm(self) -> None:
        """Reset the timer: exit after :data:`MAX_HANG` seconds unless this is called again.

        No-op after a final deadline.
        """
        if not self._final:
            self._set(MAX_HANG)

    def exit_within(self, seconds: float) -> None:
        """Set a final deadline: exit after ``seconds``, even if :meth:`rearm` is called later."""
        self._final = True
        self._set(seconds)

    def _set(self, seconds: float) -> None:
        faulthandler.dump_traceback_later(seconds, exit=True, file=sys.__stderr__ or sys.stderr)
