"""Canonical JSON (RFC 8785) and the digests that name documents."""

import hashlib
from collections.abc import Mapping

import rfc8785

from planner.problem.contract import Contract

__all__ = ["canonical_bytes", "canonical_digest", "document_bytes", "document_digest"]


def canonical_bytes(value: Mapping[str, object]) -> bytes:
    """``value`` as canonical JSON: sorted keys, no spaces, UTF-8."""
    return rfc8785.dumps(value)  # type: ignore[arg-type]


def canonical_digest(value: Mapping[str, object]) -> str:
    """64 hex digits of SHA-256 over the canonical JSON of ``value``."""
    return hashlib.sha256(canonical_bytes(value)).hexdigest()


def document_bytes(document: Contract) -> bytes:
    """The canonical JSON of a whole document, defaults written out."""
    return canonical_bytes(document.model_dump(mode="json"))


def document_digest(document: Contract, *, leave_out: frozenset[str] = frozenset()) -> str:
    """Digest of a document without the top-level fields in ``leave_out``."""
    return canonical_digest(document.model_dump(mode="json", exclude=set(leave_out)))
