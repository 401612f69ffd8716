"""The architecture as a test: who may import whom, and what nobody may call.

Every module of planner, api and profiles is read as a syntax tree, with imports inside functions and under
TYPE_CHECKING. The table is that of docs/architecture.md section 2: imports point down, none inside a level unless a row
of SIDEWAYS says so.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ROOT_PACKAGES = ("planner", "api", "profiles")

LEVELS = {
    "planner.__main__": 7,
    "planner.cli": 6,
    "api": 5,
    "profiles": 5,
    "planner.executor": 5,
    "planner.search": 4,
    "planner.exports": 4,
    "planner.explain": 4,
    "planner.cutting": 4,
    "planner.attempts": 4,
    "planner.simulate": 3,
    "planner.check": 3,
    "planner.costs": 2,
    "planner.schedules": 2,
    "planner.problem": 1,
    "planner.plan": 1,
    "planner.errors": 0,
    "planner.units": 0,
    "planner": 0,  # the version alone
}
SIDEWAYS = {
    ("profiles", "planner.executor"),  # the layer split
    ("planner.check", "planner.simulate"),  # to compare step_ns
    ("planner.plan", "planner.problem"),
}
# Down, and still forbidden: the service never loads a solver or torch.
FORBIDDEN = {("api", "planner.search"), ("api", "planner.cutting")}

THIRD_PARTY = {
    "torch": {"planner.executor", "planner.cutting", "profiles"},
    "transformers": {"planner.executor", "planner.cutting", "profiles"},
    "safetensors": {"planner.executor", "planner.cutting", "profiles"},
    "ortools": {"planner.search"},
    "numba": {"planner.simulate", "planner.search"},
    "networkx": {"planner.search", "planner.exports"},
    "fastapi": {"api"},
    "starlette": {"api"},
    "uvicorn": {"api"},
    "sqlalchemy": {"api"},
    "alembic": {"api"},
    "structlog": {"api"},
    "pydantic_settings": {"api"},
    "typer": {"planner.cli"},
    "click": {"planner.cli"},
    "rich": {"planner.cli"},
}
UNSAFE_MODULES = {"pickle", "cPickle", "cloudpickle", "dill", "joblib", "marshal", "shelve"}
UNSAFE_CALLS = {"eval", "exec", "yaml.load", "yaml.unsafe_load", "yaml.full_load", "print"}
DYNAMIC_IMPORTS = {"__import__", "import_module", "importlib.import_module"}


def module_files(root: Path) -> Iterator[tuple[str, Path]]:
    """Every module of the packages under ``root``, by its dotted name."""
    for package in ROOT_PACKAGES:
        for path in sorted((root / package).rglob("*.py")):
            parts = path.relative_to(root).with_suffix("").parts
            yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), path


def unit_of(module: str) -> str | None:
    """The row of LEVELS that ``module`` belongs to; None for a module of somebody else."""
    parts = module.split(".")
    if parts[0] not in ROOT_PACKAGES:
        return None
    if parts[0] != "planner" or len(parts) == 1:
        return parts[0]
    return ".".join(parts[:2])


def dotted_name(node: ast.expr) -> str:
    """``a.b.c`` of a chain of attributes, or an empty string."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        owner = dotted_name(node.value)
        return f"{owner}.{node.attr}" if owner else ""
    return ""


def imported_modules(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Line and dotted name of each import; ``from planner import check`` counts as ``planner.check``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            yield from (
                (node.lineno, f"{module}.{alias.name}" if f"{module}.{alias.name}" in LEVELS else module)
                for alias in node.names
            )
        elif isinstance(node, ast.Call) and dotted_name(node.func) in DYNAMIC_IMPORTS and node.args:
            name = node.args[0]
            if isinstance(name, ast.Constant) and isinstance(name.value, str):
                yield node.lineno, name.value


def import_fault(importer: str, imported: str) -> str | None:
    """Why ``importer`` may not import ``imported``, or None."""
    if imported.startswith("."):
        return "relative import"
    importing_unit = unit_of(importer)
    if importing_unit not in LEVELS:
        return f"{importing_unit} has no row in the table of levels"
    top = imported.split(".")[0]
    if top in UNSAFE_MODULES:
        return f"{top} is forbidden"
    unit = unit_of(imported)
    if unit is None:
        allowed = THIRD_PARTY.get(top)
        return None if allowed is None or importing_unit in allowed else f"{top} belongs to {sorted(allowed)}"
    if unit not in LEVELS:
        return f"{unit} has no row in the table of levels"
    if unit == importing_unit or (importing_unit, unit) in SIDEWAYS:
        return None
    if (importing_unit, unit) in FORBIDDEN:
        return f"{importing_unit} never imports {unit}"
    if unit == "planner" or LEVELS[unit] < LEVELS[importing_unit]:
        return None
    return f"level {LEVELS[importing_unit]} imports level {LEVELS[unit]}"


def call_faults(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Line and reason of each forbidden call."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        name = dotted_name(node.func)
        if name in UNSAFE_CALLS:
            yield node.lineno, f"{name}() is forbidden"
        elif name == "torch.load" and not _loads_weights_only(node):
            yield node.lineno, "torch.load() without weights_only=True"


def _loads_weights_only(call: ast.Call) -> bool:
    return any(
        keyword.arg == "weights_only" and isinstance(keyword.value, ast.Constant) and keyword.value.value is True
        for keyword in call.keywords
    )


def faults(root: Path) -> list[str]:
    """Every breach under ``root`` as ``path:line: module: reason``."""
    found = []
    for module, path in module_files(root):
        tree = ast.parse(path.read_text(encoding="utf-8"), filename=str(path))
        reasons = [(line, import_fault(module, imported)) for line, imported in imported_modules(tree)]
        reasons += call_faults(tree)
        found += [f"{path.relative_to(root)}:{line}: {module}: {reason}" for line, reason in reasons if reason]
    return found


def test_every_module_keeps_to_its_level() -> None:
    assert len(list(module_files(ROOT))) >= len(LEVELS)
    assert faults(ROOT) == []


@pytest.mark.parametrize(
    ("path", "source", "reason"),
    [
        ("planner/plan/a.py", "from planner.search.search import search\n", "level 1 imports level 4"),
        ("planner/plan/a.py", "from planner import check\n", "level 1 imports level 3"),
        ("planner/plan/a.py", "def f():\n    import planner.costs.compute\n", "level 1 imports level 2"),
        (
            "planner/problem/a.py",
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from planner.plan.plan import Plan\n",
            "level 1 imports level 1",
        ),
        ("planner/simulate/a.py", "import planner.check.structure\n", "level 3 imports level 3"),
        ("planner/errors.py", "from planner.plan.plan import Plan\n", "level 0 imports level 1"),
        ("planner/attempts/a.py", "from planner.search.child import main\n", "level 4 imports level 4"),
        ("planner/attempts/a.py", "import importlib\nimportlib.import_module('planner.search')\n", "level 4"),
        ("planner/executor/a.py", "import profiles.capture\n", "level 5 imports level 5"),
        ("api/a.py", "from planner.search.search import search\n", "api never imports planner.search"),
        ("api/a.py", "import profiles.scale\n", "level 5 imports level 5"),
        ("api/a.py", "from . import store\n", "relative import"),
        ("api/a.py", "import torch\n", "torch belongs to"),
        ("planner/costs/a.py", "from ortools.sat.python import cp_model\n", "ortools belongs to"),
        ("planner/search/a.py", "import rich.table\n", "rich belongs to"),
        ("planner/cli/a.py", "from fastapi import FastAPI\n", "fastapi belongs to"),
        ("planner/unknown/a.py", "import json\n", "planner.unknown has no row"),
        ("profiles/a.py", "import pickle\n", "pickle is forbidden"),
        ("profiles/a.py", "import torch\ntorch.load('x')\n", "torch.load() without"),
        ("profiles/a.py", "import torch\ntorch.load('x', weights_only=False)\n", "torch.load() without"),
        ("profiles/a.py", "print('x')\n", "print() is forbidden"),
        ("api/a.py", "eval('1')\n", "eval() is forbidden"),
        ("api/a.py", "import yaml\nyaml.load('x')\n", "yaml.load() is forbidden"),
    ],
)
def test_a_breach_is_reported(tmp_path: Path, path: str, source: str, reason: str) -> None:
    module = tmp_path / path
    module.parent.mkdir(parents=True)
    module.write_text(source, encoding="utf-8")
    found = faults(tmp_path)
    assert len(found) == 1
    assert reason in found[0]
    assert found[0].startswith(f"{path}:")


def test_allowed_imports_are_not_reported(tmp_path: Path) -> None:
    allowed = {
        "planner/cli/main.py": "import typer\nfrom api.app import create\nfrom planner.search.search import search\n",
        "planner/check/a.py": "from planner.simulate.simulate import simulate\nfrom planner import __version__\n",
        "planner/plan/a.py": "import json\nimport pydantic\nfrom planner.problem.workload import Workload\n",
        "planner/executor/a.py": "import torch\nmodel.eval()\ntorch.load('x', weights_only=True)\n",
        "api/a.py": "from planner.attempts.start import start\nfrom api.b import c\n",
    }
    for path, source in allowed.items():
        module = tmp_path / path
        module.parent.mkdir(parents=True)
        module.write_text(source, encoding="utf-8")
    assert faults(tmp_path) == []
