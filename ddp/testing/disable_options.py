#!/usr/bin/env python3
"""Shows that each option of ddp does something that a test notices.

  ddp/testing/disable_options.py [--jobs=2] [--only=static_graph,Join]

It copies the checkout into a temporary folder, gives the copy a switch for each field of ddp::Options, MixedPrecision
and JoinOptions, for NoSync, Join and RegisterHook and for the parts of virtual ranks, which disables it when
LOCKSTEP_DISABLED names it, and builds the tests of ddp once. With nothing disabled they must pass; with one thing
disabled the test case that is said to show it must fail. ddp/testing/disabled_options.md is what came of it (not written
with --only).
"""

import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
from typing import NamedTuple

ROOT = pathlib.Path(__file__).resolve().parents[2]
RECORD = pathlib.Path(__file__).resolve().parent / "disabled_options.md"

# Ahead of the namespace in a source: whether `what` is the thing that this run disables.
SWITCH = """
#include <cstdlib>
#include <cstring>

namespace {
bool Disabled(const char* what) {
  const char* const disabled = std::getenv("LOCKSTEP_DISABLED");
  return disabled && std::strcmp(disabled, what) == 0;
}
}  // namespace

"""


class Shown(NamedTuple):
    name: str  # of the option
    test: str  # ddp's target whose case turns red
    case: str
    disable: str = ""  # a C++ statement on `Options o`; empty: see EDITS
    does: str = ""  # in words


def to_default(field, test, case, *together):
    fields = (field, *together)
    statement = " ".join(f"o.{f} = lockstep::ddp::Options().{f};" for f in fields)
    return Shown(
        field, test, case, statement, "is always the default" + "".join(f", and {f} with it" for f in together)
    )


def of_mixed(field, case):
    return Shown(
        f"mixed_precision.{field}",
        "mixed_precision_test",
        case,
        f"if (o.mixed_precision) o.mixed_precision->{field}.reset();",
        "is never set",
    )


SHOWN = [
    to_default("device_ids", "options_test", "Options.DeviceIdsIsTheOneDeviceOfTheModule"),
    to_default("output_device", "options_test", "Options.OutputDeviceNeedsDeviceIds"),
    to_default("broadcast_buffers", "options_test", "Options.WithoutBroadcastBuffersEachRankKeepsItsBuffers"),
    Shown(
        "broadcast_buffers (off)",
        "distributed_data_parallel_test",
        "DistributedDataParallel.BuffersAreRank0sBeforeEachForward",
        "o.broadcast_buffers = false;",
        "is always false",
    ),
    to_default("init_sync", "options_test", "Options.WithoutInitSyncEachRankKeepsItsParameters"),
    Shown(
        "init_sync (off)",
        "distributed_data_parallel_test",
        "Wrap.GivesEveryRankTheParametersAndBuffersOfRank0",
        "o.init_sync = false;",
        "is always false",
    ),
    to_default("bucket_cap_mb", "options_test", "Options.BucketCapIsALimitOnceBucketsAreLaidOutAnew"),
    to_default("bucket_cap_mb_list", "options_test", "Options.ACapListLimitsOneBucketAfterTheOtherFromTheFirstStepOn"),
    to_default(
        "find_unused_parameters", "unused_parameters_test", "FindUnusedParameters.OnesUnusedOnOneRankCountAsZeroThere"
    ),
    to_default(
        "static_graph", "static_graph_test", "StaticGraph.AParameterWhoseGradientArrivesInPartsIsReducedOnceAllAreIn"
    ),
    to_default(
        "skip_all_reduce_unused_params",
        "unused_parameters_test",
        "SkipAllReduceUnusedParams.ABucketThatNoRankUsesIsNotReduced",
    ),
    to_default(
        "gradient_as_bucket_view",
        "distributed_data_parallel_test",
        "DistributedDataParallel.WithBucketViewsAGradientThatIsHeldElsewhereLivesInTheBucketToo",
    ),
    to_default("parameters_to_ignore", "options_test", "Options.ParametersToIgnoreAreNeitherBroadcastNorReduced"),
    to_default(
        "delay_all_reduce_named_params",
        "options_test",
        "DelayedAllReduce.TheNamedParametersAreOneBucketThatStartsAfterTheOtherOnesGradient",
        "param_to_hook_all_reduce",
    ),
    Shown(
        "param_to_hook_all_reduce",
        "options_test",
        "DelayedAllReduce.TheNamedParametersAreOneBucketThatStartsAfterTheOtherOnesGradient",
        'if (!o.param_to_hook_all_reduce.empty()) o.param_to_hook_all_reduce = "first.weight";',
        "is always first.weight",
    ),
    to_default(
        "mixed_precision",
        "mixed_precision_test",
        "MixedPrecision.ForwardAndBackwardComputeInParamDtypeAndReduceInItToo",
    ),
    of_mixed("param_dtype", "MixedPrecision.FloatingInputsAreCastAndOthersNot"),
    of_mixed("reduce_dtype", "MixedPrecision.ReduceDtypeIsWhatGradientsAreAveragedIn"),
    of_mixed("buffer_dtype", "MixedPrecision.BufferDtypeHoldsFromWrappingOnForFloatingBuffers"),
    to_default("non_finite", "statistics_test", "NonFinite.ThrownIsTheSameErrorOnEveryRankAndTheNextStepIsRight"),
    to_default("virtual_ranks", "virtual_ranks_test", "VirtualRanks.GiveTheSameBitsOnAnyNumberOfRanks"),
    to_default("virtual_seed", "virtual_ranks_processes_test", "VirtualRanks.DropOutTheSameNumbersOnAnyNumberOfRanks"),
    Shown(
        "virtual_ranks (tree)",
        "virtual_ranks_test",
        "VirtualRanks.GiveTheGradientsOfTheTree",
        does="a rank adds its leaves one after another, and then the ranks' sums are added so",
    ),
    Shown(
        "virtual_ranks (TreeSum)",
        "virtual_ranks_test",
        "VirtualRanks.GiveTheSameBitsOnAnyNumberOfRanks",
        does="the ranks' sums are added by the backend's all_reduce",
    ),
    Shown(
        "virtual_ranks (buffers)",
        "virtual_ranks_parts_test",
        "VirtualRanksParts.EachVirtualRankStartsFromTheBuffersOfTheLastStep",
        does="each virtual rank continues with the buffers of the one before it",
    ),
    Shown(
        "virtual_ranks (generators)",
        "virtual_ranks_processes_test",
        "VirtualRanks.DropOutTheSameNumbersOnAnyNumberOfRanks",
        does="all share one generator, which is not seeded for each",
    ),
    Shown(
        "NoSync",
        "no_sync_test",
        "NoSync.UnderItGradientsAreTheRanksOwnAndNothingIsReduced",
        does="every forward synchronises",
    ),
    Shown(
        "Join", "join_test", "Join.RanksThatAreDoneCountAsZeroInTheAverageOfAll", does="the constructor does nothing"
    ),
    Shown("JoinOptions.enable", "join_test", "Join.NotEnabledDoesNothing", does="is always true"),
    Shown("JoinOptions.divide_by_initial_world_size", "join_test", "Join.OrNotAtAll", does="is always true"),
    Shown(
        "JoinOptions.throw_on_early_termination",
        "join_test",
        "Join.OnEarlyTerminationEveryRankStopsNamingTheRank",
        does="is always false",
    ),
    Shown(
        "RegisterHook",
        "communication_hook_test",
        "RegisterHook.ItsTensorMayBeAnotherThanTheBuffer",
        does="the hook is dropped",
    ),
]

# What else is changed in the copy: file, text, text instead.
EDITS = [
    (
        "comm/tree_sum/sum_tree.cc",
        "  const int p = left.end - left.begin,",
        '  if (Disabled("virtual_ranks (tree)")) return true;\n  const int p = left.end - left.begin,',
    ),
    (
        "comm/tree_sum/tree_sum.cc",
        "  if (GroupAccess::TreeSumBackendOf(*group_, output.device().type())) {",
        '  if (Disabled("virtual_ranks (TreeSum)")) {\n'
        "    for (size_t i = 1; i < sums.size(); ++i) sums[0].add_(sums[i]);\n"
        "    if (!output.is_same(sums[0])) output.copy_(sums[0]);\n"
        "    output.div_(divisor);\n"
        "    return PendingTreeSum(group_->AllReduce(output));\n"
        "  }\n"
        "  if (GroupAccess::TreeSumBackendOf(*group_, output.device().type())) {",
    ),
    (
        "ddp/internal/replica.cc",
        "if (place > 0) RestoreBuffers(",
        'if (place > 0 && !Disabled("virtual_ranks (buffers)")) RestoreBuffers(',
    ),
    (
        "ddp/internal/replica.cc",
        "at::manual_seed(SeedOf(",
        'if (!Disabled("virtual_ranks (generators)")) at::manual_seed(SeedOf(',
    ),
    (
        "ddp/internal/replica.cc",
        "reducer_->PrepareForward(Syncs(), sync_);",
        'reducer_->PrepareForward(Syncs() || Disabled("NoSync"), sync_ || Disabled("NoSync"));',
    ),
    (
        "ddp/internal/replica.cc",
        "reducer_->SetHook(std::move(hook));",
        'if (!Disabled("RegisterHook")) reducer_->SetHook(std::move(hook));',
    ),
    (
        "ddp/join.cc",
        "if (!options.enable) return;",
        'if ((!options.enable && !Disabled("JoinOptions.enable")) || Disabled("Join")) return;',
    ),
    (
        "ddp/join.cc",
        "mode.divide_by_initial_world_size = options.divide_by_initial_world_size;",
        "mode.divide_by_initial_world_size =\n"
        '      options.divide_by_initial_world_size || Disabled("JoinOptions.divide_by_initial_world_size");',
    ),
    (
        "ddp/join.cc",
        "mode.stop_together = options.throw_on_early_termination;",
        "mode.stop_together =\n"
        '      options.throw_on_early_termination && !Disabled("JoinOptions.throw_on_early_termination");',
    ),
    (
        "ddp/join.cc",
        "if (options_.throw_on_early_termination) {",
        'if (options_.throw_on_early_termination && !Disabled("JoinOptions.throw_on_early_termination")) {',
    ),
]


def fields(header, struct):
    """The names of the data members of `struct` in the text of a header."""
    body = re.search(rf"struct {struct} \{{\n(.*?)\n\}};", header, re.DOTALL).group(1)
    body = re.sub(r"//.*", "", body)
    return re.findall(r"^\s*[\w:<>, ]+?\s(\w+)(?: = [^;]+)?;", body, re.MULTILINE)


def switchable_options():
    """The expression that makes of `options` those with what is disabled."""
    statements = "\n".join(f'      if (Disabled("{s.name}")) {{ {s.disable} }}' for s in SHOWN if s.disable)
    return f"[](lockstep::ddp::Options o) {{\n{statements}\n      return o;\n    }}(options)"


def replace_once(path, old, new):
    text = path.read_text()
    if text.count(old) != 1:
        sys.exit(f"{path}: has {old!r} {text.count(old)} times, expected once: this script needs an update")
    path.write_text(text.replace(old, new))


def add_switches(copy):
    replica = copy / "ddp/internal/replica.cc"
    replace_once(replica, "new Replica(module, group, options)", f"new Replica(module, group, {switchable_options()})")
    for path, old, new in EDITS:
        replace_once(copy / path, old, new)
    for path in sorted({path for path, _, _ in EDITS}):
        text = (copy / path).read_text()
        (copy / path).write_text(text.replace("\nnamespace lockstep::", SWITCH + "namespace lockstep::", 1))


def make_copy(copy):
    files = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        stdout=subprocess.PIPE,
    ).stdout.decode()
    for name in [*filter(None, files.split("\0")), ".bazelrc.user"]:
        if (ROOT / name).is_file():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, copy / name)


def run_tests(copy, targets, disabled, jobs):
    """Bazel's exit code, and for each target the cases that failed or never ended."""
    command = ["./bazelw", "test", f"--jobs={jobs}", "--keep_going", "--test_output=summary", "--noshow_progress"]
    command += [f"--test_env=LOCKSTEP_DISABLED={disabled}", *(f"//ddp:{target}" for target in targets)]
    # 3: built, and tests failed.
    code = subprocess.run(command, cwd=copy, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode
    if code not in (0, 3):
        sys.exit(f"with {disabled or 'nothing'} disabled: Bazel's exit code is {code}, expected that of tests")
    red = []
    for target in targets:
        log = (copy / f"bazel-testlogs/ddp/{target}/test.log").read_text(errors="replace")
        began, ended = (set(re.findall(rf"^\[ *{mark} *\] (\w+\.\w+)", log, re.MULTILINE)) for mark in ("RUN", "OK"))
        red += sorted(began - ended)
    return code, red


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--only", default="", help="options, separated by commas")
    arguments = parser.parse_args()
    only = set(filter(None, arguments.only.split(",")))
    chosen = [s for s in SHOWN if not only or s.name in only]

    failures = 0
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        copy = pathlib.Path(folder) / "lockstep"
        copy.mkdir()
        make_copy(copy)
        add_switches(copy)
        try:
            code, red = run_tests(copy, sorted({s.test for s in chosen}), "", arguments.jobs)
            if code:
                sys.exit(f"with nothing disabled tests fail: {', '.join(red)}")
            for shown in chosen:
                code, red = run_tests(copy, [shown.test], shown.name, arguments.jobs)
                as_said = code == 3 and shown.case in red
                failures += not as_said
                others = len(red) - 1
                print(f"{'red' if as_said else 'STILL GREEN'}: {shown.name}: {shown.case}, {others} others", flush=True)
                rows.append(f"| {shown.name} | {shown.does} | {shown.case} | {others} |")
        finally:
            subprocess.run(["./bazelw", "clean", "--expunge"], cwd=copy, stderr=subprocess.DEVNULL)
    if failures:
        sys.exit(f"{failures} of {len(chosen)} options are not shown by the test case that is said to show them")
    if not only:
        RECORD.write_text(
            "# The test that fails when an option has no effect\n\n"
            "disable_options.py wrote this page; its first lines explain the method. The last column counts\n"
            "further failing cases of the same test.\n\n"
            "| Option | Disabled | Test case that fails | Others |\n|---|---|---|---|\n" + "\n".join(rows) + "\n\n"
            "devices_test, which needs a GPU, shows the effect of device_ids and output_device on tensors there:\n"
            "DeviceIds.InputsAreMovedToTheModulesGpu, DeviceIds.WithoutThemInputsStayWhereTheyAre,\n"
            "OutputDevice.OutputsAreMovedThere.\n"
        )


if __name__ == "__main__":
    main()
