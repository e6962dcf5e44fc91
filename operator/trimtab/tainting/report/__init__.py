"""What the taint manager tells: events, metrics and status."""

from trimtab.tainting.report.teller import Teller

__all__ = ["Teller"]
