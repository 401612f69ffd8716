"""Every error that a caller can cause, in one tree.

PlannerError                     code, message, pointer (JSON pointer or place), as a machine reads them
├── DocumentError                bytes that are not an acceptable document; ``faults`` lists every place
│   ├── JsonError                not one UTF-8 JSON value: json_invalid, json_depth, encoding
│   └── ContractError            a JSON value that breaks its contract: type, range, unknown_field, ...
├── ProblemError                 profiles, cluster and workload do not belong together
├── PriceError                   a price is asked for that the profile or the cluster cannot give
├── PlanError                    a plan is refused; names the first bad instruction, stage or group
│   └── UnsupportedPlanError     a legal plan that this executor or target cannot carry out
├── InfeasibleError              nothing fits; ``reasons`` says which layer, which kind, how many bytes short
├── SolverError                  a solver child ended without an answer: solver_crash, out_of_memory, no_plan_in_time
├── ExecutorError                a step cannot run or did not finish
│   ├── HandshakeError           ranks, plan, model or shapes disagree before step 0
│   ├── PeerLostError            another rank failed; names its instruction
│   └── CheckpointError          a checkpoint that cannot be written, or is not one that this run may load
├── ModelError                   a model that cannot be cut into layers
├── DeviceError                  device missing, busy or locked
├── OutputError                  an output cannot be written
├── ServerError                  a server cannot be reached or refused
├── RequestError                 an HTTP request is refused for other reasons than its document: method, not_found, ...
├── StoreError                   the store of a service cannot answer: integrity, store_busy, disk_full
└── SettingsError                bad settings of a service
"""

from typing import NamedTuple

__all__ = [
    "CheckpointError",
    "ContractError",
    "DeviceError",
    "DocumentError",
    "ExecutorError",
    "Fault",
    "HandshakeError",
    "InfeasibleError",
    "JsonError",
    "ModelError",
    "OutputError",
    "PeerLostError",
    "PlanError",
    "PlannerError",
    "PriceError",
    "ProblemError",
    "RequestError",
    "ServerError",
    "SettingsError",
    "SolverError",
    "StoreError",
    "UnsupportedPlanError",
]


class Fault(NamedTuple):
    """One thing that is wrong: a machine-readable code, where (JSON pointer), and a sentence."""

    code: str
    pointer: str
    message: str


class PlannerError(Exception):
    """Base of all errors that a caller can cause."""

    def __init__(self, message: str, *, code: str, pointer: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.pointer = pointer

    @property
    def message(self) -> str:
        return str(self.args[0])

    @property
    def faults(self) -> tuple[Fault, ...]:
        return (Fault(self.code, self.pointer, self.message),)


class DocumentError(PlannerError):
    """Bytes that are not an acceptable document; the first fault gives code and message."""

    def __init__(self, faults: tuple[Fault, ...]) -> None:
        assert faults, "a DocumentError needs at least one fault"
        first = faults[0]
        super().__init__(first.message, code=first.code, pointer=first.pointer)
        self._faults = faults

    @property
    def faults(self) -> tuple[Fault, ...]:
        return self._faults


class JsonError(DocumentError):
    """Not one UTF-8 JSON value."""


class ContractError(DocumentError):
    """A JSON value that breaks the contract that it claims to follow."""


class ProblemError(PlannerError):
    """Profiles, cluster and workload do not belong together."""


class PriceError(PlannerError):
    """A price is asked for that the profile or the cluster cannot give."""


class PlanError(PlannerError):
    """A plan is refused; the message names the first bad instruction, stage or group."""


class UnsupportedPlanError(PlanError):
    """A legal plan that this executor or target cannot carry out."""


class InfeasibleError(PlannerError):
    """Nothing fits; each reason names layer, device kind and missing bytes."""

    def __init__(self, reasons: tuple[Fault, ...]) -> None:
        assert reasons, "an InfeasibleError needs at least one reason"
        super().__init__(reasons[0].message, code="infeasible", pointer=reasons[0].pointer)
        self.reasons = reasons

    @property
    def faults(self) -> tuple[Fault, ...]:
        return self.reasons


class SolverError(PlannerError):
    """A solver child ended without an answer."""


class ExecutorError(PlannerError):
    """A step cannot run or did not finish."""


class HandshakeError(ExecutorError):
    """Ranks, plan, model or shapes disagree before step 0."""


class PeerLostError(ExecutorError):
    """Another rank failed; the message names its instruction."""


class CheckpointError(ExecutorError):
    """A checkpoint that cannot be written, or is not one that this run may load; older ones are as they were."""


class ModelError(PlannerError):
    """A model that cannot be cut into layers."""


class DeviceError(PlannerError):
    """A device is missing, busy or locked."""


class OutputError(PlannerError):
    """An output cannot be written."""


class ServerError(PlannerError):
    """A server cannot be reached or refused."""


class RequestError(PlannerError):
    """An HTTP request is refused for other reasons than the document that it carries."""


class StoreError(PlannerError):
    """The store of a service cannot answer."""


class SettingsError(PlannerError):
    """Bad settings of a service."""
