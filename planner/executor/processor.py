"""The name of this machine's processor as a device kind; no torch, so that every tool may ask."""

import platform
import re
from contextlib import suppress
from pathlib import Path

__all__ = ["cpu_kind", "kind_words"]

_NOISE = re.compile(r"\(R\)|\(TM\)|\bCPU\b|\bProcessor\b|@.*$|\b\d+-Core\b", re.IGNORECASE)


def cpu_kind() -> str:
    """``cpu-`` and the words of the processor's name: letters, digits, dots and dashes."""
    name = platform.machine()
    with suppress(FileNotFoundError):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
        name = next((line.partition(":")[2] for line in lines if line.startswith("model name")), name)
    return f"cpu-{kind_words(_NOISE.sub(' ', name))}"[:64].rstrip("-")


def kind_words(name: str) -> str:
    """A device's name with dashes for everything that a device kind may not hold."""
    return "-".join(re.findall(r"[A-Za-z0-9._]+", name))
