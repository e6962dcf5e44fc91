"""The strategies, which find misplaced pods and plan their eviction. :mod:`~.registry` defines their order."""
