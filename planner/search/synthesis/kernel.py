"""The inner loops of synthesis on flat arrays: list scheduling, re-timing of a given order, and walking between orders.

The same source runs on lists in plain Python and, compiled (``planner.search.synthesis.kernels``), on numpy arrays,
with identical results: whole numbers only, and random numbers of its own. Everything lies in this one file because
compiled code is kept by file.

- ``list_schedule``: always the group with the earliest possible start, lowest first; on it the instruction with the
  least key among those that can start then. Groups wait in a tournament tree.
- ``retime``: the earliest times of a given order; sweeps the groups until nothing moves.
- ``walk``: moves instructions of a critical path to other places of their streams (after Nowicki and Smutnicki 1996)
  and takes what is not longer than the current order by more than a random allowance that falls to nothing
  (threshold accepting, Dueck and Scheuer 1990).
"""

from planner.search.synthesis.layout import NEVER, Lanes, Manner, MutableRow, Row, State, Walk

__all__ = ["list_schedule", "retime", "walk"]

_FURTHEST = 6  # places that an instruction is moved by
_MOST_AT_ONCE = 3  # instructions


def list_schedule(lanes: Lanes, keys: Row, manner: Manner, order: MutableRow, state: State) -> int:
    """Fill the order and its times; the step, or -1 where a group has no room for one visit of each stage."""
    _begin(lanes, state)
    for lane in range(len(lanes.counts)):
        state.ready[lane] = _ready_at(lanes, state, lane)
    for group in range(len(lanes.limit)):
        _put(lanes, state, group, manner)
    span = 0
    for _ in range(len(order)):
        now = state.tree[1]
        if now == NEVER:
            return -1
        group = _first_group(state)
        lane = _least_key(lanes, state, group, keys, manner)
        span = max(span, _run(lanes, state, lane, state.ready[lane]))
        order[state.following[group]] = lane
        state.following[group] += 1
        _keep(lanes, state, lane)
        state.ready[lane] = _ready_at(lanes, state, lane)
        for index in range(lanes.user_first[lane], lanes.user_first[lane + 1]):
            user = lanes.users[index]
            state.ready[user] = _ready_at(lanes, state, user)
            if lanes.group[user] != group:
                _put(lanes, state, lanes.group[user], manner)
        _put(lanes, state, group, manner)
    return span


def _keep(lanes: Lanes, state: State, lane: int) -> None:
    """Count what an instruction takes and frees."""
    state.used[lanes.group[lane]] += lanes.takes[lane] - lanes.frees[lane]
    if lanes.takes[lane] > 0:
        state.held[lanes.stage[lane]] += 1
        state.left[lanes.stage[lane]] -= 1
    if lanes.frees[lane] > 0:
        state.held[lanes.stage[lane]] -= 1


def _has_room(lanes: Lanes, state: State, lane: int, manner: Manner) -> bool:
    """Whether an instruction may take its memory: a second visit of a stage leaves room for one of every stage of the
    group that holds none. So a first visit always finds room, the oldest micro-batch of a route goes on, nothing locks.
    """
    if lanes.takes[lane] == 0:
        return True
    group, stage = lanes.group[lane], lanes.stage[lane]
    room = lanes.limit[group] - state.used[group] - lanes.takes[lane]
    if state.held[stage] > 0:
        reserve = 0
        for index in range(lanes.stage_first[group], lanes.stage_first[group + 1]):
            other = lanes.stages[index]
            if state.held[other] == 0 and state.left[other] > 0:
                reserve += lanes.kept[other]
        room -= max(reserve, manner.reserves * lanes.later[stage])
    return room >= 0


def _begin(lanes: Lanes, state: State) -> None:
    for lane in range(len(lanes.counts)):
        state.done[lane] = 0
    for node in range(len(state.tree)):
        state.tree[node] = NEVER
    for group in range(len(lanes.limit)):
        state.clock[group] = 0
        state.used[group] = 0
        state.following[group] = lanes.first[group]
    for stage in range(len(lanes.visits)):
        state.held[stage] = 0
        state.left[stage] = lanes.visits[stage]


def _ready_at(lanes: Lanes, state: State, lane: int) -> int:
    """When the next instruction of a lane has all that it waits for; NEVER where that is not known yet."""
    number = state.done[lane]
    if number >= lanes.counts[lane]:
        return NEVER
    gate = lanes.gate[lane]
    if gate >= 0 and state.done[gate] <= number:
        return NEVER
    ready = 0
    own = lanes.own[lane]
    if own >= 0:
        if state.done[own] <= number:
            return NEVER
        ready = state.ends[lanes.offset[own] + number]
    other = lanes.neighbour[lane]
    if other >= 0:
        if state.done[other] <= number:
            return NEVER
        ready = max(ready, state.ends[lanes.offset[other] + number] + lanes.delay[lane])
    return ready


def _run(lanes: Lanes, state: State, lane: int, ready: int) -> int:
    """Run the next instruction of a lane on its group; its end."""
    group = lanes.group[lane]
    number = lanes.offset[lane] + state.done[lane]
    start = max(state.clock[group], ready)
    end = start + lanes.duration[lane]
    state.starts[number] = start
    state.ends[number] = end
    state.clock[group] = end
    state.done[lane] += 1
    return end


def _put(lanes: Lanes, state: State, group: int, manner: Manner) -> None:
    """Put the earliest possible start of a group into the tree."""
    now = state.clock[group]
    best = NEVER
    for index in range(lanes.member_first[group], lanes.member_first[group + 1]):
        lane = lanes.members[index]
        if state.ready[lane] < best and _has_room(lanes, state, lane, manner):
            best = max(now, state.ready[lane])
            if best == now:
                break
    node = len(state.tree) // 2 + group
    state.tree[node] = best
    while node > 1:
        node >>= 1
        state.tree[node] = min(state.tree[2 * node], state.tree[2 * node + 1])


def _first_group(state: State) -> int:
    node = 1
    while node < len(state.tree) // 2:
        node *= 2
        if state.tree[node] > state.tree[node + 1]:
            node += 1
    return node - len(state.tree) // 2


def _least_key(lanes: Lanes, state: State, group: int, keys: Row, manner: Manner) -> int:
    """The lane with the least key of those that can start soon enough; of equal keys the first member."""
    latest = state.tree[1] + manner.wait
    best, best_key = -1, NEVER
    for index in range(lanes.member_first[group], lanes.member_first[group + 1]):
        lane = lanes.members[index]
        if state.ready[lane] <= latest and _has_room(lanes, state, lane, manner):
            key = keys[lanes.offset[lane] + state.done[lane]]
            if key < best_key:
                best, best_key = lane, key
    return best


def retime(lanes: Lanes, order: Row, cutoff: int, state: State) -> int:
    """The step of an order; -1 where it cannot go on, or takes longer than ``cutoff``."""
    _begin(lanes, state)
    span, ran, moved = 0, 0, True
    while moved:
        moved = False
        for group in range(len(lanes.limit)):
            place = state.following[group]
            while place < lanes.first[group + 1]:
                lane = order[place]
                ready = _ready_at(lanes, state, lane)
                if ready == NEVER:
                    break
                number = lanes.offset[lane] + state.done[lane]
                state.places[number] = place
                state.numbers[place] = number
                span = max(span, _run(lanes, state, lane, ready))
                if span > cutoff:
                    return -1
                place += 1
                ran += 1
                moved = True
            state.following[group] = place
    return span if ran == len(order) else -1


def fits(lanes: Lanes, order: Row, group: int) -> bool:
    """Whether a stream stays within its group's limit."""
    used = 0
    for place in range(lanes.first[group], lanes.first[group + 1]):
        used += lanes.takes[order[place]]
        if used > lanes.limit[group]:
            return False
        used -= lanes.frees[order[place]]
    return True


def walk(lanes: Lanes, order: MutableRow, best: MutableRow, states: tuple[State, State], plan: Walk) -> int:
    """``order``: where to start; ``best`` becomes the best order met; its step."""
    now, trial = states
    span = retime(lanes, order, NEVER, now)
    least, random = span, plan.seed
    length = _critical_path(lanes, order, now, random, plan.path)
    for number in range(plan.moves):
        if least <= plan.floor:
            break
        random = _next(random)
        allowance = ((plan.heat + 1) * (plan.moves - number) * (random >> 16 & 1023) // plan.moves) >> 10
        random, moved = _move(lanes, order, plan, length, random)
        found = retime(lanes, order, span + allowance, trial) if moved > 0 else -1
        if found < 0:
            _take_back(order, plan, abs(moved))
            continue
        now, trial, span = trial, now, found
        if span < least:
            least = span
            for place in range(len(order)):
                best[place] = order[place]
        length = _critical_path(lanes, order, now, random, plan.path)
    return least


def _next(random: int) -> int:
    """A linear congruential generator; its low bits are poor."""
    return (random * 1103515245 + 12345) & 0x7FFFFFFF


def _move(lanes: Lanes, order: MutableRow, plan: Walk, length: int, random: int) -> tuple[int, int]:
    """Move one to three instructions of the path; the random number, and how many, negative where memory is short."""
    random = _next(random)
    times, moved = 1 + (random >> 16) % _MOST_AT_ONCE, 0
    for _ in range(times):
        random = _next(random)
        source = plan.path[(random >> 8) % length]
        random = _next(random)
        by = (random >> 16) % (2 * _FURTHEST) - _FURTHEST
        target = source + (by if by < 0 else by + 1)
        group = lanes.group[order[source]]
        if lanes.first[group] <= target < lanes.first[group + 1]:
            _shift(order, source, target)
            plan.undo[2 * moved] = source
            plan.undo[2 * moved + 1] = target
            moved += 1
            if not fits(lanes, order, group):
                return random, -moved
    return random, moved


def _take_back(order: MutableRow, plan: Walk, moved: int) -> None:
    for index in range(moved - 1, -1, -1):
        _shift(order, plan.undo[2 * index + 1], plan.undo[2 * index])


def _shift(order: MutableRow, source: int, target: int) -> None:
    """Take the lane at one place and put it at another; those between move up."""
    lane = order[source]
    step = 1 if target > source else -1
    for place in range(source, target, step):
        order[place] = order[place + step]
    order[target] = lane


def _critical_path(lanes: Lanes, order: Row, state: State, random: int, path: MutableRow) -> int:
    """Places from the step's end back to time 0, each a reason of the one before; how many."""
    place, last = 0, 0
    for group in range(len(lanes.limit)):
        end = state.ends[state.numbers[lanes.first[group + 1] - 1]]
        if end > last:
            place, last = lanes.first[group + 1] - 1, end
    length = 0
    while place >= 0:
        path[length] = place
        length += 1
        random = _next(random)
        place = _reason(lanes, order, state, place, random)
    return length


def _reason(lanes: Lanes, order: Row, state: State, place: int, random: int) -> int:
    """A place whose instruction ends when this one can start; -1 for none. Of several a random one."""
    lane = order[place]
    start = state.starts[state.numbers[place]]
    number = state.numbers[place] - lanes.offset[lane]
    if start == 0:
        return -1
    before = place > lanes.first[lanes.group[lane]] and state.ends[state.numbers[place - 1]] == start
    if before and random >> 20 & 1:
        return place - 1
    other = lanes.neighbour[lane]
    if other >= 0 and state.ends[lanes.offset[other] + number] + lanes.delay[lane] == start:
        return state.places[lanes.offset[other] + number]
    own = lanes.own[lane]
    if own >= 0 and state.ends[lanes.offset[own] + number] == start:
        return state.places[lanes.offset[own] + number]
    return place - 1
