"""Collectives between ranks that are numbers: what each sends. For scaling_sharded_test."""

import collections
import itertools

from scaling_sharded import HOST


class Sent:
    """Bytes and messages from rank to rank."""

    def __init__(self):
        self.bytes, self.messages = collections.Counter(), collections.Counter()

    def send(self, rank, to, count):
        self.bytes[rank, to] += count
        self.messages[rank] += 1

    def of_rank(self, rank):
        return sum(count for (sender, _), count in self.bytes.items() if sender == rank)

    def to_rank(self, rank):
        return sum(count for (_, receiver), count in self.bytes.items() if receiver == rank)

    def of_host(self, host):
        return sum(c for (a, b), c in self.bytes.items() if a // HOST == host and b // HOST != host)

    def to_host(self, host):
        return sum(c for (a, b), c in self.bytes.items() if a // HOST != host and b // HOST == host)


def host_gather(part, ranks):
    """comm/hierarchical/internal/gather_exchange.cc with one piece and `part` bytes of each rank, host by host."""
    sent, has = Sent(), [{rank} for rank in range(ranks)]
    for rank, other in itertools.permutations(range(ranks), 2):
        if other % HOST == rank % HOST:
            sent.send(rank, other, part)
            has[other].add(rank)
    hosts = [range(first, min(first + HOST, ranks)) for first in range(0, ranks, HOST)]
    for on_host in hosts:  # over shm
        assert set().union(*(has[rank] for rank in on_host)) == set(range(ranks)), "a host lacks a part"
    return sent


class SumTree:
    """comm/tree_sum/sum_tree.cc."""

    def __init__(self, leaves):
        self.leaves = leaves

    def adds(self, left, right):
        p, others = left[1] - left[0], right[1] - right[0]
        if p & (p - 1) or left[0] % (2 * p) or left[1] != right[0]:
            return False
        return others == p or (others < p and right[1] == self.leaves)

    def push(self, stack, node):
        stack.append(node)
        while len(stack) > 1 and self.adds(*stack[-2:]):
            _, end = stack.pop()
            stack[-1] = (stack[-1][0], end)

    def cover(self, begin, end):
        stack = []
        for leaf in range(begin, end):
            self.push(stack, (leaf, leaf + 1))
        return stack


def tree_scatter(slices, leaves):
    """comm/tree_sum/tree_scatter.cc, where the backend does not add: what is sent of `leaves` leaves, and the nodes of the sum.
    `slices`: the bytes of each rank's slice."""
    ranks, tree, sent, nodes, calls = len(slices), SumTree(leaves), Sent(), [], 0
    for begin in range(0, leaves, ranks):
        for node in tree.cover(begin, min(begin + ranks, leaves)):
            calls += 1
            for rank in range(ranks):
                brings = node[0] <= begin + rank < node[1]
                for other in set(range(ranks)) - {rank}:
                    sent.send(rank, other, slices[other] if brings else 0)
            tree.push(nodes, node)
    return sent, nodes, calls


def host_sums(slices, leaves):
    """comm/hierarchical/internal/host_exchange.cc with one piece, for tree_scatter.cc: what is sent, and the nodes of the sum."""
    ranks, tree, sent, nodes = len(slices), SumTree(leaves), Sent(), []
    for begin in range(0, leaves, ranks):
        for node in tree.cover(begin, min(begin + ranks, leaves)):
            addends = []
            for first in range(0, ranks, HOST):
                on_host = tree.cover(max(node[0], begin + first), min(node[1], begin + first + HOST))
                addends += on_host
                for rank, other in itertools.product(range(first, first + HOST), range(ranks)):
                    if other % HOST == rank % HOST and other != rank:
                        for _ in on_host:
                            sent.send(rank, other, slices[other])
            stack = []
            for addend in addends:
                tree.push(stack, addend)
            assert stack == [node], "the hosts' sums are not the node's"
            tree.push(nodes, node)
    return sent, nodes


def columns(size, ranks):
    """The phase "across" of comm/hierarchical/internal/pipeline.cc with more than two hosts."""
    sent, hosts = Sent(), ranks // HOST
    for rank in range(ranks):
        for host in set(range(hosts)) - {rank // HOST}:
            for _ in ("the share that the other rank adds", "the sum of this rank's share"):
                sent.send(rank, host * HOST + rank % HOST, size / HOST / hosts)
    return sent


def pages(layers, whole_units):
    """fsdp/internal/paged_memory.cc in a step: how often each unit is gathered. Units are the embedding, layers, norm and head."""
    names = ["embedding", *(f"layer {i}" for i in range(layers)), "norm", "head"]
    present, gathers = [], collections.Counter()

    def need(name):
        if name in present:
            present.remove(name)
        else:
            while len(present) >= whole_units:
                present.pop(0)
            gathers[name] += 1
        present.append(name)

    for name in names:
        need(name)
    for name in reversed(names[1:]):  # the embedding's backward reads no weight
        need(name)
        present.remove(name)  # EndUnit()
    return [gathers[name] for name in names]


def share_tensors(tensors):
    """ShareTensors() of elastic/internal/shards.cc, with the elements of each rank: what its all-to-all sends, or None, and its all-gather, and
    the number of elements in the buffers of each rank."""
    ranks, everything = range(len(tensors)), list(itertools.chain(*tensors))
    begins = [sum(map(len, tensors[:rank])) for rank in ranks]
    most, equal = max(map(len, tensors)), (len(everything) + len(tensors) - 1) // len(tensors)
    part, sent = most, None
    own = [[*mine, *[None] * (most - len(mine))] for mine in tensors]
    if most > 2 * equal:
        part, sent, own = equal, Sent(), [[] for _ in ranks]
        for source, to in itertools.product(ranks, ranks):
            first = max(begins[source], to * part)
            elements = everything[first : max(first, min(begins[source] + len(tensors[source]), (to + 1) * part))]
            own[to] += elements
            if source != to:
                sent.send(source, to, len(elements))
        for mine in own:
            mine += [None] * (part - len(mine))
    gathered = list(itertools.chain(*own))
    for other in ranks:
        begin = begins[other] if sent else other * part
        assert gathered[begin : begin + len(tensors[other])] == tensors[other], "a rank has not what the other owns"
    return (
        sent,
        host_gather(part, len(tensors)),
        [len(own[rank]) + len(gathered) + len(tensors[rank]) for rank in ranks],
    )
