"""What a person needs to know of an exception in their own model: its type, its message, and where in their code."""

import site
import sysconfig
import traceback
from pathlib import Path

__all__ = ["FAILURES", "blame"]

FAILURES: tuple[type[BaseException], ...] = (Exception, SystemExit)  # whatever a user's own code may raise

_LONGEST = 500  # characters of a message
_OWN_PACKAGES = ("planner", "profiles")


def blame(error: BaseException) -> str:
    """``ValueError: message (file.py:12, in forward)``: the innermost frame of their own code, if there is one."""
    kind = type(error).__name__
    text = " ".join(str(error).split())
    what = f"{kind}: {text[:_LONGEST]}" if text else kind
    theirs = [frame for frame in traceback.extract_tb(error.__traceback__) if not _is_library(frame.filename)]
    if not theirs:
        return _printable(what)
    frame = theirs[-1]
    return _printable(f"{what} ({_shown(frame.filename)}:{frame.lineno}, in {frame.name})")


def _is_library(filename: str) -> bool:
    if filename.startswith("<"):
        return True
    return any(Path(filename).is_relative_to(folder) for folder in _library_folders())


def _library_folders() -> list[str]:
    own = Path(__file__).parents[1]
    paths = sysconfig.get_paths()
    return [
        *(str(own / package) for package in _OWN_PACKAGES),
        *(paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")),
        *site.getsitepackages(),
    ]


def _shown(filename: str) -> str:
    """Below the current folder by its short name."""
    path, here = Path(filename), Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else filename


def _printable(text: str) -> str:
    return "".join(character if character.isprintable() else " " for character in text)
