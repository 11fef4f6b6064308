#!/usr/bin/env python3
"""Plots of compare's figures: the same from its JSON lines and from its tables."""

import json
import unittest

import figures
import plot


def line(suite, case, ours, peer_name, peer, **more):
    rate = more.pop("rate", False)
    ratio = ours / peer if rate else peer / ours
    return json.dumps(
        {"suite": suite, "case": case, "ours": ours, "peer_name": peer_name, "peer": peer, "ratio": ratio, **more}
    )


# suite: the JSON lines and the same figures as a table.
BOTH = {
    "all_reduce": (
        [
            line("all_reduce", f"{placement}/4KiB/float32/2ranks", ours, peer_name, peer)
            for placement, ours in (("in_place", 1e-6), ("ordinary", 2e-6))
            for peer_name, peer in (("gloo", 5e-4), ("openmpi", 4e-6))
        ],
        "| case | ours | Gloo | Open MPI | times Gloo | times Open MPI |\n|---|---|---|---|---|---|\n"
        "| in_place/4KiB/float32/2ranks | 1.00 us | 500.00 us | 4.00 us | 500.0 | 4.00 |\n"
        "| ordinary/4KiB/float32/2ranks | 2.00 us | 500.00 us | 4.00 us | 250.0 | 2.00 |\n",
    ),
    "ddp": (
        [
            line("ddp", "resnet18/b8/64px", 0.1, name, seconds)
            for name, seconds in zip(list(figures._DDP.values())[1:], (0.11, 0.09, 0.2, 0.21, 0.15, 0.14))
        ],
        f"| allocator | step | {' | '.join(figures._DDP)} | times Python DDP |\n|---|\n"
        "| default | resnet18/b8/64px | 100.00 ms | 110.00 ms | 90.00 ms | 200.00 ms | 210.00 ms | 150.00 ms | 140.00 ms | 2.00 |\n",
    ),
    "checkpoint": (
        [
            line("checkpoint", "save/durable/1GiB", 0.5, "torch.save+fsync", 1.5),
            line("checkpoint", "save/durable/1GiB", 0.5, "raw_o_direct", 0.6),
        ],
        "| case | ours | extra memory | peer | its time | extra memory | times the peer |\n|---|\n"
        "| save/durable/1GiB | 500.00 ms | 1 MiB | torch.save+fsync | 1500.00 ms | 1 MiB | 3.00 |\n"
        "| save/durable/1GiB | 500.00 ms | 1 MiB | raw_o_direct | 600.00 ms | 1 MiB | 1.20 |\n",
    ),
    "sampler": (
        [
            line("sampler", "first_index/torch/1.28M/8ranks", 1e-4, "python_distributed_sampler", 0.1),
            json.dumps(
                {"suite": "sampler", "case": "first_index/feistel/1e9", "ours": 1e-6, "peer_name": None, "ratio": None}
            ),
        ],
        "| case | ours | peer | its time | times the peer |\n|---|\n"
        "| first_index/torch/1.28M/8ranks | 100.00 us | python_distributed_sampler | 100.00 ms | 1000.0 |\n"
        "| first_index/feistel/1e9 | 1.00 us |  |  |  |\n",
    ),
    "dp": (
        [
            line("dp", "resnet18/b8/64px/2replicas/ours", 0.05, "clone_every_call", 0.4),
            line("dp", "resnet18/b8/64px/2replicas/ours_copying", 0.08, "clone_every_call", 0.4),
        ],
        "| case | one device | ours | peer | ours over one device | peer over it | times the peer |\n|---|\n"
        "| resnet18/b8/64px/2replicas/ours | 100.00 ms | 150.00 ms | 500.00 ms | 50.00 ms | 400.00 ms | 8.0 |\n"
        "| resnet18/b8/64px/2replicas/ours_copying | 100.00 ms | 180.00 ms | 500.00 ms | 80.00 ms | 400.00 ms | 5.0 |\n",
    ),
    "image_loader": (
        [
            line("image_loader", "float32/2workers/b64", 1600.0, "dataloader_defaults", 400.0, rate=True),
            line("image_loader", "float32/2workers/b64", 1600.0, "dataloader_tensors", 640.0, rate=True),
        ],
        "| program | the same pixels | images/s | times it | memory |\n|---|\n| ours | yes | 1600 | | 1 MiB |\n"
        "| dataloader_defaults | yes | 400 | 4.00 | 1 MiB |\n| dataloader_tensors | no | 640 | 2.50 | 1 MiB |\n",
    ),
    "resnet": (
        [
            line("resnet", "resnet50/b16/bf16", 10.0, "python, bf16", 8.0, rate=True),
            line("resnet", "resnet50/b16/bf16", 10.0, "python_jemalloc, bf16", 9.0, rate=True),
            line("resnet", "resnet50/b16/bf16, 2 ranks", 12.0, "python, bf16, 2 ranks", 9.0, rate=True),
            line("resnet", "resnet50/b16/bf16, 2 ranks", 12.0, "python_jemalloc, bf16, 2 ranks", 11.0, rate=True),
            line("resnet", "resnet50/b16/bf16, 2 ranks", 12.0, "python, bf16", 8.0, rate=True),  # our best beside another
        ],
        "| setting | ours | python | python_jemalloc |\n|---|\n| bf16 | 10.00 | 8.00 | 9.00 |\n"
        "| bf16, 2 ranks | 12.00 | 9.00 | 11.00 |\n",
    ),
    "launch": (
        [
            line("launch", case, ours, peer_name, peer)
            for case, ours, peers in (("start/2ranks", 0.01, (2.5, 3.5)), ("memory/16ranks", 5 << 20, (500 << 20, 505 << 20)))
            for peer_name, peer in zip(("torchrun", "torchrun_standalone"), peers)
        ],
        "| case | ours | torchrun | torchrun --standalone | times torchrun | times torchrun --standalone |\n|---|\n"
        "| start/2ranks | 10.00 ms | 2500.00 ms | 3500.00 ms | 250.0 | 350.0 |\n"
        "| memory/16ranks | 5.0 MiB | 500.0 MiB | 505.0 MiB | 100.0 | 101.0 |\n"
        "| cpu/64ranks | 0.000 % | 0.441 % | 0.450 % |  |  |\n",
    ),
}  # fmt: skip


def page_of(suite, table):
    mark = "measured" if suite == "all_reduce" else f"measured {suite}"
    return f"# Page\n\n<!-- {mark}: begin -->\nA machine,\nof 2.\n\n{table}<!-- {mark}: end -->\n"


class PlotTest(unittest.TestCase):
    def test_json_lines_and_tables_give_the_same_plot(self):
        self.assertEqual(list(BOTH), list(plot.SUITES))
        for suite, (lines, table) in BOTH.items():
            of_lines, (of_page, machines) = figures.of_json(lines), figures.of_page(page_of(suite, table))
            self.assertEqual(machines, {suite: "A machine, of 2."})
            draw = lambda of: plot.draw(plot.SUITES[suite](of[suite]), machines[suite])
            self.assertEqual(draw(of_lines), draw(of_page), suite)
            self.assertEqual(plot.of_page(page_of(suite, table)), {suite: draw(of_page)})

    def test_a_bar_has_its_value_and_a_peer_how_many_times_as_fast_ours_is(self):
        svg = plot.of_page(page_of("all_reduce", BOTH["all_reduce"][1]))["all_reduce"]
        for words in ("1.00 µs", "2.00 µs", "500 µs", "250 ×", "2.00 ×", "4 KiB", "A machine, of 2."):
            self.assertIn(f">{words}<", svg)
        self.assertNotIn("500 ×", svg)  # a peer's memory is ordinary, so it stands beside ours in ordinary memory

    def test_figures_have_three_digits_and_ratios_two(self):
        for value, words in ((0.0999, "99.9 ms"), (1.0, "1.00 s"), (2.5e-7, "250 ns"), (0.09996, "100 ms")):
            self.assertEqual(plot.in_words(value, "s"), words)
        for ratio, words in ((1.054, "1.05 ×"), (8.38, "8.4 ×"), (13.9, "14 ×"), (877.7, "878 ×")):
            self.assertEqual(plot.ratio_in_words(ratio), words)

    def test_json_lines_and_tables_of_suite_network_have_the_same_cases(self):
        case, step = "all_reduce/4KiB/1Gbit/2x2ranks", "ddp/resnet18/1Gbit/2x2ranks"
        lines = [
            line("network", case, 1e-3, "python_gloo", 5e-3),
            line("network_processor", case, 2e-4, "python_gloo", 3e-3),
            line("network", case, 1e-3, "openmpi", 4e-4),
            line("network", step, 0.3, "python_gloo", 0.6),
            line("network", f"{step}/fp16", 0.2, "python_gloo_fp16", 0.5),
            line("network", f"{step}/power_sgd", 0.1, "python_gloo", 0.6),
        ]
        table = (
            "| case | ours | Python's Gloo | Open MPI | times Gloo | times Open MPI | of the link"
            " | MiB sent: ours | Gloo | Open MPI | processor time of a rank: ours | Gloo |\n|---|\n"
            f"| {case} | 1.00 ms | 5.00 ms | 400.00 us | 5.00 | 0.40 | 7% | 0.0081 | 0.0104 | 0.0081 | 200.00 us | 3.00 ms |\n\n"
            "| step | our hook | ours | Python's DDP over Gloo | times Python | MiB sent: ours | Python |\n|---|\n"
            f"| {step} | none | 300.00 ms | 600.00 ms | 2.00 | 44.7 | 67.0 |\n"
            f"| {step} | fp16 | 200.00 ms | 500.00 ms | 2.50 | 22.3 | 33.5 |\n"
            f"| {step} | power_sgd | 100.00 ms | 600.00 ms | 6.00 | 1.0 | 67.0 |\n\n"
            "| our hook | test accuracy |\n|---|\n| fp16 | 80.00% |\n"
        )
        values = lambda of: {
            (suite, case, name): f"{value:.6f}"
            for suite, cases in of.items()
            for case, programs in cases.items()
            for name, value in programs.items()
            if isinstance(name, str)
        }
        of_page, _ = figures.of_page(page_of("network", table))
        self.assertEqual(values(of_page), values(figures.of_json(lines)))

    def test_a_page_without_marks_has_no_plots(self):
        self.assertEqual(plot.of_page("| case | ours |\n|---|---|\n| a | 1 us |\n"), {})


if __name__ == "__main__":
    unittest.main()
