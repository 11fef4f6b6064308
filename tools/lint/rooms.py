"""The rooms of the tree and what they use, from the BUILD files: a house is a top-level folder, a room a folder in it.

The folders below a room count for the room. What only tests use is left out.
"""

import ast
import collections
import itertools

from targets import rules_of

_TESTS = {"testing", "testdata", "peer", "failures", "fuzz"}
_DEPENDENCIES = ("deps", "actual", "library")


class CannotDraw(Exception):
    """Says in one line why the tree cannot be drawn."""


def room_of(package):
    """The room of a package, as a path of one or two folders, or None if only tests use the package."""
    parts = [part for part in package.split("/") if part]
    if not parts or _TESTS & set(parts):
        return None
    return "/".join([part for part in parts if part != "internal"][:2])


def house_of(room):
    return room.split("/")[0]


def _labels(value):
    """The labels of an expression, without the conditions of a select."""
    if isinstance(value, ast.Dict):
        return set().union(*map(_labels, value.values))
    if isinstance(value, ast.Constant):
        return {value.value} if str(value.value).startswith("//") else set()
    return set().union(*map(_labels, ast.iter_child_nodes(value)))


def _targets(text):
    """The labels that each target of a BUILD file uses, other than tests and what is only for tests."""
    for kind, keywords in rules_of(text):
        if kind.endswith("_test") or "name" not in keywords or "testonly" in keywords:
            continue
        yield set().union(*(_labels(keywords[name]) for name in _DEPENDENCIES if name in keywords))


def rooms_and_uses(build_files):
    """{room: the rooms that it uses}, from {path: text} of the BUILD files."""
    uses = {}
    for path, text in sorted(build_files.items()):
        if room := room_of(path.rpartition("/")[0]):
            targets = _targets(text)
            used = {room_of(label[2:].split(":")[0]) for labels in targets for label in labels}
            uses.setdefault(room, set()).update(used - {room, None})
    return {room: used & set(uses) for room, used in uses.items()}


def _reach(graph, node, seen=()):
    found, waiting = set(), [node]
    while waiting:
        for other in graph.get(waiting.pop(), ()):
            if other not in found:
                found.add(other)
                waiting.append(other)
    return found


def _contracted(uses, split):
    """The graph of houses; the rooms of the folders in `split` are houses themselves."""
    name = lambda room: room if house_of(room) in split else house_of(room)
    graph = collections.defaultdict(set)
    for room, used in uses.items():
        graph[name(room)].update({name(other) for other in used} - {name(room)})
    return dict(graph)


def _is_acyclic(graph):
    return not any(node in _reach(graph, node) for node in graph)


def folders_to_split(uses):
    """The fewest top-level folders that must be drawn as one house per room, so that the houses can stand in rows."""
    folders = sorted({house_of(room) for room in uses})
    for count in range(len(folders) + 1):
        for split in itertools.combinations(folders, count):
            if _is_acyclic(_contracted(uses, split)):
                return set(split)
    raise CannotDraw("the rooms of the BUILD files use each other in a circle")


class House:
    def __init__(self, name, rooms):
        self.name = name
        self.rooms = rooms  # its rows of rooms, from above; a room is its full path
        self.own = set()  # the houses that it uses, after the arrows that can be left out
        self.of_room = {}  # {room: the houses that only this room uses}


def _rows_inside(rooms, uses):
    """The rooms in rows: each stands above the rooms that it uses, as low as it can."""
    inside = {room: uses[room] & set(rooms) for room in rooms}
    # Rooms that use each other stand in one row.
    reach = {room: _reach(inside, room) for room in rooms}
    depth = {}

    def depth_of(room):
        if room not in depth:
            below = [other for other in reach[room] if room not in reach[other]]
            depth[room] = 1 + max(map(depth_of, below), default=-1)
        return depth[room]

    rows = collections.defaultdict(list)
    for room in rooms:
        rows[depth_of(room)].append(room)
    return [sorted(rows[row]) for row in sorted(rows, reverse=True)]


def houses_of(uses):
    """The houses and the arrows between them."""
    split = folders_to_split(uses)
    name = lambda room: room if house_of(room) in split else house_of(room)
    members = collections.defaultdict(list)
    for room in sorted(uses):
        members[name(room)].append(room)
    direct = {room: {name(other) for other in used} - {name(room)} for room, used in uses.items()}
    houses = {}
    for house, rooms in members.items():
        inner = [room for room in rooms if room != house]
        houses[house] = House(house, _rows_inside(inner, uses))
        if house in rooms:
            below = {room for room in _reach(uses, house) if room in inner} | {house}
        else:
            below = set(rooms)
        houses[house].own = set().union(*(direct[room] for room in below))
        houses[house].of_room = {room: direct[room] for room in inner if room not in below}
    graph = {house.name: house.own for house in houses.values()}
    reach = {house: _reach(graph, house) for house in graph}
    implied = lambda targets: set().union(*(reach[target] for target in targets)) if targets else set()
    for house in houses.values():
        house.of_room = {
            room: targets - house.own - implied(targets | house.own)
            for room, targets in house.of_room.items()
            if targets - house.own - implied(targets | house.own)
        }
    for house in houses.values():
        house.own = house.own - implied(house.own)
    return houses
