"""Which optional parts of the distribution are installed, asked without importing them."""

import importlib.util

from planner.errors import SettingsError

__all__ = ["require_extra"]


def require_extra(extra: str, package: str) -> None:
    """Raises ``SettingsError`` where ``package``, which comes with the extra, is not installed."""
    if importlib.util.find_spec(package) is None:
        message = f"{package!r} is not installed: pip install 'parallel-planner[{extra}]'"
        raise SettingsError(message, code="missing_extra")
