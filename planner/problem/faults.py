"""pydantic's validation errors -> faults with our codes, JSON pointers and sentences that never repeat the input."""

from collections.abc import Mapping

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from planner.errors import Fault

__all__ = ["contract_faults", "fault_of", "json_type", "pointer_text"]

_LONGEST_MESSAGE = 512
_LONGEST_PART = 64
_LONGEST_POINTER = 1024

# pydantic's error type -> our machine code; what is missing here keeps its own name (our own rules) or is a type
_CODES = {
    "missing": "missing",
    "extra_forbidden": "unknown_field",
    "literal_error": "choice",
    "too_long": "limit",
    "too_short": "too_short",
    "string_too_long": "limit",
    "string_too_short": "too_short",
    "string_pattern_mismatch": "pattern",
    "string_unicode": "unicode",
    "finite_number": "not_finite",
    "int_parsing_size": "range",
    "greater_than": "range",
    "greater_than_equal": "range",
    "less_than": "range",
    "less_than_equal": "range",
    "none_required": "type",
    "is_instance_of": "type",
}

# pydantic's error type -> what we say; the names in braces are pydantic's own context, never the input
_SENTENCES = {
    "literal_error": "expected {expected}",
    "too_long": "expected at most {max_length}",  # items or characters
    "too_short": "expected at least {min_length}",
    "string_too_long": "expected at most {max_length}",
    "string_too_short": "expected at least {min_length}",
    "string_pattern_mismatch": "expected text that matches {pattern}",
    "finite_number": "expected a finite number",
    "string_unicode": "expected text without half surrogate pairs",
    "none_required": "expected null",
    "int_parsing": "expected a whole number",
    "int_parsing_size": "expected a whole number below 2^53",
    "greater_than": "expected more than {gt}",
    "greater_than_equal": "expected at least {ge}",
    "less_than": "expected less than {lt}",
    "less_than_equal": "expected at most {le}",
    "int_type": "expected a whole number",
    "int_from_float": "expected a whole number",
    "float_type": "expected a number",
    "bool_type": "expected true or false",
    "string_type": "expected a string",
    "tuple_type": "expected an array",
    "list_type": "expected an array",
    "dict_type": "expected an object",
    "model_type": "expected an object",
    "model_attributes_type": "expected an object",
}
_COUNTED = {"too_long": "item", "too_short": "item", "string_too_long": "character", "string_too_short": "character"}
_ANOTHER = "expected another value"  # of a kind of error that we have no sentence for; pydantic's may hold the input


def contract_faults(error: ValidationError) -> tuple[Fault, ...]:
    """Each fault of a validation error, in pydantic's order: that of the fields, then our own rules.

    A list that stops at its first bad item is also called too short by pydantic; that false fault is left out.
    """
    faults = [fault_of(detail) for detail in error.errors(include_url=False)]
    places = [fault.pointer for fault in faults]
    return tuple(
        fault
        for fault in faults
        if fault.code != "too_short" or not any(place.startswith(fault.pointer + "/") for place in places)
    )


def fault_of(detail: ErrorDetails) -> Fault:
    """One error of pydantic's as a fault; of its input only the JSON type is told."""
    kind, context = detail["type"], detail.get("ctx", {})
    pointer = pointer_text(detail["loc"])
    if set(context) == {"message"}:  # one of our own rules: planner.problem.contract.fault
        return Fault(kind, pointer, str(context["message"])[:_LONGEST_MESSAGE])
    if kind in ("literal_error", "missing") and pointer.endswith("/schema"):
        supported = context.get("expected", "the field that names the document's kind")
        return Fault("schema", pointer, f"expected {supported}")
    return Fault(_code(kind), pointer, _sentence(detail, context)[:_LONGEST_MESSAGE])


def _code(kind: str) -> str:
    if kind in _CODES:
        return _CODES[kind]
    return "type" if kind.endswith(("_type", "_parsing", "_from_float")) else kind


def _sentence(detail: ErrorDetails, context: Mapping[str, object]) -> str:
    kind, field = detail["type"], str(detail["loc"][-1]) if detail["loc"] else ""
    if kind == "missing":  # the name is ours: it comes from the contract
        return f"the required field {field!r} is missing"
    if kind == "extra_forbidden":
        odd = field != field.lower() or "-" in field or " " in field
        return "unknown field; field names are lower case with underscores" if odd else "unknown field"
    if kind == "value_error":  # raised by a validator of ours, outside of contracts
        return str(context["error"])
    sentence = _SENTENCES[kind].format_map(context) if kind in _SENTENCES else _ANOTHER
    if kind in _COUNTED:
        number = context.get("max_length", context.get("min_length"))
        return f"{sentence} {_COUNTED[kind]}{'' if number == 1 else 's'}"
    return f"found {json_type(detail['input'])}, {sentence}" if _code(kind) == "type" else sentence


def json_type(value: object) -> str:
    """What a JSON reader calls the value: safe to say of any input."""
    names: list[tuple[type, str]] = [
        (bool, "a boolean"),
        (str, "a string"),
        (list, "an array"),
        (dict, "an object"),
        (int, "a whole number"),
        (float, "a number with a fraction or exponent"),
    ]
    return next((name for kind, name in names if isinstance(value, kind)), "null" if value is None else "another value")


def pointer_text(location: tuple[int | str, ...]) -> str:
    """JSON pointer (RFC 6901) for a person and a machine to read.

    Left out are pydantic's own marks: tags of unions, which we write ``<tag>``, and ``[key]``. Long keys are cut, and
    characters that a terminal may obey are replaced.
    """
    parts = [str(part) for part in location if not (isinstance(part, str) and (part[:1] == "<" or part == "[key]"))]
    return "".join("/" + _pointer_part(part) for part in parts)[:_LONGEST_POINTER]


def _pointer_part(part: str) -> str:
    shown = "".join(character if character.isprintable() else "\ufffd" for character in part[:_LONGEST_PART])
    return shown.replace("~", "~0").replace("/", "~1")
