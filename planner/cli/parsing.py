"""What people type -> numbers and names; units are converted here."""

from collections.abc import Callable

import typer

from planner.units import parse_bytes, parse_duration_ns

__all__ = ["duration_ns", "names", "numbers", "size_bytes"]


def numbers(text: str, option: str) -> tuple[int, ...]:
    """``1,2,4`` -> ascending whole numbers above 0, each once."""
    parts = text.split(",")
    if not all(part.strip().isascii() and part.strip().isdigit() and int(part) > 0 for part in parts):
        raise typer.BadParameter(f"found {text!r}, expected whole numbers above 0 like 1,2,4", param_hint=option)
    return tuple(sorted({int(part) for part in parts}))


def names(text: str | None) -> tuple[str, ...] | None:
    """``a,b`` -> names; None stays None."""
    return None if text is None else tuple(part.strip() for part in text.split(","))


def duration_ns(text: str, option: str) -> int:
    """``10s``, ``2min``: the unit is part of it."""
    return _quantity(text, option, parse_duration_ns)


def size_bytes(text: str | None, option: str) -> int | None:
    """``16GB``, ``80GiB``, bare bytes; None stays None."""
    return None if text is None else _quantity(text, option, parse_bytes)


def _quantity(text: str, option: str, parse: Callable[[str], int]) -> int:
    try:
        return parse(text)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=option) from None
