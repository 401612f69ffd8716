"""Automatic parallel-plan search: profile, search, check, simulate, execute."""

__all__ = ["__version__"]

__version__ = "0.1.0"
