"""Draws docs/architecture.svg from the BUILD files: the folders as houses, their sub-folders as rooms, arrows to what they use.

Houses stand in rows, so that every arrow points down. An arrow is left out if others lead to the same house. It starts at
a room if only that room, and not the rest of its house, uses the other house. Inside a house, a room uses only rooms that
stand lower. A top-level folder whose rooms belong into different rows, such as tools, is drawn as one house per room. The
words in a house are those of docs/architecture.md's list of folders.
"""

import collections
import html
import itertools
import re

from rooms import CannotDraw, House, house_of, houses_of, room_of, rooms_and_uses

PICTURE = "docs/architecture.svg"
PAGE = "docs/architecture.md"

_GROUND = "third_party"


def captions(page):
    """{top-level folder or room: its words in the page's list of folders, up to the first colon, semicolon or parenthesis}."""
    block = re.search(r"^## Folders\n+```\n(.*?)^```$", page, re.M | re.S)
    if not block:
        raise CannotDraw(f'{PAGE}: has no block of folders under "## Folders"')
    words, folder, last = {}, "", []
    for line in block.group(1).splitlines():
        match = re.match(r"( *)((?:[\w.]+/ ?)+)(?:  +(.*))?$", line)
        if match and (not match.group(1) or match.group(1) == "  "):
            names = match.group(2).replace("/", "").split()
            folder = folder if match.group(1) else names[0]
            last = [f"{folder}/{name}" for name in names] if match.group(1) else names
            words.update({name: match.group(3) or "" for name in last})
        else:
            for name in last:
                words[name] = f"{words[name]} {line.strip()}".strip()
    return {name: re.split(r"[:;(]", text)[0].strip() for name, text in words.items()}


def missing_folders(files, page):
    """A problem for each room that the page's list of folders does not name."""
    named = captions(page)
    rooms = {room_of(name[: -len("/BUILD")]) for name in files if name.endswith("/BUILD")} - {None}
    return [f"{PAGE}: its list of folders does not name {room}/" for room in sorted(rooms - set(named))]


# The layout.

_LANE, _PADDING, _GAP = 34, 16, 22
_TITLE, _TEXT, _ROOM = 17, 12.5, 12.5  # font sizes
_ROOM_HEIGHT, _ROOM_GAP, _ROW_GAP = 26, 8, 36
_MARGIN = 26
_WIDE = 330  # a house is this wide before its rows of rooms are broken
_LEAST_SHEET = 1010


def _width(words, size):
    """Not less than any usual font without serifs takes."""
    return sum(0.33 if c in "ijltf.,:;|()' " else 0.92 if c in "mwMW@" else 0.62 for c in words) * size


def _room_label(room):
    return room.split("/", 1)[1]


def _room_width(room):
    return _width(_room_label(room), _ROOM) + 18


def _row_width(rows):
    """The width of the widest row of rooms."""
    return max([sum(map(_room_width, row)) + _ROOM_GAP * (len(row) - 1) for row in rows] + [0])


def _rows_without(rows, others):
    return [[room for room in row if room not in others] for row in rows]


def rows_of_houses(houses):
    """[[house]]: each row stands below all houses that use it."""
    users = collections.defaultdict(set)
    for house in houses.values():
        for target in house.own.union(*house.of_room.values()):
            users[target].add(house.name)
    row = {}

    def row_of(name):
        if name not in row:
            row[name] = 1 + max(map(row_of, users[name]), default=-1)
        return row[name]

    rows = collections.defaultdict(list)
    for name in sorted(houses):
        rows[row_of(name)].append(name)
    return [rows[index] for index in sorted(rows)]


class Lane:
    """One arrow, down from a house or one of its rooms; its pieces in the rows between are places for it to pass."""

    def __init__(self, source, room, target):
        self.source, self.room, self.target = source, room, target

    def __repr__(self):
        return f"{self.room or self.source}->{self.target}"


def _lanes(houses, buses):
    in_bus = {name for bus in buses for name in bus}
    for house in houses.values():
        if house.name not in in_bus:
            for target in sorted(house.own):
                yield Lane(house.name, None, target)
        for room, targets in sorted(house.of_room.items()):
            for target in sorted(targets):
                yield Lane(house.name, room, target)


def _crossings(order_above, order_below, pieces):
    """How many pairs of pieces [(item above, item below)] cross between two rows."""
    above = {item: index for index, item in enumerate(order_above)}
    below = {item: index for index, item in enumerate(order_below)}
    ends = sorted((above[a], below[b]) for a, b in pieces)
    return sum(1 for x, y in itertools.combinations(ends, 2) if x[0] < y[0] and x[1] > y[1])


def _ends(lane, row):
    """The ends of the pieces of a lane that passes a row."""
    return [(lane, row - 1, "bottom"), (lane, row, "top")]


class Layout:
    def __init__(self, houses, page_words):
        self.houses, self.words = houses, page_words
        self.rows = rows_of_houses(houses)
        self.row = {name: index for index, names in enumerate(self.rows) for name in names}
        self.bus = self._bus()
        self.lanes = list(_lanes(houses, [self.bus]))
        self.rooms_with_lanes = {lane.room for lane in self.lanes if lane.room}
        self._order()
        self._place()

    def _bus(self):
        """The houses of the first row, if all use the same houses: their arrows start together."""
        first = self.rows[0]
        same = len({frozenset(self.houses[name].own) for name in first}) == 1
        plain = not any(self.houses[name].of_room for name in first)
        deep = any(self.row[target] != 1 for target in self.houses[first[0]].own)
        return first if same and plain and not deep else []

    def _pieces(self, index):
        """Returns what is above and below of each arrow between the rows index and index + 1."""
        pieces = []
        for lane in self.lanes:
            top, bottom = self.row[lane.source], self.row[lane.target]
            if top <= index < bottom:
                pieces.append((lane.source if index == top else lane, lane.target if index + 1 == bottom else lane))
        return pieces

    def _order(self):
        orders = [list(names) for names in self.rows]
        for lane in self.lanes:
            for index in range(self.row[lane.source] + 1, self.row[lane.target]):
                orders[index].append(lane)
        total = lambda: sum(
            _crossings(orders[index], orders[index + 1], self._pieces(index)) for index in range(len(orders) - 1)
        )

        def sort_by_neighbours(index, other, pairs):
            place = {item: position for position, item in enumerate(orders[other])}
            mean = {}
            for item in orders[index]:
                near = [place[b] for a, b in pairs if a == item]
                mean[item] = sum(near) / len(near) if near else orders[index].index(item)
            orders[index].sort(key=lambda item: mean[item])

        best, best_orders = total(), [list(order) for order in orders]
        first = 1 if self.bus else 0
        for start in itertools.islice(itertools.permutations(orders[first]), 720):
            orders[first] = list(start)
            for index in range(first + 1, len(orders)):
                sort_by_neighbours(index, index - 1, [(b, a) for a, b in self._pieces(index - 1)])
            if (found := total()) < best or (
                found == best and self._left_heavy(orders) > self._left_heavy(best_orders)
            ):
                best, best_orders = found, [list(order) for order in orders]
        self.orders, self.crossings = best_orders, best

    def _left_heavy(self, orders):
        """Houses with the most rooms stand on the left, if nothing else decides."""
        return sum(
            len(order) * (len(order) - position) * sum(map(len, self.houses[item].rooms))
            for order in orders
            for position, item in enumerate(order)
            if not isinstance(item, Lane)
        )

    def least_width(self, name):
        house = self.houses[name]
        free = _rows_without(house.rooms, self.rooms_with_lanes)
        rooms = max([_room_width(room) for row in free for room in row] + [min(_row_width(free), _WIDE)])
        words = self.words.get(name, "")
        longest = max([_width(line, _TEXT) for line in _wrapped(words, 150)] + [0])
        return 2 * _PADDING + max(rooms, _width(name, _TITLE) * 1.08, longest)

    def _constraints(self, straight):
        """(a, b, distance): b stands at least this far to the right of a.

        Names are (house, side), and (lane, row, end): the ends of the piece of a lane that leads down from a row.
        """
        for index, order in enumerate(self.orders):
            for item in order:
                if not isinstance(item, Lane):
                    yield (item, "left"), (item, "right"), self.least_width(item)
            for a, b in zip(order, order[1:]):
                lefts = _ends(a, index) if isinstance(a, Lane) else [(a, "right")]
                rights = _ends(b, index) if isinstance(b, Lane) else [(b, "left")]
                for left, right in itertools.product(lefts, rights):
                    yield left, right, _GAP
        for index in range(len(self.orders) - 1):
            between = [lane for lane in self.lanes if self.row[lane.source] <= index < self.row[lane.target]]
            above = {item: position for position, item in enumerate(self.orders[index])}
            below = {item: position for position, item in enumerate(self.orders[index + 1])}
            places = [(above[a], below[b], lane) for (a, b), lane in zip(self._pieces(index), between)]
            for end, key in (("top", lambda at: at[:2]), ("bottom", lambda at: (at[1], at[0]))):
                ordered = [lane for _, _, lane in sorted(places, key=key)]
                for a, b in zip(ordered, ordered[1:]):
                    rooms = (_room_width(a.room) + _room_width(b.room)) / 2 + _ROOM_GAP if a.room and b.room else 0
                    yield (a, index, end), (b, index, end), max(_LANE, rooms)
        for lane in self.lanes:
            inset = _PADDING + (_room_width(lane.room) / 2 if lane.room else 8)
            if lane.room:  # its way down is on the right of the rooms without arrows
                free = _rows_without(self.houses[lane.source].rooms, self.rooms_with_lanes)
                yield (lane.source, "left"), (lane, self.row[lane.source], "top"), inset + _row_width(free) + _GAP
            first, last = (lane, self.row[lane.source], "top"), (lane, self.row[lane.target] - 1, "bottom")
            for house, end, inset in ((lane.source, first, inset), (lane.target, last, _PADDING + 8)):
                yield (house, "left"), end, inset
                yield end, (house, "right"), inset
            ends = [(lane, row, end) for row in range(first[1], last[1] + 1) for end in ("top", "bottom")]
            for a, b in zip(ends, ends[1:]) if straight else ():
                yield a, b, 0
                yield b, a, 0

    def _solve(self, straight):
        """The places in the middle between the leftmost and the rightmost, or None if the constraints contradict each other.

        The mean of two solutions is one too: each constraint is a least distance.
        """
        constraints = list(self._constraints(straight))
        names = {name for a, b, _ in constraints for name in (a, b)}
        left = dict.fromkeys(names, 0.0)
        if not self._relax(
            constraints, lambda a, b, distance: left[a] + distance > left[b] + 1e-6 and (b, left[a] + distance), left
        ):
            return None
        self.width = max(_LEAST_SHEET - 2 * _MARGIN, *left.values())
        right = dict.fromkeys(names, self.width)
        self._relax(
            constraints,
            lambda a, b, distance: right[b] - distance < right[a] - 1e-6 and (a, right[b] - distance),
            right,
        )
        return {name: (left[name] + right[name]) / 2 for name in names}

    @staticmethod
    def _relax(constraints, moved, place):
        for _ in range(len(constraints) + 2):
            moves = 0
            for constraint in constraints:
                if move := moved(*constraint):
                    place[move[0]] = move[1]
                    moves += 1
            if not moves:
                return True
        return False

    def _place(self):
        place = self._solve(straight=True) or self._solve(straight=False)
        if place is None:
            raise CannotDraw(f"{PICTURE}: the arrows between the houses cannot be placed: {self.lanes}")
        self.place = place
        right = self.width
        self.span = {}
        for index, order in enumerate(self.orders):
            for position, item in enumerate(order):
                if isinstance(item, Lane):
                    continue
                left, end = 0, right
                if position:
                    before = order[position - 1]
                    left = _GAP + (
                        max(place[end] for end in _ends(before, index))
                        if isinstance(before, Lane)
                        else self.span[before][1]
                    )
                if position + 1 < len(order):
                    after = order[position + 1]
                    end = -_GAP + (
                        min(place[end] for end in _ends(after, index))
                        if isinstance(after, Lane)
                        else place[after, "left"]
                    )
                self.span[item] = (left, max(end, place[item, "right"]))
        if self.bus:
            self._share(self.orders[0], right)

    def _share(self, order, right):
        """The houses of a row that only arrows from a bus reach share the width as their contents need it."""
        need = [self.least_width(item) + 30 * sum(map(len, self.houses[item].rooms)) for item in order]
        space, x = right - _GAP * (len(order) - 1), 0
        for item, of in zip(order, need):
            self.span[item] = (x, x + of / sum(need) * space)
            x = self.span[item][1] + _GAP


def _wrapped(words, width):
    lines, line = [], ""
    for word in words.split():
        if line and _width(f"{line} {word}", _TEXT) > width:
            lines.append(line)
            line = word
        else:
            line = f"{line} {word}".strip()
    return lines + [line] if line else lines


def _flow(rooms, width):
    """The rooms in lines of this width."""
    lines, line, used = [], [], 0
    for room in rooms:
        need = _room_width(room) + (_ROOM_GAP if line else 0)
        if line and used + need > width:
            lines.append(line)
            line, used, need = [], 0, _room_width(room)
        line.append(room)
        used += need
    return lines + [line] if line else lines


# The drawing. One light sheet, so that it looks the same on a dark page.

_SHEET, _LINE, _INK, _SOFT = "#fbfaf7", "#d8d4ca", "#22262b", "#5b636d"
_ARROW = "#6b7480"
_FILLS = ("#fdebd5", "#e2eefc", "#e4f4e3", "#efe6fb", "#fbf1c4", "#e3e8ec")  # one a row
_FONT = "system-ui, -apple-system, 'Segoe UI', 'Helvetica Neue', 'DejaVu Sans', sans-serif"


def _text(x, y, words, size, colour=_INK, weight="normal", anchor="start"):
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="{colour}" font-weight="{weight}" text-anchor="{anchor}">'
        f"{html.escape(words)}</text>"
    )


def _box(x, y, width, height, fill, stroke, radius):
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" rx="{radius}" fill="{fill}"'
        f' stroke="{stroke}"/>'
    )


def _arrow(points):
    head = points[-1]
    path = " ".join(
        f"{'L' if index else 'M'}{x:.1f} {y:.1f}" for index, (x, y) in enumerate(points[:-1] + [(head[0], head[1] - 6)])
    )
    x, y = head
    return (
        f'<path d="{path}" fill="none" stroke="{_ARROW}" stroke-width="1.6"/>'
        f'<path d="M{x - 4.5:.1f} {y - 8:.1f} L{x:.1f} {y:.1f} L{x + 4.5:.1f} {y - 8:.1f} Z" fill="{_ARROW}"/>'
    )


class _House:
    """A house's words and rooms, laid out for its width."""

    def __init__(self, house, words, width, lanes):
        self.house, self.width = house, width
        self.at = collections.defaultdict(list)  # {room: where its arrows go down}
        for lane, x in lanes:
            if lane.room:
                self.at[lane.room].append(x)
        inner = width - 2 * _PADDING
        # Each line is the rooms at its left, and those that stand over their arrows.
        self.lines_of_rooms = []
        for row, free in zip(house.rooms, _rows_without(house.rooms, self.at)):
            flow = _flow(free, inner) or [[]]
            self.lines_of_rooms += [
                (flow[0], [room for room in row if room in self.at]),
                *((line, []) for line in flow[1:]),
            ]
        # The rooms stand beside the words if there is space for both, and else below.
        wide = _row_width([line for line, _ in self.lines_of_rooms])
        text = max([_width(house.name, _TITLE) * 1.08, 104, *(_width(word, _TEXT) for word in words.split())])
        self.beside = len(self.lines_of_rooms) > 1 and not self.at and text + 2 * _PADDING + wide <= inner
        self.rooms_left = text + 2.5 * _PADDING
        self.words = _wrapped(words, text if self.beside else inner)
        rooms = len(self.lines_of_rooms) * (_ROOM_HEIGHT + _ROOM_GAP)
        self.height = 38 + 17 * len(self.words) + (rooms + 4 if rooms and not self.beside else 0)
        if self.beside:
            self.height = max(self.height, rooms + 20)

    def draw(self, x, y, height, fill):
        out = [_box(x, y, self.width, height, fill, "#b9bec5", 9)]
        out.append(_text(x + _PADDING, y + 25, self.house.name, _TITLE, weight="bold"))
        for number, line in enumerate(self.words):
            out.append(_text(x + _PADDING, y + 45 + 17 * number, line, _TEXT, _SOFT))
        for number, (line, with_arrows) in enumerate(self.lines_of_rooms):
            top, left = self._top(y, number), x + (self.rooms_left if self.beside else _PADDING)
            for room in line:
                out += self._room(left, top, _room_width(room), room)
                left += _room_width(room) + _ROOM_GAP
            for room in with_arrows:
                first, last = min(self.at[room]), max(self.at[room])
                width = max(_room_width(room), last - first + 24)
                out += self._room((first + last - width) / 2, top, width, room)
        return out

    def _top(self, y, line):
        """Where a line of rooms begins."""
        return y + (14 if self.beside else 38 + 17 * len(self.words)) + line * (_ROOM_HEIGHT + _ROOM_GAP)

    def arrow_start(self, y, room):
        """The lower edge of a room."""
        line = [room in with_arrows for _, with_arrows in self.lines_of_rooms].index(True)
        return self._top(y, line) + _ROOM_HEIGHT

    def _room(self, x, y, width, room):
        return [
            _box(x, y, width, _ROOM_HEIGHT, "#ffffff", "#c3c8ce", 6),
            _text(x + width / 2, y + 17.5, _room_label(room), _ROOM, anchor="middle"),
        ]


def _ground(houses, words, x, y, width):
    """The row under everything: what all use, and what nothing points to."""
    names = [(_GROUND, []), *((house.name, house.rooms) for house in houses)]
    shares = [3, *(1 for _ in houses)] if houses else [1]
    space, boxes = width - _GAP * (len(names) - 1), []
    for (name, rooms), share in zip(names, shares):
        boxes.append(_House(House(name, rooms), words.get(name, ""), space * share / sum(shares), []))
    height, out = max(box.height for box in boxes), []
    for box in boxes:
        out += box.draw(x, y, height, "#eceae4")
        x += box.width + _GAP
    return out, y + height


def picture(build_files, page):
    """The SVG, from {path: text} of the BUILD files and the text of docs/architecture.md."""
    words = captions(page)
    uses = rooms_and_uses({path: text for path, text in build_files.items() if not path.startswith(f"{_GROUND}/")})
    used = set().union(*uses.values())
    alone = sorted(room for room in uses if not uses[room] and room not in used)
    layout = Layout(houses_of({room: of for room, of in uses.items() if room not in alone}), words)
    for name in layout.houses:
        if not words.get(name):
            raise CannotDraw(f"{PAGE}: its list of folders has no words for {name}/")
    x0, y = _MARGIN, _MARGIN
    boxes, tops, heights = {}, [], []
    for index, order in enumerate(layout.orders):
        names = [item for item in order if not isinstance(item, Lane)]
        for name in names:
            left, right = layout.span[name]
            lanes = [(lane, x0 + layout.place[lane, index, "top"]) for lane in layout.lanes if lane.source == name]
            boxes[name] = _House(layout.houses[name], words[name], right - left, lanes)
        tops.append(y)
        heights.append(max(boxes[name].height for name in names))
        y += heights[-1] + _ROW_GAP
    arrows, drawn = [], []
    if layout.bus:
        line = tops[0] + heights[0] + 16
        middles = [x0 + sum(layout.span[name]) / 2 for name in layout.bus]
        targets = sorted(layout.houses[layout.bus[0]].own, key=lambda name: layout.span[name][0])
        ends = [x0 + sum(layout.span[name]) / 2 for name in targets]
        for x in middles:
            arrows.append(
                f'<path d="M{x:.1f} {tops[0] + heights[0]:.1f} V{line:.1f}" stroke="{_ARROW}" stroke-width="1.6"/>'
            )
        arrows.append(
            f'<path d="M{min(middles + ends):.1f} {line:.1f} H{max(middles + ends):.1f}" stroke="{_ARROW}" stroke-width="1.6"/>'
        )
        arrows += [_arrow([(x, line), (x, tops[1])]) for x in ends]
    for lane in layout.lanes:
        first, last = layout.row[lane.source], layout.row[lane.target]
        start = tops[first] + heights[first]
        if lane.room:
            start = boxes[lane.source].arrow_start(tops[first], lane.room)
        points = [(x0 + layout.place[lane, first, "top"], start)]
        for index in range(first, last):
            # Lanes that are not straight turn at heights of their own.
            turn = tops[index] + heights[index] + 8 + (_ROW_GAP - 20) * layout.lanes.index(lane) / len(layout.lanes)
            for end, y_of_turn in (("top", tops[index] + heights[index]), ("bottom", turn)):
                x = x0 + layout.place[lane, index, end]
                if abs(points[-1][0] - x) > 0.1:
                    points += [(points[-1][0], y_of_turn), (x, y_of_turn)]
        points.append((x0 + layout.place[lane, last - 1, "bottom"], tops[last]))
        arrows.append(_arrow(points))
    for name, index in layout.row.items():
        fill = _FILLS[index % len(_FILLS)]
        drawn += boxes[name].draw(x0 + layout.span[name][0], tops[index], heights[index], fill)
    split = collections.defaultdict(list)
    for room in alone:
        split[house_of(room)].append(room)
    others = [House(name, [[room for room in rooms if "/" in room]]) for name, rooms in sorted(split.items())]
    ground, bottom = _ground(others, words, x0, y - _ROW_GAP + 26, layout.width)
    legend = (
        "An arrow points to a folder that is used, and is left out if other arrows lead there. Inside a folder,"
        " a room uses only rooms below it. Every folder uses third_party.",
    )
    y = bottom + 24
    out = [_text(x0, y + 17 * number, line, 12, _SOFT) for number, line in enumerate(legend)]
    width, height = layout.width + 2 * _MARGIN, y + 17 * len(legend) - 4
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}"'
            f' height="{height:.0f}" font-family="{_FONT}">',
            "<title>Lockstep's folders and what they use</title>",
            f'<rect x="0.5" y="0.5" width="{width - 1:.0f}" height="{height - 1:.0f}" rx="10" fill="{_SHEET}" stroke="{_LINE}"/>',
            *drawn,
            *arrows,
            *ground,
            *out,
            "</svg>",
            "",
        ]
    )
