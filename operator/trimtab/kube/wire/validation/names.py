"""Texts with a syntax: names of objects, keys and values of labels (k8s.io/apimachinery ``util/validation``, v0.36)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from trimtab.kube.rules.selector_syntax import is_label_key, is_label_value
from trimtab.kube.wire.fields import FieldError
from trimtab.kube.wire.validation.checks import at_key, matching

_LABEL: Final = re.compile(r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?")
_SUBDOMAIN: Final = re.compile(r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*")
_DECIMAL: Final = re.compile(r"0|-?[1-9][0-9]{0,18}")
_INT64: Final = range(-(2**63), 2**63)
_CACHED: Final = 8192


def is_subdomain(text: str) -> bool:
    """Whether this is a DNS-1123 subdomain, as most objects' names are."""
    return len(text) <= 253 and _SUBDOMAIN.fullmatch(text) is not None


def is_dns_label(text: str) -> bool:
    """Whether this is a DNS-1123 label, as names of namespaces and containers are."""
    return _LABEL.fullmatch(text) is not None


def is_decimal_int64(text: str) -> bool:
    """Whether this is an integer of 64 bits without a plus sign or leading zeros, as tolerations compare them."""
    return _DECIMAL.fullmatch(text) is not None and int(text) in _INT64


def _is_path_segment(text: str) -> bool:
    return bool(text) and text not in {".", ".."} and "/" not in text and "%" not in text


def _is_driver(text: str) -> bool:
    return len(text) <= 63 and is_subdomain(text.lower())


SUBDOMAIN: Final = matching(
    is_subdomain,
    "at most 253 lower-case letters, digits, '-' and '.', each part between dots beginning and ending with a letter "
    "or digit",
)
DNS_LABEL: Final = matching(
    is_dns_label, "at most 63 lower-case letters, digits and '-', beginning and ending with a letter or digit"
)
PATH_SEGMENT: Final = matching(_is_path_segment, "a text without '/' and '%' that is neither '.' nor '..'")
"""Names of kinds whose names the API server does not look at otherwise."""

DRIVER: Final = matching(
    _is_driver, "at most 63 letters, digits, '-' and '.', each part between dots beginning and ending with either"
)

_KEY: Final = (
    "a label key: at most 63 letters, digits, '-', '_' and '.', beginning and ending with a letter or digit, "
    "optionally after a DNS subdomain and '/'"
)
_cached_key: Final = lru_cache(_CACHED)(is_label_key)
_cached_value: Final = lru_cache(_CACHED)(is_label_value)

LABEL_KEY: Final = matching(_cached_key, _KEY)
ANNOTATION_KEY: Final = matching(lambda text: is_label_key(text.lower()), _KEY)
LABEL_VALUE: Final = matching(
    _cached_value,
    "a label value: empty, or at most 63 letters, digits, '-', '_' and '.', beginning and ending with a letter or "
    "digit",
)


def check_labels(labels: Mapping[str, str]) -> None:
    """Check labels, or a selector that is a mapping of them.

    Raises:
        FieldError: a key or a value is not one of a label's.
    """
    for key, value in labels.items():
        if not _cached_key(key):
            LABEL_KEY(key)
        if not _cached_value(value):
            try:
                LABEL_VALUE(value)
            except FieldError as error:
                raise at_key(key, error) from None
