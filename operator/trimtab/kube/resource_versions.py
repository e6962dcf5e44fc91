"""The order of resource versions.

Versions of the objects of one resource are decimal numbers that grow with each write. Kubernetes guarantees this since
v1.35, and every older API server behaves this way.
"""

from __future__ import annotations


def is_older(version: str, than: str) -> bool:
    """Return whether a resource version is older than another; false if one of them is not a number."""
    return version.isdecimal() and than.isdecimal() and int(version) < int(than)
