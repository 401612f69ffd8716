"""pydantic's validation errors -> faults with our codes, JSON pointers and sentences that never repeat the input."""

from collections.abc import Mapping

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from planner.errors import Fault

__all__ = ["contract_faults", "pointer_text"]

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
    "too_long": "expected at most {max_length} items",
    "too_short": "expected at least {min_length} items",
    "string_too_long": "expected at most {max_length} characters",
    "string_pattern_mismatch": "expected text that matches {pattern}",
    "finite_number": "expected a finite number",
    "int_parsing_size": "expected a whole number below 2^53",
    "greater_than": "expected more than {gt}",
    "greater_than_equal": "expected at least {ge}",
    "less_than": "expected less than {lt}",
    "less_than_equal": "expected at most {le}",
    "int_type": "expected a whole number",
    "int_from_float": "expected a whole number, written without a fraction or exponent",
    "float_type": "expected a number",
    "bool_type": "expected true or false",
    "string_type": "expected a string",
    "tuple_type": "expected an array",
    "list_type": "expected an array",
    "dict_type": "expected an object",
    "model_type": "expected an object",
    "model_attributes_type": "expected an object",
}


def contract_faults(error: ValidationError) -> tuple[Fault, ...]:
    """Each fault of a validation error, in pydantic's order: that of the fields, then our own rules."""
    return tuple(_fault(detail) for detail in error.errors(include_url=False, include_input=False))


def _fault(detail: ErrorDetails) -> Fault:
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
    return _SENTENCES[kind].format_map(context) if kind in _SENTENCES else str(detail["msg"])


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
