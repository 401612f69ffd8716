"""All prices of one plan: the one place where profiles, links and workload meet the five lists.

Every rank of a stage does the work of its fullest rank. Sums are priced by ``planner.costs.sums`` over the gradient
bytes of a piece; weights that two stages of a group share are updated and kept once.
"""

import math
from collections import defaultdict
from collections.abc import Iterator
from fractions import Fraction
from functools import cached_property, partial

from planner.costs.layers import KindCosts, LayerPrice, RankShape
from planner.costs.links import Links, Place
from planner.costs.prices import BorderPrice, PlanPrices, VisitPrice
from planner.costs.provenance import worst_provenance
from planner.costs.stages import (
    GRADIENT_BYTES,
    MOST_WAITING_BYTES,
    StageUse,
    StateCut,
    layer_state_bytes,
    require_split,
    split_visit_price,
    whole_visit_price,
)
from planner.costs.sums import sum_ns
from planner.costs.tensor_scaling import TENSOR_KINDS, scaled_to_tensor, tensor_sums
from planner.errors import PriceError
from planner.plan.borders import Transfer, is_handover, mesh_transfers, transfers
from planner.plan.dependencies import Dependencies
from planner.plan.instruction import Visit
from planner.plan.mesh import Range
from planner.plan.pieces import Piece, pieces
from planner.plan.plan import Plan, VisitShape
from planner.problem.problem import Problem
from planner.units import counted

__all__ = ["ProblemCosts", "price_plan"]


class ProblemCosts:
    """Costs of every device kind and link of a problem; fits are made once, for as many plans as one likes."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.kinds = {profile.device.kind: KindCosts(profile) for profile in problem.profiles}
        self.links = Links(problem.cluster)

    @cached_property
    def problem_digest(self) -> str:
        return self.problem.digest

    def price(self, plan: Plan) -> PlanPrices:
        """The prices of ``plan``. Raises ``PriceError`` where profile or cluster cannot give one."""
        return _Pricing(plan, self).prices()


def price_plan(plan: Plan, problem: Problem) -> PlanPrices:
    """The prices of one plan. Raises ``PriceError`` where profile or cluster cannot give one."""
    return ProblemCosts(problem).price(plan)


class _Pricing:
    def __init__(self, plan: Plan, costs: ProblemCosts) -> None:
        _check_kinds(plan, costs.problem)
        self._plan = plan
        self._problem = costs.problem
        self._costs = costs.kinds
        self._links = costs.links
        self._dependencies = Dependencies(plan)
        self._tags: set[str] = set()

    def prices(self) -> PlanPrices:
        visits = {key: self._visit(*key) for key in self._stage_shapes}
        return PlanPrices(
            visits=visits,
            borders=dict(self._borders()),
            sum_ns=tuple(self._sum_ns(piece) for piece in pieces(self._plan)),
            update_ns=self._update_ns(),
            state_bytes=tuple(self._state_bytes(group) for group in range(len(self._plan.groups))),
            limit_bytes=tuple(self._limit_bytes(group) for group in range(len(self._plan.groups))),
            costs=worst_provenance(self._tags),
        )

    @cached_property
    def _stage_shapes(self) -> dict[tuple[int, VisitShape], int]:
        """(stage, shape) -> a route on which it happens."""
        return {
            (stage, self._plan.visit_shape(number, part)): batch.route
            for number, batch in enumerate(self._plan.micro_batches)
            for part in range(batch.num_slices)
            for stage in self._plan.routes[batch.route]
        }

    @cached_property
    def _operations(self) -> dict[int, set[str]]:
        """Stage -> the operations that its group's stream has for it."""
        found: dict[int, set[str]] = defaultdict(set)
        for stream in self._plan.instructions:
            for instruction in stream:
                found[instruction.stage].add(instruction.operation)
        return found

    def _kind_costs(self, stage: int) -> KindCosts:
        return self._costs[self._plan.group_kind(self._plan.stages[stage].group)]

    def _layers(self, stage: int, shape: VisitShape) -> list[LayerPrice]:
        mesh = self._plan.stages[stage].mesh
        rank_shape = RankShape(
            -(-shape.samples // mesh.data), shape.first_token, shape.end_token, mesh.tensor, mesh.context, mesh.experts
        )
        return [self._layer(stage, layer, rank_shape) for layer in self._plan.stages[stage].layers]

    def _layer(self, stage: int, layer: int, shape: RankShape) -> LayerPrice:
        """As measured; a tensor degree that was not measured by the rule of ``tensor_scaling``, where it has one."""
        costs, mesh = self._kind_costs(stage), self._plan.stages[stage].mesh
        kind = costs.profile.layers[layer].kind
        if shape.tensor == 1 or kind not in TENSOR_KINDS or costs.is_measured(layer, shape):
            return costs.layer(layer, shape)
        price = costs.layer(layer, shape._replace(tensor=1))
        sums = tensor_sums(kind, price, num_tokens=shape.samples * shape.tokens)
        sum_over_ns = partial(self._tensor_sum_ns, stage)
        return scaled_to_tensor(price, sums, tensor=shape.tensor, border=mesh.border, sum_ns=sum_over_ns)

    def _tensor_sum_ns(self, stage: int, num_bytes: int) -> int:
        """A sum over the tensor ranks, which follow one another in the group; of several such teams the slowest."""
        degree = self._plan.stages[stage].mesh.tensor
        places = [self._place(rank) for rank in self._plan.groups[self._plan.stages[stage].group]]
        teams = [places[first : first + degree] for first in range(0, len(places), degree)]
        return max(sum_ns(self._links, team, num_bytes) for team in teams)

    def _visit(self, number: int, shape: VisitShape) -> VisitPrice:
        stage, layers = self._plan.stages[number], self._layers(number, shape)
        profile = self._kind_costs(number).profile
        is_split = self._operations[number] >= {"I", "W"}
        if is_split:
            require_split((profile.layers[layer], price) for layer, price in zip(stage.layers, layers, strict=True))
        if "selective" in stage.recompute:
            message = f"stage {number} recomputes selectively, which profiles do not measure"
            raise PriceError(message, code="no_price", pointer=f"/stages/{number}/recompute")
        self._tags |= {price.provenance for price in layers}
        route = self._stage_shapes[number, shape]
        use = StageUse(
            recomputed=[layer in stage.recompute.get("full", ()) for layer in stage.layers],
            restores_at_once="R" in self._operations[number],
            is_read=any(number in self._dependencies.neighbours[route, s].reads for s in self._plan.routes[route]),
            per_instruction_ns=profile.overheads.per_instruction_ns,
            waiting_bytes=self._waiting_bytes(number) if is_split else 0,
        )
        return split_visit_price(layers, use) if is_split else whole_visit_price(layers, use)

    def _waiting_bytes(self, number: int) -> int:
        """Gradients that W of a stage holds until it adds several at once."""
        stage, layers = self._plan.stages[number], self._kind_costs(number).profile.layers
        num_params = sum(layers[layer].num_trained_params for layer in stage.layers)
        return min(MOST_WAITING_BYTES, -(-num_params * GRADIENT_BYTES // stage.mesh.tensor))

    def _borders(self) -> Iterator[tuple[tuple[int, int, VisitShape], BorderPrice]]:
        priced: set[tuple[int, int, VisitShape]] = set()
        for number, batch in enumerate(self._plan.micro_batches):
            for part in range(batch.num_slices):
                shape = self._plan.visit_shape(number, part)
                for stage in self._plan.routes[batch.route]:
                    for source in self._dependencies.of_stage(number, stage).reads:
                        key = (source, stage, shape)
                        if key not in priced:
                            priced.add(key)
                            yield key, self._border(source, Visit(stage, number, part))

    def _border(self, sender: int, visit: Visit) -> BorderPrice:
        plan, receiver = self._plan, visit.stage
        if is_handover(plan, sender, receiver):
            return BorderPrice(0, 0, 0)
        shape = plan.visit_shape(visit.micro_batch, visit.slice)
        forward = transfers(plan, sender, receiver, visit)
        held_layers = set(plan.stages[sender].layers)
        reads = [plan.graph.layer_reads[layer] for layer in plan.stages[receiver].layers]
        gradients = {source for found in reads for source in found.sources} & held_layers
        activations = gradients | {source for found in reads for source in found.detached} & held_layers
        activation_bytes = self._bytes_per_token(sender, activations, shape)
        gradient_bytes = self._bytes_per_token(sender, gradients, shape)
        backward = mesh_transfers(
            (plan.stages[receiver].mesh, plan.groups[plan.stages[receiver].group]),
            (plan.stages[sender].mesh, plan.groups[plan.stages[sender].group]),
            num_samples=shape.samples,
            tokens=Range(shape.first_token, shape.end_token),
        )
        gives_back = receiver in self._dependencies.of_stage(visit.micro_batch, sender).readers
        held: dict[int, int] = defaultdict(int)
        for transfer in forward:
            held[transfer.receiver] += math.ceil(transfer.num_tokens * activation_bytes)
        return BorderPrice(
            forward_ns=self._busiest_ns(forward, activation_bytes),
            backward_ns=self._busiest_ns(backward, gradient_bytes) if gives_back else 0,
            message_bytes=max(held.values(), default=0),
        )

    def _bytes_per_token(self, sender: int, layers: set[int], shape: VisitShape) -> Fraction:
        """Bytes of the outputs of ``layers`` of a stage, of one sample and token."""
        stage, prices = self._plan.stages[sender], self._layers(sender, shape)
        tokens = -(-shape.samples // stage.mesh.data) * (shape.end_token - shape.first_token)
        return Fraction(sum(prices[layer - stage.first_layer].output_bytes for layer in layers), tokens)

    def _busiest_ns(self, found: tuple[Transfer, ...], bytes_per_token: Fraction) -> int:
        """Messages of one rank follow one another, those of different ranks run at once: the busiest rank counts."""
        sending: dict[int, int] = defaultdict(int)
        receiving: dict[int, int] = defaultdict(int)
        for transfer in found:
            if transfer.sender != transfer.receiver:
                sender, receiver = self._place(transfer.sender), self._place(transfer.receiver)
                duration_ns = self._links.message_ns(sender, receiver, math.ceil(transfer.num_tokens * bytes_per_token))
                sending[transfer.sender] += duration_ns
                receiving[transfer.receiver] += duration_ns
        return max([*sending.values(), *receiving.values()], default=0)

    def _place(self, rank: int) -> Place:
        node = self._plan.rank_nodes[rank]
        return Place(self._plan.nodes[node].node_group, node)

    def _sum_ns(self, piece: Piece) -> int:
        num_params = sum(self._trained_params(weight) for weight in piece.weights)
        tensor = min(self._plan.stages[stage].mesh.tensor for stage in piece.stages)
        places = [self._place(rank) for rank in self._sum_members(piece)]
        return sum_ns(self._links, places, -(-num_params * GRADIENT_BYTES // tensor))

    def _sum_members(self, piece: Piece) -> list[int]:
        """Ranks with one and the same part of the weights: the first tensor rank's, where all stages cut alike."""
        stages = [self._plan.stages[stage] for stage in piece.stages]
        if len({stage.mesh.tensor for stage in stages}) > 1:
            return list(piece.members)
        return sorted({rank for stage in stages for rank in self._plan.groups[stage.group][:: stage.mesh.tensor]})

    def _trained_params(self, weight: int) -> int:
        """Of layers that share a weight the largest counts: it holds what the others share."""
        layers = self._problem.profiles[0].layers
        sharing = [n for n, lowest in enumerate(self._plan.graph.weight_of) if lowest == weight]
        return max(layers[layer].num_trained_params for layer in sharing)

    def _update_ns(self) -> tuple[int, ...]:
        """By stage: a weight is updated at the first U of its group that names a stage holding it."""
        found = [0] * len(self._plan.stages)
        for stream in self._plan.instructions:
            seen: set[int] = set()
            for stage in dict.fromkeys(i.stage for i in stream if i.operation == "U"):
                weights = {self._plan.graph.weight_of[layer] for layer in self._plan.stages[stage].layers} - seen
                seen |= weights
                overheads = self._kind_costs(stage).profile.overheads
                num_params = sum(self._trained_params(weight) for weight in weights)
                mesh = self._plan.stages[stage].mesh
                share = num_params / (mesh.tensor * mesh.shards)
                found[stage] = overheads.update_ns + round(share * overheads.update_ns_per_million_params / 1e6)
        return tuple(found)

    def _state_bytes(self, group: int) -> int:
        """Of one rank: of layers that share a weight on this group the largest."""
        largest: dict[int, int] = defaultdict(int)
        for number in self._plan.stages_of_group(group):
            stage, operations = self._plan.stages[number], self._operations[number]
            mesh = stage.mesh
            cut = StateCut(mesh.tensor, mesh.shards, mesh.sharded, trained=bool(operations & {"B", "W"}))
            for layer in stage.layers:
                weight = self._plan.graph.weight_of[layer]
                state = layer_state_bytes(self._kind_costs(number).profile.layers[layer], self._problem.workload, cut)
                largest[weight] = max(largest[weight], state)
        return sum(largest.values())

    def _limit_bytes(self, group: int) -> int:
        """What the group's smallest rank may use."""
        nodes = {self._plan.rank_nodes[rank] for rank in self._plan.groups[group]}
        cluster = self._problem.cluster
        return min(cluster.node_group(self._plan.nodes[node].node_group).usable_bytes for node in nodes)


def _check_kinds(plan: Plan, problem: Problem) -> None:
    """Raises ``PriceError`` where the plan runs on nodes that the cluster does not have, or has another model."""
    groups = {group.name: group.device_kind for group in problem.cluster.node_groups}
    for number, node in enumerate(plan.nodes):
        if groups.get(node.node_group) != node.device_kind:
            message = f"node {number} of the plan is no node of the cluster: {node.node_group!r}, {node.device_kind!r}"
            raise PriceError(message, code="unknown_node", pointer=f"/nodes/{number}")
    if plan.graph.num_layers != problem.num_layers:
        message = f"the plan has {counted(plan.graph.num_layers, 'layer')}, the profiles {problem.num_layers}"
        raise PriceError(message, code="model_mismatch", pointer="/graph/num_layers")
