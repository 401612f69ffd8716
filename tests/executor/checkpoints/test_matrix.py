"""A checkpoint of any plan goes on under any other: 1, 2, 4 stages and data degrees 1, 2 on both sides."""

from pathlib import Path

import pytest

from planner.executor.checkpoints.folder import newest, open_manifest
from tests.helpers.checkpoint_cases import NUM_BLOCKS, SHAPES, STEPS_BEFORE, num_ranks
from tests.helpers.executor_cases import adamw, make_batch, make_model, token_count, token_loss
from tests.helpers.ranks import Ranks

CASES = "tests.helpers.checkpoint_cases"


def undisturbed() -> list[float]:
    """Losses of four steps of the whole model in one process."""
    model = make_model("gpt2", num_blocks=NUM_BLOCKS)
    optimizer = adamw(model.parameters())
    losses = []
    for step in range(4):
        inputs, labels = make_batch(step)
        optimizer.zero_grad()
        loss = token_loss(model(inputs).logits, labels) / token_count(labels)
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses


def test_a_checkpoint_of_every_plan_goes_on_under_every_plan(ranks: Ranks, tmp_path: Path) -> None:
    """36 pairs: losses of the undisturbed run within 1e-6, weights and optimizer bit for bit as they were saved."""
    case = f"{CASES}:train_and_save"
    said = {s: ranks.results(case, num_ranks(s), shape=s, folder=str(tmp_path)) for s in SHAPES}
    expected = undisturbed()[STEPS_BEFORE:]
    for shape in SHAPES:
        case = f"{CASES}:load_and_train"
        for loaded in ranks.results(case, num_ranks(shape), shape=shape, folder=str(tmp_path), saved=SHAPES):
            for name, found in loaded.items():
                assert found["losses"] == pytest.approx(expected, abs=1e-6), f"{name} -> {shape}"
                assert found["samples"] == 8 * 4
                bits = {key: value for rank in said[name] for key, value in rank["hashes"].items()}
                assert found["hashes"].items() <= bits.items(), f"{name} -> {shape}"
                if name == shape:
                    assert found["losses"] == said[name][0]["losses"][STEPS_BEFORE:]  # bit for bit
    require_shared_work(tmp_path / "1x2")


def require_shared_work(root: Path) -> None:
    """A weight is in one shard, and two data ranks write about half each."""
    manifest = open_manifest(newest(root))
    names = [piece.name for piece in manifest.pieces]
    assert len(names) == len(set(names))
    assert "model.lm_head.weight" not in names  # tied: kept under the embedding's name
    sizes = [shard.num_bytes for shard in manifest.shards]
    assert max(sizes) < 0.7 * sum(sizes)
