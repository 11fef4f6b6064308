#include "lockstep/elastic/internal/kept_state.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lockstep/base/status.h"
#include "lockstep/checkpoint/serialize.h"

namespace lockstep::elastic::internal {

using checkpoint::Value;

absl::Status KeptState::Add(const std::string& name, KeptThing thing) {
  for (const auto& [other, unused] : things_) {
    if (other == name) return absl::InvalidArgumentError(absl::StrCat("World::Keep: \"", name, "\" is kept already"));
  }
  things_.emplace_back(name, std::move(thing));
  return absl::OkStatus();
}

absl::StatusOr<std::string> KeptState::Serialize() const {
  std::vector<Value::Entry> entries;
  for (const auto& [name, thing] : things_) {
    absl::StatusOr<Value> value = thing.save();
    if (!value.ok()) return Annotate(value.status(), name);
    entries.emplace_back(name, *std::move(value));
  }
  return checkpoint::Serialize(Value::Dict(entries));
}

absl::Status KeptState::Deserialize(absl::string_view bytes) {
  checkpoint::LoadOptions options;
  options.map_location = "cpu";  // the other rank's devices are not this one's
  LOCKSTEP_ASSIGN_OR_RETURN(const Value state, checkpoint::Deserialize(bytes, options));
  std::vector<std::string> ours, theirs;
  for (const auto& [name, thing] : things_) ours.push_back(name);
  for (const Value::Entry& entry : state.entries()) theirs.push_back(std::string(entry.first.string_value()));
  if (ours != theirs) {
    return absl::InvalidArgumentError(absl::StrCat("World: this rank keeps \"", absl::StrJoin(ours, "\", \""),
                                                   "\", but the rank that has the state keeps \"",
                                                   absl::StrJoin(theirs, "\", \""), "\""));
  }
  for (const auto& [name, thing] : things_) LOCKSTEP_RETURN_IF_ERROR(Annotate(thing.load(*state.Find(name)), name));
  return absl::OkStatus();
}

std::vector<at::Tensor> KeptState::buffers() const {
  std::vector<at::Tensor> all;
  for (const auto& [name, thing] : things_) all.insert(all.end(), thing.buffers.begin(), thing.buffers.end());
  return all;
}

void KeptState::Remember() {
  for (const auto& [name, thing] : things_) {
    if (thing.remember) thing.remember();
  }
}

void KeptState::TakeBack() {
  for (const auto& [name, thing] : things_) {
    if (thing.take_back) thing.take_back();
  }
}

}  // namespace lockstep::elastic::internal
