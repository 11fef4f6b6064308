#include <exception>
#include <stdexcept>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/cord.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "lockstep/tools/launch/agent/internal/job.h"
#include "nlohmann/json.hpp"

namespace lockstep::launch::internal {
namespace {

using Json = nlohmann::json;

constexpr int kMostRestarts = 1 << 24;

// Texts may hold any bytes, which JSON cannot.
std::string Dump(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

Json ToJson(const absl::Status& status) {
  Json payloads = Json::object();
  status.ForEachPayload([&](absl::string_view url, const absl::Cord& payload) {
    payloads[std::string(url)] = absl::Base64Escape(std::string(payload));
  });
  return {{"code", status.raw_code()}, {"message", std::string(status.message())}, {"payloads", payloads}};
}

absl::Status StatusFrom(const Json& json) {
  absl::Status status(static_cast<absl::StatusCode>(json.at("code").get<int>()), json.at("message").get<std::string>());
  for (const auto& [url, escaped] : json.at("payloads").items()) {
    std::string payload;
    if (absl::Base64Unescape(escaped.get<std::string>(), &payload)) status.SetPayload(url, absl::Cord(payload));
  }
  return status;
}

// Enumerations are written as numbers, which must be below the number of their values.
template <typename Key, typename Enum>
Enum EnumFrom(const Json& json, const Key& key, Enum last) {
  const int value = json.at(key).template get<int>();
  if (value < 0 || value > static_cast<int>(last)) throw std::invalid_argument("unknown value of an enumeration");
  return static_cast<Enum>(value);
}

Json ToJson(const NodeLimits& limits) {
  return {{"number", limits.number}, {"min_nodes", limits.min_nodes}, {"max_nodes", limits.max_nodes}};
}

NodeLimits LimitsFrom(const Json& json) {
  NodeLimits limits;
  json.at("number").get_to(limits.number);
  json.at("min_nodes").get_to(limits.min_nodes);
  json.at("max_nodes").get_to(limits.max_nodes);
  return limits;
}

Json ToJson(const JobProgram& program) {
  return {{"words", program.words},
          {"script", program.script},
          {"program_hash", program.program_hash},
          {"script_hash", program.script_hash}};
}

JobProgram ProgramFrom(const Json& json) {
  JobProgram program;
  json.at("words").get_to(program.words);
  json.at("script").get_to(program.script);
  json.at("program_hash").get_to(program.program_hash);
  json.at("script_hash").get_to(program.script_hash);
  return program;
}

Json ToJson(const Member& member) {
  return {{"agent", member.agent}, {"host", member.host},   {"address", member.address}, {"port", member.port},
          {"entry", member.entry}, {"ranks", member.ranks}, {"spares", member.spares}};
}

Member MemberFrom(const Json& json) {
  Member member;
  json.at("agent").get_to(member.agent);
  json.at("host").get_to(member.host);
  json.at("address").get_to(member.address);
  json.at("port").get_to(member.port);
  json.at("entry").get_to(member.entry);
  json.at("ranks").get_to(member.ranks);
  json.at("spares").get_to(member.spares);
  return member;
}

Json ToJson(const NodeFailure& failure, int64_t now_ns) {
  return {{"status", ToJson(failure.status)},
          {"not_started", failure.not_started},
          {"consequence", failure.consequence},
          {"killed", failure.killed},
          {"age_ns", now_ns - failure.time_ns}};
}

NodeFailure FailureFrom(const Json& json, int64_t received_ns) {
  NodeFailure failure;
  failure.status = StatusFrom(json.at("status"));
  json.at("not_started").get_to(failure.not_started);
  json.at("consequence").get_to(failure.consequence);
  json.at("killed").get_to(failure.killed);
  failure.time_ns = received_ns - json.at("age_ns").get<int64_t>();
  return failure;
}

Json ToJson(const SlotState& slot, int64_t now_ns) {
  Json json = {{"process", slot.process}, {"phase", static_cast<int>(slot.phase)}};
  if (slot.phase == SlotState::Phase::kReady) {
    json["left"] = slot.left;
    json["min_ranks"] = slot.ask.min_ranks;
    json["max_ranks"] = slot.ask.max_ranks;
    json["max_restarts"] = slot.ask.max_restarts;
    json["leave_ns"] = absl::ToInt64Nanoseconds(slot.ask.leave_timeout);
    json["reason"] = slot.ask.reason;
  }
  if (slot.phase == SlotState::Phase::kFailed) json["failure"] = ToJson(slot.failure, now_ns);
  if (slot.done) json["all_done"] = slot.all_done;
  if (!slot.ends_job.empty()) json["ends_job"] = slot.ends_job;
  return json;
}

SlotState SlotFrom(const Json& json, int64_t received_ns) {
  SlotState slot;
  json.at("process").get_to(slot.process);
  slot.phase = EnumFrom(json, "phase", SlotState::Phase::kSucceeded);
  if (slot.phase == SlotState::Phase::kReady) {
    json.at("left").get_to(slot.left);
    json.at("min_ranks").get_to(slot.ask.min_ranks);
    json.at("max_ranks").get_to(slot.ask.max_ranks);
    json.at("max_restarts").get_to(slot.ask.max_restarts);
    slot.ask.leave_timeout = absl::Nanoseconds(json.at("leave_ns").get<int64_t>());
    json.at("reason").get_to(slot.ask.reason);
  }
  if (slot.phase == SlotState::Phase::kFailed) slot.failure = FailureFrom(json.at("failure"), received_ns);
  slot.done = json.contains("all_done");
  slot.all_done = json.value("all_done", false);
  slot.ends_job = json.value("ends_job", "");
  return slot;
}

// A slot is a list of numbers, since there may be thousands.
Json ToJson(const Membership::Memory& memory) {
  Json nodes = Json::array(), slots = Json::array(), causes = Json::array();
  for (const auto& n : memory.nodes) nodes.push_back({n.ranks, n.first, n.slots, n.leaves, n.gone});
  for (const auto& s : memory.slots) {
    slots.push_back({static_cast<int>(s.state), s.rank, s.local_rank, s.owes, s.failed_starts, s.process, s.node});
  }
  for (const auto& c : memory.causes) causes.push_back({c.text, c.consequence, c.killed});
  return {{"nodes", nodes},
          {"slots", slots},
          {"causes", causes},
          {"phase", static_cast<int>(memory.phase)},
          {"stays", memory.stays},
          {"formed", memory.formed},
          {"generation", memory.generation},
          {"members", memory.members},
          {"reason", memory.reason},
          {"failed_start", memory.failed_start},
          {"failures", memory.failures},
          {"changes", memory.changes},
          {"progressed", memory.progressed},
          {"barren", memory.barren},
          {"finished_members", memory.finished_members},
          {"agreed", memory.agreed},
          {"complete", memory.complete},
          {"resumes", memory.resumes},
          {"over", memory.over},
          {"step", memory.step},
          {"restarts", memory.restarts},
          {"ending", memory.ending}};
}

void NodesFrom(const Json& json, Membership::Memory* memory) {
  for (const Json& row : json.at("nodes")) {
    Membership::Memory::Node node;
    row.at(0).get_to(node.ranks);
    row.at(1).get_to(node.first);
    row.at(2).get_to(node.slots);
    row.at(3).get_to(node.leaves);
    row.at(4).get_to(node.gone);
    memory->nodes.push_back(node);
  }
}

void SlotsFrom(const Json& json, Membership::Memory* memory) {
  for (const Json& row : json.at("slots")) {
    Membership::Memory::Slot slot;
    slot.state = EnumFrom(row, 0, Membership::State::kLost);
    row.at(1).get_to(slot.rank);
    row.at(2).get_to(slot.local_rank);
    row.at(3).get_to(slot.owes);
    row.at(4).get_to(slot.failed_starts);
    row.at(5).get_to(slot.process);
    row.at(6).get_to(slot.node);
    memory->slots.push_back(slot);
  }
}

// A cause's time has a meaning only on the clock of the leader that saw it, so it comes before later ones of its kind.
void CausesFrom(const Json& json, Membership::Memory* memory) {
  for (const Json& row : json.at("causes")) {
    Membership::Cause cause;
    row.at(0).get_to(cause.text);
    row.at(1).get_to(cause.consequence);
    row.at(2).get_to(cause.killed);
    memory->causes.push_back(cause);
  }
}

Membership::Memory MemoryFrom(const Json& json) {
  Membership::Memory memory;
  NodesFrom(json, &memory);
  SlotsFrom(json, &memory);
  CausesFrom(json, &memory);
  memory.phase = EnumFrom(json, "phase", Membership::Phase::kRegrouping);
  json.at("stays").get_to(memory.stays);
  json.at("formed").get_to(memory.formed);
  json.at("generation").get_to(memory.generation);
  json.at("members").get_to(memory.members);
  json.at("reason").get_to(memory.reason);
  json.at("failed_start").get_to(memory.failed_start);
  json.at("failures").get_to(memory.failures);
  json.at("changes").get_to(memory.changes);
  json.at("progressed").get_to(memory.progressed);
  json.at("barren").get_to(memory.barren);
  json.at("finished_members").get_to(memory.finished_members);
  json.at("agreed").get_to(memory.agreed);
  json.at("complete").get_to(memory.complete);
  json.at("resumes").get_to(memory.resumes);
  json.at("over").get_to(memory.over);
  json.at("step").get_to(memory.step);
  json.at("restarts").get_to(memory.restarts);
  json.at("ending").get_to(memory.ending);
  return memory;
}

Json ToJson(const RankPlan& plan) {
  Json nodes = Json::array();
  for (const auto& n : plan.nodes) nodes.push_back({n.agent, n.host, n.entry, n.used_port});
  return {{"start", plan.start},
          {"memory", ToJson(plan.memory)},
          {"nodes", nodes},
          {"world_size", plan.world_size},
          {"master_addr", plan.master_addr},
          {"master_port", plan.master_port},
          {"reason", plan.reason},
          {"order", static_cast<int>(plan.order)},
          {"order_reason", plan.order_reason},
          {"killed", plan.killed},
          {"awaited", plan.awaited},
          {"verdict", ToJson(plan.verdict)},
          {"late", ToJson(plan.late)}};
}

// Whether what names slots and nodes names some that are there.
bool IsWhole(const RankPlan& plan) {
  const int slots = static_cast<int>(plan.memory.slots.size()), nodes = static_cast<int>(plan.memory.nodes.size());
  const auto is_slot = [&](int slot) { return slot >= 0 && slot < slots; };
  const auto has_slots = [&](const Membership::Memory::Node& n) {
    return n.ranks > 0 && n.slots >= n.ranks && is_slot(n.first) && n.slots <= slots - n.first;
  };
  const auto has_node = [&](const Membership::Memory::Slot& s) { return s.node >= 0 && s.node < nodes; };
  return plan.nodes.size() == plan.memory.nodes.size() &&
         std::all_of(plan.memory.nodes.begin(), plan.memory.nodes.end(), has_slots) &&
         std::all_of(plan.memory.slots.begin(), plan.memory.slots.end(), has_node) &&
         std::all_of(plan.memory.members.begin(), plan.memory.members.end(), is_slot) &&
         std::all_of(plan.killed.begin(), plan.killed.end(), is_slot);
}

RankPlan PlanFrom(const Json& json) {
  RankPlan plan;
  json.at("start").get_to(plan.start);
  plan.memory = MemoryFrom(json.at("memory"));
  for (const Json& row : json.at("nodes")) {
    RankPlan::Node node;
    row.at(0).get_to(node.agent);
    row.at(1).get_to(node.host);
    row.at(2).get_to(node.entry);
    row.at(3).get_to(node.used_port);
    plan.nodes.push_back(std::move(node));
  }
  json.at("world_size").get_to(plan.world_size);
  json.at("master_addr").get_to(plan.master_addr);
  json.at("master_port").get_to(plan.master_port);
  json.at("reason").get_to(plan.reason);
  plan.order = EnumFrom(json, "order", RegroupOrder::kNow);
  json.at("order_reason").get_to(plan.order_reason);
  json.at("killed").get_to(plan.killed);
  json.at("awaited").get_to(plan.awaited);
  plan.verdict = StatusFrom(json.at("verdict"));
  plan.late = StatusFrom(json.at("late"));
  if (!IsWhole(plan)) throw std::invalid_argument("the ranks are not whole");
  return plan;
}

AgentState AgentFrom(const Json& json, int64_t received_ns) {
  AgentState state;
  json.at("host").get_to(state.host);
  json.at("address").get_to(state.address);
  json.at("port").get_to(state.port);
  json.at("node_rank").get_to(state.node_rank);
  json.at("ranks").get_to(state.ranks);
  state.phase = EnumFrom(json, "phase", AgentState::Phase::kLeaving);
  json.at("generation").get_to(state.generation);
  json.at("leaving").get_to(state.leaving);
  json.at("signal").get_to(state.signal);
  json.at("drains").get_to(state.drains);
  state.resize = LimitsFrom(json.at("resize"));
  json.at("spares").get_to(state.spares);
  if (json.contains("flags")) json.at("flags").get_to(state.flags);
  if (json.contains("program")) state.program = ProgramFrom(json.at("program"));
  json.at("entry").get_to(state.entry);
  if (json.contains("failure")) state.failure = FailureFrom(json.at("failure"), received_ns);
  if (!json.contains("slots")) return state;
  for (const Json& slot : json.at("slots")) state.slots.push_back(SlotFrom(slot, received_ns));
  json.at("link_port").get_to(state.link_port);
  json.at("progressed").get_to(state.progressed);
  json.at("step").get_to(state.step);
  return state;
}

Json ToJson(const Leaver& leaver) {
  return {{"agent", leaver.agent}, {"host", leaver.host}, {"reason", leaver.reason}, {"signal", leaver.signal}};
}

Leaver LeaverFrom(const Json& json) {
  Leaver leaver;
  json.at("agent").get_to(leaver.agent);
  json.at("host").get_to(leaver.host);
  json.at("reason").get_to(leaver.reason);
  json.at("signal").get_to(leaver.signal);
  return leaver;
}

JobState JobFrom(const Json& json) {
  JobState state;
  state.phase = EnumFrom(json, "phase", JobState::Phase::kDone);
  json.at("generation").get_to(state.generation);
  json.at("entries").get_to(state.entries);
  json.at("restarts").get_to(state.restarts);
  if (state.restarts < 0 || state.restarts > kMostRestarts) throw std::invalid_argument("a strange number of restarts");
  json.at("reason").get_to(state.reason);
  for (const Json& leaver : json.at("left")) state.left.push_back(LeaverFrom(leaver));
  json.at("drained").get_to(state.drained);
  json.at("lost").get_to(state.lost);
  json.at("flags").get_to(state.flags);
  if (json.contains("program")) state.program = ProgramFrom(json.at("program"));
  if (json.contains("strangers")) {
    for (const Json& stranger : json.at("strangers")) {
      state.strangers.push_back({stranger.at(0).get<std::string>(), stranger.at(1).get<std::string>()});
    }
  }
  state.limits = LimitsFrom(json.at("limits"));
  state.result = StatusFrom(json.at("result"));
  for (const Json& member : json.at("members")) state.members.push_back(MemberFrom(member));
  if (json.contains("ranks")) state.ranks = PlanFrom(json.at("ranks"));
  return state;
}

absl::Status NotOurs(absl::string_view what, const std::exception& error) {
  return absl::InvalidArgumentError(absl::StrCat(what, " is not readable: ", error.what()));
}

}  // namespace

std::string EncodeAgent(const AgentState& state, int64_t now_ns) {
  Json json = {{"host", state.host},
               {"address", state.address},
               {"port", state.port},
               {"node_rank", state.node_rank},
               {"ranks", state.ranks},
               {"spares", state.spares},
               {"entry", state.entry},
               {"phase", static_cast<int>(state.phase)},
               {"generation", state.generation},
               {"leaving", state.leaving},
               {"signal", state.signal},
               {"drains", state.drains},
               {"resize", ToJson(state.resize)}};
  if (!state.flags.empty()) json["flags"] = state.flags;
  if (!state.program.words.empty()) json["program"] = ToJson(state.program);
  if (!state.failure.status.ok()) json["failure"] = ToJson(state.failure, now_ns);
  if (state.slots.empty()) return Dump(json);
  json["slots"] = Json::array();
  for (const SlotState& slot : state.slots) json["slots"].push_back(ToJson(slot, now_ns));
  json["link_port"] = state.link_port;
  json["progressed"] = state.progressed;
  json["step"] = state.step;
  return Dump(json);
}

std::string EncodeJob(const JobState& state) {
  Json members = Json::array();
  for (const Member& member : state.members) members.push_back(ToJson(member));
  Json left = Json::array();
  for (const Leaver& leaver : state.left) left.push_back(ToJson(leaver));
  Json json = {{"phase", static_cast<int>(state.phase)},
               {"generation", state.generation},
               {"entries", state.entries},
               {"restarts", state.restarts},
               {"reason", state.reason},
               {"left", left},
               {"drained", state.drained},
               {"lost", state.lost},
               {"flags", state.flags},
               {"limits", ToJson(state.limits)},
               {"result", ToJson(state.result)},
               {"members", members}};
  if (!state.program.words.empty()) json["program"] = ToJson(state.program);
  for (const Stranger& stranger : state.strangers) json["strangers"].push_back({stranger.agent, stranger.why});
  if (state.ranks.memory.stays || state.ranks.memory.generation > 0) json["ranks"] = ToJson(state.ranks);
  return Dump(json);
}

absl::StatusOr<AgentState> DecodeAgent(absl::string_view text, int64_t received_ns) {
  try {
    return AgentFrom(Json::parse(text), received_ns);
  } catch (const std::exception& error) {
    return NotOurs("an agent's state", error);
  }
}

absl::StatusOr<JobState> DecodeJob(absl::string_view text) {
  try {
    return JobFrom(Json::parse(text));
  } catch (const std::exception& error) {
    return NotOurs("the job's state", error);
  }
}

}  // namespace lockstep::launch::internal
