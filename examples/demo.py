"""The main job on one machine: ``make demo``.

Profile a model on two ranks, measure their link, ask the HTTP service for a plan, run two steps to calibrate the
profile, ask again, train twenty steps on two ranks and the same twenty in one process, compare. Every step is a command
that a person could have typed; it is printed before it runs. Exit code 1 where a loss differs by more than 1e-6.
"""

import argparse
import json
import os
import socket
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from examples.processes import CommandFailedError, Processes
from examples.settings import SAMPLES, TOKENS
from planner.cli.server import Server
from planner.errors import PlannerError
from planner.executor.loading import load_plan

__all__ = ["main"]

ROOT = Path(__file__).parent.parent
BIN = Path(sys.executable).parent
NUM_RANKS = 2
STEPS = 20
CALIBRATION_STEPS = 2
WARM_UP_STEPS = 3  # before them, left out
USABLE = "130MB"  # of a rank; weights, gradients and optimizer state of the whole model need 161 MB
LARGEST_LOSS_DIFFERENCE = 1e-6  # relative


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=ROOT / "demo-output", help="folder for plan, trace, records")
    output = Path(os.path.relpath(parser.parse_args().output, ROOT))
    (ROOT / output).mkdir(parents=True, exist_ok=True)
    os.chdir(ROOT)
    before_s = time.monotonic()
    path = os.pathsep.join([str(BIN), os.environ.get("PATH", os.defpath)])
    environment = {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT), "PATH": path}
    try:
        with tempfile.TemporaryDirectory(prefix="planner-demo-") as folder, Processes(environment) as processes:
            same = Demo(output, Path(folder, "store.sqlite3"), processes).run()
    except (CommandFailedError, PlannerError) as error:
        sys.exit(f"demo failed: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
    print(f"\nthe whole job took {time.monotonic() - before_s:.0f} s")
    if not same:
        sys.exit("demo failed: the losses of 2 ranks and of one process differ")


class Demo:
    """The steps of the job and the files that they hand on."""

    def __init__(self, output: Path, store: Path, processes: Processes) -> None:
        self._output = output
        self._store = store
        self._processes = processes

    def run(self) -> bool:
        """Whether the losses agree."""
        self._measure()
        url = self._serve()
        self._search(url, profile="profile.json", plan="plan-first.json")
        steps = WARM_UP_STEPS + CALIBRATION_STEPS
        self._train(plan="plan-first.json", steps=steps, record="run-calibration.json")
        self._calibrate()
        self._search(url, profile="profile-calibrated.json", plan="plan.json")
        self._train(plan="plan.json", steps=STEPS, record="run.json")
        self._train_alone()
        return self._compare()

    def _measure(self) -> None:
        headline("1. measure the layers on both ranks at once, then the link between the ranks")
        print(f"A rank may use {USABLE}: too little for the whole model, so a plan has to split it.")
        sizes = ["--micro-batch", "1,2,4", "--sequence", str(TOKENS), "--time-limit", "15s"]
        ranks = ["--ranks", str(NUM_RANKS), "--usable", USABLE, "--force"]
        factory = "examples.llama:build_model"
        self._planner("profile", "run", factory, *sizes, *ranks, "-o", self._file("profile.json"), limit_s=180)
        self._planner("cluster", "probe", *ranks, "-o", self._file("cluster.json"), limit_s=120)
        workload = {
            "schema": "workload/1",
            "global_batch_size": SAMPLES,
            "sequence_length": TOKENS,
            "precision": "fp32",
            "optimizer": "adamw",
        }
        (self._output / "workload.json").write_text(json.dumps(workload, indent=2))

    def _serve(self) -> str:
        headline("2. start the service, ask it for a plan over HTTP")
        port = free_port()
        command = ["planner", "serve", "--port", str(port), "--store", str(self._store)]
        self._processes.start(command, log=self._output / "serve.log")
        url = f"http://127.0.0.1:{port}"
        Server(url).wait_ready(deadline_s=60)
        return url

    def _search(self, url: str, *, profile: str, plan: str) -> None:
        limit = ["--time-limit", "30s", "--force"]
        self._planner("search", "--server", url, *self._documents(profile), *limit, "-o", self._file(plan), limit_s=90)

    def _documents(self, profile: str) -> list[str]:
        found = ["--profile", self._file(profile), "--cluster", self._file("cluster.json")]
        return [*found, "--workload", self._file("workload.json")]

    def _train(self, *, plan: str, steps: int, record: str) -> None:
        headline(f"train {steps} steps on {NUM_RANKS} ranks")
        torchrun = ["torchrun", "--standalone", f"--nproc-per-node={NUM_RANKS}", "--no-python"]
        script = ["examples/train_llama.py", "--steps", str(steps), "--output", self._file(record)]
        command = [*torchrun, "planner", "run", "--plan", self._file(plan), *script]
        self._processes.run(command, limit_s=300)

    def _calibrate(self) -> None:
        headline("3. calibrate the profile by the measured steps, ask for the plan again")
        documents = [*self._documents("profile.json")[2:], "--force"]
        measured = ["--plan", self._file("plan-first.json"), "--run", self._file("run-calibration.json")]
        measured += ["--skip", str(WARM_UP_STEPS)]
        profile = [self._file("profile.json"), "-o", self._file("profile-calibrated.json")]
        self._planner("profile", "calibrate", *profile, *measured, *documents, limit_s=60)

    def _train_alone(self) -> None:
        headline(f"the same {STEPS} steps in one process, with the same micro-batches")
        sizes = ",".join(str(batch.samples) for batch in load_plan(self._output / "plan.json").micro_batches)
        options = ["--steps", str(STEPS), "--micro-batches", sizes, "--output", self._file("losses.json")]
        self._processes.run(["python", "-m", "examples.plain_loop", *options], limit_s=300)

    def _compare(self) -> bool:
        headline("4. compare")
        record = json.loads((self._output / "run.json").read_text())
        ours = [step["loss"] for step in record["steps"]]
        alone = json.loads((self._output / "losses.json").read_text())
        same = print_losses(ours, alone)
        plan, documents = self._file("plan.json"), self._documents("profile-calibrated.json")
        traces = [self._file("trace-measured.json"), self._file("trace-predicted.json")]
        self._planner("verify", plan, self._file("run.json"), "--trace", traces[0], "--force", limit_s=60)
        self._planner("show", plan, *documents, "--trace", traces[1], "--force", limit_s=60)
        for path, text in (
            (plan, "the plan"),
            (self._file("run.json"), "the measured steps"),
            (traces[0], "the last measured step, for ui.perfetto.dev or chrome://tracing"),
            (traces[1], "the predicted step, likewise"),
        ):
            print(f"{path}: {text}")
        return same

    def _planner(self, *arguments: str, limit_s: float) -> None:
        self._processes.run(["planner", *arguments], limit_s=limit_s)

    def _file(self, name: str) -> str:
        return str(self._output / name)


def headline(text: str) -> None:
    print(f"== {text}", flush=True)


def free_port() -> int:
    """A port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def print_losses(ours: Sequence[float], alone: Sequence[float]) -> bool:
    """The losses side by side; whether every pair agrees."""
    print(f"step  {NUM_RANKS} ranks     one process  relative difference")
    differences = [abs(one - other) / abs(other) for one, other in zip(ours, alone, strict=True)]
    for step, (one, other, difference) in enumerate(zip(ours, alone, differences, strict=True)):
        print(f"{step:4d}  {one:.8f}  {other:.8f}   {difference:.1e}")
    print(f"largest relative difference {max(differences):.1e}, allowed {LARGEST_LOSS_DIFFERENCE:.0e}\n", flush=True)
    return len(ours) == STEPS and max(differences) <= LARGEST_LOSS_DIFFERENCE


if __name__ == "__main__":
    main()
