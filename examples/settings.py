"""The command line that the training scripts share, and how they write what they measured."""

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ["SAMPLES", "TOKENS", "Settings", "parse_settings"]

SAMPLES = 8  # of the global batch
TOKENS = 64  # of a sample


@dataclass(frozen=True)
class Settings:
    """How long to train and where to write."""

    steps: int
    micro_batches: tuple[int, ...]  # samples of each, for the plain loop; a plan says them itself
    output: Path

    @property
    def parts(self) -> tuple[slice, ...]:
        """The samples of each micro-batch."""
        ends = [sum(self.micro_batches[: number + 1]) for number in range(len(self.micro_batches))]
        return tuple(slice(end - size, end) for end, size in zip(ends, self.micro_batches, strict=True))

    def write(self, results: Sequence[object]) -> None:
        """Losses of the plain loop as a list; results of an executor as a record that ``planner verify`` reads."""
        if all(isinstance(result, float) for result in results):
            self.output.write_text(json.dumps(results))
        else:
            _write_record(self.output, results)


def _write_record(path: Path, results: Sequence[object]) -> None:
    """By rank 0; every rank must ask for its timelines."""
    import torch.distributed as dist

    from planner.executor.current import current_plan
    from planner.executor.results import StepResult
    from planner.problem.canonical import document_bytes
    from planner.simulate.run_record import RunRecord, recorded_step

    plan = current_plan()
    found = [result for result in results if isinstance(result, StepResult)]
    steps = tuple(
        recorded_step(plan, number, timeline=result.timeline, loss=result.loss) for number, result in enumerate(found)
    )
    if not dist.is_initialized() or dist.get_rank() == 0:
        record = RunRecord(schema="run/1", plan=plan.digest, num_ranks=plan.num_ranks, backend="gloo", steps=steps)
        path.write_bytes(document_bytes(record))


def parse_settings() -> Settings:
    """From this process's command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--micro-batches", default=str(SAMPLES), help="samples of each, for example 2,2,2,2")
    parser.add_argument("--output", type=Path, default=Path("run.json"))
    found = parser.parse_args()
    sizes = tuple(int(size) for size in found.micro_batches.split(","))
    if sum(sizes) != SAMPLES:
        parser.error(f"the micro-batches hold {sum(sizes)} samples, expected {SAMPLES}")
    return Settings(found.steps, sizes, found.output)
