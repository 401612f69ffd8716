"""A problem = profiles x cluster x workload, checked to belong together, and the digests that name it."""

from dataclasses import dataclass
from functools import cached_property

from planner.errors import ProblemError
from planner.problem.canonical import canonical_digest
from planner.problem.cluster import Cluster
from planner.problem.contract import Contract, Digest, Many
from planner.problem.options import SearchOptions
from planner.problem.profile import ModelProfile
from planner.problem.workload import Workload
from planner.units import counted

__all__ = ["Problem", "ProblemParts", "check_options", "request_digest"]


class ProblemParts(Contract):
    """A problem by the digests of its documents; its own digest is that of this document."""

    profiles: Many[Digest]
    cluster: Digest
    workload: Workload


@dataclass(frozen=True)
class Problem:
    """What a search is given. ``profiles``: one for each device kind of the cluster, of the same model."""

    profiles: tuple[ModelProfile, ...]
    cluster: Cluster
    workload: Workload

    def __post_init__(self) -> None:
        _check_same_model(self.profiles)
        _check_precision(self.profiles, self.workload)
        _check_kinds(self.profiles, self.cluster)

    @property
    def parts(self) -> dict[str, object]:
        """What names the problem, as JSON: ``ProblemParts``."""
        return {
            "profiles": sorted(profile.digest for profile in self.profiles),
            "cluster": self.cluster.digest,
            "workload": self.workload.model_dump(mode="json"),
        }

    @cached_property
    def digest(self) -> str:
        return canonical_digest(self.parts)

    @property
    def num_layers(self) -> int:
        return len(self.profiles[0].layers)

    def profile_of(self, device_kind: str) -> ModelProfile:
        """The profile of a device kind of the cluster."""
        return next(profile for profile in self.profiles if profile.device.kind == device_kind)


def _check_same_model(profiles: tuple[ModelProfile, ...]) -> None:
    if not profiles:
        raise ProblemError("found 0 profiles, expected one for each device kind", code="missing", pointer="/profiles")
    first, kinds = profiles[0], set[str]()
    for number, profile in enumerate(profiles):
        pointer = f"/profiles/{number}"
        if profile.device.kind in kinds:
            message = f"two profiles of the device kind {profile.device.kind!r}, expected one"
            raise ProblemError(message, code="duplicate_id", pointer=f"{pointer}/device/kind")
        kinds.add(profile.device.kind)
        _check_layers(first, profile, pointer)
        _check_model(first, profile, pointer)


def _check_layers(first: ModelProfile, profile: ModelProfile, pointer: str) -> None:
    expected, found = [layer.id for layer in first.layers], [layer.id for layer in profile.layers]
    present = set(found)
    for name in expected:
        if name not in present:
            message = f"the profile of {profile.device.kind!r} lacks layer {name!r}"
            raise ProblemError(message, code="profile_incomplete", pointer=f"{pointer}/layers")
    for number, name in enumerate(found):
        if number >= len(expected) or expected[number] != name:
            message = f"the profile of {profile.device.kind!r} has layer {name!r} at {number}, which the first has not"
            raise ProblemError(message, code="profile_extra_layer", pointer=f"{pointer}/layers/{number}")


def _check_model(first: ModelProfile, profile: ModelProfile, pointer: str) -> None:
    """Equal fingerprints, and equal facts that the plan copies from one of the profiles."""
    facts = [
        ("model/fingerprint", first.model.fingerprint, profile.model.fingerprint),
        ("model/reads", first.model.reads, profile.model.reads),
        ("model/tied", first.model.tied, profile.model.tied),
    ]
    for field, expected, found in facts:
        if expected != found:
            message = f"profiles of two different models ({field} differs), expected one model on each device kind"
            raise ProblemError(message, code="model_mismatch", pointer=f"{pointer}/{field}")


def _check_precision(profiles: tuple[ModelProfile, ...], workload: Workload) -> None:
    for number, profile in enumerate(profiles):
        if profile.model.precision != workload.precision:
            message = f"profiled in {profile.model.precision}, the workload asks for {workload.precision}"
            pointer = f"/profiles/{number}/model/precision"
            raise ProblemError(message, code="precision_mismatch", pointer=pointer)


def _check_kinds(profiles: tuple[ModelProfile, ...], cluster: Cluster) -> None:
    profiled = {profile.device.kind for profile in profiles}
    for number, profile in enumerate(profiles):
        if profile.device.kind not in cluster.device_kinds:
            message = f"a profile of {profile.device.kind!r}, a kind that the cluster does not have"
            raise ProblemError(message, code="no_profile_for_device", pointer=f"/profiles/{number}/device/kind")
    for number, group in enumerate(cluster.node_groups):
        if group.device_kind not in profiled:
            message = f"no profile of {group.device_kind!r}, the device kind of node group {group.name!r}"
            raise ProblemError(message, code="no_profile_for_device", pointer=f"/cluster/node_groups/{number}")


def check_options(problem: Problem, options: SearchOptions) -> None:
    """Raises ``ProblemError`` where the options ask for what the problem cannot have."""
    constraints, kinds = options.constraints, problem.cluster.device_kinds
    stages = constraints.num_stages
    if stages is not None and stages > problem.num_layers:
        message = f"{counted(stages, 'stage')} asked for, the model has {counted(problem.num_layers, 'layer')}"
        raise ProblemError(message, code="stages_gt_layers", pointer="/constraints/num_stages")
    for number, pin in enumerate(constraints.pins):
        if pin.layer >= problem.num_layers or pin.device_kind not in kinds:
            message = f"layer {pin.layer} pinned to {pin.device_kind!r}: no such layer or kind in this problem"
            raise ProblemError(message, code="dangling_edge", pointer=f"/constraints/pins/{number}")
    for number, kind in enumerate(constraints.unused_kinds):
        if kind not in kinds:
            message = f"kind {kind!r} must stay unused, but the cluster does not have it"
            raise ProblemError(message, code="dangling_edge", pointer=f"/constraints/unused_kinds/{number}")


def request_digest(problem: Problem, options: SearchOptions, *, planner: str, solver: str) -> str:
    """Names the answer of a search: equal problem, options and versions give one stored plan."""
    return canonical_digest(
        {
            "problem": problem.digest,
            "options": options.model_dump(mode="json", exclude={"constraints", "target"}),
            "constraints": options.constraints.model_dump(mode="json"),
            "target": options.target,
            "planner": planner,
            "solver": solver,
        }
    )
