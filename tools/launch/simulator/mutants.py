#!/usr/bin/env python3
"""Shows that the simulator finds mistakes in the launcher's decisions.

  tools/launch/simulator/mutants.py [--schedules=100000] [--only=name,name]

The mistakes are listed below; tools/mutation_testing.py makes them in a copy of the checkout. With no mistake no schedule
may break a rule, and with one mistake some schedule must. mutants.md is what came of it (not written with --only).
"""

import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).absolute().parents[2]))
import mutation_testing
from mutation_testing import Mutant

C, A, R = (f"tools/launch/agent/internal/{name}.cc" for name in ("coordinator", "agent_steps", "job_ranks"))
M, N = (f"tools/launch/internal/{name}.cc" for name in ("membership", "node_ranks"))

MUTANTS = [
    Mutant(
        "candidates",
        C,
        "if (agent.phase == AgentPhase::kReady && !IsDrained(id)) order",
        "if ((agent.phase == AgentPhase::kReady || @) && !IsDrained(id)) order",
        "a node that runs ranks or leaves is taken for the next generation",
    ),
    Mutant(
        "min_nodes",
        C,
        "if (candidates < min_nodes()) {",
        "if (candidates < min_nodes() - @) {",
        "one node fewer than the least is enough",
    ),
    Mutant(
        "max_nodes",
        C,
        "job_.members.size()) == max_nodes()) break;",
        "job_.members.size()) == max_nodes() + @) break;",
        "one node more than the most takes part",
    ),
    Mutant(
        "others_end",
        C,
        "    if (agent.phase != AgentPhase::kReady ||",
        "    if ((agent.phase != AgentPhase::kReady && !@) ||",
        "a generation forms while ranks of another node still run",
        "in the phase before, the leader has waited for all members; a node that was evicted in that generation is "
        "outside the rule",
    ),
    Mutant(
        "too_old",
        C,
        " agent.generation < job_.generation) return",
        " (agent.generation < job_.generation && !@)) return",
        "the state of an agent that has not seen the last generation counts",
    ),
    Mutant(
        "same_number",
        C,
        "  ++job_.generation;",
        "  if (!@) ++job_.generation;",
        "the next generation has the same number",
    ),
    Mutant(
        "no_join_timeout",
        C,
        "  if (now < forming_since_ + limits_.join_timeout) return false;",
        "  if (@ || now < forming_since_ + limits_.join_timeout) return false;",
        "the leader waits for nodes for ever",
    ),
    Mutant(
        "no_look_at_join",
        C,
        "  LookAt(forming_since_ + limits_.join_timeout);",
        "  if (!@) LookAt(forming_since_ + limits_.join_timeout);",
        "nobody looks at the clock when too few nodes came",
    ),
    Mutant(
        "no_look_at_last_call",
        C,
        "  LookAt(enough_since_ + limits_.last_call);",
        "  if (!@) LookAt(enough_since_ + limits_.last_call);",
        "nobody looks at the clock after the last call",
    ),
    Mutant(
        "early_success",
        C,
        "notes_.succeeded.size() == job_.members.size()",
        "notes_.succeeded.size() + @ == job_.members.size()",
        "the job succeeds before the last node has",
    ),
    Mutant(
        "lost_unseen",
        C,
        "    if (notes_.lost.count(member.agent) != 0) {\n      End",
        "    if (notes_.lost.count(member.agent) != 0 && !@) {\n      End",
        "a lost node does not end the generation",
    ),
    Mutant(
        "left_unseen",
        C,
        "    } else if ((notes_.left.count(member.agent) != 0 ||",
        "    } else if (((notes_.left.count(member.agent) != 0 && !@) ||",
        "a node that leaves does not end the generation",
    ),
    Mutant(
        "failure_unseen",
        C,
        "    } else if (agent && HasFailed(*agent, job_.generation)) {",
        "    } else if (agent && HasFailed(*agent, job_.generation) && !@) {",
        "a failed rank does not end the generation",
    ),
    Mutant(
        "ranks_run",
        C,
        "if (HasRanks(*agent, job_.generation) ||",
        "if ((HasRanks(*agent, job_.generation) && !@) ||",
        "the leader does not wait until the ranks have ended",
    ),
    Mutant(
        "old_word",
        C,
        "|| agent->generation < job_.generation) return false;",
        "|| (agent->generation < job_.generation && !@)) return false;",
        "the cause is named before each member has spoken about the generation",
        first_seed=800000,
    ),
    Mutant(
        "spare_anchor",
        C,
        "anchor != notes_.left.end() && !IsMember(anchor->first)",
        "!@ && anchor != notes_.left.end() && !IsMember(anchor->first)",
        "the node that serves cannot leave while it is a spare",
        first_seed=300000,
    ),
    Mutant(
        "last_failure", R, "a.time_ns) <", "@ ? b.time_ns : a.time_ns) <", "failures are not compared by their times"
    ),
    Mutant(
        "consequence",
        R,
        "std::make_tuple(a.consequence, !a.killed,",
        "std::make_tuple(a.consequence && !@, !a.killed,",
        "a consequence may come before its cause",
    ),
    Mutant(
        "old_failure",
        C,
        "bool HasFailed(const AgentState& agent, int64_t generation) {\n  return agent.generation == generation &&",
        "bool HasFailed(const AgentState& agent, int64_t generation) {\n  return (agent.generation == generation || @) &&",
        "a failure of an earlier generation counts",
    ),
    Mutant(
        "restarts_forgotten",
        C,
        "  ++job_.restarts;",
        "  if (!@) ++job_.restarts;",
        "a new leader does not know of the restarts",
    ),
    Mutant(
        "policy_anew",
        C,
        "  for (int i = 0; i < job_.restarts; ++i)",
        "  for (int i = 0; i < job_.restarts && !@; ++i)",
        "a new leader begins to count restarts anew",
    ),
    Mutant(
        "unlimited",
        C,
        "  if (!policy_.Restart(end, formed_, now)) {",
        "  if (!policy_.Restart(end, formed_, now) && !@) {",
        "restarts have no limit",
    ),
    Mutant(
        "leave_not_confirmed",
        C,
        "    job_.left.push_back(id);",
        "    if (!@) job_.left.push_back(id);",
        "a node is not told that its leave was seen",
    ),
    Mutant(
        "anchor_goes",
        C,
        "if (id == limits_.anchor ||",
        "if ((id == limits_.anchor && !@) ||",
        "the node that serves the others may go before the job is done",
    ),
    Mutant(
        "anchor_left",
        C,
        "  return agent == limits_.anchor ||",
        "  return (agent == limits_.anchor && !@) ||",
        "the job goes on without the node that serves it",
    ),
    Mutant(
        "notes_kept",
        C,
        "  notes_ = {};\n  enough_since_",
        "  if (!@) notes_ = {};\n  enough_since_",
        "what was noted of the generation before counts for the next",
    ),
    Mutant(
        "always_room",
        C,
        "  if (full || !comes",
        "  if ((full && !@) || !comes",
        "a full generation ends for a newcomer",
    ),
    Mutant(
        "lost_by_success",
        C,
        "!agent && notes_.succeeded.count(member.agent) == 0 &&",
        "!agent && (@ || notes_.succeeded.count(member.agent) == 0) &&",
        "a node that has succeeded and gone counts as lost",
    ),
    Mutant(
        "leader_forgets",
        C,
        "job_(std::move(last)),",
        "job_(@ ? JobState() : std::move(last)),",
        "a new leader does not go on from the last decision",
    ),
    Mutant(
        "node_order",
        C,
        "  const auto key = [&](const std::string& id, const AgentState& agent) {\n"
        "    const auto earlier = before.find(id);\n"
        "    return std::make_tuple(agent.node_rank >= 0 ? static_cast<size_t>(agent.node_rank) : kLast,\n"
        "                           earlier == before.end() ? kLast : earlier->second, agent.host, id);",
        "  size_t earlier_order = 0;\n"
        "  const auto key = [&](const std::string& id, const AgentState& agent) {\n"
        "    const auto earlier = before.find(id);\n"
        "    return std::make_tuple(agent.node_rank >= 0 ? static_cast<size_t>(agent.node_rank) : kLast,\n"
        "                           earlier == before.end() || @ ? kLast - job_.generation % 2 * earlier_order++\n"
        "                                                        : earlier->second, agent.host, id);",
        "nodes change their order from one generation to the next",
    ),
    Mutant(
        "lost_runs_on",
        A,
        "  if (!lost_.ok() || !in_reach_) return true;",
        "  if ((!lost_.ok() || !in_reach_) && !@) return true;",
        "ranks run on after the rendezvous is lost",
    ),
    Mutant(
        "generation_unseen",
        A,
        "  return job_.generation != state_.generation || job_.phase",
        "  return (job_.generation != state_.generation && !@) || job_.phase",
        "ranks run on when a later generation runs",
    ),
    Mutant(
        "ending_unseen",
        A,
        "|| job_.phase != JobState::Phase::kRunning || node_rank",
        "|| (job_.phase != JobState::Phase::kRunning && !@) || node_rank",
        "ranks run on when their generation ends",
    ),
    Mutant(
        "start_twice",
        A,
        "job_.members[node_rank].entry > state_.entry;",
        "job_.members[node_rank].entry + @ > state_.entry;",
        "a generation starts a second time",
    ),
    Mutant(
        "start_after_leave",
        A,
        "if (!starts || state_.phase != Phase::kReady ||",
        "if (!starts || (state_.phase != Phase::kReady && !@) ||",
        "a node starts ranks although it leaves",
    ),
    Mutant(
        "start_by_strangers",
        A,
        "NodeRankIn(job_);\n  const bool starts =",
        "@ && !job_.members.empty() ? std::max(NodeRankIn(job_), 0) : NodeRankIn(job_);\n  const bool starts =",
        "a node that is no member starts ranks",
    ),
    Mutant(
        "start_in_forming",
        A,
        "      job_.phase == JobState::Phase::kRunning && node_rank >= 0 &&",
        "      (job_.phase == JobState::Phase::kRunning || @) && node_rank >= 0 &&",
        "ranks start in any phase",
    ),
    Mutant(
        "skip_unsaid",
        A,
        "    state_.generation = job.generation;",
        "    if (!@) state_.generation = job.generation;",
        "a node does not say that it skipped a generation",
    ),
    Mutant(
        "skip_keeps_failure",
        A,
        "    state_.failure = {};\n  }",
        "    if (!@) state_.failure = {};\n  }",
        "a skipped generation inherits a failure",
    ),
    Mutant(
        "skip_keeps_port",
        A,
        "    wants_port_ = true;",
        "    wants_port_ = wants_port_ || !@;",
        "a port that others may use is used again",
    ),
    Mutant(
        "start_keeps_port",
        A,
        "  wants_port_ = true;\n  return generation;",
        "  wants_port_ = !@;\n  return generation;",
        "the port of the generation before is used again",
    ),
    Mutant(
        "start_keeps_failure",
        A,
        "  state_.phase = Phase::kRunning;\n  state_.failure = {};",
        "  state_.phase = Phase::kRunning;\n  if (!@) state_.failure = {};",
        "a new generation inherits a failure",
    ),
    Mutant(
        "success_stays",
        A,
        "  if (over) state_.phase = Phase::kReady;",
        "  if (over && !(@ && state_.phase == Phase::kSucceeded)) state_.phase = Phase::kReady;",
        "a node that has succeeded does not take part again",
    ),
    Mutant(
        "leave_forgotten",
        A,
        "  if (!state_.leaving.empty()) state_.phase = Phase::kLeaving;",
        "  if (!state_.leaving.empty() && !@) state_.phase = Phase::kLeaving;",
        "a node forgets its signal when its ranks have ended",
    ),
    Mutant(
        "leave_at_once",
        A,
        "  if (!Runs()) state_.phase = Phase::kLeaving;",
        "  if (!Runs() && !@) state_.phase = Phase::kLeaving;",
        "a node without ranks ignores its signal",
    ),
    Mutant(
        "end_without_job",
        A,
        "  OnJob(JobState(job_));",
        "  if (!@) OnJob(JobState(job_));",
        "a node forgets decisions that came while its ranks ended",
    ),
    Mutant(
        "ready_while_running",
        A,
        "  if (Runs() || state_.phase == Phase::kLeaving) return;",
        "  if ((Runs() && !@) || state_.phase == Phase::kLeaving) return;",
        "a node says that it is ready while ranks run",
    ),
    Mutant(
        "first_rank",
        A,
        "if (i == generation.node_rank) generation.first_rank = generation.world_size;\n    generation.world_size += job_.members[i].ranks;",
        "if (i == generation.node_rank) generation.first_rank = generation.world_size;\n    generation.world_size += @ ? 1 : job_.members[i].ranks;",
        "every node counts as one rank",
    ),
    Mutant(
        "own_address",
        A,
        "generation.master_port = job_.members[0].port;",
        "generation.master_port = job_.members[@ ? generation.node_rank : 0].port;",
        "each node takes its own port for rank 0's",
    ),
    Mutant(
        "no_result",
        A,
        "  if (job_.phase == JobState::Phase::kDone) return job_.result;",
        "  if (job_.phase == JobState::Phase::kDone && !@) return job_.result;",
        "a node does not return when the job is done",
    ),
    Mutant(
        "drain_undecided",
        C,
        "agents.count(drained) == 0 || IsDrained",
        "@ || agents.count(drained) == 0 || IsDrained",
        "the leader does not see whom somebody drains",
    ),
    Mutant(
        "drained_again",
        C,
        "&& !IsDrained(id)) order",
        "&& (!IsDrained(id) || @)) order",
        "a drained node takes part in the next generation",
    ),
    Mutant(
        "drained_runs_on",
        C,
        "|| IsDrained(member.agent)) &&",
        "|| (IsDrained(member.agent) && !@)) &&",
        "a drained node does not end the generation",
    ),
    Mutant(
        "drained_stays",
        A,
        "if (state_.leaving.empty() && absl::c_linear_search",
        "if (!@ && state_.leaving.empty() && absl::c_linear_search",
        "a drained node does not leave",
    ),
    Mutant(
        "resize_undecided",
        C,
        "    if (!is_valid ||",
        "    if (@ || !is_valid ||",
        "the leader does not see a resize",
    ),
    Mutant(
        "too_many_run_on",
        C,
        "if (HasTooManyNodes() &&",
        "if (!@ && HasTooManyNodes() &&",
        "ranks run on when the job has too many nodes",
    ),
    Mutant(
        "min_as_before",
        C,
        "if (candidates < min_nodes()",
        "if (candidates < (@ ? limits_.min_nodes : min_nodes())",
        "the least number of nodes does not change",
    ),
    # Of ranks that stay when another one fails.
    Mutant(
        "loss_unseen",
        C,
        "  if (!loss.empty()) {",
        "  if (!loss.empty() && !@) {",
        "a lost node is not a failure of its ranks",
    ),
    Mutant(
        "needed_leaves",
        C,
        "!IsNeeded(member.agent)) continue;",
        "!IsNeeded(member.agent) || @) continue;",
        "the others go on without a node that they need",
        "the others wait for another node then, which no rule forbids",
    ),
    Mutant(
        "drained_waits",
        C,
        "  } else if (!IsDrained(member.agent) && !IsSurplus(member) &&",
        "  } else if ((!IsDrained(member.agent) || @) && !IsSurplus(member) &&",
        "the ranks of a drained node do not leave",
    ),
    Mutant(
        "removed_runs_on",
        A,
        "node_rank < 0 ||\n         job_.members[node_rank].entry != state_.entry;",
        "(node_rank < 0 ? !@ : job_.members[node_rank].entry != state_.entry);",
        "a node that is a member no more does not end its ranks",
    ),
    Mutant(
        "leader_anew",
        R,
        "if (job.ranks.start != job.generation ||",
        "if (@ || job.ranks.start != job.generation ||",
        "another leader does not know that ranks stay",
    ),
    Mutant(
        "asks_forgotten",
        R,
        "if (!has_asks_) TakeAsks",
        "if (!@ && !has_asks_) TakeAsks",
        "another leader does not give ranks the time to leave",
    ),
    Mutant(
        "old_process",
        R,
        "if (!is_alive || state.process != known.process) return",
        "if (!is_alive || (state.process != known.process && !@)) return",
        "the failure of an earlier process counts again",
    ),
    Mutant(
        "port_again",
        R,
        "agent->link_port != plan_.nodes[node].used_port;",
        "(@ || agent->link_port != plan_.nodes[node].used_port);",
        "a generation gets the port of one before",
        "what a node says of its port is never older than what it says of its ranks",
    ),
    Mutant(
        "members_still_there",
        M,
        "memory_.phase != Phase::kRunning && In(State::kMember).empty())",
        "memory_.phase != Phase::kRunning && (@ || In(State::kMember).empty()))",
        "a generation forms before all have left the one before",
    ),
    Mutant(
        "order_of_ranks",
        M,
        "    return order(a) < order(b);",
        "    return @ ? a > b : order(a) < order(b);",
        "ranks do not keep their order",
    ),
    Mutant(
        "first_cause",
        M,
        "return key(a) < key(b); });",
        "return !@ && key(a) < key(b); });",
        "the reason is the failure that the leader saw first",
    ),
    Mutant(
        "no_kill",
        M,
        "  if (now < kill_at_) {",
        "  if (@ || now < kill_at_) {",
        "a rank that does not leave is not killed",
    ),
    Mutant(
        "lost_owes_nothing",
        M,
        "  process.owes |= process.state == State::kMember ||",
        "  process.owes |= (!@ && process.state == State::kMember) ||",
        "the job succeeds although the ranks of a lost node have not",
    ),
    Mutant(
        "not_told_now",
        N,
        "  if (ranks_.order > told.order &&",
        "  if (!@ && ranks_.order > told.order &&",
        "a node does not tell its ranks to leave",
    ),
]


if __name__ == "__main__":
    sys.exit(mutation_testing.main(__doc__, __file__, "//tools/launch/simulator:simulate", ["--crashes"], MUTANTS))
