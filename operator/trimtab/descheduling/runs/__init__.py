"""DeschedulingRuns: what each cycle planned, whether it was approved, and what became of it.

``record`` makes a plan fit into an object, ``lifecycle`` says what a run may still become, ``progress`` how its status
goes on, ``approval`` judges an approved plan again: all pure. ``keeper`` and ``journal`` read and write.
"""
