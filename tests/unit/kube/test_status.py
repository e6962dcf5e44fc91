import pytest

from tests.protobuf import encode_body, encode_status
from trimtab.kube.api import (
    ApiError,
    Forbidden,
    Gone,
    Invalid,
    ServerError,
    TooManyRequests,
    error_from_response,
    error_from_status,
)


def test_a_watchs_error_event_is_the_same_exception_as_an_answer():
    error = error_from_status({"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"})
    assert (type(error), error.status, error.reason, str(error)) == (Gone, 410, "Expired", "too old")


def test_the_fields_an_object_is_refused_for_are_kept():
    causes = [{"reason": "FieldValueInvalid", "message": "must be positive", "field": "spec.n"}, "nonsense"]
    error = error_from_status({"code": 422, "message": "invalid", "details": {"causes": causes}})
    assert isinstance(error, Invalid)
    assert error.causes == (causes[0],)


def test_a_refusal_in_protobuf_is_read_like_one_in_json():
    error = error_from_response(403, encode_body("Status", encode_status(403, "Forbidden", "nodes is forbidden")))
    assert isinstance(error, Forbidden)
    assert (error.message, error.reason, error.status) == ("nodes is forbidden", "Forbidden", 403)


def test_retry_after_is_read_from_the_header_or_from_protobuf():
    body = encode_body("Status", encode_status(429, "TooManyRequests", "slow down", retry_after=7))
    assert isinstance(error_from_response(429, body), TooManyRequests)
    assert error_from_response(429, body).retry_after == 7.0
    assert error_from_response(429, body, retry_after="3").retry_after == 3.0


def test_broken_protobuf_is_still_the_servers_failure():
    assert type(error_from_response(500, b"k8s\0\xff\xff\xff")) is ServerError


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "HTTP status 500: Internal Server Error"),
        (b"no healthy upstream", "HTTP status 500: no healthy upstream"),
        (b'{"error": 1}', 'HTTP status 500: {"error": 1}'),
        (b"\x1f\x8b\x00\x01", "HTTP status 500: Internal Server Error"),
    ],
    ids=["empty", "text", "other JSON", "binary"],
)
def test_error_body_without_status_gives_a_readable_message(body, message):
    error = error_from_response(500, body, phrase="Internal Server Error")
    assert (type(error), str(error)) == (ServerError, message)


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("5", 5.0),
        ("0", 0.0),
        ("-1", None),
        ("3600", 60.0),
        ("nan", None),
        ("inf", None),
        ("Fri, 20 Nov 2026 12:00:00 GMT", None),
        (None, None),
    ],
)
def test_only_seconds_are_understood_of_retry_after(header, seconds):
    assert error_from_response(503, b"", retry_after=header).retry_after == seconds


@pytest.mark.parametrize("status", [{}, {"details": None}, {"details": []}, {"details": {"causes": None}}])
def test_an_empty_status_is_an_error_nonetheless(status):
    error = error_from_status(status, code=418)
    assert (type(error), str(error)) == (ApiError, "HTTP status 418")


@pytest.mark.parametrize(("expected", "seconds"), [(7, 7.0), (2**31 - 1, 60.0), (-3, None), ("soon", None), ([], None)])
def test_retry_after_is_honoured_up_to_a_maximum(expected, seconds):
    assert error_from_status({"details": {"retryAfterSeconds": expected}}, code=429).retry_after == seconds
