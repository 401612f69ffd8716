"""Random legal plans of several families, meshes, routes, graphs and ties, and random damage to them."""

import copy
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from planner.plan.mesh import Mesh
from planner.plan.plan import Plan, Stage
from planner.problem.options import Family
from planner.problem.profile import Reads
from planner.schedules.build import build_plan
from tests.helpers.plans import Line, make_parts

__all__ = ["MUTATIONS", "random_plan"]

_MESHES = (
    Mesh(),
    Mesh(data=2),
    Mesh(tensor=2),
    Mesh(tensor=2, border="sharded"),
    Mesh(context=2, exchange="ring"),
    Mesh(context=2, exchange="zigzag"),
    Mesh(data=2, shards=2, sharded="optimizer"),
    Mesh(data=3),
)


def random_plan(source: random.Random, meshes: tuple[Mesh, ...] = _MESHES) -> Plan:
    """A legal plan; small, so that an independent replay of every element is quick."""
    family: Family = source.choice(("gpipe", "1f1b", "interleaved"))
    num_slices = source.choice((1, 1, 2, 3)) if family != "interleaved" else 1
    lines = [_random_line(source, family, num_slices, meshes) for _ in range(source.choice((1, 1, 1, 2, 3)))]
    num_layers = max(line.num_stages for line in lines) + source.randint(0, 2)
    parts = make_parts(
        lines,
        num_layers=num_layers,
        tied=((0, num_layers - 1),) if num_layers > 1 and source.random() < 0.4 else (),
        reads=_random_reads(source, num_layers),
        samples=source.choice((3, 4, 5)),
        tokens=source.choice((12, 13)),
    )
    if not parts.graph.tied and source.random() < 0.4:
        parts = replace(parts, stages=tuple(_other_mesh(source, stage, meshes) for stage in parts.stages))
    if not parts.graph.tied and source.random() < 0.25:
        parts = replace(parts, untrained_layers=frozenset({source.randrange(num_layers)} - {num_layers - 1}))
    document = build_plan(parts, family).model_dump(mode="json")
    if source.random() < 0.4:
        _split_backwards(source, document)
    if source.random() < 0.3:
        _recompute(source, document)
    return Plan.model_validate(_as_python(document))


def _random_line(source: random.Random, family: Family, num_slices: int, meshes: tuple[Mesh, ...]) -> Line:
    num_groups = source.randint(1, 4)
    legs = 1 if family == "1f1b" else source.randint(1, 2)
    num_stages = num_groups * legs - (source.randint(0, num_groups - 1) if legs == 2 else 0)
    mesh: Mesh | tuple[Mesh, ...] = source.choice(meshes)
    if source.random() < 0.4:
        mesh = tuple(source.choice(meshes) for _ in range(num_groups))
    return Line(num_groups, num_stages, source.randint(1, 4), mesh, num_slices)


def _other_mesh(source: random.Random, stage: Stage, meshes: tuple[Mesh, ...]) -> Stage:
    """Another spread over the same ranks: two stages of one group may then send to each other."""
    fitting = [mesh for mesh in meshes if mesh.num_ranks == stage.mesh.num_ranks]
    return stage.model_copy(update={"mesh": source.choice(fitting)})


def _random_reads(source: random.Random, num_layers: int) -> tuple[Reads, ...]:
    """Now and then a layer also reads an earlier one, with or without a gradient back."""
    found = []
    for layer in range(2, num_layers):
        if source.random() < 0.15:
            far = source.randrange(layer - 1)
            pairs = (((far, layer - 1), ()), ((layer - 1,), (far,)), ((far,), ()))
            sources, detached = source.choice(pairs)
            found.append(Reads(layer=layer, sources=sources, detached=detached))
    return tuple(found)


def _split_backwards(source: random.Random, document: dict[str, Any]) -> None:
    """B of a random stage -> I W, its W up to three places later but before the stage's G."""
    stage = source.randrange(len(document["stages"]))
    stream = document["streams"][document["stages"][stage]["group"]].split(" ")
    made: list[str] = []
    waiting: list[str] = []
    for word in stream:
        if word.startswith(f"{stage}B"):
            waiting.append(word.replace("B", "W"))
            made.append(word.replace("B", "I"))
        elif word.startswith(f"{stage}G"):
            made += [*waiting, word]
            waiting = []
        else:
            made.append(word)
        if waiting and source.random() < 0.6:
            made.append(waiting.pop(0))
    document["streams"][document["stages"][stage]["group"]] = " ".join(made)


def _recompute(source: random.Random, document: dict[str, Any]) -> None:
    """A random stage recomputes a layer; some of its visits with an R right before their first backward."""
    number = source.randrange(len(document["stages"]))
    stage = document["stages"][number]
    stage["recompute"] = {"full": [stage["first_layer"]]}
    made: list[str] = []
    for word in document["streams"][stage["group"]].split(" "):
        first = word.startswith((f"{number}B", f"{number}I"))
        if first and source.random() < 0.6:
            made.append(word.replace("B", "R").replace("I", "R"))
        made.append(word)
    document["streams"][stage["group"]] = " ".join(made)


def _as_python(document: dict[str, Any]) -> dict[str, Any]:
    """Lists -> tuples, as the strict contract wants them from Python."""

    def tuples(value: Any) -> Any:
        if isinstance(value, list):
            return tuple(tuples(item) for item in value)
        return {key: tuples(item) for key, item in value.items()} if isinstance(value, dict) else value

    found = tuples(document)
    assert isinstance(found, dict)
    return found


def _words(source: random.Random, document: dict[str, Any], edit: Callable[[list[str]], None]) -> None:
    """Edit the words of a random stream."""
    group = source.randrange(len(document["streams"]))
    words = document["streams"][group].split(" ")
    edit(words)
    document["streams"][group] = " ".join(words)


def _drop(source: random.Random, document: dict[str, Any]) -> None:
    _words(source, document, lambda words: words.pop(source.randrange(len(words))) and None)


def _double(source: random.Random, document: dict[str, Any]) -> None:
    _words(source, document, lambda words: words.insert(source.randrange(len(words)), source.choice(words)))


def _swap_neighbours(source: random.Random, document: dict[str, Any]) -> None:
    def edit(words: list[str]) -> None:
        place = source.randrange(max(1, len(words) - 1))
        words[place : place + 2] = reversed(words[place : place + 2])

    _words(source, document, edit)


def _swap_any(source: random.Random, document: dict[str, Any]) -> None:
    def edit(words: list[str]) -> None:
        one, other = source.randrange(len(words)), source.randrange(len(words))
        words[one], words[other] = words[other], words[one]

    _words(source, document, edit)


def _move(source: random.Random, document: dict[str, Any]) -> None:
    def edit(words: list[str]) -> None:
        word = words.pop(source.randrange(len(words)))
        words.insert(source.randint(0, len(words)), word)

    _words(source, document, edit)


def _move_to_another_stream(source: random.Random, document: dict[str, Any]) -> None:
    taken: list[str] = []
    _words(source, document, lambda words: taken.append(words.pop(source.randrange(len(words)))))
    _words(source, document, lambda words: words.insert(source.randint(0, len(words)), taken[0]))


def _change_letter(source: random.Random, document: dict[str, Any]) -> None:
    def edit(words: list[str]) -> None:
        place = source.randrange(len(words))
        words[place] = "".join(source.choice("FRBIWGU") if c.isalpha() else c for c in words[place])

    _words(source, document, edit)


def _change_digit(source: random.Random, document: dict[str, Any]) -> None:
    def edit(words: list[str]) -> None:
        place = source.randrange(len(words))
        digits = [n for n, c in enumerate(words[place]) if c.isdigit()]
        where = source.choice(digits)
        words[place] = words[place][:where] + str(source.randint(0, 4)) + words[place][where + 1 :]

    _words(source, document, edit)


def _shift_layers(source: random.Random, document: dict[str, Any]) -> None:
    stage = source.choice(document["stages"])
    name = source.choice(("first_layer", "end_layer"))
    stage[name] = max(int(name == "end_layer"), stage[name] + source.choice((-1, 1)))


def _lose_a_layer(source: random.Random, document: dict[str, Any]) -> None:
    """The model has one layer more than the routes cover."""
    document["graph"]["num_layers"] += 1


def _change_route(source: random.Random, document: dict[str, Any]) -> None:
    route = source.choice(document["routes"])
    if len(route) > 1 and source.random() < 0.5:
        route.pop(source.randrange(len(route)))
    elif source.random() < 0.5:
        source.shuffle(route)
    else:
        route[source.randrange(len(route))] = source.randrange(len(document["stages"]))


def _change_batch_route(source: random.Random, document: dict[str, Any]) -> None:
    source.choice(document["micro_batches"])["route"] = source.randrange(len(document["routes"]) + 1)


def _retarget_stage(source: random.Random, document: dict[str, Any]) -> None:
    source.choice(document["stages"])["group"] = source.randrange(len(document["groups"]) + 1)


def _swap_streams(source: random.Random, document: dict[str, Any]) -> None:
    streams = document["streams"]
    one, other = source.randrange(len(streams)), source.randrange(len(streams))
    streams[one], streams[other] = streams[other], streams[one]


def _drop_updates(source: random.Random, document: dict[str, Any]) -> None:
    """All G and U go: gradients stay where they are, which is legal; or only those of one stream, which is not."""
    only = source.randrange(len(document["streams"])) if source.random() < 0.5 else None
    for group, line in enumerate(document["streams"]):
        words = [word for word in line.split(" ") if not ({"G", "U"} & set(word))]
        if words and only in (None, group):
            document["streams"][group] = " ".join(words)


_STREAMS = (_drop, _double, _swap_neighbours, _swap_any, _move, _move_to_another_stream, _change_letter, _change_digit)
_LISTS = (_shift_layers, _lose_a_layer, _change_route, _change_batch_route, _retarget_stage, _swap_streams)
_ALL = (*_STREAMS, *_LISTS, _drop_updates, _swap_neighbours, _swap_any, _move, _move)


def _mutation(edit: Callable[[random.Random, dict[str, Any]], None]) -> Callable[..., dict[str, Any]]:
    def apply(source: random.Random, document: dict[str, Any]) -> dict[str, Any]:
        changed = copy.deepcopy(document)
        edit(source, changed)
        return changed

    apply.__name__ = edit.__name__.removeprefix("_")
    return apply


MUTATIONS = tuple(_mutation(edit) for edit in _ALL)  # each returns a damaged copy of a plan's document
