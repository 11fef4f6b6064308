#include "lockstep/checkpoint/safetensors/model.h"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lockstep/base/status.h"

namespace lockstep::checkpoint {
namespace {

struct Named {
  std::string name;
  at::Tensor tensor;

  const char* begin() const { return static_cast<const char*>(tensor.const_data_ptr()); }
  const char* end() const {
    int64_t last = 0;
    for (int64_t i = 0; i < tensor.dim(); ++i) last += (tensor.size(i) - 1) * tensor.stride(i);
    return begin() + (last + 1) * tensor.element_size();
  }
};

// True if the tensor has all elements of the tensors that it overlaps.
bool IsWhole(const Named& named, const std::vector<Named>& group) {
  return named.tensor.is_non_overlapping_and_dense() &&
         std::all_of(group.begin(), group.end(),
                     [&](const Named& other) { return named.begin() <= other.begin() && other.end() <= named.end(); });
}

// Names whose tensors overlap in memory, each group with two names or more, in alphabetical order.
std::vector<std::vector<Named>> Shared(const Value& state_dict) {
  std::map<const void*, std::vector<Named>> by_storage;
  for (const auto& [key, value] : state_dict.entries()) {
    const at::Tensor& tensor = value.tensor();
    if (!tensor.has_storage() || tensor.numel() == 0 || tensor.is_meta()) continue;
    by_storage[tensor.storage().unsafeGetStorageImpl()].push_back({key.string_value(), tensor});
  }
  std::vector<std::vector<Named>> groups;
  for (auto& [storage, named] : by_storage) {
    std::stable_sort(named.begin(), named.end(), [](const Named& a, const Named& b) { return a.begin() < b.begin(); });
    const char* end = nullptr;
    for (Named& one : named) {
      if (one.begin() >= end) groups.emplace_back();
      end = std::max(end, one.end());
      groups.back().push_back(std::move(one));
    }
  }
  groups.erase(std::remove_if(groups.begin(), groups.end(), [](const auto& group) { return group.size() < 2; }),
               groups.end());
  for (std::vector<Named>& group : groups) {
    std::sort(group.begin(), group.end(), [](const Named& a, const Named& b) { return a.name < b.name; });
  }
  return groups;
}

std::string NamesOf(const std::vector<Named>& group) {
  return absl::StrJoin(group, ", ",
                       [](std::string* out, const Named& named) { absl::StrAppend(out, "\"", named.name, "\""); });
}

bool Has(const SafetensorsMetadata& metadata, const std::string& key) {
  return std::any_of(metadata.begin(), metadata.end(), [&](const auto& entry) { return entry.first == key; });
}

}  // namespace

absl::Status SaveSafetensorsModel(absl::string_view path, const torch::nn::Module& module, SafetensorsMetadata metadata,
                                  const SaveOptions& options) {
  const Value state_dict = StateDict(module);
  std::map<std::string, std::string> kept_as;
  for (const std::vector<Named>& group : Shared(state_dict)) {
    const auto kept =
        std::find_if(group.begin(), group.end(), [&](const Named& named) { return IsWhole(named, group); });
    if (kept == group.end()) {
      return absl::InvalidArgumentError(absl::StrCat(
          path, ": ", NamesOf(group), " share memory, of which none of them is the whole; clone() them, or use Save"));
    }
    for (const Named& named : group) {
      if (&named != &*kept) kept_as.emplace(named.name, kept->name);
    }
  }
  Value tensors = Value::Dict();
  for (const auto& [key, value] : state_dict.entries()) {
    if (kept_as.count(key.string_value()) == 0) tensors.Set(key, value);
  }
  for (const auto& [removed, kept] : kept_as) {
    if (!Has(metadata, removed)) metadata.emplace_back(removed, kept);
  }
  return SaveSafetensors(path, tensors, metadata, options);
}

absl::Status LoadSafetensorsModel(absl::string_view path, torch::nn::Module& module, LoadStateDictOptions options,
                                  const LoadOptions& load_options) {
  LOCKSTEP_ASSIGN_OR_RETURN(const Safetensors file, LoadSafetensors(path, load_options));
  const auto is_there = [&](const Named& named) {
    return file.tensors.Find(absl::StrCat(options.remove_prefix, named.name)) != nullptr;
  };
  std::vector<std::string> loaded_otherwise;
  for (const std::vector<Named>& group : Shared(StateDict(module))) {
    const bool filled = std::any_of(group.begin(), group.end(),
                                    [&](const Named& named) { return IsWhole(named, group) && is_there(named); });
    for (const Named& named : group) {
      if (filled && !is_there(named)) loaded_otherwise.push_back(named.name);
    }
  }
  options.ignored_keys.insert(options.ignored_keys.end(), loaded_otherwise.begin(), loaded_otherwise.end());
  return Annotate(LoadStateDict(module, file.tensors, options), path);
}

}  // namespace lockstep::checkpoint
