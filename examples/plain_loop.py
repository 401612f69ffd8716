"""Train the small Llama: a plain loop in one process, and the same loop with a plan (examples/train_llama.py)."""

from examples.llama import build_model, count_tokens, loss_sum, make_optimizer
from examples.settings import SAMPLES, TOKENS, parse_settings
from examples.text import batches


def main() -> None:
    settings = parse_settings()
    model = build_model()
    optimizer = make_optimizer(model.parameters())
    results = []
    for inputs, labels in batches(steps=settings.steps, samples=SAMPLES, tokens=TOKENS):
        step_loss = 0.0
        for part in settings.parts:
            loss = loss_sum(model(inputs[part]).logits, labels[part]) / count_tokens(labels)
            loss.backward()
            step_loss += loss.item()
        optimizer.step()
        optimizer.zero_grad()
        results.append(step_loss)
    settings.write(results)


if __name__ == "__main__":
    main()
