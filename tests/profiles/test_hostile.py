"""Models and factories that behave badly give a right profile or a clear error."""

from pathlib import Path

import pytest

from planner.errors import DeviceError, ModelError, PlannerError
from planner.problem.profile import ModelProfile
from profiles.capture import CaptureOptions, capture
from profiles.protocol import Grid
from profiles.source import ModelSource

pytestmark = pytest.mark.timeout(300)
FOLDER = str(Path(__file__).parent)


def captured(factory: str, folder: Path, *, sequence_lengths: tuple[int, ...] = (3,)) -> ModelProfile:
    source = ModelSource(factory=f"hostile_models.py:{factory}", folder=FOLDER)
    grid = Grid(micro_batch_sizes=(2,), sequence_lengths=sequence_lengths)
    return capture(source, grid, CaptureOptions(num_ranks=1, time_limit_ns=0, lock_folder=folder))


def test_a_shape_that_a_layer_refuses_is_kept_with_its_reason(tmp_path: Path) -> None:
    profile = captured("odd_lengths", tmp_path, sequence_lengths=(3, 5, 7))
    found = {
        layer.id: {point.sequence_length: (point.status, point.failure) for point in profile.points_of(number)}
        for number, layer in enumerate(profile.layers)
    }
    for before in ("0", "1"):
        assert {status for status, _ in found[before].values()} <= {"ok", "noisy"}
    assert found["2"][3][0] in ("ok", "noisy")
    for layer in ("2", "3"):  # what comes behind has no input
        status, failure = found[layer][5]
        assert status == "failed"
        assert str(failure).startswith("layer '2': ValueError: five tokens are odd (")
        assert str(failure).endswith("in forward)")
    status, failure = found["2"][7]
    assert status == "failed"
    assert "KeyError: 'seven'" in str(failure)
    assert found["3"][7][0] in ("ok", "noisy")
    assert profile.layers[0].num_trained_params == 0


def test_a_model_without_any_weights_has_a_profile(tmp_path: Path) -> None:
    profile = captured("without_weights", tmp_path)
    first, last = (profile.points_of(number)[0] for number in (0, 1))
    assert (first.backward, first.backward_input) == (None, None)  # nothing goes back to the batch
    assert first.forward is not None
    assert last.backward is not None


def test_output_input_and_threads_of_a_factory_do_no_harm(tmp_path: Path) -> None:
    profile = captured("restless", tmp_path)
    assert [layer.num_params for layer in profile.layers] == [20, 0]


@pytest.mark.parametrize(
    ("factory", "error", "code", "text"),
    [
        ("exits", ModelError, "factory_failed", r"SystemExit: no model today \(.*hostile_models.py:\d+, in exits\)"),
        ("killed", DeviceError, "worker_failed", r"by SIGKILL \(out of memory\?\).*the last words"),
    ],
)
def test_a_factory_that_ends_its_process(
    factory: str, error: type[PlannerError], code: str, text: str, tmp_path: Path
) -> None:
    with pytest.raises(error, match=text) as caught:
        captured(factory, tmp_path)
    assert caught.value.code == code


def test_ranks_with_different_models_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_FIRST_OF_TWO", str(tmp_path / "first"))
    source = ModelSource(factory="hostile_models.py:of_every_process_another", folder=FOLDER)
    grid = Grid(micro_batch_sizes=(1,), sequence_lengths=(2,))
    with pytest.raises(ModelError, match=r"on rank 1 than on rank 0: layer 0 \('0'\): found param_bytes") as caught:
        capture(source, grid, CaptureOptions(num_ranks=2, time_limit_ns=0, lock_folder=tmp_path))
    assert (caught.value.code, caught.value.pointer) == ("models_differ", source.factory)


def test_a_layer_that_gives_infinities_is_named(tmp_path: Path) -> None:
    said: list[str] = []
    source = ModelSource(factory="hostile_models.py:gives_infinities", folder=FOLDER)
    grid = Grid(micro_batch_sizes=(1, 2), sequence_lengths=(3,))
    options = CaptureOptions(num_ranks=1, time_limit_ns=0, lock_folder=tmp_path)
    profile = capture(source, grid, options, warn=said.append)
    assert said == ["layer 1 ('1') gives NaN or infinities for random values at 1x3, 2x3"]
    assert all(point.status in ("ok", "noisy") for point in profile.points_of(1))
