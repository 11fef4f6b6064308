import json
import os
import tempfile
import unittest

import count_results


def summary(label, status):
    return {"id": {"testSummary": {"label": label}}, "testSummary": {"overallStatus": status}}


def completed(label, success):
    return {"id": {"targetCompleted": {"label": label}}, "completed": {"success": True} if success else {}}


class CountTest(unittest.TestCase):
    def test_counts_tests_and_not_what_was_only_built(self):
        events = [
            completed("//a:lib", True),
            completed("//a:t", True),
            summary("//a:t", "PASSED"),
            summary("//a:u", "FLAKY"),
        ]
        self.assertEqual(count_results.count(events, 0), (2, {}))

    def test_a_failed_test_and_a_late_one_count_once_each(self):
        events = [
            completed("//a:t", True),
            summary("//a:t", "FAILED"),
            summary("//a:u", "TIMEOUT"),
            summary("//a:v", "PASSED"),
        ]
        self.assertEqual(count_results.count(events, 3), (1, {"//a:t": "FAILED", "//a:u": "TIMEOUT"}))

    def test_what_was_not_built_or_not_analysed_has_failed(self):
        aborted = {"id": {"targetCompleted": {"label": "//a:na"}}, "aborted": {"reason": "ANALYSIS_FAILURE"}}
        events = [completed("//a:nb", False), summary("//a:nb", "NO_STATUS"), aborted, summary("//a:t", "PASSED")]
        self.assertEqual(count_results.count(events, 1), (1, {"//a:nb": "NO_STATUS", "//a:na": "FAILED_TO_BUILD"}))

    def test_a_bazel_that_failed_otherwise_is_one_failure(self):
        self.assertEqual(count_results.count([], 1), (0, {"bazel": "exit code 1"}))
        self.assertEqual(count_results.count([summary("//a:t", "PASSED")], 1), (1, {"bazel": "exit code 1"}))

    def test_reads_what_was_written_before_bazel_died(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "events.json")
            self.assertEqual(list(count_results.read_events(path)), [])
            with open(path, "w") as file:
                file.write(json.dumps(summary("//a:t", "PASSED")) + '\n{"id": {"test')
            self.assertEqual(count_results.count(count_results.read_events(path), 37), (1, {"bazel": "exit code 37"}))


if __name__ == "__main__":
    unittest.main()
