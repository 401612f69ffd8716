"""What one training step must do, ``workload/1``."""

from typing import Annotated, Literal

from pydantic import Field

from planner.problem.contract import Contract

__all__ = ["Optimizer", "Precision", "Workload"]

Precision = Literal["fp32", "bf16", "fp16"]
Optimizer = Literal["adamw", "adam", "sgd", "sgd_momentum"]


class Workload(Contract):
    """One step: ``global_batch_size`` samples of ``sequence_length`` tokens each, then one update."""

    schema_version: Literal["workload/1"] = Field(alias="schema")
    global_batch_size: Annotated[int, Field(ge=1, le=2**20)]
    sequence_length: Annotated[int, Field(ge=1, le=2**24)]
    precision: Precision
    optimizer: Optimizer

    @property
    def state_bytes_per_parameter(self) -> int:
        """Bytes of weight, gradient and optimizer state of one parameter (Korthikanti et al. 2022 count for Adam).

        fp32: 4 weight + 4 gradient + state; 16 bit: 2 weight + 4 main gradient + 4 master weight + state.
        """
        state = {"adamw": 8, "adam": 8, "sgd_momentum": 4, "sgd": 0}[self.optimizer]
        return (8 if self.precision == "fp32" else 10) + state
