"""Derives from the tables of docs/performance_notes.md the costs of more ranks than were measured: forming, and its watch."""

import figures
import plot

PAGE = "docs/performance_notes.md"
MANY = 10_000
# A rank's line in the list of comm/rendezvous/roster.cc: token, process, its start, host, backends. And the text that the list has once
# for each host: name, boot, namespaces.
LINE = len("0123456789abcdef 1234567 1234567890 1234 0\n")
PLACE = len("105:0|a-host-of-a-cluster|0|0|01234567-89ab-cdef-0123-456789abcdef|pid:[4026531836]|net:[4026531840]")


def _in_words(seconds):
    return plot.in_words(seconds, "s")


def _line_through(rows, column, place=0):
    """A figure at the most measured ranks, and at MANY: on the line through the last two rows."""
    (few, less), (many, more) = ((int(r["ranks"]), figures.value_of(r[column].split(", ")[place])) for r in rows[-2:])
    return more, more + max(0, more - less) / (many - few) * (MANY - many)


def rows(text, ranks_of_host, links):
    """Rows of a table: what, at the most ranks that were measured, at MANY. `links`: {name: bytes a second}."""
    tables = [rows for rows in figures.tables(text) if len(rows) > 1]
    forming = next((rows for rows in tables if "processor time of a rank" in rows[0]), None)
    watching = next((rows for rows in tables if any("death" in column for column in rows[0])), None)
    if not (forming and watching):
        raise figures.Missing(f"{PAGE} lacks the tables of many ranks: run ./bazelw run //comm/testing:forming_table")
    counts = int(forming[-1]["ranks"]), MANY
    lists = [count * (LINE + PLACE / ranks_of_host) for count in counts]
    sent = [count * size for count, size in zip(counts, lists)]
    yield "", *(f"{count:,} ranks" for count in counts)
    yield "processor time of a rank to form a group", *map(
        _in_words, _line_through(forming, "processor time of a rank")
    )
    yield "list of all ranks", *(f"{size / 1e3:.0f} kB" for size in lists)
    yield "sent by the store's host", *(f"{size / 1e6:,.0f} MB" for size in sent)
    for link, rate in links.items():
        yield f"which takes at {link}", *(_in_words(size / rate) for size in sent)
    column = next(column for column in forming[0] if column.startswith("descriptors: "))
    for place, kind in enumerate(column.partition(": ")[2].split(", ")):
        yield f"descriptors of {kind}", *(f"{count:,.0f}" for count in _line_through(forming, column, place))
    for column in (column for column in watching[0] if ": half" in column):
        whose = column.partition(":")[0].removesuffix(" death")
        yield f"until all ranks know of {whose} death", *map(_in_words, _line_through(watching, column, 1))
