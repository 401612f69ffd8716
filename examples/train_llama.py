"""Train the small Llama: a plain loop in one process, and the same loop with a plan (examples/train_llama.py)."""

from examples.llama import build_model, count_tokens, loss_sum, make_optimizer
from examples.settings import SAMPLES, TOKENS, parse_settings
from examples.text import batches
from planner.executor.current import current_plan
from planner.executor.executor import Executor


def main() -> None:
    settings = parse_settings()
    model = build_model()
    executor = Executor(current_plan(), model, loss_sum, count_tokens, make_optimizer)
    results = []
    for inputs, labels in batches(steps=settings.steps, samples=SAMPLES, tokens=TOKENS, seen=executor.progress.samples):
        results.append(executor.step((inputs, labels)))
    settings.write(results)


if __name__ == "__main__":
    main()
