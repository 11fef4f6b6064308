// Processes that stay when another one fails (launch/link), under the launchers' own decisions about them.

#include <signal.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lockstep/launch/job/outcome.h"
#include "lockstep/launch/simulator/node.h"
#include "lockstep/launch/simulator/simulation.h"

namespace lockstep::launch {
namespace {

using Kind = NodeSlots::Action::Kind;

constexpr int64_t kLongestStart = 500;  // of a process
constexpr int64_t kLongestStep = 400;   // of a generation's first steps
constexpr int64_t kLongestLeave = 300;  // of a process that leaves its generation
constexpr int64_t kLongestExit = 400;   // of a process whose work is done; few take longer
constexpr int64_t kSlowExit = 10 * kSecond;
constexpr int64_t kSteps = 100;  // of a generation; only their order counts

// How a process ended that was killed, or exited.
absl::Status EndOf(int64_t id, bool killed) {
  Outcome outcome;
  outcome.end.pid = static_cast<pid_t>(id);
  outcome.ended = outcome.failed = true;
  outcome.end.signal = killed ? SIGKILL : 0;
  outcome.end.exit_code = killed ? -1 : 3;
  const std::vector<Outcome> alone = {outcome};
  return FailureStatus(alone[0], alone, absl::ZeroDuration());
}

}  // namespace

// Calls `run` later, unless the process of this slot has ended by then.
void Simulation::AfterIn(Node* node, int slot, int64_t ms, std::function<void(Process*)> run) {
  After(ms, [node, slot, id = node->processes[slot].id, run = std::move(run)] {
    if (!node->alive || !node->slots || node->ending) return;
    Process& process = node->processes[slot];
    if (process.id == id && process.alive) run(&process);
  });
}

void Simulation::StartProcesses(Node* node) {
  const AgentState& state = node->steps->state();
  const int slots = state.ranks + state.spares;
  node->slots.emplace(slots);
  node->processes.assign(slots, Process());
  node->link_port = ++link_ports_;
  for (int slot = 0; slot < slots; ++slot) StartProcess(node, slot);
}

void Simulation::StartProcess(Node* node, int slot) {
  Process process;
  process.id = ++process_ids_;
  process.alive = true;
  node->processes[slot] = process;
  AfterIn(node, slot, Random(kLongestStart / 2), [this, node](Process*) { SayThatItStays(node); });
  const bool fails = config_.faults > 0 && now() < kFaultTime && Random(15) == 0;
  AfterIn(node, slot, 5 + Random(kLongestStart), [this, node, slot, fails](Process*) {
    if (fails) {
      FailProcess(node, slot);
    } else {
      SayReady(node, slot, 0, "");
    }
  });
}

void Simulation::SayThatItStays(Node* node) {
  node->slots->OnStays();
  PostSlots(node);
}

void Simulation::SayReady(Node* node, int slot, int64_t left, const std::string& reason) {
  Process& process = node->processes[slot];
  Trace(absl::StrCat("process ", process.id, " of ", node->id, " is ready and has left ", left));
  process.in = 0;
  process.ready = true;
  JoinOptions ask;
  ask.max_ranks = config_.max_ranks;
  ask.max_restarts = 10;
  ask.leave_timeout = absl::Milliseconds(kLeaveTime);
  ask.reason = reason;
  if (left != 0) ask.silent_hosts = SilentHosts(*node, process.id, left);
  node->slots->OnReady(slot, left, ask);
  PostSlots(node);
}

void Simulation::PostSlots(Node* node) {
  if (!node->running || node->ending || !node->slots->TakeChange()) return;
  node->steps->OnSlots(*node->slots, node->link_port);
  Post(node);
}

void Simulation::Apply(Node* node) {
  node->slots->OnRanks(node->steps->Ranks());
  for (const NodeSlots::Action& action : node->slots->Take()) {
    switch (action.kind) {
      case Kind::kGeneration:
        SendGeneration(node, action.slot);
        break;
      case Kind::kOrder:
        SendOrder(node, action.slot);
        break;
      case Kind::kStart:
        AuditAfterWork(absl::StrCat(node->id, " starts a process"), node->slots->plan().generation);
        StartProcess(node, action.slot);
        break;
      case Kind::kKill:
        AuditKill(*node, action.slot);
        FailProcess(node, action.slot);
        break;
      case Kind::kGiveUp:
        break;
    }
  }
  if (node->slots->has_used(node->link_port)) {
    node->link_port = ++link_ports_;
    node->slots->RecordChange();
  }
  PostSlots(node);
}

void Simulation::SendGeneration(Node* node, int slot) {
  const RankPlan& ranks = node->slots->plan();
  AuditTold(*node, slot);
  Process& told = node->processes[slot];
  told.in = ranks.generation;
  told.ready = false;
  told.was_in = true;
  if (node->slots->place(slot).rank == 0) {
    if (ranks.master_port != node->link_port) Violation(absl::StrCat(node->id, " does not hold the port of rank 0"));
  }
  const int64_t generation = ranks.generation;
  const int64_t step = (generation + 1) * kSteps;
  AfterIn(node, slot, 50 + Random(kLongestStep), [this, node, slot, generation, step](Process* process) {
    if (process->in != generation) return;
    node->slots->OnProgress(slot, step);
    PostSlots(node);
  });
  AwaitSilence(node, slot, generation);
  const int64_t ends_ms = generations_[generation].told_ms + RunTime();
  AfterIn(node, slot, std::max<int64_t>(ends_ms - now(), 0) + Random(100),
          [this, node, slot, generation](Process*) { TryToFinish(node, slot, generation); });
}

// Where ranks agree, each waits until all are there.
void Simulation::TryToFinish(Node* node, int slot, int64_t generation) {
  if (node->processes[slot].in != generation || node->slots->plan().order != RegroupOrder::kGoOn) return;
  if (!agrees_ || HaveAllDone(generation)) return FinishProcess(node, slot);
  AfterIn(node, slot, 50 + Random(50),
          [this, node, slot, generation](Process*) { TryToFinish(node, slot, generation); });
}

bool Simulation::HaveAllDone(int64_t generation) {
  RankGeneration& ranks = generations_[generation];
  if (ranks.passed) return true;
  int there = 0;
  for (const auto& node : nodes_) {
    for (const Process& process : node->processes) there += process.alive && process.in == generation;
  }
  ranks.passed = there == ranks.world_size;
  return ranks.passed;
}

// Few processes do not react in time.
void Simulation::SendOrder(Node* node, int slot) {
  const RankPlan& ranks = node->slots->plan();
  if (ranks.order == RegroupOrder::kNow && Random(15) == 0) return;
  AfterIn(node, slot, Random(kLongestLeave), [this, node, slot, generation = ranks.generation](Process* process) {
    if (process->in == generation && !process->done) SayReady(node, slot, generation, "");
  });
}

void Simulation::FinishProcess(Node* node, int slot) {
  Process& process = node->processes[slot];
  Trace(absl::StrCat("process ", process.id, " of ", node->id, " has done its work"));
  ++generations_[process.in].finished;
  process.done = true;
  RecordIfComplete(process.in);
  node->slots->OnDone(slot, agrees_);
  PostSlots(node);
  AfterIn(node, slot, Random(8) == 0 ? Random(kSlowExit) : Random(kLongestExit),
          [this, node, slot](Process*) { EndProcess(node, slot); });
}

// A few are killed in their exit, or crash.
void Simulation::EndProcess(Node* node, int slot) {
  if (config_.faults > 0 && Random(10) == 0) return FailProcess(node, slot);
  Process& process = node->processes[slot];
  Trace(absl::StrCat("process ", process.id, " of ", node->id, " succeeds"));
  process.alive = process.ready = false;
  node->slots->OnEnd(slot, {});
  PostSlots(node);
}

// Some of the others in its generation notice before they are told.
void Simulation::FailProcess(Node* node, int slot) {
  Process& process = node->processes[slot];
  if (!process.alive) return;
  Trace(absl::StrCat("process ", process.id, " of ", node->id, " fails, in generation ", process.in));
  process.alive = process.ready = false;
  for (auto& [number, generation] : generations_) generation.cuts.erase(process.id);  // it may not have been heard
  Failure failure;
  failure.killed = Random(2) == 0;
  failure.status = EndOf(process.id, failure.killed);
  failure.time_ns = now() * 1000000 + ++failures_in_ms_;
  RecordFailure(*node, process, failure);
  RecordIfComplete(process.in);
  const bool is_early = node->slots->stays() && !node->slots->plan().formed;
  const bool goes_on = node->slots->OnEnd(slot, failure);
  if (is_early && goes_on != failure.killed) {
    Violation(absl::StrCat("process ", process.id, " of ", node->id, failure.killed ? " is killed" : " exits",
                           " before the first generation, and the others ", goes_on ? "go on" : "end"));
  }
  PostSlots(node);
  if (!goes_on) {
    FailNode(node, false);
    return;
  }
  for (const auto& other : nodes_) {
    for (int i = 0; i < static_cast<int>(other->processes.size()); ++i) {
      if (process.in == 0 || other->processes[i].in != process.in || Random(2) == 0) continue;
      AfterIn(other.get(), i, 1 + Random(50), [this, n = other.get(), i, generation = process.in](Process* peer) {
        if (peer->in == generation && !peer->done) SayReady(n, i, generation, "a peer is gone");
      });
    }
  }
}

void Simulation::FailAnyProcess(Node* node) {
  FailProcess(node, static_cast<int>(Random(static_cast<int64_t>(node->processes.size()))));
}

}  // namespace lockstep::launch
