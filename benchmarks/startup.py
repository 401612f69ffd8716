"""CPU time of what a person waits for: ``planner --help`` and commands that read small files; minimum of five runs.

python -m benchmarks.startup
"""

import resource
import subprocess
import sys
from pathlib import Path

PLANNER = Path(sys.executable).with_name("planner")
COMMANDS = (["--help"], ["search", "--help"], ["schema"], ["schema", "plan/1"])
RUNS = 5


def cpu_seconds(arguments: list[str]) -> float:
    """User and system time of one run."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([PLANNER, *arguments], stdout=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    for arguments in COMMANDS:
        print(f"planner {' '.join(arguments):16} {min(cpu_seconds(arguments) for _ in range(RUNS)):.2f} s CPU")


if __name__ == "__main__":
    main()
