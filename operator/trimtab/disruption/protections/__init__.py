"""Protections: which pods are never moved, one rule a file; the order is in :mod:`~.registry`."""
