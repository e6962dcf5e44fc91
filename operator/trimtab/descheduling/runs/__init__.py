"""Manages DeschedulingRuns, which contain the plan of a cycle, its approval and its outcome.

``record`` converts a plan to a run and revalidates an approved run. ``lifecycle`` computes a run's phase and status.
Neither does I/O. ``manager`` reads and writes the objects.
"""
