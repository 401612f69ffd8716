"""Plans and cases of the executor tests, run on real ranks and compared with the unsplit model."""

import os
import signal
import threading
import time
from collections.abc import Iterable
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional

from planner.cutting.cut import cut_model
from planner.cutting.layer import CutLayer, CutModel
from planner.errors import ExecutorError, OutputError
from planner.executor import executor as executor_module
from planner.executor import facts as facts_module
from planner.executor import preparation
from planner.executor.executor import Executor
from planner.executor.stopping import stops_by_signal
from planner.plan.graph import LayerGraph, Node
from planner.plan.instruction import Instruction, stream_text
from planner.plan.mesh import Mesh
from planner.plan.plan import MicroBatch, Plan, Stage
from planner.problem.options import Family
from planner.problem.profile import Reads
from planner.schedules.build import PlanParts, build_plan
from planner.schedules.families import FAMILIES
from planner.schedules.split import split_in_place
from tests.helpers.documents import digest_of
from tests.helpers.two_routes import two_route_plan

__all__ = [
    "CASES",
    "EXTRA_CASES",
    "NUM_LAYERS",
    "adamw",
    "changed",
    "make_batch",
    "make_model",
    "make_plan",
    "token_count",
    "token_loss",
    "train",
]

TOKENS = 12
VOCABULARY = 61
KIND = "test-device"
NUM_LAYERS = 8  # of both models: embedding, six blocks, head

# name -> ranks, family, groups, stages as (group, first layer, end layer, data), routes, (route, samples) of each
# micro-batch
CASES: dict[str, dict[str, Any]] = {
    "2 ranks GPipe": {
        "family": "gpipe",
        "groups": [[0], [1]],
        "stages": [(0, 0, 4, 1), (1, 4, 8, 1)],
        "routes": [[0, 1]],
        "batches": [(0, 2)] * 4,
    },
    "2 ranks 1F1B cut 1 + rest": {
        "family": "1f1b",
        "groups": [[0], [1]],
        "stages": [(0, 0, 1, 1), (1, 1, 8, 1)],
        "routes": [[0, 1]],
        "batches": [(0, 2)] * 4,
    },
    "2 ranks interleaved v=2": {
        "family": "interleaved",
        "groups": [[0], [1]],
        "stages": [(0, 0, 2, 1), (1, 2, 4, 1), (0, 4, 6, 1), (1, 6, 8, 1)],
        "routes": [[0, 1, 2, 3]],
        "batches": [(0, 2)] * 4,
    },
    "4 ranks 1F1B": {
        "family": "1f1b",
        "groups": [[0], [1], [2], [3]],
        "stages": [(0, 0, 2, 1), (1, 2, 4, 1), (2, 4, 6, 1), (3, 6, 8, 1)],
        "routes": [[0, 1, 2, 3]],
        "batches": [(0, 1)] * 8,
    },
    "4 ranks interleaved v=2": {
        "family": "interleaved",
        "groups": [[0], [1], [2], [3]],
        "stages": [(stage % 4, stage, stage + 1, 1) for stage in range(8)],
        "routes": [list(range(8))],
        "batches": [(0, 1)] * 8,
    },
    "4 ranks mesh data 2 x 2 stages": {
        "family": "1f1b",
        "groups": [[0, 1], [2, 3]],
        "stages": [(0, 0, 4, 2), (1, 4, 8, 2)],
        "routes": [[0, 1]],
        "batches": [(0, 2)] * 4,
    },
    "4 ranks as two equal routes": {
        "family": "1f1b",
        "groups": [[0], [1], [2], [3]],
        "stages": [(0, 0, 4, 1), (1, 4, 8, 1), (2, 0, 4, 1), (3, 4, 8, 1)],
        "routes": [[0, 1], [2, 3]],
        "batches": [(0, 2), (1, 2), (0, 2), (1, 2)],
    },
    "3 ranks as unequal routes 3:1": {
        "family": "1f1b",
        "groups": [[0], [1], [2]],
        "stages": [(0, 0, 4, 1), (1, 4, 8, 1), (2, 0, 8, 1)],
        "routes": [[0, 1], [2]],
        "batches": [(0, 2), (0, 2), (1, 2), (0, 2)],
    },
}


EXTRA_CASES: dict[str, dict[str, Any]] = {
    "data 2 into 1, uneven micro-batches": {
        "family": "1f1b",
        "groups": [[0, 1], [2]],
        "stages": [(0, 0, 3, 2), (1, 3, 8, 1)],
        "routes": [[0, 1]],
        "batches": [(0, 3), (0, 2), (0, 3)],
    },
    "data 1 into 3, uneven shares": {
        "family": "gpipe",
        "groups": [[0], [1, 2, 3]],
        "stages": [(0, 0, 5, 1), (1, 5, 8, 3)],
        "routes": [[0, 1]],
        "batches": [(0, 3), (0, 5)],
    },
    "routes of different meshes": {
        "family": "1f1b",
        "groups": [[0], [1], [2, 3]],
        "stages": [(0, 0, 1, 1), (1, 1, 8, 1), (2, 0, 8, 2)],
        "routes": [[0, 1], [2]],
        "batches": [(0, 1), (1, 5), (0, 2)],
    },
    "recompute without R": {
        "family": "1f1b",
        "groups": [[0], [1]],
        "stages": [(0, 0, 4, 1), (1, 4, 8, 1)],
        "routes": [[0, 1]],
        "batches": [(0, 2)] * 4,
        "recompute": [0, 1, 2, 5, 7],
    },
    "recompute with R": {
        "family": "1f1b",
        "groups": [[0], [1]],
        "stages": [(0, 0, 4, 1), (1, 4, 8, 1)],
        "routes": [[0, 1]],
        "batches": [(0, 2)] * 4,
        "recompute": [0, 1, 2, 5, 7],
        "restore": True,
    },
}


def make_model(name: str, device: str = "cpu", num_blocks: int = NUM_LAYERS - 2) -> nn.Module:
    """``llama`` or ``gpt2``, always the same weights."""
    from tests.helpers.models import gpt2, llama  # transformers takes seconds, and not every rank needs it

    model = (llama if name == "llama" else gpt2)(num_blocks=num_blocks, device=device)
    return model.eval()


def make_graph(model: nn.Module) -> LayerGraph:
    cut = cut_model(model)
    return LayerGraph(model=cut.fingerprint, num_layers=len(cut.layers), tied=tuple(tied.layers for tied in cut.tied))


@cache
def known_graph(name: str) -> LayerGraph:
    """Of a model of ``make_model``; cutting it costs more than a step."""
    return make_graph(make_model(name))


def make_plan(
    model: nn.Module,
    *,
    family: str,
    groups: Iterable[Iterable[int]],
    stages: Iterable[tuple[int, int, int, int]],
    routes: Iterable[Iterable[int]],
    batches: Iterable[tuple[int, int]],
    recompute: Iterable[int] = (),
    restore: bool = False,
    tokens: int = TOKENS,
    graph: LayerGraph | None = None,
    split: bool = False,
) -> Plan:
    """A plan for ``model`` from lists as in ``CASES``; the layers ``recompute`` drop their activations.

    ``split``: every B becomes I W.
    """
    graph = graph or make_graph(model)
    dropped = set(recompute)

    def stage(group: int, first: int, end: int, data: int) -> Stage:
        layers = tuple(layer for layer in range(first, end) if layer in dropped)
        return Stage(
            group=group,
            first_layer=first,
            end_layer=end,
            mesh=Mesh(data=data),
            recompute={"full": layers} if layers else {},
        )

    ranks = tuple(tuple(group) for group in groups)
    parts = PlanParts(
        problem=digest_of("executor"),
        precision="fp32",
        graph=graph,
        nodes=(Node(node_group="tests", device_kind=KIND, num_ranks=sum(map(len, ranks))),),
        groups=ranks,
        stages=tuple(stage(*one) for one in stages),
        routes=tuple(tuple(route) for route in routes),
        micro_batches=tuple(MicroBatch(route=route, samples=samples, cuts=(0, tokens)) for route, samples in batches),
    )
    shares_groups = FAMILIES[family].placement.startswith("two ")
    plan = two_route_plan(parts, family) if shares_groups else build_plan(parts, family)
    if split:
        plan = changed(plan, streams=tuple(_split_text(stream) for stream in plan.instructions))
    return with_recompute(plan) if restore else plan


def _split_text(stream: tuple[Instruction, ...]) -> str:
    return stream_text(split_in_place(stream), [1] * (1 + max(i.number for i in stream)))


def with_recompute(plan: Plan) -> Plan:
    """An R right before each B, or I, of a stage that recomputes."""
    streams = []
    for stream in plan.streams:
        texts = []
        for text in stream.split():
            stage, _, number = text.replace("I", "B").partition("B")
            if number and plan.stages[int(stage)].recomputes:
                texts.append(f"{stage}R{number}")
            texts.append(text)
        streams.append(" ".join(texts))
    return changed(plan, streams=tuple(streams))


def changed(plan: Plan, **fields: Any) -> Plan:
    """The plan with other fields, checked anew."""
    return Plan(**{**{name: getattr(plan, name) for name in Plan.model_fields}, **fields})


def make_batch(step: int, samples: int = 8, tokens: int = TOKENS) -> tuple[Tensor, Tensor]:
    """Tokens and the next tokens; some labels do not count, unequally many in each sample."""
    generator = torch.Generator().manual_seed(100 + step)
    text = torch.randint(0, VOCABULARY, (samples, tokens + 1), generator=generator)
    labels = text[:, 1:].clone()
    labels[torch.rand(labels.shape, generator=generator) < 0.3] = -100
    return text[:, :-1], labels


def token_loss(output: Tensor, labels: Tensor) -> Tensor:
    """Sum over the counted tokens."""
    return functional.cross_entropy(output.flatten(0, 1), labels.flatten(), ignore_index=-100, reduction="sum")


def token_count(labels: Tensor) -> int:
    return int((labels != -100).sum())


adamw = partial(torch.optim.AdamW, lr=1e-3)


def train(
    group: Any,
    *,
    model: str,
    case: dict[str, Any],
    folder: str,
    num_steps: int = 5,
    device: str = "cpu",
    from_meta: bool = False,
    max_gradient_norm: float | None = None,
) -> dict[str, Any]:
    """Steps of AdamW; gradients of the first step in ``gradients-<rank>``, the weights in ``weights`` at the end."""
    module = make_model(model, "meta" if from_meta else device)
    plan = make_plan(module, graph=known_graph(model), **case)
    settings: dict[str, Any] = {"process_group": group, "emulate": True, "max_gradient_norm": max_gradient_norm}
    executor = Executor(plan, module, token_loss, token_count, adamw, **settings)
    try:
        losses, norms, steps_ns = [], [], []
        for step in range(num_steps):
            result = executor.step(make_batch(step))
            losses.append(result.loss)
            norms.append(result.gradient_norm)
            steps_ns.append(result.timeline.step_ns)
            if step == 0:
                gradients = {name: p.grad for name, p in executor.parameters().items() if p.grad is not None}
                save_file(
                    {name: g.clone() for name, g in gradients.items()}, Path(folder) / f"gradients-{executor.rank}"
                )
        executor.save_weights(Path(folder) / "weights")
        return {"losses": losses, "norms": norms, "steps_ns": steps_ns}
    finally:
        executor.close()


def disagree(group: Any, *, what: str, odd_rank: int) -> None:
    """Make an executor while ``odd_rank`` differs from the others in ``what``."""
    is_odd = torch.distributed.get_rank(group) == odd_rank
    model = make_model("llama")
    plan = make_plan(model, **CASES["2 ranks GPipe"])
    facts: dict[str, str] = {}
    settings: dict[str, Any] = {"emulate": True}
    if is_odd:
        if what == "plan":
            plan = changed(plan, problem=digest_of("another problem"))
        elif what == "model":
            model = make_model("llama", num_blocks=5)
        elif what == "dtype":
            model = model.double()
        elif what == "cut":
            settings["cut"] = cut_model(model).cut[:-1]
        elif what == "device":
            settings["emulate"] = False
        elif what == "seed":
            settings["seed"] = 5
        elif what == "max_gradient_norm":
            settings["max_gradient_norm"] = 1.0
        elif what == "world size":
            plan = make_plan(model, **CASES["3 ranks as unequal routes 3:1"])
        elif what == "unsupported":
            plan = changed(plan, precision="bf16")
        else:
            facts = {what: "another value"}
    ours = preparation.comparable
    try:
        preparation.comparable = lambda wish, found: ours(wish, found) | facts
        Executor(plan, model, token_loss, token_count, adamw, process_group=group, **settings).close()
    finally:
        preparation.comparable = ours


class _Saboteur:
    """A forward hook that does something to its rank's process, once."""

    def __init__(self, action: Any, *, micro_batch: int) -> None:
        self.action, self.left = action, micro_batch

    def __call__(self, *_: object) -> None:
        self.left -= 1
        if self.left == -1:
            self.action()


def told_to_stop(group: Any, *, rank: int) -> list[Any]:
    """SIGTERM in a forward of ``rank``: that step is done on all ranks and says so, no other is begun."""
    model = make_line()
    plan = make_plan(
        model, **{**LINE, "groups": [[0], [1]], "stages": [(0, 0, 2, 1), (1, 2, 4, 1)], "routes": [[0, 1]]}
    )
    batch = (torch.ones(16, 3, 4), torch.zeros(16, 3, 4))
    with stops_by_signal():
        executor = Executor(plan, model, squares, Tensor.numel, adamw, process_group=group, emulate=True)
        found: list[Any] = [executor.step(batch).stop]
        if executor.rank == rank:
            model[2 * rank].register_forward_hook(_Saboteur(_terminate, micro_batch=3))
        before = executor.step(batch)
        found += [before.stop, executor.evaluate(batch) < before.loss]
        try:
            executor.step(batch)
        except ExecutorError as error:
            found.append(error.code)
        executor.close()
    return found


def forgetful(group: Any) -> int:
    """Two steps of an executor that nobody closes; how many of its threads live on."""
    model = make_line()
    plan = make_plan(
        model, **{**LINE, "groups": [[0], [1]], "stages": [(0, 0, 2, 1), (1, 2, 4, 1)], "routes": [[0, 1]]}
    )
    executor = Executor(plan, model, squares, Tensor.numel, adamw, process_group=group, emulate=True)
    for _ in range(2):
        executor.step((torch.ones(16, 3, 4), torch.zeros(16, 3, 4)))
    del executor
    return sum(thread.name == "planner-guard" for thread in threading.enumerate())


def layer_runs(group: Any) -> list[list[int]]:
    """How often each layer of an interleaved plan ran on this rank: when the executor is made, and in each step."""
    model = make_line()
    stages = [(stage % 2, stage, stage + 1, 1) for stage in range(4)]
    plan = make_plan(
        model,
        family="interleaved",
        groups=[[0], [1]],
        stages=stages,
        routes=[[0, 1, 2, 3]],
        batches=[(0, 2)] * 4,
        tokens=3,
    )
    runs = [0] * 4

    def count(layer: int) -> Any:
        def hook(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
            runs[layer] += not output.is_meta

        return hook

    for layer, module in enumerate(model):
        module.register_forward_hook(count(layer))
    executor = Executor(plan, model, squares, Tensor.numel, adamw, process_group=group, emulate=True)
    found = [list(runs)]
    for _ in range(2):
        executor.step((torch.ones(8, 3, 4), torch.zeros(8, 3, 4)))
        found.append(list(runs))
    executor.close()
    return found


def _terminate() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def _kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _raise() -> None:
    raise ValueError("sabotage")


def _hang() -> None:
    time.sleep(600)


def make_line(num_layers: int = 4) -> nn.Sequential:
    """Linear layers of width 4; torch alone serves, ranks start sooner."""
    torch.manual_seed(2)
    return nn.Sequential(*(nn.Linear(4, 4) for _ in range(num_layers)))


LINE = {
    "family": "1f1b",
    "groups": [[0], [1], [2], [3]],
    "stages": [(0, 0, 1, 1), (1, 1, 2, 1), (2, 2, 3, 1), (3, 3, 4, 1)],
    "routes": [[0, 1, 2, 3]],
    "batches": [(0, 2)] * 8,
    "tokens": 3,
}


def squares(output: Tensor, labels: Tensor) -> Tensor:
    return ((output - labels) ** 2).sum()


def sabotaged(group: Any, *, how: str, rank: int, micro_batch: int = 2) -> float:
    """A good step of ``LINE``, then one in which ``rank`` is killed, raises, hangs or is told to stop twice."""
    model = make_line()
    plan = make_plan(model, **LINE)
    if how == "hang":
        executor_module._LEAST_LIMIT_SECONDS = 1.0
    executor = Executor(plan, model, squares, Tensor.numel, adamw, process_group=group, emulate=True)
    batch = (torch.ones(16, 3, 4), torch.zeros(16, 3, 4))
    executor.step(batch)
    if how == "raise in the update":
        if executor.rank == rank:
            executor.optimizer.register_step_pre_hook(lambda *_: _raise())
        executor.step(batch)
        return executor.step(batch).loss
    if how == "kill between steps":
        if executor.rank == rank:
            _kill()
        return executor.step(batch).loss
    if executor.rank == rank:
        action = {"kill": _kill, "raise": _raise, "hang": _hang, "terminate": _terminate}[how]
        for _ in range(1 + (how == "terminate")):
            model[rank].register_forward_hook(_Saboteur(action, micro_batch=micro_batch))
    elif how == "hang":
        executor_module._LEAST_LIMIT_SECONDS = 60.0
    with stops_by_signal():
        return executor.step(batch).loss


def refused_then_right(group: Any) -> float:
    """Every rank is given a wrong batch, then a right one."""
    model = make_model("llama")
    plan = make_plan(model, **CASES["2 ranks GPipe"])
    executor = Executor(plan, model, token_loss, token_count, adamw, process_group=group, emulate=True)
    inputs, labels = make_batch(0)
    for _ in range(2):
        try:
            executor.step((inputs[:-1], labels))
        except ExecutorError as error:
            if error.code != "batch_shape":
                raise
    loss = executor.step((inputs, labels)).loss
    executor.close()
    return loss


def odd_batch(group: Any, *, what: str, odd_rank: int, num_ranks: int) -> float:
    """A step in which ``odd_rank`` is given other inputs, labels or count than the others."""
    model = make_line()
    stages = [(rank, rank, rank + 1 if rank < num_ranks - 1 else 4, 1) for rank in range(num_ranks)]
    groups, routes = [[rank] for rank in range(num_ranks)], [list(range(num_ranks))]
    plan = make_plan(model, family="1f1b", groups=groups, stages=stages, routes=routes, batches=[(0, 2)] * 2, tokens=3)
    is_odd = torch.distributed.get_rank(group) == odd_rank

    def count(labels: Tensor) -> int:
        return labels.numel() + (what == "counted" and is_odd)

    executor = Executor(plan, model, squares, count, adamw, process_group=group, emulate=True)
    try:
        inputs, labels = torch.ones(4, 3, 4), torch.zeros(4, 3, 4)
        executor.step((inputs, labels))
        if is_odd and what != "counted":
            {"inputs": inputs, "labels": labels}[what][3, 2, 1] += 1e-3
        return executor.step((inputs, labels)).loss
    finally:
        executor.close()


def save_where_it_cannot(group: Any, *, folder: str) -> str:
    model = make_model("gpt2")
    plan = make_plan(model, **CASES["2 ranks GPipe"])
    executor = Executor(plan, model, token_loss, token_count, adamw, process_group=group, emulate=True)
    try:
        executor.save_weights(Path(folder) / "no such folder" / "weights")
    except OutputError:
        executor.save_weights(Path(folder) / "weights")  # and goes on afterwards
        return "refused"
    finally:
        executor.close()
    return "saved"


def not_finite(group: Any) -> list[bool]:
    """Rank 0 alone sees an infinite gradient; was the step skipped, and did the weights stay."""
    model = make_model("llama")
    plan = make_plan(model, **CASES["2 ranks GPipe"])
    executor = Executor(plan, model, token_loss, token_count, adamw, process_group=group, emulate=True)
    if executor.rank == 0:
        parameter = next(iter(executor.parameters().values()))
        parameter.register_hook(lambda gradient: gradient * float("inf"))
    before = {name: parameter.detach().clone() for name, parameter in executor.parameters().items()}
    skipped = executor.step(make_batch(0)).skipped
    executor.close()
    return [skipped, all(torch.equal(p, before[name]) for name, p in executor.parameters().items())]


class Mix(nn.Module):
    """Reads two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.left = nn.Linear(4, 4)
        self.right = nn.Linear(4, 4)

    def forward(self, one: Tensor, other: Tensor) -> Tensor:
        return torch.tanh(self.left(one)) * self.right(other)


SKIPS = (Reads(layer=2, sources=(0, 1)), Reads(layer=3, sources=(2,), detached=(1,)))
SKIP_CASES: dict[str, dict[str, Any]] = {
    "two tensors over one border": {"groups": [[0], [1]], "stages": [(0, 0, 2, 1), (1, 2, 4, 1)]},
    "a border that skips a stage": {"groups": [[0], [1], [2]], "stages": [(0, 0, 1, 1), (1, 1, 2, 1), (2, 2, 4, 1)]},
    "meshes of 2 and 1": {"groups": [[0, 1], [2]], "stages": [(0, 0, 2, 2), (1, 2, 4, 1)]},
    "stages of one rank": {"groups": [[0]], "stages": [(0, 0, 1, 1), (0, 1, 2, 1), (0, 2, 3, 1), (0, 3, 4, 1)]},
}


def make_skip_model() -> nn.ModuleList:
    """Layer 2 reads layers 0 and 1; layer 3 reads 2, and 1 without a gradient."""
    torch.manual_seed(4)
    return nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4), Mix(), Mix()])


def cut_skip_model(model: nn.Module, cut: object = None) -> CutModel:
    """What a cutter that knows graphs would give."""
    assert isinstance(model, nn.ModuleList)
    layers = tuple(
        CutLayer(
            id=str(number),
            kind="other",
            module=module,
            parameters={f"{number}.{name}": parameter for name, parameter in module.named_parameters()},
            buffers={},
            local_names={f"{number}.{name}": (name,) for name, _ in module.named_parameters()},
            fingerprint=digest_of(f"layer {number}"),
            causal=True,
        )
        for number, module in enumerate(model)
    )
    return CutModel(layers, SKIPS, (), {}, digest_of("skips"), tuple(layer.id for layer in layers))


def skip_gradients(group: Any, *, case: dict[str, Any], folder: str) -> float:
    """One step of the skip model; gradients in ``gradients-<rank>``."""
    model = make_skip_model()
    graph = LayerGraph(model=digest_of("skips"), num_layers=4, reads=SKIPS)
    route = list(range(len(case["stages"])))
    family: Family = "gpipe" if len(case["groups"]) == len(route) else "interleaved"
    batches = [(0, 3), (0, 2)]
    plan = make_plan(model, family=family, routes=[route], batches=batches, tokens=3, graph=graph, **case)
    ours = facts_module.cut_model
    try:
        facts_module.cut_model = cut_skip_model
        executor = Executor(plan, model, squares, Tensor.numel, adamw, process_group=group, emulate=True)
    finally:
        facts_module.cut_model = ours
    loss = executor.step(skip_batch()).loss
    executor.close()
    gradients = {name: p.grad.clone() for name, p in executor.parameters().items() if p.grad is not None}
    save_file(gradients, Path(folder) / f"gradients-{executor.rank}")
    return loss


def skip_batch() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(6)
    return torch.randn(5, 3, 4, generator=generator), torch.randn(5, 3, 4, generator=generator)
