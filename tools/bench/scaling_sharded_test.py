#!/usr/bin/env python3
"""The counts of scaling_sharded.py are those of simulated collectives, of comm/tree_sum's plan and of fsdp's pages."""

import collections
import itertools
import pathlib
import tempfile
import unittest
import unittest.mock

import scaling
import scaling_sharded
from scaling_sharded import HOST
from scaling_test import measured
import transformer_memory
from transformer_memory import Model, keepers

MODEL = Model("small", "llama", 5, 64, 160, 500, 4, 2)
WORLDS = (2, 3, 4, 8, 16, 32)


class Sent:
    """Bytes and messages from rank to rank."""

    def __init__(self):
        self.bytes, self.messages = collections.Counter(), collections.Counter()

    def send(self, rank, to, count):
        self.bytes[rank, to] += count
        self.messages[rank] += 1

    def of_rank(self, rank):
        return sum(count for (sender, _), count in self.bytes.items() if sender == rank)

    def of_host(self, host):
        return sum(c for (a, b), c in self.bytes.items() if a // HOST == host and b // HOST != host)


def ring(part, ranks):
    """gloo/allgather.cc, with `part` bytes of each rank."""
    sent, halves = Sent(), [{(rank, half) for half in (0, 1)} for rank in range(ranks)]
    for i in range(2 * (ranks - 1)):
        moves = [(rank, ((rank - i // 2) % ranks, i % 2)) for rank in range(ranks)]
        for rank, half in moves:
            assert half in halves[rank], "a rank sends what it does not have"
            sent.send(rank, (rank + 1) % ranks, part / 2)
        for rank, half in moves:
            halves[(rank + 1) % ranks].add(half)
    assert all(len(has) == 2 * ranks for has in halves)
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


def tree(source, ranks):
    """gloo/broadcast.cc: [(round, from, to)]."""
    sends, has, bits = [], {0}, (ranks - 1).bit_length()
    for i in range(bits):
        mask = (1 << bits) - (2 << i)
        for rank in range(ranks):
            if rank & mask or rank >> i & 1 or rank ^ 1 << i >= ranks:
                continue
            assert rank in has, "a rank sends what it does not have"
            has.add(rank ^ 1 << i)
            sends.append((i, (rank + source) % ranks, ((rank ^ 1 << i) + source) % ranks))
    assert has == set(range(ranks))
    return sends


def seconds_of(rests, ranks, of_link):
    """When all ranks have made the broadcasts `rests`, [(source, bytes)], one after the other. A rank sends what it has whole, to each rank
    that has come to the same broadcast, and goes on when it has sent all. Each group of `of_link` ranks sends a byte a second to others.
    """
    trees = [collections.defaultdict(set) for _ in rests]
    for children, (source, _) in zip(trees, rests):
        for _, rank, to in tree(source, ranks):
            children[rank].add(to)
    now, under_way = 0, {}  # {(from, to): bytes left}
    at, has, todo = [-1] * ranks, [True] * ranks, [set() for _ in range(ranks)]
    while True:
        moved = True
        while moved:
            moved = False
            for rank in range(ranks):
                while at[rank] < len(rests) and has[rank] and not todo[rank]:
                    at[rank], moved = at[rank] + 1, True
                    if at[rank] < len(rests):
                        has[rank], todo[rank] = rests[at[rank]][0] == rank, set(trees[at[rank]][rank])
        for rank in range(ranks):
            for to in todo[rank]:
                if has[rank] and at[to] == at[rank]:
                    under_way.setdefault((rank, to), rests[at[rank]][1] if rank // of_link != to // of_link else 0)
        if not under_way:
            assert min(at) == len(rests)
            return now
        users = collections.Counter(rank // of_link for (rank, _), left in under_way.items() if left)
        passed = min(left * max(1, users[rank // of_link]) for (rank, _), left in under_way.items())
        now += passed
        for (rank, to), left in list(under_way.items()):
            under_way[rank, to] = left - (passed / users[rank // of_link] if left else 0)
            if under_way[rank, to] < 1e-9:
                del under_way[rank, to]
                todo[rank].remove(to)
                has[to] = True


class Memory:
    """What a rank has allocated, and the most so far."""

    def __init__(self):
        self.now = self.most = 0

    def new(self, content):
        self.now += len(content)
        self.most = max(self.most, self.now)
        return content


def share_tensors(tensors):
    """ShareTensors() of elastic/internal/shards.cc, with the elements (rank, number) of each rank: what is sent, and each rank's Memory."""
    ranks = range(len(tensors))
    total = sum(map(len, tensors))
    part = min(max(map(len, tensors)), 2 * (total // len(ranks) + 1))
    sent, memories = ring(part, len(ranks)), [Memory() for _ in ranks]
    own = [memory.new([None] * part) for memory in memories]
    everything = [memory.new([None] * part * len(ranks)) for memory in memories]
    flat = [memory.new(list(mine)) if mine else own[rank] for rank, (memory, mine) in enumerate(zip(memories, tensors))]
    for rank in ranks:
        first = min(len(tensors[rank]), part)
        own[rank][:first] = flat[rank][:first]
    for rank in ranks:
        everything[rank][:] = [element for other in ranks for element in own[other]]
    rests = [[None] * len(ranks) for _ in ranks]
    for source in ranks:
        rest = max(len(tensors[source]) - part, 0)
        for rank in ranks:
            rests[rank][source] = flat[rank][part:] if rank == source else memories[rank].new([None] * rest)
        if rest > 0:
            for _, rank, to in tree(source, len(ranks)):
                sent.send(rank, to, rest)
                rests[to][source][:] = rests[rank][source]
    for rank in ranks:
        for other in set(ranks) - {rank}:
            got = everything[rank][other * part : other * part + min(len(tensors[other]), part)]
            if rests[rank][other]:
                got = memories[rank].new(got + rests[rank][other])
                memories[rank].now -= len(got)
            assert got == tensors[other], "a rank has not what the other owns"
    return sent, memories


class CountsTest(unittest.TestCase):
    def check(self, call, sent, ranks):
        for rank in range(ranks):
            self.assertAlmostEqual(sent.of_rank(rank), call.rank)
            self.assertEqual(sent.messages[rank], call.messages)
        for host in range(ranks // HOST):
            self.assertAlmostEqual(sent.of_host(host), call.link)

    def test_an_all_gather_is_a_ring(self):
        for ranks in WORLDS:
            self.check(scaling_sharded.all_gather(960 * ranks, ranks), ring(960, ranks), ranks)

    def test_gradients_are_the_leaves_of_one_node(self):
        for ranks in (2, 4, 8, 16, 32):
            sent, nodes, calls = tree_scatter([960] * ranks, ranks)
            self.assertEqual((nodes, calls), ([(0, ranks)], 1))
            self.check(scaling_sharded.all_to_all(960 * ranks, ranks), sent, ranks)

    def test_each_leaf_is_sent_once_with_any_number_of_ranks_and_virtual_ranks(self):
        for ranks in (2, 3, 4, 8):
            for leaves in (ranks, ranks + 1, 2 * ranks, 3 * ranks + 2, 4 * ranks):
                slices = [100 + 16 * rank for rank in range(ranks)]
                sent, nodes, _ = tree_scatter(slices, leaves)
                self.assertEqual(nodes, [(0, leaves)])
                for rank in range(ranks):
                    of_rank = len(range(rank, leaves, ranks))
                    self.assertEqual(sent.of_rank(rank), of_rank * (sum(slices) - slices[rank]))
                even = tree_scatter([960] * ranks, leaves)[0]
                mean = sum(map(even.of_rank, range(ranks))) / ranks
                call = scaling_sharded.all_to_all(960 * ranks, ranks)
                self.assertAlmostEqual(mean, leaves / ranks * call.rank)

    def test_a_round_that_is_no_node_of_the_tree_needs_more_exchanges(self):
        self.assertEqual([tree_scatter([16] * 3, leaves)[2] for leaves in (3, 4, 6)], [1, 3, 4])
        self.assertEqual([tree_scatter([16] * 4, leaves)[2] for leaves in (4, 8, 16)], [1, 2, 4])

    def test_the_ranks_of_a_host_are_a_node_of_the_tree(self):
        for leaves in (HOST, 3 * HOST, 4 * HOST, 5 * HOST + 3):
            for begin in range(0, leaves - HOST + 1, HOST):
                self.assertEqual(SumTree(leaves).cover(begin, begin + HOST), [(begin, begin + HOST)])
        self.assertEqual(len(SumTree(12).cover(6, 12)), 2)

    def test_an_all_reduce_crosses_each_link_as_hierarchical_sends_it(self):
        for ranks in (32, 64):
            size = 1 << 18  # one piece
            sent, call = columns(size, ranks), scaling_sharded.all_reduce(size, ranks)
            self.check(scaling_sharded.Call(call.rank, call.link, sent.messages[0], 2), sent, ranks)
            pieces = scaling.pieces(size, HOST, ranks // HOST)
            self.assertEqual(call.messages, pieces * sent.messages[0])

    def test_one_host_sends_nothing(self):
        for call in (
            *scaling_sharded.sharded_optimizer(MODEL, HOST),
            *scaling_sharded.paged(MODEL, HOST),
        ):
            self.assertEqual(call.link, 0)

    def test_units_are_gathered_as_pages_are(self):
        self.assertEqual([times for _, times in scaling_sharded.units(MODEL)], pages(MODEL.layers, whole_units=2))
        self.assertEqual(sum(size for size, _ in scaling_sharded.units(MODEL)), scaling_sharded.size_of(MODEL))
        self.assertNotEqual(pages(MODEL.layers, whole_units=1), pages(MODEL.layers, whole_units=2))

    def test_a_step_is_the_sum_of_its_rings_and_exchanges(self):
        ranks, of_host, of_rank, gathered = 16, 0, 0, 0
        for (size, _), gathers in zip(scaling_sharded.units(MODEL), pages(MODEL.layers, whole_units=2)):
            agreement, gather = ring(scaling_sharded.AGREEMENT, ranks), ring(size / ranks, ranks)
            gradients = tree_scatter([size / ranks] * ranks, ranks)[0]
            for sent, times in ((gather, gathers), (gradients, 1), (agreement, gathers + 1)):
                of_host += times * sent.of_host(0)
                of_rank += times * sent.of_rank(0)
            gathered += gathers * gather.of_host(0) + (gathers + 1) * agreement.of_host(0)
        calls = scaling_sharded.paged(MODEL, ranks)
        self.assertAlmostEqual(scaling_sharded.link_bytes(calls) / of_host, 1)
        self.assertAlmostEqual(scaling_sharded.rank_bytes(calls) / of_rank, 1)
        with_virtual = scaling_sharded.link_bytes(scaling_sharded.paged(MODEL, ranks, 3))
        self.assertAlmostEqual(with_virtual / of_host, 3)
        # Two hosts: each sends half of its sum.
        added = scaling_sharded.summed_on_host(MODEL, ranks)
        self.assertAlmostEqual(added / (gathered + scaling_sharded.size_of(MODEL) / 2), 1)

    def test_units_have_all_parameters(self):
        for model in (*scaling_sharded.MODELS, *transformer_memory.MODELS):
            units = model.units()
            self.assertEqual(sum(map(sum, units)), model.parameters())
            self.assertEqual(units.count(max(units, key=len)), model.layers)
            self.assertEqual(sum(max(units, key=len)), model.layer())

    def test_a_share_of_a_sharded_model_is_as_large_as_the_most_that_a_rank_owns(self):
        for piece, ranks in itertools.product((64, 256, 1024), (16, 32, 64)):
            units = MODEL.units()
            cut = [(u, min(piece, n - i)) for u, ns in enumerate(units) for n in ns for i in range(0, n, piece)]
            owned = collections.Counter()
            for (unit, size), (owner, _) in zip(
                cut, keepers([size for _, size in cut], [r // HOST for r in range(ranks)])
            ):
                owned[unit, owner] += size
            with unittest.mock.patch.object(scaling_sharded, "PIECE", piece):
                for u, parameters in enumerate(units):
                    most = 4 * max(owned[u, rank] for rank in range(ranks))
                    share = scaling_sharded.published(parameters, ranks)
                    self.assertLessEqual(share, most)
                    self.assertLessEqual(most, share + 4 * piece)
                    if sum(parameters) < piece:
                        self.assertEqual(most, share)

    def test_a_sharded_model_sends_each_gradient_twice(self):
        ranks, model = 64, scaling_sharded.MODELS[2]
        calls = scaling_sharded.sharded_model(model, ranks)
        exchanges = [scaling_sharded.all_to_all(size, ranks).link for size, _ in scaling_sharded.units(model)]
        gathers = scaling_sharded.link_bytes(calls) - 2 * sum(exchanges)
        plain = scaling_sharded.link_bytes(scaling_sharded.paged(model, ranks)) - sum(exchanges)
        # A layer has 3264 pieces, as they are of 1 MiB: 51 on each rank; embedding and head 1000, 16 on some.
        layers, ends = 80 * 2 * 3264, 2 * 1000
        self.assertAlmostEqual(gathers / plain, (layers + ends * 1024 / 1000) / (layers + ends), places=4)

    def test_virtual_ranks_of_ddp_exchange_parts_and_gather_the_sums(self):
        for ranks in (2, 8, 16):
            first, second = scaling_sharded.ddp_virtual(MODEL, ranks)
            size = scaling_sharded.size_of(MODEL)
            self.check(first, tree_scatter([size / ranks] * ranks, ranks)[0], ranks)
            self.check(second, ring(size / ranks, ranks), ranks)

    def test_a_broadcast_is_a_tree(self):
        for ranks in (*WORLDS, 64):
            call, hosts = scaling_sharded.broadcast(960, ranks), max(1, ranks // HOST)
            for source in range(ranks):
                sent, sends = Sent(), tree(source, ranks)
                for _, rank, to in sends:
                    sent.send(rank, to, 960)
                self.assertEqual(sum(map(sent.of_rank, range(ranks))), round(call.rank * ranks))
                self.assertEqual(sent.messages.total(), round(call.messages * ranks))
                self.assertEqual(sent.messages[source], scaling_sharded.depth(ranks))
                if ranks % HOST == 0:
                    # A source in the middle of a host has neighbours on the next one.
                    more = sum(map(sent.of_host, range(hosts))) / 960 - call.link * hosts / 960
                    self.assertIn(round(more), range(5) if source % HOST and hosts > 1 else [0])

    def test_the_slowest_path_of_a_broadcast_shares_links(self):
        for ranks in (2, 4, 8, 16, 32, 64, 128):
            call = scaling_sharded.slowest_path(1, ranks)
            self.assertAlmostEqual(call.rank, seconds_of([(0, 1)], ranks, 1))
            self.assertAlmostEqual(call.link, seconds_of([(0, 1)], ranks, HOST))

    def test_broadcasts_one_after_the_other_overlap(self):
        # Each large matrix has another owner.
        for layers, ranks in ((1, 32), (2, 32), (2, 64), (4, 64)):
            model = Model("", "llama", layers, 16, 16, 40, 1, 1)
            owned, _ = transformer_memory.shards(model, ranks)
            part = transformer_memory.gathered(owned)
            rests = [(rank, 4 * (count - part)) for rank, count in enumerate(owned) if count > part]
            self.assertGreater(len(rests), 1)
            _, *calls = scaling_sharded.one_after_the_other(model, ranks)
            link = sum(call.link for call in calls)
            self.assertAlmostEqual(seconds_of(rests, ranks, HOST) / link, 1.1, delta=0.15)
            paths = sum(scaling_sharded.slowest_path(rest, ranks).link for _, rest in rests)
            self.assertLess(seconds_of(rests, ranks, HOST), paths)

    def test_parameters_are_shared_as_the_code_does(self):
        small, tied = Model("small", "llama", 2, 4, 8, 40, 2, 1), Model(
            "tied", "gpt2", 2, 4, 8, 90, tied=True, positions=4
        )
        rests = 0
        for model, ranks in itertools.product((small, tied), (2, 8, 16, 64)):
            owned, _ = transformer_memory.shards(model, ranks)
            self.assertEqual(sum(owned), model.parameters())
            sent, memories = share_tensors([[(rank, i) for i in range(count)] for rank, count in enumerate(owned)])
            calls = scaling_sharded.shared_parameters(model, ranks)
            rests += len(calls) - 1
            mean = sum(map(sent.of_rank, range(ranks))) / ranks
            self.assertAlmostEqual(4 * mean, scaling_sharded.rank_bytes(calls))
            hosts = max(1, ranks // HOST)
            link = 4 * sum(map(sent.of_host, range(hosts))) / hosts
            self.assertLessEqual(scaling_sharded.link_bytes(calls), link + 1e-6)
            more = sum(call.rank for call in calls[1:]) * ranks / (ranks - 1) * 4 / hosts
            self.assertLessEqual(link, scaling_sharded.link_bytes(calls) + more + 1e-6)
            self.assertEqual(transformer_memory.sharing(owned), [memory.most for memory in memories])
        self.assertGreater(rests, 10)

    def test_a_step_has_the_states_and_the_buffers_of_one_rank(self):
        for model, ranks in itertools.product(scaling_sharded.MODELS, scaling_sharded.RANKS):
            owned, kept = transformer_memory.shards(model, ranks)
            states, buffers = transformer_memory.sharded_optimizer(model, ranks)
            self.assertEqual(sum(kept), 2 * model.parameters())
            self.assertLessEqual(states, 8 * max(kept))
            largest = max(max(unit) for unit in model.units())
            self.assertLessEqual(buffers, 4 * ((3 + 4 / ranks) * (model.parameters() + ranks) + 2 * largest))
            self.assertGreaterEqual(buffers, 4 * model.parameters())

    def test_keepers_are_on_two_hosts_and_keep_about_as_much(self):
        for number in (8, 40, 200):
            plan = keepers([10] * number, [0, 0, 1, 1])
            self.assertEqual({(a in (0, 1), b in (0, 1)) for a, b in plan}, {(True, False), (False, True)})
            for counts in (collections.Counter(a for a, _ in plan), collections.Counter(sum(plan, []))):
                self.assertEqual(len(set(counts.values())), 1)
        one_host = keepers([5, 3, 3, 2, 1], [0, 0, 0])
        self.assertTrue(all(len(set(ranks)) == 2 for ranks in one_host))
        # A rank keeps two equal shares and one parameter at most.
        sizes = [1000, 900, *range(1, 40)]
        plan = keepers(sizes, [rank // HOST for rank in range(32)])
        kept = [sum(size for size, ranks in zip(sizes, plan) if rank in ranks) for rank in range(32)]
        self.assertLessEqual(max(kept), 2 * sum(sizes) / 32 + 1000)
        self.assertTrue(all(first // HOST != second // HOST for first, second in plan))


class TimeTest(unittest.TestCase):
    def setUp(self):
        of = measured()
        for name, values in of["network_processor"].items():
            case = scaling.case_of(name)
            ranks = case.hosts * case.ranks
            values["python_gloo"] = 3e-4 + 4 * (ranks - 1) * 5e-5
            if case.size > scaling.SMALL:
                values["python_gloo"] = 2 * (ranks - 1) / ranks * case.size * 2e-9
        self.fit = scaling.Fit(of)
        self.costs = scaling_sharded.Costs(of, self.fit)
        self.steps = scaling_sharded.Steps(self.fit, self.costs)

    def test_finds_the_costs(self):
        self.assertAlmostEqual(self.costs.message / 5e-5, 1)
        self.assertAlmostEqual(self.costs.byte / 2e-9, 1)

    def test_a_token_takes_a_product_forward_and_two_backward(self):
        model = scaling_sharded.MODELS[1]
        layer = 4 * model.hidden**2 + 3 * model.hidden * model.inner
        products = model.layers * layer + model.hidden * model.vocabulary
        self.assertAlmostEqual(scaling_sharded.computation(model, 10, 5) / (3 * 2 * products * 10 / 5), 1, delta=0.03)

    def test_nothing_hides_what_fsdp_sends(self):
        calls = scaling_sharded.paged(MODEL, 64)
        slow = self.steps.paged(MODEL, 64, 1, 1e3)
        self.assertAlmostEqual(slow / (1 + sum(self.costs.wire(call, 1e3) for call in calls)), 1, places=2)
        fast = self.steps.paged(MODEL, 64, 1, 1e15)
        waits = sum(call.times * call.steps for call in calls) * scaling.LATENCY
        self.assertAlmostEqual(fast, 1 + waits + sum(map(self.costs.processor, calls)))
        self.assertLess(self.steps.ddp(MODEL, 64, 1, 1e9), 1.1)

    def test_with_enough_tokens_half_of_a_step_is_computation(self):
        of_token = scaling_sharded.computation(MODEL, 1, 1e9)
        for way in (self.steps.ddp, self.steps.sharded_optimizer, self.steps.paged):
            step = lambda compute: way(MODEL, 64, compute, 1e6)
            tokens = scaling_sharded.enough(step, of_token)
            self.assertAlmostEqual(step(tokens * of_token) / (tokens * of_token), 2, places=2)


class PageTest(unittest.TestCase):
    def test_a_page_without_a_place_is_an_error(self):
        with tempfile.TemporaryDirectory() as folder:
            (pathlib.Path(folder) / "docs").mkdir()
            (pathlib.Path(folder) / scaling_sharded.PAGE).write_text("# Empty\n")
            with self.assertRaises(OSError):
                scaling_sharded.of_root(pathlib.Path(folder))
        with self.assertRaisesRegex(scaling.figures.Missing, "a.md lacks <!-- computed bytes: begin -->"):
            scaling.with_tables("a.md", "# Empty\n", {"bytes": "| a |"})


if __name__ == "__main__":
    unittest.main()
