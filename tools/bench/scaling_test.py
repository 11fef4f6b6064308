#!/usr/bin/env python3
"""The model of many hosts: it finds the parameters of measurements that follow it, and its limits are right."""

import itertools
import pathlib
import re
import tempfile
import unittest

import figures
import many_ranks
import scaling

FIXED, MESSAGE, BYTE, SHARE = 2e-4, 3e-5, 1e-9, 0.9


def measured():
    """What suite network would have measured, if the ranks had a processor each: seconds, and processor time of a rank."""
    of = {"network": {}, "network_processor": {}}
    parts = (("4KiB", "1MiB", "25MiB", "100MiB"), ("100Mbit", "1Gbit", "unlimited"), (2, 4), (2, 4))
    for size, link, hosts, ranks in itertools.product(*parts):
        name = f"all_reduce/{size}/{link}/{hosts}x{ranks}ranks"
        case = scaling.case_of(name)
        used = FIXED + scaling.direct(case.size, hosts, ranks)[1] * MESSAGE
        used += case.size * BYTE if case.size > scaling.SMALL else 0
        wire = scaling.wire_seconds(case.size, hosts, case.link * SHARE) if case.link else 0
        of["network"][name], of["network_processor"][name] = {"ours": max(wire, used)}, {"ours": used}
    return of


class FitTest(unittest.TestCase):
    def test_finds_the_parameters(self):
        fit = scaling.Fit(measured())
        for found, expected in (
            (fit.fixed, FIXED),
            (fit.message, MESSAGE),
            (fit.byte, BYTE),
            (fit.share_of_link, SHARE),
        ):
            self.assertAlmostEqual(found / expected, 1)

    def test_training_steps_are_not_part_of_it(self):
        of = measured()
        of["network"].update(
            {f"ddp/{step}/1Gbit/2x2ranks": {"ours": 9.0} for step in ("resnet18", "resnet18/fp16", "x")}
        )
        with_steps, without = (vars(scaling.Fit(cases)) for cases in (of, measured()))
        step = scaling.case_of("ddp/resnet18/1Gbit/2x2ranks")
        self.assertEqual(with_steps.pop("seconds"), {**without.pop("seconds"), step: 9.0})
        self.assertEqual(with_steps, without)

    def test_missing_measurements_are_named_with_the_command_that_makes_them(self):
        for suite, missing, words in (
            ("network_processor", "4KiB/.*/4x", "the processor time of an all_reduce of 4KiB on 2 and on 4 hosts"),
            (
                "network_processor",
                "[05]MiB/unlimited",
                "the processor time of an all_reduce of 25MiB on a link without",
            ),
            ("network", "[05]MiB/1", "an all_reduce of 25MiB on a link of 1Gbit"),
        ):
            of = measured()
            of[suite] = {case: values for case, values in of[suite].items() if not re.search(missing, case)}
            with self.assertRaisesRegex(figures.Missing, f"lacks {words}.*: run ./bazelw run .* -- network"):
                scaling.Fit(of)
        with self.assertRaises(figures.Missing):
            scaling.Fit({})


class WaysTest(unittest.TestCase):
    def test_a_tensor_is_cut_as_the_backend_cuts_it(self):
        for size, count in (
            (4 << 10, 1),
            (16 << 10, 1),
            (1 << 20, 4),
            (4 << 20, 8),
            (25 << 20, 25),
            ((25 << 20) + 4, 26),
        ):
            self.assertEqual(scaling.pieces(size, 2, 1), count)
        self.assertEqual(scaling.pieces(25 << 20, 4, 64), 4)
        self.assertEqual(scaling.pieces(25 << 20, 4, 4096), 1)

    def test_messages_and_steps(self):
        bucket = 25 << 20
        self.assertEqual(scaling.direct(4 << 10, 8), (1, 7))
        self.assertEqual(scaling.direct(bucket, 2), (1, 25))
        self.assertEqual(scaling.direct(bucket, 8), (2, 25 * 14))
        self.assertEqual(scaling.direct(bucket, 64), (2, 4 * 126))
        self.assertEqual(scaling.rows_and_columns(bucket, 2), scaling.direct(bucket, 2))
        self.assertEqual(scaling.rows_and_columns(bucket, 8), (4, 25 * 2 * (1 + 3)))
        self.assertEqual(scaling.rows_and_columns(bucket, 4096), (4, 4 * 2 * (63 + 63)))
        self.assertEqual(scaling.ring(bucket, 8), (14, 14))
        self.assertEqual(scaling.ring(bucket, 2), (2, 2 * 4))  # 3.125 MiB of a rank, a MiB at a time

    def test_all_ways_but_the_ring_need_as_many_steps_on_any_number_of_hosts(self):
        for way, steps in ((scaling.direct, 2), (scaling.rows_and_columns, 4)):
            self.assertEqual({way(25 << 20, 2**power)[0] for power in range(2, 13)}, {steps})

    def test_a_call_takes_the_longer_of_wire_and_processor(self):
        fit = scaling.Fit(measured())
        slow, fast = 1e6, 1e18
        seconds, limit = fit.all_reduce(scaling.direct, 25 << 20, 8, slow, 0.5)
        self.assertEqual(limit, "wire")
        self.assertAlmostEqual(seconds, FIXED + 2 * 0.5 + scaling.wire_seconds(25 << 20, 8, slow * SHARE))
        seconds, limit = fit.all_reduce(scaling.direct, 25 << 20, 2, fast, 0.5)
        self.assertEqual(limit, "processor, mostly bytes")
        self.assertAlmostEqual(seconds, FIXED + 0.5 + (25 << 20) * BYTE + 25 * MESSAGE)
        seconds, limit = fit.all_reduce(scaling.direct, 25 << 20, 1001, fast, 0)
        self.assertEqual(limit, "processor, mostly messages")
        self.assertAlmostEqual(seconds, FIXED + (25 << 20) * BYTE + 2000 * MESSAGE)

    def test_ranks_that_share_a_processor_take_longer_unless_the_wire_is_slower(self):
        fit = scaling.Fit(measured())
        self.assertAlmostEqual(
            fit.all_reduce(scaling.direct, 4 << 10, 2, 1e18, 0, 3)[0], 3 * (FIXED + MESSAGE + (4 << 10) * BYTE)
        )


class StepTest(unittest.TestCase):
    def step(self, seconds_of_call, compute):
        """Of a model with buckets of 1 and 25 MiB."""
        fit = scaling.Fit(measured())
        fit.all_reduce = lambda *_: (seconds_of_call, "")
        return fit.step(scaling.direct, 26 << 20, compute, 8, 1e9, 0)

    def test_without_communication_it_is_the_computation(self):
        self.assertAlmostEqual(self.step(0, 0.3), 0.3)

    def test_the_last_bucket_hides_under_nothing(self):
        self.assertAlmostEqual(self.step(0.01, 3.0), 3.01)

    def test_slow_calls_set_the_pace(self):
        # The first bucket is ready after the forward pass and 1/26 of the backward pass.
        self.assertAlmostEqual(self.step(10.0, 3.0), 1 + 2 / 26 + 20)


TABLES = """
| ranks | formed in | processor time of a rank | descriptors: rank 0, others |
|---|---|---|---|
| 16 | 0.07 s | 5.0 ms | 45, 4 |
| 500 | 0.91 s | 5.0 ms | 1013, 4 |
| 1000 | 4.85 s | 7.5 ms | 2013, 4 |

| ranks | the last rank's death: half know it in, all in | rank 0's: half, all | idle: processor time a minute, wakeups |
|---|---|---|---|
| 500 | 13 ms, 17 ms | 8 ms, 15 ms | 0.0 ms, 0 |
| 1000 | 25 ms, 47 ms | 42 ms, 74 ms | 0.0 ms, 0 |
"""


class FormingTest(unittest.TestCase):
    def rows(self, text):
        return {what: values for what, *values in many_ranks.rows(text, 4, scaling.LINKS)}

    def test_draws_a_line_through_the_last_two_rows(self):
        rows = self.rows(TABLES)
        self.assertEqual(rows[""], ["1,000 ranks", "10,000 ranks"])
        self.assertEqual(rows["processor time of a rank to form a group"], ["7.50 ms", "52.5 ms"])
        self.assertEqual(rows["descriptors of rank 0"], ["2,013", "20,013"])
        self.assertEqual(rows["descriptors of others"], ["4", "4"])
        self.assertEqual(rows["until all ranks know of the last rank's death"], ["47.0 ms", "587 ms"])
        self.assertEqual(rows["until all ranks know of rank 0's death"], ["74.0 ms", "1.14 s"])

    def test_every_rank_gets_a_list_of_every_rank(self):
        rows = self.rows(TABLES)
        sizes, sent = rows["list of all ranks"], rows["sent by the store's host"]
        self.assertEqual(sizes[1], f"{10 * many_ranks.LINE + 2.5 * many_ranks.PLACE:.0f} kB")
        self.assertEqual(sent, ["68 MB", "6,800 MB"])
        self.assertEqual([rows[f"which takes at {link}"][1] for link in scaling.LINKS], ["5.44 s", "544 ms"])

    def test_a_column_may_have_more_kinds_of_ranks(self):
        text = TABLES.replace("rank 0, others", "rank 0, rank 1, others")
        rows = self.rows(text.replace("2013, 4", "1010, 1007, 4").replace("1013, 4", "510, 507, 4"))
        self.assertEqual(rows["descriptors of rank 0"], ["1,010", "10,010"])
        self.assertEqual(rows["descriptors of rank 1"], ["1,007", "10,007"])

    def test_missing_tables_are_named_with_the_command_that_measures_them(self):
        words = "docs/performance_notes.md lacks .*: run ./bazelw run //comm/testing:forming_table"
        with self.assertRaisesRegex(figures.Missing, words):
            self.rows("# comm\n")


class PageTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        of = measured()
        step = "ddp/resnet18"
        of["network"].update({f"{step}/unlimited/2x2ranks": {"ours": 0.7}, f"{step}/1Gbit/2x2ranks": {"ours": 0.8}})
        columns = ("case", "ours", "processor time of a rank: ours")
        rows = [
            (case, f"{values['ours']} s", f"{of['network_processor'].get(case, values)['ours']} s")
            for case, values in of["network"].items()
        ]
        table = scaling.table(columns, *rows)
        self.write(
            scaling.MEASURED,
            f"<!-- measured network: begin -->\nX, 2 processors.\n\n{table}\n<!-- measured network: end -->\n",
        )
        self.write(many_ranks.PAGE, TABLES)
        self.write(
            scaling.PAGE, "".join(f"text\n{b}\nold\n{e}\n" for b, e in map(marks_of, scaling.computed(self.root)[0]))
        )

    def write(self, name, text):
        (self.root / name).parent.mkdir(exist_ok=True)
        (self.root / name).write_text(text)

    def test_tables_are_between_their_marks(self):
        wanted = scaling.of_root(self.root)
        page = wanted[scaling.PAGE]
        self.assertEqual(page.count("text\n"), 5)
        self.assertNotIn("old", page)
        self.assertIn("| 1 GB, 800 ms a step | 100 Gbit/s | 4,096 |", page)
        self.assertIn("| until all ranks know of rank 0's death | 74.0 ms | 1.14 s |", page)
        self.assertIn("<svg ", wanted[scaling.PICTURE])
        self.write(scaling.PAGE, page)
        self.assertEqual(scaling.of_root(self.root), wanted)

    def test_measured_cases_are_beside_computed_ones(self):
        page = scaling.of_root(self.root)[scaling.PAGE]
        self.assertIn("| all_reduce/25MiB/1Gbit/2x2ranks | 244 ms | 244 ms | 1.00 |", page)
        # The table says that ranks share two processors.
        self.assertIn("| all_reduce/25MiB/unlimited/2x2ranks | 27.2 ms | 54.3 ms | 2.00 |", page)
        self.assertRegex(page, r"\| ddp/resnet18/1Gbit/2x2ranks \| 800 ms \| \d+ ms \|")

    def test_a_missing_mark_is_named(self):
        self.write(scaling.PAGE, "<!-- computed fit: begin -->\n")
        with self.assertRaisesRegex(figures.Missing, "docs/scaling.md lacks <!-- computed prediction: begin -->"):
            scaling.of_root(self.root)


def marks_of(name):
    return [mark.format(name) for mark in scaling.MARKS]


if __name__ == "__main__":
    unittest.main()
