"""Bytes that are not one acceptable JSON value: each kind of looseness has its code and its place."""

import json

import pytest

from planner.errors import ContractError, JsonError
from planner.problem.strict_json import MOST_DEPTH, MOST_KEYS, check_json
from tests.helpers.documents import make_workload
from tests.helpers.edits import json_of

GOOD = json.dumps(json_of(make_workload())).encode()


def _nested(depth: int) -> bytes:
    return b"[" * depth + b"]" * depth


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"", "json_invalid"),
        (b" \n", "json_invalid"),
        (GOOD[:-3], "json_invalid"),
        (GOOD + b"x", "json_invalid"),
        (GOOD + GOOD, "json_invalid"),
        (b"{'schema': 1}", "json_invalid"),
        (b"[1,]", "json_invalid"),
        (b'{"a": 01}', "json_invalid"),
        (b'"a\nb"', "json_invalid"),
        (b'"\x00"', "json_invalid"),
        (_nested(MOST_DEPTH + 1), "json_depth"),
        (_nested(100_000), "json_depth"),
        (b"[" * 100_000, "json_depth"),
        (b'{"a":' * 1000 + b"1" + b"}" * 1000, "json_depth"),
        (b'"\xff"', "encoding"),
        (b'"\xed\xa0\x80"', "encoding"),  # a surrogate written as UTF-8
        (b"\xef\xbb\xbf" + GOOD, "encoding"),
        (GOOD.decode().encode("utf-16"), "encoding"),
        (GOOD.decode().encode("utf-16-le"), "json_invalid"),
    ],
)
def test_bytes_that_are_not_one_json_value(data: bytes, code: str) -> None:
    with pytest.raises(JsonError) as caught:
        check_json(data)
    assert caught.value.code == code


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b'{"a": 1, "a": 1}', "duplicate_key"),
        (b'{"a": 1, "\\u0061": 2}', "duplicate_key"),
        (b'[{"b": {"a": 1, "a": 1}}]', "duplicate_key"),
        (b"[NaN]", "not_finite"),
        (b"[Infinity]", "not_finite"),
        (b"[-Infinity]", "not_finite"),
        (b"[1e999]", "not_finite"),
        (b"[-1e999]", "not_finite"),
        (b"1" + b"0" * 400, "range"),
        (b"9" * 5000, "range"),
        (b"-" + b"9" * 5000, "range"),
        (b"9007199254740993", "range"),
        (b"9007199254740993.0", "range"),
        (b"9007199254740992", "range"),
        (b"-9007199254740992", "range"),
        (b"9.1e15", "range"),
        (b'"\\ud800"', "unicode"),
        (b'{"\\udc00x": 1}', "unicode"),
        (b'["\\ud83d", "\\ude00"]', "unicode"),
    ],
)
def test_json_that_is_no_document(data: bytes, code: str) -> None:
    with pytest.raises(ContractError) as caught:
        check_json(data)
    assert caught.value.code == code


@pytest.mark.parametrize(
    ("data", "code", "pointer"),
    [
        (b'{"a": [1, {"b": 1e999}], "c": NaN}', "not_finite", "/a/1/b"),
        (b'{"a": [1, {"b": 99999999999999999999}]}', "range", "/a/1/b"),
        (b'{"a": {"x": 1, "x": 1}}', "duplicate_key", "/a"),
        (b'[0, {"\\u001b": NaN}]', "not_finite", "/1/\ufffd"),
    ],
)
def test_the_place_of_what_is_refused(data: bytes, code: str, pointer: str) -> None:
    with pytest.raises(ContractError) as caught:
        check_json(data)
    assert (caught.value.code, caught.value.pointer) == (code, pointer)


def test_numbers_at_the_limit_and_surrogate_pairs_are_read() -> None:
    text = b'[9007199254740991, -9007199254740991, 1e15, "\\ud83d\\ude00", "\\\\ud800"]'
    assert check_json(text) == [2**53 - 1, 1 - 2**53, 1e15, "\U0001f600", "\\ud800"]


def test_depth_at_the_limit_is_read() -> None:
    assert check_json(_nested(MOST_DEPTH)) is not None
    assert check_json(b"1") == 1


def test_keys_at_the_limit_are_read() -> None:
    def keys(number: int) -> bytes:
        return json.dumps({f"k{i}": 0 for i in range(number)}).encode()

    assert len(check_json(keys(MOST_KEYS))) == MOST_KEYS  # type: ignore[arg-type]
    with pytest.raises(ContractError) as caught:
        check_json(keys(MOST_KEYS + 1))
    assert caught.value.code == "too_many_items"
