"""Strategies: one way of finding misplaced pods a file; :mod:`~.registry` has their order."""
