"""Settings: from the environment, checked, loopback only."""

from pathlib import Path

import pytest

from api.settings import read_settings
from planner.errors import SettingsError


def test_the_defaults_listen_on_this_machine_only() -> None:
    settings = read_settings()
    assert (settings.host, settings.port, settings.num_runners) == ("127.0.0.1", 8000, 1)
    assert settings.attempts.module == "planner.search.child"


def test_the_environment_and_then_the_caller_decide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLANNER_PORT", "8123")
    monkeypatch.setenv("PLANNER_STORE", "/srv/plans.sqlite3")
    assert (read_settings().port, read_settings().store) == (8123, Path("/srv/plans.sqlite3"))
    assert read_settings(port=8200).port == 8200


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1", "localhost"])
def test_loopback_addresses_are_accepted(host: str) -> None:
    assert read_settings(host=host).host == host


@pytest.mark.parametrize(
    "wrong",
    [
        {"host": "0.0.0.0"},
        {"host": "::"},
        {"host": "10.0.0.1"},
        {"host": "example.org"},
        {"port": 65_536},
        {"num_runners": -1},
        {"child_memory_limit_bytes": 1},
        {"child_module": "os; rm"},
        {"colour": "red"},
    ],
)
def test_wrong_settings_are_named(wrong: dict[str, object]) -> None:
    with pytest.raises(SettingsError) as caught:
        read_settings(**wrong)
    (name,) = wrong
    assert caught.value.pointer == f"/{name}"
    assert f"setting {name}" in caught.value.message
