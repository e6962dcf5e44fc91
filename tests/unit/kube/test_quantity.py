"""Quantities: exact on everything Kubernetes accepts, strict on everything else."""

from __future__ import annotations

import re
from decimal import ROUND_UP, Context, Decimal, localcontext

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from kubernetes.utils.quantity import parse_quantity

from tests.strategies import BINARY_SUFFIXES, DECIMAL_SUFFIXES, numbers, quantities
from trimtab.kube.rules.quantity import MAX_AMOUNT, QuantityError, amount, cpu_millis, format_amount, resource_amount

# What resource.ParseQuantity takes, in the words of the pattern that Kubernetes puts into schemas of custom resources,
# with integers as exponents (the pattern lets e1.5 pass, the parser doesn't).
PATTERN = re.compile(
    r"(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?[0-9]{1,18}))?", re.ASCII
)


@pytest.mark.parametrize(
    ("text", "millis", "units"),
    [
        pytest.param("0", 0, 0, id="zero"),
        pytest.param("1", 1000, 1, id="integer"),
        pytest.param("250m", 250, 1, id="milli-rounds-units-up"),
        pytest.param("1.5", 1500, 2, id="fraction"),
        pytest.param("1n", 1, 1, id="nano-is-something"),
        pytest.param("0.1n", 1, 1, id="less-than-nano-is-something"),
        pytest.param("100u", 1, 1, id="micro"),
        pytest.param("1e3", 1_000_000, 1000, id="exponent"),
        pytest.param("1E3", 1_000_000, 1000, id="capital-exponent"),
        pytest.param("1E", MAX_AMOUNT, 10**18, id="exa-is-no-exponent"),
        pytest.param("15e-1", 1500, 2, id="negative-exponent"),
        pytest.param("2e+0", 2000, 2, id="signed-exponent"),
        pytest.param("1k", 1_000_000, 1000, id="kilo"),
        pytest.param("1Ki", 1_024_000, 1024, id="kibi"),
        pytest.param("1.5Gi", 1_610_612_736_000, 1_610_612_736, id="fraction-of-gibi"),
        pytest.param("0.0001Ki", 103, 1, id="binary-rounds-up"),
        pytest.param(".5", 500, 1, id="no-digit-before-the-point"),
        pytest.param("5.", 5000, 5, id="no-digit-behind-the-point"),
        pytest.param("1.G", 10**12, 10**9, id="point-then-suffix"),
        pytest.param("+1", 1000, 1, id="plus"),
        pytest.param("-1.5", -1500, -2, id="negative-rounds-away-from-zero"),
        pytest.param("-0.0001", -1, -1, id="small-negative"),
        pytest.param("-0", 0, 0, id="minus-zero"),
        pytest.param("00012", 12000, 12, id="leading-zeros"),
        pytest.param("9223372036854775807", MAX_AMOUNT, MAX_AMOUNT, id="largest"),
        pytest.param("9223372036854775808", MAX_AMOUNT, MAX_AMOUNT, id="above-the-largest"),
        pytest.param("8Ei", MAX_AMOUNT, MAX_AMOUNT, id="binary-above-the-largest"),
        pytest.param("-1e30", -MAX_AMOUNT, -MAX_AMOUNT, id="below-the-smallest"),
        pytest.param("1e999999999999999999", MAX_AMOUNT, MAX_AMOUNT, id="absurd-exponent"),
        pytest.param("1e-999999999999999999", 1, 1, id="absurd-negative-exponent"),
        pytest.param("9" * 5000, MAX_AMOUNT, MAX_AMOUNT, id="very-long"),
        pytest.param("0." + "1" * 5000 + "Ki", 113_778, 114, id="very-precise"),
        pytest.param(2, 2000, 2, id="json-integer"),
        pytest.param(0.1, 100, 1, id="json-number"),
        pytest.param(1e22, MAX_AMOUNT, MAX_AMOUNT, id="large-json-number"),
        pytest.param(1e-07, 1, 1, id="small-json-number"),
    ],
)
def test_a_quantity_is_read_as_kubernetes_reads_it(text: str | int | float, millis: int, units: int) -> None:
    assert cpu_millis(text) == millis
    assert amount(text) == units


@pytest.mark.parametrize(
    "text",
    [
        *["", " ", " 1", "1 ", "1\n", "\t1", "1 Gi"],
        *["1K", "1ki", "1g", "1mi", "1ui", "1i", "1KiB", "1Gb", "1kk", "1mm"],
        *["1_000", "1,5", "1,000", "0x10", "0b1", "1..5", "1.5.0", "--1", "+-1", "1-", "1+3"],
        *["1e", "1e+", "1e1.5", "1ee3", "1e3Ki", "1e3m", "1Ki3", "1k3", "e3", "1e9999999999999999999999"],
        *["NaN", "nan", "Infinity", "inf", "-inf", "abc", "one"],
        *["k", "m", "Ki", "+", "-", ".", "-.", ".k"],
        *["\u0661", "\uff11", "1\u00bd"],  # digits, but not ASCII
    ],
    ids=repr,
)
def test_invalid_quantities_are_rejected(text: str) -> None:
    with pytest.raises(QuantityError, match=re.escape(repr(text))):
        cpu_millis(text)
    with pytest.raises(QuantityError, match="allowed is"):
        amount(text)


@pytest.mark.parametrize("value", [True, False, None, b"1", [], float("nan"), float("inf")], ids=repr)
def test_quantities_of_other_types_are_rejected(value: object) -> None:
    amount(1)  # True == 1: the cache must not mix them up
    with pytest.raises((QuantityError, TypeError)):
        amount(value)  # type: ignore[arg-type]


@given(st.text("0123456789.+-eEinumkKMGTP ", max_size=8))
@example("1K")
def test_quantities_match_the_published_pattern(text: str) -> None:
    if PATTERN.fullmatch(text):
        amount(text)
    else:
        with pytest.raises(QuantityError):
            amount(text)


@given(numbers(max_digits=12), st.sampled_from(DECIMAL_SUFFIXES + BINARY_SUFFIXES))
def test_the_kubernetes_package_reads_the_same(number: str, suffix: str) -> None:
    with localcontext(Context(prec=200)):
        exact = parse_quantity(f"{number}{suffix}")
        assert cpu_millis(f"{number}{suffix}") == _rounded(exact * 1000)
        assert amount(f"{number}{suffix}") == _rounded(exact)


@given(quantities())
def test_thousandths_and_units_agree(text: str) -> None:
    millis, units = abs(cpu_millis(text)), abs(amount(text))
    if millis < MAX_AMOUNT:
        assert units == -(-millis // 1000)
    else:
        assert units >= MAX_AMOUNT // 1000


@given(quantities())
def test_the_sign_changes_nothing_else(text: str) -> None:
    magnitude = text.lstrip("+-")
    assert amount(f"-{magnitude}") == -amount(magnitude)
    assert amount(f"+{magnitude}") == amount(magnitude)


@given(
    st.sampled_from(["cpu", "memory", "ephemeral-storage", "hugepages-2Mi", "pods", "example.com/gpu"]),
    st.one_of(
        st.integers(-MAX_AMOUNT, MAX_AMOUNT),
        st.integers(0, 10**6).map(lambda number: number * 1024**2),
        st.integers(0, 10**6).map(lambda number: number * 1000),
    ),
)
def test_a_formatted_amount_reads_back_as_itself(name: str, value: int) -> None:
    assert resource_amount(name, format_amount(name, value)) == value


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        pytest.param("cpu", 250, "250m", id="millicores"),
        pytest.param("cpu", 2000, "2", id="cores"),
        pytest.param("cpu", 1500, "1500m", id="never-a-fraction"),
        pytest.param("cpu", 0, "0", id="nothing"),
        pytest.param("cpu", -250, "-250m", id="negative"),
        pytest.param("memory", 1536 * 2**20, "1536Mi", id="binary"),
        pytest.param("memory", 2**30, "1Gi", id="largest-binary-suffix"),
        pytest.param("memory", 1000, "1k", id="small-memory-is-decimal"),
        pytest.param("memory", 1_500_000_001, "1500000001", id="never-rounded"),
        pytest.param("hugepages-2Mi", 2**21, "2Mi", id="huge-pages"),
        pytest.param("pods", 110, "110", id="count"),
    ],
)
def test_amounts_are_written_in_canonical_form(name: str, value: int, text: str) -> None:
    assert format_amount(name, value) == text


def test_only_cpu_is_counted_in_thousandths() -> None:
    assert resource_amount("cpu", "500m") == 500
    assert resource_amount("memory", "500m") == 1
    assert resource_amount("example.com/cpu", "2") == 2


def _rounded(exact: Decimal) -> int:
    return max(-MAX_AMOUNT, min(int(exact.to_integral_value(ROUND_UP)), MAX_AMOUNT))
