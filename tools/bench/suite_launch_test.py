#!/usr/bin/env python3
"""Suite launch with our launcher alone: what it measures, and what it says if a launcher does not do its work."""

import pathlib
import signal
import unittest

import suite_launch

HERE = pathlib.Path(__file__).absolute().parent
OURS = ([str(HERE.parents[1] / "launch" / "launch")], {})
RANK = str(HERE / "launch_rank")


class SuiteLaunchTest(unittest.TestCase):
    def patch(self, name, value):
        self.addCleanup(setattr, suite_launch, name, getattr(suite_launch, name))
        setattr(suite_launch, name, value)

    def test_a_start_and_an_end_are_measured(self):
        for name, number in (("exit", signal.SIGUSR1), ("sigkill", signal.SIGKILL)):
            figures = suite_launch.failing(OURS, RANK, name, number)
            self.assertEqual(list(figures), ["start/2ranks", f"teardown/{name}"])
            for seconds in figures.values():
                self.assertTrue(0 < seconds < suite_launch.PATIENCE, figures)

    def test_a_restart_is_measured_until_all_ranks_run_again(self):
        with suite_launch.Job(OURS, RANK, 3, "--max_restarts=1") as job:
            job.seconds_to_start()
            self.assertTrue(0 < job.seconds_to_restart() < suite_launch.PATIENCE)
            self.assertEqual(sorted(job._pids), [(restarts, rank) for restarts in (0, 1) for rank in (0, 1, 2)])

    def test_memory_and_processor_time_are_the_launchers(self):
        self.patch("WATCHED", 0.5)
        self.assertGreater(suite_launch.many(OURS, RANK)["memory/16ranks"], 1 << 20)
        percent = suite_launch.watched(OURS, RANK, 2)["cpu/2ranks"]
        self.assertTrue(0 <= percent < 50, percent)
        # A launcher that computes all the time, by itself or in a process that it has started.
        start = 'RANK=0 TORCHELASTIC_RESTART_COUNT=0 "$2" "$3" &'
        for compute in ("while :; do :; done", "sh -c 'while :; do :; done' & wait"):
            with suite_launch.Job((["sh", "-c", f"{start} {compute}", "sh"], {}), RANK, 1) as job:
                job.seconds_to_start()
                self.assertGreater(job.processor_percent(), 1)

    def test_all_processes_of_our_launcher_count_and_no_rank(self):
        with suite_launch.Job(OURS, RANK, 3) as job:
            job.seconds_to_start()
            names = sorted((process / "comm").read_text().strip() for process in job.processes())
            self.assertEqual(names, ["launch", "launch", "rank-keeper"])

    def test_a_launcher_that_ends_early_is_an_error_with_what_it_wrote(self):
        broken = (["sh", "-c", "echo no such thing >&2; exit 3"], {})
        with self.assertRaisesRegex(SystemExit, r"0 of 2 ranks are in main .* ended early:\nno such thing"):
            with suite_launch.Job(broken, RANK, 2) as job:
                job.seconds_to_start()

    def test_a_launcher_that_hangs_is_an_error(self):
        self.patch("PATIENCE", 2)
        with self.assertRaisesRegex(SystemExit, "nothing more for 2 s"):
            with suite_launch.Job((["sh", "-c", "exec sleep 100"], {}), RANK, 2) as job:
                job.seconds_to_start()


if __name__ == "__main__":
    unittest.main()
