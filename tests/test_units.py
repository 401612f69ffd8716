"""Units at the border between people and code."""

import pytest

from planner.units import bytes_text, parse_bytes, parse_duration_ns, time_text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("10s", 10**10), ("250ms", 250_000_000), ("2min", 120 * 10**9), ("1h", 3600 * 10**9),
        ("1.5us", 1_500), ("7 ns", 7), (" 0.1 s ", 10**8), ("0.1234567891s", 123_456_789),
    ],
)  # fmt: skip
def test_durations(text: str, expected: int) -> None:
    assert parse_duration_ns(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [("80GiB", 80 * 2**30), ("24GB", 24 * 10**9), ("100", 100), ("1.5 MiB", 3 * 2**19), ("1kB", 1000), ("5B", 5)],
)
def test_sizes(text: str, expected: int) -> None:
    assert parse_bytes(text) == expected


@pytest.mark.parametrize("text", ["", "s", "10", "0", "-1s", "1 day", "1,5s", "1e3s", "nan", "1s1s", "١s", "9" * 5000])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match="expected a number with one of the units"):
        parse_duration_ns(text)


@pytest.mark.parametrize(
    ("duration_ns", "expected"),
    [
        (0, "0 ns"), (999, "999 ns"), (8_900, "8.9 us"), (56_700_000, "56.7 ms"), (1_234_000_000, "1.234 s"),
        (999_999_999, "1000 ms"), (-2_000, "-2 us"), (123_456 * 10**9, "123456 s"), (10**15, "1000000 s"),
    ],
)  # fmt: skip
def test_durations_as_a_person_reads_them(duration_ns: int, expected: str) -> None:
    assert time_text(duration_ns) == expected


@pytest.mark.parametrize(
    ("num_bytes", "expected"),
    [(0, "0 B"), (999, "999 B"), (79_100_000_000, "79.1 GB"), (1_500, "1.5 kB"), (2**53 - 1, "9007 TB")],
)
def test_sizes_as_a_person_reads_them(num_bytes: int, expected: str) -> None:
    assert bytes_text(num_bytes) == expected
