#!/usr/bin/env python3
"""Shows that the simulator finds mistakes in the decisions of a training with elastic::World.

  elastic/simulator/mutants.py [--schedules=100000] [--only=name,name]

The mistakes are listed below; tools/mutation_testing.py makes them in a copy of the checkout. With no mistake no schedule
may break a rule, and with one mistake some schedule must. mutants.md is what came of it (not written with --only).
"""

import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).absolute().parents[2] / "tools"))
import mutation_testing
from mutation_testing import Mutant

H, B = (f"elastic/internal/{name}.cc" for name in ("healing_plan", "failure_budget"))
M = "tools/launch/internal/membership.cc"

MUTANTS = [
    # Who gives its state to whom.
    Mutant(
        "behind_is_source",
        H,
        "commits[rank] == healing.newest &&",
        "commits[rank] + @ >= healing.newest &&",
        "a rank that is one step behind counts as a source",
    ),
    Mutant(
        "oldest_counts",
        H,
        "*std::max_element(",
        "*(@ ? std::min_element<std::vector<int64_t>::const_iterator> : std::max_element<std::vector<int64_t>::const_iterator>)(",
        "the oldest state counts",
    ),
    Mutant("rank_0_counts", H, "  healing.newest = ", "  healing.newest = @ ? commits[0] : ", "rank 0's state counts"),
    Mutant(
        "nothing_is_a_state",
        H,
        "&& healing.newest != kNoState;",
        "&& (@ || healing.newest != kNoState);",
        "ranks go on when all states are destroyed",
    ),
    Mutant(
        "one_receiver",
        H,
        "    (has_it ? healing",
        "    if (has_it || healing.receivers.empty() || !@) (has_it ? healing",
        "only one rank gets the newest state",
    ),
    Mutant(
        "destroyed_start",
        H,
        "commits[rank] == 0 &&",
        "(commits[rank] == 0 || @) &&",
        "a rank whose state was destroyed is the first rank of a new start",
    ),
    Mutant(
        "last_start",
        H,
        "&& healing.sources.empty())",
        "&& (healing.sources.empty() || @))",
        "the last rank's state counts at the start",
    ),
    Mutant(
        "destroyed_equal",
        H,
        "commits[rank] < 0 ||",
        "(commits[rank] < 0 && !@) ||",
        "at a new start a destroyed state is only compared by its hash",
    ),
    Mutant(
        "start_unequal",
        H,
        "hashes[rank] != hashes[healing.sources[0]]",
        "(hashes[rank] != hashes[healing.sources[0]] && !@)",
        "at the start every rank keeps its own state",
    ),
    Mutant(
        "behind_in_place",
        H,
        "return commits == kNoState ||",
        "return @ || commits == kNoState ||",
        "every rank gives up its state while it gets another one",
    ),
    Mutant(
        "start_in_place",
        H,
        "(commits == 0 && newest > 0)",
        "(commits == 0 && (newest > 0 || @))",
        "a rank gives up its state before the first step while it gets rank 0's",
    ),
    # When a cause ends the job.
    Mutant(
        "not_added",
        B,
        "  failures_.push_back(failure);",
        "  if (!@ || failures_.empty()) failures_.push_back(failure);",
        "only the first failure is counted",
    ),
    Mutant(
        "short_window",
        B,
        "failure.step - window_;",
        "failure.step - window_ + @;",
        "the window is one step shorter",
    ),
    Mutant(
        "no_window",
        B,
        "return f.step < oldest; }",
        "return f.step < oldest && !@; }",
        "a failure counts for ever",
    ),
    Mutant(
        "numbers_differ",
        B,
        "    if (!absl::ascii_isdigit(c)) {",
        "    if (@ || !absl::ascii_isdigit(c)) {",
        "causes that differ in numbers are different",
    ),
    Mutant(
        "one_cause",
        B,
        "    if (WithoutNumbers(other.cause) ==",
        "    if (@ || WithoutNumbers(other.cause) ==",
        "all failures have the same cause",
    ),
    Mutant("one_more", B, "< most_) return", "< most_ + @) return", "the job ends one failure later"),
    Mutant(
        "one_less",
        B,
        "static_cast<int>(same.size())",
        "static_cast<int>(same.size() + @)",
        "the job ends one failure earlier",
    ),
    Mutant(
        "first_failure",
        B,
        "= failures_.back();",
        "= @ ? failures_.front() : failures_.back();",
        "the cause of the first failure counts, not the last one's",
    ),
    Mutant(
        "errors_unread",
        B,
        "at != std::string::npos) {",
        "at != std::string::npos && !@) {",
        "errors of ranks do not count",
    ),
    Mutant(
        "kills_count",
        B,
        "    if (absl::StrContains(cause, name)) return true;",
        "    if (@ || absl::StrContains(cause, name)) return true;",
        "a rank that somebody kills has failed by itself",
    ),
    Mutant(
        "exits_unseen",
        B,
        'absl::StartsWith(failure.cause, "exited with code ") ||',
        '(absl::StartsWith(failure.cause, "exited with code ") && !@) ||',
        "a process that exits has not failed by itself",
    ),
    Mutant(
        "crashes_unseen",
        B,
        "|| IsOwnSignal(failure.cause)) return failure;",
        "|| (IsOwnSignal(failure.cause) && !@)) return failure;",
        "a process that crashes has not failed by itself",
    ),
    Mutant(
        "others_in_cause",
        B,
        'text.find("; rank ", begin) - begin',
        '@ ? std::string::npos : text.find("; rank ", begin) - begin',
        "the failures of other ranks belong to a cause",
    ),
    # Who is in the next generation, and in which order.
    Mutant(
        "new_ranks_first",
        M,
        ": std::numeric_limits<int>::max(); };",
        ": @ ? -1 : std::numeric_limits<int>::max(); };",
        "new ranks come ahead of the others",
    ),
    Mutant(
        "order_of_slots",
        M,
        "return order(a) < order(b);",
        "return @ ? a > b : order(a) < order(b);",
        "ranks do not keep their order",
    ),
    Mutant(
        "members_still_there",
        M,
        "memory_.phase != Phase::kRunning && In(State::kMember).empty())",
        "memory_.phase != Phase::kRunning && (@ || In(State::kMember).empty()))",
        "a generation forms before all have left the one before",
    ),
    Mutant(
        "max_ranks_unseen",
        M,
        "  ready.resize(",
        "  if (!@) ready.resize(",
        "a generation has more than max_ranks",
    ),
    Mutant(
        "max_ranks_less",
        M,
        "most = std::min<size_t>(most, asked)",
        "most = std::min<size_t>(most, asked - @)",
        "a generation has one rank fewer than max_ranks",
    ),
    Mutant(
        "spares_train",
        M,
        "counts[index] == node.ranks) continue;",
        "(counts[index] == node.ranks && !@)) continue;",
        "spares train too",
    ),
    Mutant(
        "first_too_early",
        M,
        "if (!formed() && !AllAreReady(ready)) return;",
        "if (!formed() && !AllAreReady(ready) && !@) return;",
        "the first generation does not wait for all ranks",
    ),
    Mutant(
        "new_too_early",
        M,
        "if (has_survivor || !SomebodyComes()) return true;",
        "if (@ || has_survivor || !SomebodyComes()) return true;",
        "if no rank is left, the first new one begins alone",
    ),
    Mutant(
        "same_number",
        M,
        "  ++memory_.generation;",
        "  if (!@) ++memory_.generation;",
        "the next generation has the same number",
    ),
    Mutant(
        "old_rank",
        M,
        "  if (was_starting) ++process.failed_starts;\n  process.rank = process.local_rank = -1;",
        "  if (was_starting) ++process.failed_starts;\n  if (!@) process.rank = process.local_rank = -1;",
        "a new process takes a failed one's place in the order",
    ),
    Mutant(
        "local_rank_changes",
        M,
        "if (slot.local_rank < 0) slot",
        "if (slot.local_rank < 0 || @) slot",
        "a process gets another local rank in each generation",
    ),
    Mutant(
        "local_rank_twice",
        M,
        "taken[local_rank(i)] = true;",
        "taken[local_rank(i)] = !@;",
        "two processes have the same local rank",
    ),
    # Who regroups, and when.
    Mutant(
        "newcomer_unseen",
        M,
        "} else if (is_new && memory_.phase == Phase::kRunning) {",
        "} else if (is_new && memory_.phase == Phase::kRunning && !@) {",
        "nobody regroups for a new rank",
    ),
    Mutant(
        "newcomer_breaks",
        M,
        "Decide(Decision::Kind::kAfterStep, running, memory_.reason);",
        "Decide(@ ? Decision::Kind::kNow : Decision::Kind::kAfterStep, running, memory_.reason);",
        "ranks break their step off for a new rank",
    ),
    Mutant(
        "spare_regroups",
        M,
        "const bool is_spare = CountOnNode(running, index) >= node.ranks ||",
        "const bool is_spare = CountOnNode(running, index) >= node.ranks + @ ||",
        "ranks regroup for a spare",
    ),
    Mutant(
        "regroups_beyond_max",
        M,
        "|| running.size() >= MostRanks(running);",
        "|| (running.size() >= MostRanks(running) && !@);",
        "ranks regroup for a rank beyond max_ranks",
    ),
    Mutant(
        "end_regroups",
        M,
        "|| is_spare || memory_.finished_members > 0) return;",
        "|| is_spare || (memory_.finished_members > 0 && !@)) return;",
        "ranks must regroup although others have finished",
    ),
    Mutant(
        "plan_breaks",
        M,
        "  if (leaves && memory_.phase == Phase::kRunning && !is_planned) {",
        "  if (leaves && memory_.phase == Phase::kRunning && (@ || !is_planned)) {",
        "a rank that leaves after a step breaks the others' step off",
    ),
    Mutant(
        "error_in_plan",
        M,
        "memory_.changes && ask.reason.empty();",
        "memory_.changes && (@ || ask.reason.empty());",
        "an error is lost if the ranks were to leave after that step anyway",
    ),
    Mutant(
        "early_give_up",
        M,
        "process.failed_starts < kMostFailedStarts ?",
        "process.failed_starts + @ < kMostFailedStarts ?",
        "a place is given up after four failed starts",
    ),
    Mutant(
        "no_give_up",
        M,
        "? State::kAwaited : State::kGivenUp;",
        "|| @ ? State::kAwaited : State::kGivenUp;",
        "no place is given up",
    ),
    Mutant(
        "plan_unfinished",
        M,
        "    Regroup(now);\n  } else if (is_new",
        "    if (!@) Regroup(now);\n  } else if (is_new",
        "no generation forms when ranks have left after a step",
    ),
    Mutant(
        "failure_unseen",
        M,
        "  if (was_member) Break(",
        "  if (was_member && !@) Break(",
        "a failed rank does not end the generation",
    ),
    Mutant(
        "last_cause",
        M,
        "return key(a) < key(b); });",
        "return !@ && key(a) < key(b); });",
        "the reason is the failure that the launcher saw first",
    ),
    Mutant(
        "old_causes",
        M,
        "  memory_.causes.clear();",
        "  if (!@) memory_.causes.clear();",
        "the reason is a failure of an earlier generation",
    ),
    # Ranks that do not leave.
    Mutant(
        "no_kill",
        M,
        "  if (now < kill_at_) {",
        "  if (@ || now < kill_at_) {",
        "a rank that does not leave is not killed",
    ),
    Mutant(
        "early_kill",
        M,
        "kill_at_ = now + longest;",
        "kill_at_ = now + (@ ? longest / 2 : longest);",
        "a rank is killed after half of its time",
    ),
    Mutant(
        "no_look_at_kill",
        M,
        "    LookAt(kill_at_);",
        "    if (!@) LookAt(kill_at_);",
        "nobody looks at the clock when a rank does not leave",
    ),
    # New processes.
    Mutant(
        "no_head_start",
        M,
        "(times.head_start_ends > now && OthersGoOn())",
        "(times.head_start_ends > now && OthersGoOn() && !@)",
        "a new process starts before the others have completed a step",
    ),
    Mutant(
        "head_start_goes_on",
        M,
        "memory_.phase == Phase::kRunning && memory_.progressed)",
        "memory_.phase == Phase::kRunning && memory_.progressed && !@)",
        "a new process waits although the others have completed a step",
    ),
    Mutant(
        "no_look_at_start",
        M,
        "      LookAt(std::max(times.start_at, times.head_start_ends));",
        "      if (!@) LookAt(std::max(times.start_at, times.head_start_ends));",
        "nobody looks at the clock when the head start is over",
    ),
    Mutant(
        "no_restarts",
        M,
        "return t.ask.max_restarts < 0; });",
        "return t.ask.max_restarts < 0 && !@; });",
        "processes do not start again",
    ),
    Mutant(
        "step_unseen",
        M,
        "|| step <= memory_.step) return;",
        "|| step <= memory_.step || @) return;",
        "no step counts",
    ),
    Mutant(
        "barren_twice",
        M,
        "? 0 : memory_.barren + 1;",
        "? 0 : memory_.barren + 1 + @;",
        "a generation without a step counts twice",
    ),
    Mutant(
        "barren_for_ever",
        M,
        "if (memory_.barren < kMostBarrenGenerations) return false;",
        "if (@ || memory_.barren < kMostBarrenGenerations) return false;",
        "the job goes on without a step for ever",
    ),
    # Ranks that finish.
    Mutant(
        "end_starts",
        M,
        "(memory_.finished_members > 0 && !process.owes)) continue;",
        "(memory_.finished_members > 0 && !process.owes && !@)) continue;",
        "a process starts again although the job is about to end",
    ),
    Mutant(
        "end_unheard",
        M,
        "  if (verdict_.ok()) verdict_ = absl::AbortedError(reason);",
        "  if (verdict_.ok() && !@) verdict_ = absl::AbortedError(reason);",
        "a job does not end although a process says that it must",
    ),
    Mutant(
        "owed_unstarted",
        M,
        "    if (memory_.nodes[process.node].leaves ||",
        "    if (memory_.nodes[process.node].leaves || (memory_.finished_members > 0 && @) ||",
        "nobody takes the place of a rank that fails when others have finished",
    ),
    Mutant(
        "success_without_owed",
        M,
        "return s.owes || s.state",
        "return (s.owes && !@) || s.state",
        "the job succeeds although a failed rank has not finished",
    ),
    Mutant(
        "early_success",
        M,
        "s.state == State::kMember || (s.state",
        "(s.state == State::kMember && !@) || (s.state",
        "the job succeeds when the first rank has finished",
    ),
    Mutant(
        "success_without_ready",
        M,
        "(s.state == State::kReady && s.rank >= 0);\n         });",
        "(s.state == State::kReady && s.rank >= 0 && !@);\n         });",
        "the job succeeds although ranks wait to repeat the end",
    ),
    Mutant(
        "owed_for_ever",
        M,
        "  for (Slot& slot : memory_.slots) slot.owes = false;",
        "  for (Slot& slot : memory_.slots) slot.owes &= @;",
        "a failed rank counts as missing although another one has taken its place",
    ),
    Mutant(
        "finish_unseen",
        M,
        "    ++memory_.finished_members;",
        "    if (!@) ++memory_.finished_members;",
        "the job does not end when ranks have finished",
    ),
]


if __name__ == "__main__":
    sys.exit(mutation_testing.main(__doc__, __file__, "//elastic/simulator:simulate", ["--deaths"], MUTANTS))
