"""Certified cuts of long chains on many devices of several kinds."""
