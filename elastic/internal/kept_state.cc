#include "lockstep/elastic/internal/kept_state.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <map>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lockstep/base/status.h"
#include "lockstep/elastic/internal/fast_hash.h"

namespace lockstep::elastic::internal {

using checkpoint::Value;

namespace {

// Smaller tensors are in the frame. A separate message would cost more than their bytes.
constexpr int64_t kLargeBytes = 64 << 10;

bool IsLarge(const at::Tensor& tensor) {
  return tensor.defined() && tensor.layout() == c10::kStrided && !tensor.is_quantized() &&
         tensor.numel() * static_cast<int64_t>(tensor.element_size()) >= kLargeBytes;
}

// Returns a tensor of the same dtype and shape with one element of memory.
at::Tensor StandIn(const at::Tensor& tensor) { return at::zeros({1}, tensor.scalar_type()).expand(tensor.sizes()); }

std::string KeyText(const Value& key) { return key.is_string() ? key.string_value() : absl::StrCat(key.int_value()); }

// `value` with a function's result for each large tensor. The function gets the tensor's path, such as
// "state.0.exp_avg".
using Replace = absl::FunctionRef<at::Tensor(const std::string& path, const at::Tensor& tensor)>;

Value WithLargeTensors(const Value& value, const std::string& path, Replace replace);

std::vector<Value> WithLargeTensors(const std::vector<Value>& items, const std::string& path, Replace replace) {
  std::vector<Value> replaced;
  for (size_t i = 0; i < items.size(); ++i) {
    replaced.push_back(WithLargeTensors(items[i], absl::StrCat(path, ".", i), replace));
  }
  return replaced;
}

Value WithLargeTensorsOfDict(const Value& dict, const std::string& path, Replace replace) {
  std::vector<Value::Entry> entries;
  for (const auto& [key, value] : dict.entries()) {
    const bool has_text = key.is_string() || key.is_int();
    const std::string text = has_text ? KeyText(key) : absl::StrCat(entries.size());
    entries.emplace_back(key, WithLargeTensors(value, path.empty() ? text : absl::StrCat(path, ".", text), replace));
  }
  Value replaced = Value::Dict(entries, dict.dict_kind());
  if (dict.dict_kind() == Value::DictKind::kOrderedDict) replaced.SetAttributes(dict.attributes());
  return replaced;
}

Value WithLargeTensors(const Value& value, const std::string& path, Replace replace) {
  if (value.is_dict()) return WithLargeTensorsOfDict(value, path, replace);
  if (value.is_list()) return Value::List(WithLargeTensors(value.items(), path, replace));
  if (value.is_tuple()) return Value::Tuple(WithLargeTensors(value.items(), path, replace));
  if (!value.is_tensor() || !IsLarge(value.tensor())) return value;
  const at::Tensor tensor = replace(path, value.tensor());
  Value replaced = value.is_parameter() ? Value::Parameter(tensor) : Value(tensor);
  replaced.SetAttributes(value.attributes());
  return replaced;
}

std::vector<NamedTensor> LargeTensorsOf(const std::string& thing, const Value& value) {
  std::vector<NamedTensor> large;
  WithLargeTensors(value, "", [&](const std::string& path, const at::Tensor& tensor) {
    large.push_back({path.empty() ? thing : absl::StrCat(thing, ": ", path), tensor.detach()});
    return tensor;
  });
  return large;
}

std::string Describe(const NamedTensor& tensor) {
  return absl::StrCat(tensor.name, " of ", c10::toString(tensor.tensor.scalar_type()), " [",
                      absl::StrJoin(tensor.tensor.sizes(), ", "), "]");
}

bool SameLayout(const NamedTensor& a, const NamedTensor& b) {
  return a.name == b.name && a.tensor.sizes() == b.tensor.sizes() && a.tensor.scalar_type() == b.tensor.scalar_type();
}

// The frame's value with this thing's own large tensors, and new ones of undefined contents where it has none.
Value WithOwn(const std::string& name, const Value& framed, const Value& own) {
  std::map<std::string, NamedTensor> ours;
  for (const NamedTensor& tensor : LargeTensorsOf(name, own)) ours[tensor.name] = tensor;
  return WithLargeTensors(framed, "", [&](const std::string& path, const at::Tensor& stand_in) {
    const NamedTensor theirs = {absl::StrCat(name, ": ", path), stand_in};
    const auto found = ours.find(theirs.name);
    return found != ours.end() && SameLayout(found->second, theirs)
               ? found->second.tensor
               : at::empty(stand_in.sizes(), stand_in.scalar_type());
  });
}

}  // namespace

at::Tensor OnCpu(const at::Tensor& tensor) { return tensor.detach().cpu().contiguous(); }

uint64_t Snapshot::Hash(const std::string& serialized_frame) const {
  uint64_t hash = FastHash(serialized_frame.data(), serialized_frame.size());
  for (const NamedTensor& each : large) {
    const at::Tensor tensor = OnCpu(each.tensor);
    hash = CombineHashes(hash, FastHash(tensor.const_data_ptr(), tensor.nbytes()));
  }
  return hash;
}

std::vector<NamedTensor> LargeTensors(const Value& frame) {
  std::vector<NamedTensor> all;
  for (const auto& [name, value] : frame.entries()) {
    for (NamedTensor& tensor : LargeTensorsOf(name.string_value(), value)) all.push_back(std::move(tensor));
  }
  return all;
}

absl::Status CheckSameLayout(const std::vector<NamedTensor>& ours, const std::vector<NamedTensor>& theirs) {
  for (size_t i = 0; i < std::max(ours.size(), theirs.size()); ++i) {
    const std::string here = i < ours.size() ? Describe(ours[i]) : "nothing";
    const std::string there = i < theirs.size() ? Describe(theirs[i]) : "nothing";
    if (i >= ours.size() || i >= theirs.size() || !SameLayout(ours[i], theirs[i])) {
      return absl::InvalidArgumentError(
          absl::StrCat("this rank keeps ", here, ", where the rank that has the state keeps ", there));
    }
  }
  return absl::OkStatus();
}

absl::Status KeptState::Add(const std::string& name, KeptThing thing) {
  for (const auto& [other, unused] : things_) {
    if (other == name) return absl::InvalidArgumentError(absl::StrCat("World::Keep: \"", name, "\" is kept already"));
  }
  things_.emplace_back(name, std::move(thing));
  return absl::OkStatus();
}

std::string KeptState::Names() const {
  const auto quoted = [](std::string* out, const auto& thing) { absl::StrAppend(out, "\"", thing.first, "\""); };
  return absl::StrJoin(things_, ", ", quoted);
}

absl::StatusOr<Snapshot> KeptState::Save() const {
  Snapshot snapshot;
  std::vector<Value::Entry> entries;
  for (const auto& [name, thing] : things_) {
    const absl::StatusOr<Value> value = thing.save();
    if (!value.ok()) return Annotate(value.status(), name);
    for (NamedTensor& tensor : LargeTensorsOf(name, *value)) snapshot.large.push_back(std::move(tensor));
    entries.emplace_back(name, WithLargeTensors(*value, "", [](const std::string&, const at::Tensor& tensor) {
                           return StandIn(tensor);
                         }));
  }
  snapshot.frame = Value::Dict(entries);
  return snapshot;
}

std::vector<at::Tensor> KeptState::buffers() const {
  std::vector<at::Tensor> all;
  for (const auto& [name, thing] : things_) all.insert(all.end(), thing.buffers.begin(), thing.buffers.end());
  return all;
}

std::vector<NamedTensor> KeptState::parameters() const {
  std::vector<NamedTensor> all;
  for (const auto& [name, thing] : things_) all.insert(all.end(), thing.parameters.begin(), thing.parameters.end());
  return all;
}

std::vector<c10::Device> KeptState::gpus() const {
  std::vector<c10::Device> gpus;
  const auto add = [&gpus](const at::Tensor& tensor) {
    const bool known = std::find(gpus.begin(), gpus.end(), tensor.device()) != gpus.end();
    if (!tensor.is_cpu() && !known) gpus.push_back(tensor.device());
  };
  for (const NamedTensor& parameter : parameters()) add(parameter.tensor);
  for (const at::Tensor& buffer : buffers()) add(buffer);
  return gpus;
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

absl::StatusOr<IncomingState> IncomingState::Prepare(KeptState* kept, Value frame, bool in_place) {
  IncomingState incoming(kept, std::move(frame));
  for (const auto& [name, thing] : kept->things_) {
    LOCKSTEP_RETURN_IF_ERROR(Annotate(incoming.AddPart(name, thing, in_place), name));
  }
  return incoming;
}

absl::Status IncomingState::AddPart(const std::string& name, const KeptThing& thing, bool in_place) {
  const Value* framed = frame_.Find(name);
  if (!framed) return absl::InvalidArgumentError("the rank that has the state does not keep it");
  const std::vector<NamedTensor> large = LargeTensorsOf(name, *framed);
  Part part;
  part.first = buffers_.size();
  if (in_place && thing.shares_memory) {
    LOCKSTEP_ASSIGN_OR_RETURN(const Value before, thing.save());
    LOCKSTEP_RETURN_IF_ERROR(thing.load(WithOwn(name, *framed, before)));  // an optimizer may have no tensors before
    LOCKSTEP_ASSIGN_OR_RETURN(const Value own, thing.save());
    part.kept = LargeTensorsOf(name, own);
    LOCKSTEP_RETURN_IF_ERROR(CheckSameLayout(part.kept, large));
  }
  for (size_t i = 0; i < large.size(); ++i) {
    const at::Tensor& stand_in = large[i].tensor;
    buffers_.push_back({large[i].name, part.kept.empty() ? at::empty(stand_in.sizes(), stand_in.scalar_type())
                                                         : OnCpu(part.kept[i].tensor)});
  }
  parts_.push_back(std::move(part));
  return absl::OkStatus();
}

absl::Status IncomingState::Finish() {
  const c10::NoGradGuard no_grad;
  for (size_t t = 0; t < parts_.size(); ++t) {
    const auto& [name, thing] = kept_->things_[t];
    size_t next = parts_[t].first;
    if (parts_[t].kept.empty()) {
      const Value value = WithLargeTensors(
          *frame_.Find(name), "", [&](const std::string&, const at::Tensor&) { return buffers_[next++].tensor; });
      LOCKSTEP_RETURN_IF_ERROR(Annotate(thing.load(value), name));
    }
    for (const NamedTensor& kept : parts_[t].kept) {
      const at::Tensor& buffer = buffers_[next++].tensor;
      if (buffer.const_data_ptr() != kept.tensor.const_data_ptr()) kept.tensor.copy_(buffer);
    }
  }
  return absl::OkStatus();
}

}  // namespace lockstep::elastic::internal
