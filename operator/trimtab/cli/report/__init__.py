"""``trimtab plan -o html``: a plan as one self-contained HTML page.

:mod:`.content` extracts values from a plan and a snapshot; :mod:`.page` renders them with the Jinja templates in
``templates/``. Rendering reads neither the clock nor user files, so the page of a plan is always identical byte for
byte.
"""

from trimtab.cli.report.content import Report, report
from trimtab.cli.report.page import page

__all__ = ["Report", "page", "report"]
