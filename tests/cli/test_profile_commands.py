"""profile and cluster commands; those that measure run as real processes."""

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from planner.problem.canonical import document_bytes
from planner.problem.cluster import Cluster
from planner.problem.profile import ModelProfile
from planner.problem.reading import read_document
from tests.helpers.command import planner
from tests.helpers.documents import make_cluster, make_profile

PLANNER = Path(sys.executable).with_name("planner")
MODEL = """
from torch import nn

def build():
    return nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8))
"""
SHAPES = ["--micro-batch", "1,2", "--sequence", "1", "--ranks", "1"]


def start(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    (folder / "tiny.py").write_text(MODEL)
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "TMPDIR": str(folder)}  # a lock of this test's own
    return subprocess.Popen(
        [PLANNER, *arguments], cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    process = start(folder, *arguments)
    out, err = process.communicate(timeout=150)
    return subprocess.CompletedProcess(arguments, process.returncode, out, err)


def test_show_profile_lists_each_different_layer_once(tmp_path: Path) -> None:
    profile = make_profile(layer_forward_ns=(1_000_000, 2_000_000, 2_000_000))
    (tmp_path / "profile.json").write_bytes(document_bytes(profile))
    done = planner("profile", "show", tmp_path / "profile.json")
    assert done.code == 0, done.err
    rows = [line.split() for line in done.out.splitlines() if line.startswith("layers.")]
    assert [(row[0], row[2]) for row in rows] == [("layers.0", "1"), ("layers.1", "2")]
    assert "16 ms" in done.out  # forward of layer 1 for 8 samples of 32 tokens
    found = planner("profile", "show", tmp_path / "profile.json", "--json").json
    assert isinstance(found, dict)
    assert found["digest"] == profile.digest


def test_show_cluster_lists_groups_and_links(tmp_path: Path) -> None:
    cluster = make_cluster(("fast", 2, 4), ("slow", 1, 2))
    (tmp_path / "cluster.json").write_bytes(document_bytes(cluster))
    done = planner("cluster", "show", tmp_path / "cluster.json")
    assert done.code == 0, done.err
    assert [line.split()[:4] for line in done.out.splitlines() if line.startswith(("fast  fast ", "slow  slow "))]
    found = planner("cluster", "show", tmp_path / "cluster.json", "--json").json
    assert isinstance(found, dict)
    assert (found["digest"], found["num_ranks"]) == (cluster.digest, 10)


def test_run_measures_a_model_in_the_users_folder(tmp_path: Path) -> None:
    done = run(tmp_path, "profile", "run", "tiny:build", *SHAPES, "--time-limit", "1s", "-o", "profile.json", "--json")
    assert done.returncode == 0, done.stderr
    shown = planner("profile", "show", tmp_path / "profile.json", "--json").json
    assert isinstance(shown, dict)
    assert shown["digest"] == json.loads(done.stdout)["digest"]
    assert shown["model"]["source"] == "tiny:build"
    assert len(shown["layers"]) >= 2
    assert "profile run tiny:build" in shown["provenance"]["command"]


def test_an_interrupted_run_stores_nothing(tmp_path: Path) -> None:
    process = start(tmp_path, "profile", "run", "tiny:build", *SHAPES, "--time-limit", "300s", "-o", "profile.json")
    assert process.stderr is not None
    assert process.stderr.readline().startswith("starting")
    time.sleep(1)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 130
    assert sorted(os.listdir(tmp_path)) in (
        ["parallel-planner-profiler.lock", "tiny.py"],
        ["__pycache__", "parallel-planner-profiler.lock", "tiny.py"],
    )


def test_a_second_profiler_is_kept_away(tmp_path: Path) -> None:
    with open(tmp_path / "parallel-planner-profiler.lock", "wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = run(tmp_path, "profile", "run", "tiny:build", *SHAPES, "-o", "profile.json")
    assert done.returncode == 8
    assert "error[device_busy]" in done.stderr
    assert not (tmp_path / "profile.json").exists()


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["nothing:build", *SHAPES], 2, "error[bad_source]"),
        (["tiny:nothing", *SHAPES], 2, "error[bad_source]"),
        (["tiny", *SHAPES], 2, "error[pattern]"),
        (["tiny:build", "--micro-batch", "0", "--sequence", "1"], 2, "error[usage]"),
        (["tiny:build", "--micro-batch", "1,x", "--sequence", "1"], 2, "error[usage]"),
        (["tiny:build", *SHAPES, "--usable", "many"], 2, "error[usage]"),
        (["tiny:build", *SHAPES, "--time-limit", "-1"], 2, "error[usage]"),
        (["tiny:build", *SHAPES, "--device", "cuda"], 8, "error[device_missing]"),
    ],
)
def test_a_wrong_run_says_why_and_stores_nothing(tmp_path: Path, arguments: list[str], code: int, message: str) -> None:
    if "cuda" in arguments and Path("/dev/nvidia0").exists():
        pytest.skip("this machine has the device")
    done = run(tmp_path, "profile", "run", *arguments, "-o", "profile.json")
    assert (done.returncode, done.stdout) == (code, ""), done.stderr
    assert message in done.stderr
    assert not (tmp_path / "profile.json").exists()


def test_the_output_is_refused_before_the_measuring(tmp_path: Path) -> None:
    (tmp_path / "profile.json").write_text("old")
    done = planner("profile", "run", "tiny:build", *SHAPES, "-o", tmp_path / "profile.json")
    assert done.code == 7
    assert (tmp_path / "profile.json").read_text() == "old"


def test_scale_multiplies_times_and_gets_a_digest_of_its_own(tmp_path: Path) -> None:
    profile = make_profile()
    (tmp_path / "profile.json").write_bytes(document_bytes(profile))
    assert profile.digest  # worked out before, must not be inherited
    options = ["--kind", "slow", "--factor", "2", "--usable", "1GB", "-o", str(tmp_path / "slow.json"), "--json"]
    done = planner("profile", "scale", tmp_path / "profile.json", *options)
    assert done.code == 0, done.err
    scaled = read_document((tmp_path / "slow.json").read_bytes(), ModelProfile)
    assert isinstance(done.json, dict)
    assert done.json["digest"] == scaled.digest != profile.digest
    assert (scaled.device.kind, scaled.device.usable_bytes) == ("slow", 10**9)
    old, new = profile.measurements[0].points[0], scaled.measurements[0].points[0]
    assert old.forward is not None
    assert new.forward is not None
    assert new.forward.median_ns == 2 * old.forward.median_ns
    assert new.provenance == "scaled:cpu-a"


@pytest.mark.parametrize(
    ("kind", "factor", "message"),
    [("slow", "0", "error[range]"), ("slow", "nan", "error[range]"), ("cpu-a", "2", "error[same_kind]")],
)
def test_a_wrong_scale_is_refused(tmp_path: Path, kind: str, factor: str, message: str) -> None:
    (tmp_path / "profile.json").write_bytes(document_bytes(make_profile()))
    done = planner("profile", "scale", tmp_path / "profile.json", "--kind", kind, "--factor", factor)
    assert (done.code, done.out) == (2, "")
    assert message in done.err


def test_probe_describes_this_machine(tmp_path: Path) -> None:
    done = run(tmp_path, "cluster", "probe", "--name", "here", "--usable", "1GB", "-o", "cluster.json")
    assert done.returncode == 0, done.stderr
    cluster = read_document((tmp_path / "cluster.json").read_bytes(), Cluster)
    assert (cluster.num_ranks, cluster.node_groups[0].name) == (2, "here")
    assert cluster.node_groups[0].usable_bytes == 10**9
    assert len(cluster.links[0].table) >= 2
    assert cluster.digest in done.stdout
