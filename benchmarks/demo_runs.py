"""How well the demo predicts its own steps: runs ``examples.demo`` several times and compares.

python -m benchmarks.demo_runs --runs 5
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

PLANNER = Path(sys.executable).with_name("planner")


class Run(NamedTuple):
    """One demo."""

    exit_code: int
    job_s: float
    load: float  # of the machine at its end, over the last minute
    predicted_ns: int
    measured_ns: int  # median of the steps
    error: float  # predicted / measured - 1


def run(folder: Path) -> Run:
    before_s = time.monotonic()
    command = [sys.executable, "-m", "examples.demo", "--output", str(folder)]
    code = subprocess.run(command, stdout=subprocess.DEVNULL, check=False).returncode
    job_s, load = time.monotonic() - before_s, os.getloadavg()[0]
    verify = [PLANNER, "verify", folder / "plan.json", folder / "run.json", "--json"]
    found = json.loads(subprocess.run(verify, capture_output=True, check=True).stdout)
    return Run(code, job_s, load, found["predicted_ns"], found["measured_ns"], found["error"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    runs = []
    print("run  exit  job s  load  predicted ms  measured ms  error")
    for number in range(parser.parse_args().runs):
        with tempfile.TemporaryDirectory() as folder:
            found = run(Path(folder))
        runs.append(found)
        times = f"{found.predicted_ns / 1e6:12.0f}  {found.measured_ns / 1e6:11.0f}"
        print(
            f"{number:3}  {found.exit_code:4}  {found.job_s:5.0f}  {found.load:4.1f}  {times}  {found.error:+.1%}",
            flush=True,
        )
    print(f"median |error| {statistics.median(abs(found.error) for found in runs):.1%}")


if __name__ == "__main__":
    main()
