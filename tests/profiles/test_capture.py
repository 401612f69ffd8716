"""Measuring with real processes."""

from pathlib import Path

import psutil
import pytest

from planner.cutting.cut import cut_model
from planner.errors import DeviceError, ModelError
from planner.problem.profile import ModelProfile, Point
from planner.units import NS_PER_SECOND
from profiles.capture import CaptureOptions, CaptureProgress, capture
from profiles.machine import device_lock
from profiles.protocol import Grid
from profiles.source import ModelSource
from tests.profiles.measured_models import model

FOLDER = str(Path(__file__).parent)
GRID = Grid(micro_batch_sizes=(1, 2), sequence_lengths=(4, 64))
# The last layer at (2, 64): input 2 x 64 x 8 floats = 4,096 bytes, logits and log probabilities 8,192 bytes each.
# Its peak is above 20,480 bytes; every other layer and shape stays below 16,384.
USABLE_BYTES = 20_000


def source(factory: str = "model") -> ModelSource:
    return ModelSource(factory=f"measured_models.py:{factory}", folder=FOLDER)


def measuring_children() -> list[int]:
    found = psutil.Process().children(recursive=True)
    return [one.pid for one in found if "profiles.worker" in " ".join(one.cmdline())]


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> tuple[ModelProfile, list[CaptureProgress]]:
    told: list[CaptureProgress] = []
    options = CaptureOptions(
        time_limit_ns=NS_PER_SECOND,
        target_share=1e-9,  # never sure: it stops by time
        usable_bytes=USABLE_BYTES,
        device_kind="cpu-test",
        command="capture of the tests",
        lock_folder=tmp_path_factory.mktemp("lock"),
    )
    return capture(source(), GRID, options, report=told.append), told


def points(profile: ModelProfile, layer: int) -> dict[tuple[int, int], Point]:
    return {(p.micro_batch_size, p.sequence_length): p for p in profile.points_of(layer)}


@pytest.mark.timeout(300)
def test_the_profile_describes_the_model_and_the_run(measured: tuple[ModelProfile, list[CaptureProgress]]) -> None:
    profile, _ = measured
    cut = cut_model(model())
    assert profile.model.fingerprint == cut.fingerprint
    assert [(layer.id, layer.fingerprint) for layer in profile.layers] == [(c.id, c.fingerprint) for c in cut.layers]
    assert [layer.num_params for layer in profile.layers] == [128, 256, 72, 72, 144]
    assert len(profile.measurements) == 4  # the two equal layers once
    assert (profile.provenance.num_ranks, profile.provenance.command) == (2, "capture of the tests")
    assert (profile.device.kind, profile.device.usable_bytes) == ("cpu-test", USABLE_BYTES)
    assert profile.overheads.per_instruction_ns > 0
    assert profile.overheads.update_ns_per_million_params + profile.overheads.update_ns > 0
    assert profile.layers[2].forward_flops_per_token == 2 * 8 * 8
    assert ModelProfile.model_validate_json(profile.model_dump_json()).digest == profile.digest


@pytest.mark.timeout(300)
def test_samples_of_both_ranks_are_pooled(measured: tuple[ModelProfile, list[CaptureProgress]]) -> None:
    profile, told = measured
    for point in points(profile, 2).values():
        assert point.status == "noisy"  # the spread asked for cannot be reached
        assert point.forward is not None
        assert point.backward is not None
        assert point.forward.num_samples == point.backward.num_samples == 2 * told[-1].rounds
        assert 0 < point.forward.min_ns <= point.forward.median_ns


@pytest.mark.timeout(300)
def test_layers_with_weights_are_measured_split_in_fewer_rounds(
    measured: tuple[ModelProfile, list[CaptureProgress]],
) -> None:
    profile, told = measured
    assert all(layer.splittable for layer in profile.layers[2:])
    for point in points(profile, 2).values():
        assert point.split is not None
        assert point.backward_input is not None
        assert point.backward_weight is not None
        counts = {found.num_samples for found in (point.backward_input, point.backward_weight, point.split.forward)}
        assert len(counts) == 1
        assert 2 * 3 <= counts.pop() <= 2 * told[-1].rounds  # both ranks; every one of the first three rounds
        assert point.backward_input.min_ns > 0
        assert point.split.kept_bytes > 0


@pytest.mark.timeout(300)
def test_shapes_that_do_not_fit_or_are_refused_are_points_without_times(
    measured: tuple[ModelProfile, list[CaptureProgress]],
) -> None:
    profile, _ = measured
    refused = {shape: point.status for shape, point in points(profile, 1).items()}
    assert refused == {(1, 4): "noisy", (2, 4): "noisy", (1, 64): "failed", (2, 64): "failed"}
    failures = {shape: point.failure for shape, point in points(profile, 1).items()}
    assert (failures[1, 4], failures[2, 4]) == (None, None)
    assert "layer '1': IndexError: index out of range" in str(failures[1, 64])
    assert "measured_models.py:" in str(failures[2, 64])
    large = points(profile, 4)
    assert {shape: point.status for shape, point in large.items()}[2, 64] == "oom"
    assert {point.status for shape, point in large.items() if shape != (2, 64)} == {"noisy"}
    assert (large[2, 64].forward, large[2, 64].output_bytes) == (None, 2 * 64 * 16 * 4)


@pytest.mark.timeout(300)
def test_progress_counts_rounds_and_ends(measured: tuple[ModelProfile, list[CaptureProgress]]) -> None:
    _, told = measured
    assert (told[0].phase, told[-1].phase) == ("starting", "done")
    assert [one.rounds for one in told] == sorted(one.rounds for one in told)
    assert told[-1].left_ns == 0
    assert told[-1].points_done == 3  # that do not fit or are refused
    assert told[-1].points == 4 * 4 + 3


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("factory", "error", "code", "text"),
    [
        (
            "broken",
            ModelError,
            "factory_failed",
            r"failed: ValueError: this model cannot be made \(.*measured_models.py:\d+, in broken\)",
        ),
        ("number", ModelError, "bad_source", "gave int"),
        ("nothing", ModelError, "bad_source", "nothing"),
    ],
)
def test_a_factory_that_gives_no_model_is_an_error(
    factory: str, error: type[Exception], code: str, text: str, tmp_path: Path
) -> None:
    with pytest.raises(error, match=text) as caught:
        capture(source(factory), GRID, CaptureOptions(num_ranks=1, lock_folder=tmp_path))
    assert caught.value.code == code  # type: ignore[attr-defined]
    assert measuring_children() == []


@pytest.mark.timeout(300)
def test_a_break_ends_all_processes_and_frees_the_device(tmp_path: Path) -> None:
    def stop(progress: CaptureProgress) -> None:
        if progress.phase == "measuring":
            assert len(measuring_children()) == 2
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        capture(source(), GRID, CaptureOptions(lock_folder=tmp_path), report=stop)
    assert measuring_children() == []
    with device_lock(tmp_path):
        pass


def test_a_busy_device_is_refused_before_anything_starts(tmp_path: Path) -> None:
    with device_lock(tmp_path), pytest.raises(DeviceError) as caught:
        capture(source(), GRID, CaptureOptions(lock_folder=tmp_path))
    assert caught.value.code == "device_busy"
