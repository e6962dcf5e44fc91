"""Converts Kubernetes quantities (``250m``, ``1.5Gi``, ``2e3``) to exact integers and back.

The grammar is resource.Quantity's (k8s.io/apimachinery v0.36, ``pkg/api/resource``)::

    quantity = [+|-] (digits [. [digits]] | . digits) [suffix]
    suffix   = Ki Mi Gi Ti Pi Ei | n u m k M G T P E | (e|E) [+|-] digits

Planners add and compare amounts millions of times, so an amount is an ``int`` instead of a ``float`` or ``Decimal``:
millicores for CPU, whole units for everything else. As in Kubernetes, fractions are rounded away from zero. Kubernetes
also rounds to billionths while parsing, which does not change the rounded result.

There are two intentional differences:

* An amount beyond a signed 64-bit integer is limited to the largest one, as Quantity's documentation says. Kubernetes
  does so only for binary suffixes; its ``Value()`` of ``10E`` overflows to 0.
* A number without digits (``k``, ``+``, ``.``) is rejected, as by the published grammar and by the validation pattern
  of custom resources. ParseQuantity reads it as 0, but the API server never writes it.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

MAX_AMOUNT: Final = 2**63 - 1
"""The largest amount: the maximum of a signed 64-bit integer."""

CPU: Final = "cpu"
_BINARY_RESOURCES: Final = frozenset({"memory", "ephemeral-storage", "storage"})

_QUANTITY: Final = re.compile(r"([+-]?)(?:([0-9]+)(?:\.([0-9]*))?|\.([0-9]+))(?:([A-Za-z]+)([+-]?[0-9]+)?)?")
_DECIMAL_SUFFIXES: Final = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY_SUFFIXES: Final = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_DECIMAL_NAMES: Final = {exponent: suffix for suffix, exponent in _DECIMAL_SUFFIXES.items()}
_BINARY_NAMES: Final = {0: "", **{exponent: suffix for suffix, exponent in _BINARY_SUFFIXES.items()}}

_MAX_DIGITS: Final = 22  # of 2**63 in thousandths
_FRACTION_DIGITS: Final = 64  # more than 60: a fraction times 2**60 is rounded right whatever digits follow


class QuantityError(ValueError):
    """The string is not a quantity. The message describes the allowed syntax."""

    def __init__(self, text: object) -> None:
        super().__init__(
            f"{text!r} is not a quantity: allowed is a decimal number such as 2, 0.5 or -1, directly followed by "
            "nothing, by one of n u m k M G T P E, by one of Ki Mi Gi Ti Pi Ei, or by an exponent such as e3"
        )


@lru_cache(maxsize=16384, typed=True)
def cpu_millis(text: str | int | float) -> int:
    """Return the quantity in thousandths, rounded away from zero (``MilliValue()``): ``"1.5"`` is 1500, ``"1n"`` is 1.

    Numbers are read as in JSON and YAML: ``0.25`` is ``"0.25"``.

    Raises:
        QuantityError: the string is not a quantity.
    """
    return _scaled(text, 3)


@lru_cache(maxsize=16384, typed=True)
def amount(text: str | int | float) -> int:
    """Return the quantity in whole units, rounded away from zero (``Value()``): ``"1.5Ki"`` is 1536, ``"100m"`` is 1.

    Raises:
        QuantityError: the string is not a quantity.
    """
    return _scaled(text, 0)


def resource_amount(name: str, text: str | int | float) -> int:
    """Return the amount of a resource in the units of :data:`trimtab.kube.frozen.ResourceList`.

    These are millicores for ``cpu``, and whole units for other resources.

    Raises:
        QuantityError: the string is not a quantity.
    """
    return cpu_millis(text) if name == CPU else amount(text)


_SIZES: Final = (("Ti", 1 << 40), ("Gi", 1 << 30), ("Mi", 1 << 20), ("Ki", 1 << 10))


def format_amount(name: str, value: int) -> str:
    """Format an amount in Kubernetes' canonical form: ``250m``, ``1536Mi``, ``110``.

    Memory and storage get the largest binary suffix that needs no rounding, so that
    ``resource_amount(name, format_amount(name, value)) == value``.
    """
    if name == CPU:
        return _canonical(value, 10, 3, -3, _DECIMAL_NAMES)
    if _is_binary(name) and abs(value) >= 1024:
        return _canonical(value, 2, 10, 0, _BINARY_NAMES)
    return _canonical(value, 10, 3, 0, _DECIMAL_NAMES)


def format_rounded(name: str, value: int) -> str:
    """Format an amount for readers, like :func:`format_amount`, but with memory and storage rounded: ``1.46Gi``."""
    return format_bytes(value) if _is_binary(name) else format_amount(name, value)


def format_bytes(value: int | float) -> str:
    """Format a number of bytes with at most two decimals: ``1.46Gi``."""
    for suffix, size in _SIZES:
        if abs(value) >= size:
            return f"{value / size:.2f}".rstrip("0").rstrip(".") + suffix
    return f"{value:g}"


def _is_binary(name: str) -> bool:
    return name in _BINARY_RESOURCES or name.startswith("hugepages-")


def _canonical(value: int, base: int, step: int, exponent: int, names: dict[int, str]) -> str:
    """Return the value with the largest suffix that leaves an integer."""
    if value == 0:
        return "0"
    factor = base**step
    while value % factor == 0 and exponent + step in names:
        value //= factor
        exponent += step
    return f"{value}{names[exponent]}"


def _scaled(text: str | int | float, places: int) -> int:
    """Return the quantity times 10**places, rounded away from zero and limited to :data:`MAX_AMOUNT` in magnitude."""
    if isinstance(text, bool) or not isinstance(text, str | int | float):
        raise QuantityError(text)
    match = _QUANTITY.fullmatch(text if isinstance(text, str) else repr(text))
    if match is None:
        raise QuantityError(text)
    sign, whole, fraction, bare_fraction, letters, exponent = match.groups()
    whole = (whole or "").lstrip("0")
    fraction = (fraction or bare_fraction or "").rstrip("0")
    letters = letters or ""
    if exponent:
        if letters not in ("e", "E"):
            raise QuantityError(text)
        magnitude = _shifted(whole, fraction, _exponent(exponent, text) + places)
    elif letters in _DECIMAL_SUFFIXES:
        magnitude = _shifted(whole, fraction, _DECIMAL_SUFFIXES[letters] + places)
    elif letters in _BINARY_SUFFIXES:
        magnitude = _multiplied(whole, fraction, 10**places << _BINARY_SUFFIXES[letters])
    else:
        raise QuantityError(text)
    return -magnitude if sign == "-" else magnitude


def _exponent(digits: str, text: str | int | float) -> int:
    """Parse a decimal exponent.

    Kubernetes parses it as a 64-bit integer, so larger exponents are rejected.
    """
    if len(digits.lstrip("+-0")) > 18:
        raise QuantityError(text)
    return int(digits)


def _shifted(whole: str, fraction: str, exponent: int) -> int:
    """Return ``whole.fraction`` times 10**exponent.

    The digits are shifted, which is exact and fast for any exponent.
    """
    digits = (whole + fraction).lstrip("0")
    if not digits:
        return 0
    shift = exponent - len(fraction)
    if len(digits) + shift > _MAX_DIGITS:
        return MAX_AMOUNT
    if shift >= 0:
        return min(int(digits + "0" * shift), MAX_AMOUNT)
    point = max(len(digits) + shift, 0)
    remainder = digits[point:].strip("0")
    return min(int(digits[:point] or "0") + bool(remainder), MAX_AMOUNT)


def _multiplied(whole: str, fraction: str, factor: int) -> int:
    """Return ``whole.fraction`` times ``factor``.

    Digits far behind the decimal point only affect rounding.
    """
    if len(whole) > _MAX_DIGITS:
        return MAX_AMOUNT
    if len(fraction) > _FRACTION_DIGITS:
        fraction = f"{fraction[:_FRACTION_DIGITS]}1"
    product = int(f"0{whole}{fraction}") * factor
    divisor: int = 10 ** len(fraction)
    return min(-(-product // divisor), MAX_AMOUNT)
