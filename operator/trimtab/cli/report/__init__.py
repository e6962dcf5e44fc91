"""``trimtab plan -o html``: a plan as one page that needs nothing else.

:mod:`.content` takes a plan and a snapshot together to what the page tells, all of it values; the others write them
down. Nothing here reads a clock or a file of the user's, so that equal plans are equal pages, byte for byte.
"""

from trimtab.cli.report.content import Report, report
from trimtab.cli.report.page import page

__all__ = ["Report", "page", "report"]
