"""Failures as the API server tells them."""

from __future__ import annotations

from tests.protobuf import encode_body, encode_status
from trimtab.kube.api import ApiError, Forbidden, TooManyRequests
from trimtab.kube.status import error_from_answer


def test_a_refusal_in_protobuf_is_read_like_one_in_json() -> None:
    error = error_from_answer(403, encode_body("Status", encode_status(403, "Forbidden", "nodes is forbidden")))

    assert isinstance(error, Forbidden)
    assert (error.message, error.reason, error.status) == ("nodes is forbidden", "Forbidden", 403)


def test_the_time_to_wait_is_read_from_protobuf_unless_the_header_says_it() -> None:
    body = encode_body("Status", encode_status(429, "TooManyRequests", "slow down", retry_after=7))

    assert isinstance(error_from_answer(429, body), TooManyRequests)
    assert error_from_answer(429, body).retry_after == 7.0
    assert error_from_answer(429, body, retry_after="3").retry_after == 3.0


def test_broken_protobuf_is_still_the_servers_failure() -> None:
    error = error_from_answer(500, b"k8s\0\xff\xff\xff")

    assert isinstance(error, ApiError)
    assert error.status == 500
