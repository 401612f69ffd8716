"""Units at the border between people and code: inside, time is whole nanoseconds and memory whole bytes."""

import re

__all__ = [
    "LARGEST_INTEGER",
    "NS_PER_MS",
    "NS_PER_SECOND",
    "NS_PER_US",
    "bytes_text",
    "counted",
    "parse_bytes",
    "parse_duration_ns",
    "time_text",
]

LARGEST_INTEGER = 2**53 - 1  # the largest whole number that every JSON reader keeps exactly
NS_PER_US = 1_000
NS_PER_MS = 1_000_000
NS_PER_SECOND = 1_000_000_000

_DURATIONS_NS = {
    "ns": 1,
    "us": NS_PER_US,
    "ms": NS_PER_MS,
    "s": NS_PER_SECOND,
    "min": 60 * NS_PER_SECOND,
    "h": 3600 * NS_PER_SECOND,
}
_SIZES_BYTES = {
    "B": 1,
    "kB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
    "TiB": 2**40,
}
_QUANTITY = re.compile(r"\s*([0-9]{1,18}(?:\.[0-9]{1,18})?)\s*([A-Za-z]*)\s*")


def time_text(duration_ns: int) -> str:
    """A duration as a person reads it: ``1.234 s``, ``56.7 ms``, ``8.9 us``, ``12 ns``."""
    for unit in ("s", "ms", "us"):
        if abs(duration_ns) >= _DURATIONS_NS[unit]:
            return f"{_four_digits(duration_ns / _DURATIONS_NS[unit])} {unit}"
    return f"{duration_ns} ns"


def bytes_text(num_bytes: int) -> str:
    """A size as a person reads it, in powers of 1000 as device makers use them: ``79.1 GB``."""
    for unit in ("TB", "GB", "MB", "kB"):
        if abs(num_bytes) >= _SIZES_BYTES[unit]:
            return f"{_four_digits(num_bytes / _SIZES_BYTES[unit])} {unit}"
    return f"{num_bytes} B"


def counted(number: int, word: str) -> str:
    """``1 node``, ``2 nodes``, ``2 batches``."""
    return f"{number} {word}" if number == 1 else f"{number} {word}{'es' if word.endswith(('ch', 's', 'x')) else 's'}"


def _four_digits(value: float) -> str:
    """Four significant digits, whole numbers without an exponent."""
    return f"{value:.4g}" if abs(value) < 9_999.5 else f"{value:.0f}"


def parse_duration_ns(text: str) -> int:
    """``10s``, ``250ms``, ``2min`` -> whole nanoseconds; a number alone could be anything. Raises ``ValueError``."""
    return _parse(text, _DURATIONS_NS, bare="")


def parse_bytes(text: str) -> int:
    """``80GiB``, ``24GB`` or bare bytes -> whole bytes. Raises ``ValueError``."""
    return _parse(text, _SIZES_BYTES, bare="B")


def _parse(text: str, units: dict[str, int], *, bare: str) -> int:
    match = _QUANTITY.fullmatch(text)
    unit = match.group(2) or bare if match else ""
    if match is None or unit not in units:
        raise ValueError(f"found {text[:40]!r}, expected a number with one of the units {', '.join(units)}")
    whole, _, fraction = match.group(1).partition(".")
    scale = units[unit]
    return int(whole) * scale + (int(fraction) * scale) // 10 ** len(fraction) if fraction else int(whole) * scale
