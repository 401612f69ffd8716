"""The base of every document that crosses a process border, and the field types that they share."""

import unicodedata
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Self, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints
from pydantic_core import PydanticCustomError

from planner.units import LARGEST_INTEGER

__all__ = [
    "MOST_LAYERS",
    "MOST_RANKS",
    "Bytes",
    "Contract",
    "Count",
    "Digest",
    "FiniteFloat",
    "Index",
    "LongestDuration",
    "Many",
    "Name",
    "Nanoseconds",
    "fault",
    "first_repeated",
]

MOST_LAYERS = 4096
MOST_RANKS = 16_384
LongestDuration = 10**15  # ns, 11.6 days: no duration of a layer, message or step is longer


class Contract(BaseModel):
    """A frozen document: unknown fields forbidden, no conversion between types, checked when it is made."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        allow_inf_nan=False,
        validate_by_alias=True,
        validate_by_name=True,
        serialize_by_alias=True,
        hide_input_in_errors=True,
        ser_json_bytes="base64",
    )

    # Overrides a method with a body: pydantic's copy keeps the cached values, a changed document the old one's digest.
    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """A copy with some fields replaced, unchecked; what the first one has worked out of itself is left behind."""
        copied = super().model_copy(update=update, deep=deep)
        for name in copied.__dict__.keys() - type(self).model_fields.keys():
            del copied.__dict__[name]
        return copied


def fault(code: str, message: str) -> PydanticCustomError:
    """An error to raise inside a validator; ``code`` becomes the machine code of the document's fault."""
    return PydanticCustomError(code, "{message}", {"message": message})


def first_repeated(values: Iterable[object]) -> object | None:
    """The first value that stands twice, or None."""
    seen: set[object] = set()
    for value in values:
        if value in seen:
            return value
        seen.add(value)
    return None


# control, format (bidirectional marks), surrogate, private, unassigned; line and paragraph separators
_UNPRINTABLE = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


def _name(text: str) -> str:
    text = unicodedata.normalize("NFC", text)
    if not 1 <= len(text) <= 128:
        raise fault("name", f"a name of {len(text)} characters, expected 1..128")
    for character in text:
        if unicodedata.category(character) in _UNPRINTABLE:
            raise fault("name", f"a name with the character U+{ord(character):04X}, expected printable text")
    if text != text.strip():
        raise fault("name", "a name that begins or ends with a space")
    return text


def _no_negative_zero(value: float) -> float:
    return value + 0.0


_Item = TypeVar("_Item")
# A list whose first bad item alone is reported: 10^6 bad items must not become 10^6 faults.
Many = Annotated[tuple[_Item, ...], Field(fail_fast=True)]
Name = Annotated[str, Field(max_length=1024), AfterValidator(_name)]
Digest = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
Index = Annotated[int, Field(ge=0, le=LARGEST_INTEGER)]
Count = Annotated[int, Field(ge=1, le=LARGEST_INTEGER)]
Bytes = Annotated[int, Field(ge=0, le=LARGEST_INTEGER)]
Nanoseconds = Annotated[int, Field(ge=0, le=LongestDuration)]
FiniteFloat = Annotated[float, Field(ge=-LARGEST_INTEGER, le=LARGEST_INTEGER), AfterValidator(_no_negative_zero)]
