"""Pages of lists (AIP-158), by keyset: a token names the last entry seen and is signed, so that none can be made up."""

import base64
import binascii
import hashlib
import hmac

from api.store.store import Position
from planner.errors import RequestError

__all__ = ["page_position", "page_token"]

_TAG_BYTES = 16


def page_token(position: Position | None, *, collection: str, key: bytes) -> str:
    """Opaque text for the page that follows ``position``; good for this collection of this store only."""
    if position is None:  # the last page
        return ""
    text = f"{position.created_ns} {position.id}".encode("ascii")
    return base64.urlsafe_b64encode(_tag(text, collection, key) + text).decode("ascii").rstrip("=")


def page_position(token: str, *, collection: str, key: bytes) -> Position | None:
    """Where the page begins; None for the first one. Raises ``RequestError`` (page_token)."""
    if not token:
        return None
    try:
        data = base64.b64decode(token.encode("ascii") + b"=" * (-len(token) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, UnicodeEncodeError):
        raise _refused() from None
    tag, text = data[:_TAG_BYTES], data[_TAG_BYTES:]
    if not hmac.compare_digest(tag, _tag(text, collection, key)):
        raise _refused()
    created, _, name = text.decode("ascii").partition(" ")
    return Position(int(created), name)


def _tag(text: bytes, collection: str, key: bytes) -> bytes:
    return hmac.new(key, collection.encode("ascii") + b"\0" + text, hashlib.sha256).digest()[:_TAG_BYTES]


def _refused() -> RequestError:
    return RequestError("not a page token of this list", code="page_token", pointer="/query/page_token")
