#!/usr/bin/env python3
"""The counts of scaling_sharded.py are those of simulated collectives, of comm/tree_sum's plan and of fsdp's pages."""

import collections
import itertools
import pathlib
import statistics
import tempfile
import unittest
import unittest.mock

import scaling
import scaling_sharded
from scaling_sharded import HOST
from scaling_test import measured
from simulated_collectives import SumTree, columns, host_gather, host_sums, pages, share_tensors, tree_scatter
import transformer_memory
from transformer_memory import Model, keepers

MODEL = Model("small", "llama", 5, 64, 160, 500, 4, 2)
TIED = Model("tied", "gpt2", 2, 4, 8, 90, tied=True, positions=4)
WORLDS = (2, 3, 4, 8, 16, 32)


class CountsTest(unittest.TestCase):
    def check(self, call, sent, ranks):
        for rank in range(ranks):
            self.assertAlmostEqual(sent.of_rank(rank), call.rank)
            self.assertEqual(sent.messages[rank], call.messages)
        for host in range(ranks // HOST):
            self.assertAlmostEqual(sent.of_host(host), call.link)

    def test_an_all_gather_sends_each_part_to_each_host_once(self):
        for ranks in WORLDS:
            self.check(scaling_sharded.all_gather(960 * ranks, ranks), host_gather(960, ranks), ranks)

    def test_gradients_are_the_leaves_of_one_node(self):
        for ranks in (2, 4, 8, 16, 32):
            sent, nodes, calls = tree_scatter([960] * ranks, ranks)
            self.assertEqual((nodes, calls), ([(0, ranks)], 1))
            self.check(scaling_sharded.all_to_all(960 * ranks, ranks), sent, ranks)

    def test_a_link_carries_each_hosts_sum_of_gradients_once(self):
        for ranks in (8, 16, 24, 64):
            sent, nodes = host_sums([960] * ranks, ranks)
            self.assertEqual(nodes, [(0, ranks)])
            self.check(scaling_sharded.tree_scatter(960 * ranks, ranks), sent, ranks)
        size = 1 << 26
        pieces = scaling.pieces(size / HOST, 2, 1)
        self.assertEqual(scaling_sharded.tree_scatter(size, 16).messages, pieces)
        self.assertGreater(pieces, 1)

    def test_a_link_carries_each_hosts_sum_once_a_round_with_virtual_ranks(self):
        for ranks, rounds in ((16, 2), (24, 3), (32, 4)):
            sent, nodes = host_sums([960] * ranks, ranks * rounds)
            self.assertEqual(nodes, [(0, ranks * rounds)])
            call = scaling_sharded.tree_scatter(960 * ranks, ranks)
            for rank in range(ranks):
                self.assertAlmostEqual(sent.of_rank(rank), rounds * call.rank)

    def test_over_gloo_each_leaf_is_sent_once_with_any_number_of_ranks_and_virtual_ranks(self):
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
        shared = scaling_sharded.shared_parameters(TIED, HOST)
        self.assertEqual(len(shared), 2)
        for call in (*scaling_sharded.ddp(MODEL, HOST), *shared, *scaling_sharded.paged(MODEL, HOST)):
            self.assertEqual(call.link, 0)

    def test_units_are_gathered_as_pages_are(self):
        self.assertEqual([times for _, times in scaling_sharded.units(MODEL)], pages(MODEL.layers, whole_units=2))
        self.assertEqual(sum(size for size, _ in scaling_sharded.units(MODEL)), scaling_sharded.size_of(MODEL))
        self.assertNotEqual(pages(MODEL.layers, whole_units=1), pages(MODEL.layers, whole_units=2))

    def test_a_step_is_the_sum_of_its_gathers_and_exchanges(self):
        ranks, of_host, of_rank, gathered = 16, 0, 0, 0
        for (size, _), gathers in zip(scaling_sharded.units(MODEL), pages(MODEL.layers, whole_units=2)):
            agreement, gather = host_gather(scaling_sharded.AGREEMENT, ranks), host_gather(size / ranks, ranks)
            gradients = host_sums([size / ranks] * ranks, ranks)[0]
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
        self.assertAlmostEqual(of_host, gathered + scaling_sharded.size_of(MODEL) / 2)

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
        exchanges = [scaling_sharded.tree_scatter(size, ranks).link for size, _ in scaling_sharded.units(model)]
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
            self.check(second, host_gather(size / ranks, ranks), ranks)

    def test_parameters_are_shared_as_the_code_does(self):
        cuts = collections.Counter()
        for model, ranks in itertools.product((Model("", "llama", 2, 4, 8, 40, 2, 1), TIED, MODEL), WORLDS + (64,)):
            owned, _ = transformer_memory.shards(model, ranks)
            self.assertEqual(sum(owned), model.parameters())
            numbers = iter(range(sum(owned)))
            sent, gathered, buffers = share_tensors([list(itertools.islice(numbers, count)) for count in owned])
            self.assertEqual(transformer_memory.sharing(owned), buffers)
            for of in (statistics.mean, max):
                gather, *cut = scaling_sharded.shared_parameters(model, ranks, of)
                self.assertEqual(len(cut), 1 if sent else 0)
                self.assertAlmostEqual(gather.rank, 4 * gathered.of_rank(0))
                self.assertAlmostEqual(gather.link, 4 * gathered.of_host(0) if ranks % HOST == 0 else 0)
                for call in cut:
                    of_ranks = [*map(sent.of_rank, range(ranks)), *map(sent.to_rank, range(ranks))]
                    self.assertAlmostEqual(call.rank, 4 * of(of_ranks))
                    hosts = range(max(1, ranks // HOST))
                    self.assertAlmostEqual(call.link, 4 * of([*map(sent.of_host, hosts), *map(sent.to_host, hosts)]))
                    self.assertEqual(set(sent.messages.values()), {call.messages})
            cuts[bool(sent)] += 1
        self.assertGreater(min(cuts[False], cuts[True]), 4)

    def test_elements_are_cut_evenly_if_a_rank_has_more_than_two_parts(self):
        self.assertEqual(scaling_sharded.overlaps([5, 1, 0, 0], 2), {(0, 1): 2, (0, 2): 1, (1, 2): 1})
        self.assertEqual(scaling_sharded.overlaps([0, 1, 5], 2), {(1, 0): 1, (2, 0): 1, (2, 1): 2})
        self.assertEqual([transformer_memory.gathered(owned) for owned in ([5, 1, 0, 0], [4, 1, 1, 0])], [2, 4])
        self.assertEqual([transformer_memory.gathered(owned) for owned in ([5, 0, 0, 0], [4, 1, 0, 0])], [2, 4])

    def test_a_step_has_the_states_and_the_buffers_of_one_rank(self):
        for model, ranks in itertools.product(scaling_sharded.MODELS, scaling_sharded.RANKS):
            owned, kept = transformer_memory.shards(model, ranks)
            states, buffers = transformer_memory.sharded_optimizer(model, ranks)
            self.assertEqual(sum(kept), 2 * model.parameters())
            self.assertLessEqual(states, 8 * max(kept))
            largest = max(max(unit) for unit in model.units())
            self.assertLessEqual(buffers, 4 * ((2 + 4 / ranks) * (model.parameters() + ranks) + largest))
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

    def test_a_step_waits_for_the_rank_and_the_host_that_send_the_most(self):
        owned, _ = transformer_memory.shards(TIED, 64)
        part = transformer_memory.gathered(owned)
        sent, gathered, _ = share_tensors([[rank] * count for rank, count in enumerate(owned)])
        more = [
            self.steps.sharded_optimizer(TIED, 64, 1, rate) - self.steps.ddp(TIED, 64, 1, rate) for rate in (1e-6, 1e15)
        ]
        slowest = max(max(sent.of_host(host), sent.to_host(host)) for host in range(8))
        self.assertAlmostEqual(
            more[0] / self.costs.wire(scaling_sharded.Call(0, 4 * (slowest + gathered.of_host(0)), 0, 0), 1e-6),
            1,
            places=5,
        )
        most = 4 * max(max(sent.of_rank(rank), sent.to_rank(rank)) for rank in range(64))
        processor = (63 + 7) * 5e-5 + (most + 4 * gathered.of_rank(0)) * 2e-9
        self.assertAlmostEqual(more[1], processor + 2 * scaling.LATENCY)

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
