"""Counts the test targets that passed and failed in one `bazel test`, from its build event file.

  count_results.py BUILD_EVENT_JSON_FILE EXIT_CODE

Prints "PASSED FAILED"; what failed is named on standard error. A target that could not be built or analysed has failed. A Bazel that ended
with an error although no target failed (a broken WORKSPACE, no test found) counts as one failure.
"""

import json
import sys


def read_events(path):
    """The events of the file, in order; none if Bazel died before it wrote the file, and no unfinished last line."""
    try:
        with open(path) as file:
            for line in file:
                yield json.loads(line)
    except (OSError, ValueError):
        return


def results(events):
    """Label -> what became of it, for tests and for whatever else failed."""
    outcome = {}
    for event in events:
        (kind, identity), *_ = event["id"].items()
        if kind == "testSummary":
            outcome[identity["label"]] = event.get("testSummary", {}).get("overallStatus", "NO_STATUS")
        elif kind == "targetCompleted" and not event.get("completed", {}).get("success"):
            outcome.setdefault(identity["label"], "FAILED_TO_BUILD")
    return outcome


def count(events, exit_code):
    """(passed, {label: status} of those that failed)."""
    outcome = results(events)
    # A test that passed at a second try has passed, as it has for Bazel.
    failures = {label: status for label, status in outcome.items() if status not in ("PASSED", "FLAKY")}
    passed = len(outcome) - len(failures)
    if exit_code != 0 and not failures:
        failures["bazel"] = f"exit code {exit_code}"
    return passed, failures


def main():
    path, exit_code = sys.argv[1], int(sys.argv[2])
    passed, failures = count(read_events(path), exit_code)
    for label, status in sorted(failures.items()):
        print(f"{label}: {status}", file=sys.stderr)
    print(passed, len(failures))


if __name__ == "__main__":
    main()
