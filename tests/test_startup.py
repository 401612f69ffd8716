"""What a fresh process loads: heavy packages cost seconds and must not be paid by those who do not use them."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
HEAVY = ("torch", "ortools")
PLANNER = Path(sys.executable).with_name("planner")

REPORT = f"""
import sys
loaded = [name for name in {HEAVY!r} if name in sys.modules]
sys.stderr.write("loaded heavy modules: " + repr(loaded))
sys.exit(9 if loaded else 0)
"""

HELP = """
import sys
from planner.cli.main import main
sys.argv = ["planner", "--help"]
try:
    main()
except SystemExit as stop:
    assert not stop.code, stop.code
"""


def run_python(source: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-P", "-c", source], capture_output=True, text=True, timeout=120, check=False
    )


def api_modules() -> list[str]:
    """Every module of the service; migrations are run by their own tool, inside its context."""
    paths = (path.relative_to(ROOT).with_suffix("") for path in sorted((ROOT / "api").rglob("*.py")))
    return [
        ".".join(path.parts).removesuffix(".__init__")
        for path in paths
        if "migrations" not in path.parts and path.name != "__main__"
    ]


@pytest.mark.parametrize(
    "source",
    [
        pytest.param("import planner", id="import planner"),
        pytest.param(HELP, id="planner --help"),
        pytest.param("\n".join(f"import {name}" for name in api_modules()), id="every module of the service"),
    ],
)
def test_neither_torch_nor_ortools_is_loaded(source: str) -> None:
    done = run_python(source + REPORT)
    assert done.returncode == 0, done.stderr


def test_a_loaded_heavy_module_would_be_reported() -> None:
    done = run_python("import sys\nsys.modules['ortools'] = sys" + REPORT)
    assert done.returncode == 9
    assert "['ortools']" in done.stderr


@pytest.mark.parametrize("arguments", [["--help"], ["--version"]])
def test_the_command_ignores_a_users_own_packages(tmp_path: Path, arguments: list[str]) -> None:
    for package in ("api", "profiles", "planner"):
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").write_text("raise RuntimeError('a user package was imported')\n")
    done = subprocess.run([PLANNER, *arguments], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout
