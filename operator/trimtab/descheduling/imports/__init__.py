"""Policies in the descheduler project's own file formats, read as trimtab's; :mod:`.formats` has them all."""
