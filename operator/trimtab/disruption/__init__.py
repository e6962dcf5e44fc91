"""Decides whether a pod may be evicted now, and carries out evictions.

It contains protections, PodDisruptionBudgets, limits, the evictor and the executor.
"""
