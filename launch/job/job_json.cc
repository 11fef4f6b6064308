// Each struct has one list of its fields, by which it is written and read.

#include "lockstep/launch/job/job_json.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/cord.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "lockstep/base/json_fields.h"
#include "lockstep/base/status.h"

namespace lockstep::launch {

constexpr int kMostRestarts = 1 << 24;

struct EncodedStatus {
  struct Payload {
    std::string url;
    std::string base64;
  };
  int code = 0;
  std::string message;
  std::vector<Payload> payloads;
};

void Fields(JsonFields& json, EncodedStatus::Payload& payload) {
  json.Required("url", payload.url);
  json.Required("base64", payload.base64);
}

void Fields(JsonFields& json, EncodedStatus& status) {
  json.Required("code", status.code);
  json.Required("message", status.message);
  json.Rows("payloads", status.payloads);
}

// A field that holds a status. It is missing if the status is OK.
void StatusField(JsonFields& json, const char* name, absl::Status& status) {
  std::optional<EncodedStatus> encoded;
  if (!json.reads() && !status.ok()) {
    encoded = EncodedStatus{status.raw_code(), std::string(status.message()), {}};
    status.ForEachPayload([&](absl::string_view url, const absl::Cord& payload) {
      encoded->payloads.push_back({std::string(url), absl::Base64Escape(std::string(payload))});
    });
  }
  json.Field(name, encoded);
  if (!json.reads() || !encoded) return;
  status = absl::Status(static_cast<absl::StatusCode>(encoded->code), encoded->message);
  for (const auto& [url, base64] : encoded->payloads) {
    std::string payload;
    if (absl::Base64Unescape(base64, &payload)) status.SetPayload(url, absl::Cord(payload));
  }
}

void Fields(JsonFields& json, NodeLimits& limits) {
  json.Required("number", limits.number);
  json.Required("min_nodes", limits.min_nodes);
  json.Required("max_nodes", limits.max_nodes);
}

void Fields(JsonFields& json, JobProgram& program) {
  json.Optional("words", program.words);
  json.Optional("script", program.script);
  json.Optional("program_hash", program.program_hash);
  json.Optional("script_hash", program.script_hash);
}

void Fields(JsonFields& json, StepFailure& failure) {
  json.Required("step", failure.step);
  json.Required("rank", failure.rank);
  json.Required("cause", failure.cause);
}

void Fields(JsonFields& json, Failure& failure) {
  StatusField(json, "status", failure.status);
  json.Optional("not_started", failure.not_started);
  json.Optional("consequence", failure.consequence);
  json.Optional("killed", failure.killed);
  json.Optional("did_not_leave", failure.did_not_leave);
  json.Age("age_ns", failure.time_ns);
  json.Field("own", failure.own);
}

void Fields(JsonFields& json, JoinOptions& ask) {
  json.Required("min_ranks", ask.min_ranks);
  json.Required("max_ranks", ask.max_ranks);
  json.Required("max_restarts", ask.max_restarts);
  json.Nanoseconds("leave_ns", ask.leave_timeout);
  json.Optional("reason", ask.reason);
  json.Field("failure", ask.failure);
  json.Optional("silent_hosts", ask.silent_hosts);
}

void Fields(JsonFields& json, SlotState& slot) {
  json.Required("process", slot.process);
  json.Enum("phase", slot.phase, SlotState::Phase::kSucceeded);
  json.Optional("left", slot.left);
  if (slot.phase == SlotState::Phase::kReady) json.Required("ask", slot.ask);
  if (slot.phase == SlotState::Phase::kFailed) json.Required("failure", slot.failure);
  json.Optional("done", slot.done);
  json.Optional("all_done", slot.all_done);
  json.Optional("unfit", slot.unfit);
  json.Optional("ends_job", slot.ends_job);
}

void Fields(JsonFields& json, AgentState& state) {
  json.Required("host", state.host);
  json.Required("address", state.address);
  json.Required("port", state.port);
  json.Required("node_rank", state.node_rank);
  json.Required("ranks", state.ranks);
  json.Required("spares", state.spares);
  json.Optional("flags", state.flags);
  json.Field("program", state.program);
  json.Enum("phase", state.phase, AgentState::Phase::kLeaving);
  json.Required("start", state.start);
  json.Required("entry", state.entry);
  if (json.reads() || !state.failure.status.ok()) json.Field("failure", state.failure);
  json.Optional("leaving", state.leaving);
  json.Optional("signal", state.signal);
  json.Optional("drains", state.drains);
  json.Required("resize", state.resize);
  json.Optional("link_port", state.link_port);
  json.Optional("progressed", state.progressed);
  json.Field("step", state.step);
  if (json.reads() || !state.slots.empty()) json.Field("slots", state.slots);
}

void Fields(JsonFields& json, Member& member) {
  json.Required("agent", member.agent);
  json.Required("entry", member.entry);
  json.Required("host", member.host);
  json.Required("address", member.address);
  json.Required("port", member.port);
  json.Required("ranks", member.ranks);
  json.Required("spares", member.spares);
}

void Fields(JsonFields& json, Leaver& leaver) {
  json.Required("agent", leaver.agent);
  json.Required("host", leaver.host);
  json.Required("reason", leaver.reason);
  json.Required("signal", leaver.signal);
}

void Fields(JsonFields& json, Stranger& stranger) {
  json.Required("agent", stranger.agent);
  json.Required("why", stranger.why);
}

void Fields(JsonFields& json, CutHosts::Memory::LeftOut& left_out) {
  json.Required("agent", left_out.host.agent);
  json.Required("name", left_out.host.name);
  json.Required("times", left_out.times);
  json.Required("waits", left_out.waits);
}

void Fields(JsonFields& json, CutHosts::Cut& cut) {
  json.Required("agent", cut.agent);
  json.Required("other", cut.other);
}

void Fields(JsonFields& json, CutHosts::Memory& memory) {
  json.Rows("cuts", memory.cuts);
  json.Rows("left_out", memory.left_out);
  json.Optional("line", memory.line);
}

void Fields(JsonFields& json, RankPlan::Node& node) {
  json.Required("agent", node.agent);
  json.Required("host", node.host);
  json.Required("entry", node.entry);
  json.Required("ranks", node.ranks);
  json.Required("first", node.first);
  json.Required("slots", node.slots);
  json.Required("leaves", node.leaves);
  json.Required("gone", node.gone);
  json.Required("used_port", node.used_port);
}

void Fields(JsonFields& json, RankPlan::Slot& slot) {
  json.Enum("state", slot.state, RankPlan::State::kLost);
  json.Required("rank", slot.rank);
  json.Required("local_rank", slot.local_rank);
  json.Required("owes", slot.owes);
  json.Required("failed_starts", slot.failed_starts);
  json.Required("process", slot.process);
  json.Required("node", slot.node);
  json.Required("late", slot.late);
}

// Returns whether the plan's indices of slots and nodes are in range.
bool IsWhole(const RankPlan& plan) {
  const int slots = static_cast<int>(plan.slots.size()), nodes = static_cast<int>(plan.nodes.size());
  const auto is_slot = [&](int slot) { return slot >= 0 && slot < slots; };
  const auto has_slots = [&](const RankPlan::Node& n) {
    return n.ranks > 0 && n.slots >= n.ranks && is_slot(n.first) && n.slots <= slots - n.first;
  };
  const auto has_node = [&](const RankPlan::Slot& s) { return s.node >= 0 && s.node < nodes; };
  return absl::c_all_of(plan.nodes, has_slots) && absl::c_all_of(plan.slots, has_node) &&
         absl::c_all_of(plan.members, is_slot);
}

// There may be thousands of slots, so they are rows.
void Fields(JsonFields& json, RankPlan& plan) {
  json.Required("start", plan.start);
  json.Rows("nodes", plan.nodes);
  json.Rows("slots", plan.slots);
  json.Enum("phase", plan.phase, RankPlan::Phase::kRegrouping);
  json.Required("stays", plan.stays);
  json.Required("formed", plan.formed);
  json.Required("restarts", plan.restarts);
  json.Required("step", plan.step);
  json.Optional("barren", plan.barren);
  json.Required("generation", plan.generation);
  json.Required("members", plan.members);
  json.Optional("master_addr", plan.master_addr);
  json.Optional("master_port", plan.master_port);
  json.Optional("reason", plan.reason);
  json.Field("failure", plan.failure);
  json.Enum("order", plan.order, RegroupOrder::kNow);
  json.Optional("order_reason", plan.order_reason);
  json.Field("causes", plan.causes);
  json.Optional("failure_count", plan.failure_count);
  json.Field("error", plan.error);
  json.Optional("failed_start", plan.failed_start);
  json.Optional("progressed", plan.progressed);
  json.Optional("finished_members", plan.finished_members);
  json.Optional("agreed", plan.agreed);
  json.Optional("resumes", plan.resumes);
  json.Optional("complete", plan.complete);
  json.Optional("awaited", plan.awaited);
  json.Field("cuts", plan.cuts);
  StatusField(json, "verdict", plan.verdict);
  json.Field("ending", plan.ending);
  StatusField(json, "late", plan.late);
  if (json.reads() && !IsWhole(plan)) json.Fail("the ranks are not whole");
}

void Fields(JsonFields& json, JobState& state) {
  json.Enum("phase", state.phase, JobState::Phase::kDone);
  json.Required("start", state.start);
  json.Required("entries", state.entries);
  json.Required("members", state.members);
  json.Field("left", state.left);
  json.Optional("drained", state.drained);
  json.Required("limits", state.limits);
  json.Required("restarts", state.restarts);
  if (state.restarts < 0 || state.restarts > kMostRestarts) json.Fail("a strange number of restarts");
  json.Optional("reason", state.reason);
  json.Optional("lost", state.lost);
  json.Field("program", state.program);
  json.Rows("strangers", state.strangers);
  json.Optional("flags", state.flags);
  const bool has_ranks = state.ranks.stays || state.ranks.generation > 0;
  if (json.reads() || has_ranks) json.Field("ranks", state.ranks);
  StatusField(json, "result", state.result);
}

std::string EncodeAgent(const AgentState& state, int64_t now_ns) {
  JsonOptions options;
  options.now_ns = now_ns;
  return WriteJson(state, options);
}

std::string EncodeJob(const JobState& state) { return WriteJson(state); }

absl::StatusOr<AgentState> DecodeAgent(absl::string_view text, int64_t received_ns) {
  JsonOptions options;
  options.now_ns = received_ns;
  AgentState state;
  const absl::Status status = ReadJson(text, &state, options);
  if (!status.ok()) return Annotate(status, "an agent's state is not readable");
  return state;
}

absl::StatusOr<JobState> DecodeJob(absl::string_view text) {
  JobState state;
  const absl::Status status = ReadJson(text, &state);
  if (!status.ok()) return Annotate(status, "the job's state is not readable");
  // A cause's time has a meaning only on the clock of the leader that saw it, so it comes before later ones of its
  // kind.
  for (Failure& cause : state.ranks.causes) cause.time_ns = 0;
  return state;
}

}  // namespace lockstep::launch
