"""docs/cli.md lists every command and every exit code."""

import re
from pathlib import Path

import pytest

from planner.cli import exit_codes
from planner.cli.main import app

PAGE = (Path(__file__).parent.parent.parent / "docs" / "cli.md").read_text(encoding="utf-8")


def commands() -> list[str]:
    found = [command.name or command.callback.__name__ for command in app.registered_commands if command.callback]
    for group in app.registered_groups:
        assert group.typer_instance is not None
        inner = group.typer_instance.registered_commands
        found += [f"{group.name} {one.name or one.callback.__name__}" for one in inner if one.callback]
    return found


@pytest.mark.parametrize("command", commands())
def test_a_command_has_its_row(command: str) -> None:
    assert re.search(rf"^\| `planner {command}[ `]", PAGE, re.MULTILINE), command


def test_the_exit_codes_are_those_of_the_code() -> None:
    listed = {int(code) for code in re.findall(r"^\| ([0-9]+) \|", PAGE, re.MULTILINE)}
    assert listed == {value for value in vars(exit_codes).values() if isinstance(value, int)}
