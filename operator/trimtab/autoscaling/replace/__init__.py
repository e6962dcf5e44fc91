"""Replaces existing nodes with fewer or cheaper ones, from the plan until the old nodes are removed.

This module imports nothing, to avoid an import cycle: scale-down imports the replacement state, and the replacement
planner imports scale-down.
"""
