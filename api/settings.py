"""Settings of the service: environment variables ``PLANNER_...``, read once, here and nowhere else.

Wrong settings are a ``SettingsError``, which ends the command with exit code 78 before a port is bound. The service
has no keys yet, therefore it listens on loopback addresses only.
"""

import ipaddress
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, ValidationError, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from planner.attempts.attempt import AttemptSettings
from planner.errors import SettingsError
from planner.problem.faults import fault_of
from planner.units import NS_PER_SECOND

__all__ = ["Settings", "read_settings"]


class Settings(BaseSettings):
    """Everything that may differ between two services."""

    model_config = SettingsConfigDict(env_prefix="PLANNER_", frozen=True, extra="forbid", hide_input_in_errors=True)

    host: str = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65_535)] = 8000  # 0: any free port
    allowed_hosts: tuple[str, ...] = ()  # names in the Host header beside the loopback ones
    store: Path = Path("planner.sqlite3")  # on a local disk
    num_runners: Annotated[int, Field(ge=0, le=64)] = 1  # solver children at the same time; 0: searches only wait
    most_waiting: Annotated[int, Field(ge=1, le=100_000)] = 1000  # queued searches, then 429
    most_attempts: Annotated[int, Field(ge=1, le=20)] = 3  # services that may die under one search
    lease_ns: Annotated[int, Field(ge=NS_PER_SECOND)] = 30 * NS_PER_SECOND  # a runner silent for longer is lost
    header_deadline_ns: Annotated[int, Field(ge=NS_PER_SECOND // 10)] = 10 * NS_PER_SECOND  # for a request's header
    child_module: Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_.]*$")] = "planner.search.child"
    child_memory_limit_bytes: Annotated[int, Field(ge=2**27)] = 2 * 2**30
    log_level: Literal["debug", "info", "warning", "error"] = "info"

    @field_validator("host")
    @classmethod
    def _loopback(cls, host: str) -> str:
        if host == "localhost":
            return host
        try:
            loopback = ipaddress.ip_address(host).is_loopback
        except ValueError:
            loopback = False
        if not loopback:
            raise ValueError("expected a loopback address: the service has no keys and listens on this machine only")
        return host

    @property
    def attempts(self) -> AttemptSettings:
        return AttemptSettings(module=self.child_module, memory_limit_bytes=self.child_memory_limit_bytes)


def read_settings(**overrides: object) -> Settings:
    """Environment and defaults, replaced where ``overrides`` says so. Raises ``SettingsError``."""
    try:
        return Settings(**overrides)  # type: ignore[arg-type]
    except ValidationError as error:
        faults = [fault_of(detail) for detail in error.errors(include_url=False)]
        message = "; ".join(f"setting {fault.pointer[1:].replace('/', '.')}: {fault.message}" for fault in faults)
        raise SettingsError(message, code="settings", pointer=faults[0].pointer) from None
