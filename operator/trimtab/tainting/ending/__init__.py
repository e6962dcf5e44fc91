"""Acting on deadlines: pods whose time on their node is over are deleted or evicted, until they are gone.

:mod:`.judging` says what is to be done with a pod now, :mod:`.rates` and :mod:`.held` how fast, :mod:`.requests` does
it once, :mod:`.answer` reads what came of it, :mod:`.tries` takes a pod from one try to the next, :mod:`.room` is where
they wait, :mod:`.ending` keeps all that are due going, :mod:`.stuck` finds those that cannot end.
"""

from trimtab.tainting.ending.ending import Ending
from trimtab.tainting.ending.outcome import Ended, What

__all__ = ["Ended", "Ending", "What"]
