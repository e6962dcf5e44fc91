"""Policies in the descheduler project's own file formats, read as trimtab's."""
