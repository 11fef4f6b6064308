#include "lockstep/models/transformer/pretrained.h"

#include <ATen/core/Tensor.h>
#include <errno.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "lockstep/base/posix/folder.h"
#include "lockstep/base/status.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/checkpoint/file/atomic_file.h"
#include "lockstep/checkpoint/file/byte_stream.h"
#include "lockstep/checkpoint/pt2/json_reader.h"
#include "lockstep/checkpoint/safetensors/safetensors.h"
#include "lockstep/checkpoint/state_dict.h"
#include "lockstep/checkpoint/value.h"
#include "nlohmann/json.hpp"

namespace lockstep::models {
namespace {

using checkpoint::Value;
using checkpoint::pt2::JsonReader;
using Names = std::set<std::string>;

constexpr absl::string_view kWeights = "model.safetensors", kIndex = "model.safetensors.index.json",
                            kConfig = "config.json", kHead = "lm_head.weight";
constexpr uint64_t kLongestIndex = 64 << 20;  // a line of 100 bytes for each of 671,088 tensors

std::string PathOf(absl::string_view folder, absl::string_view name) { return absl::StrCat(folder, "/", name); }

std::string Quoted(const Names& names) {
  constexpr size_t kMost = 5;
  std::vector<std::string> first;
  for (const std::string& name : names) {
    if (first.size() < kMost) first.push_back(absl::StrCat("\"", name, "\""));
  }
  const std::string more = names.size() > kMost ? absl::StrCat(" and ", names.size() - kMost, " more") : "";
  return absl::StrCat(absl::StrJoin(first, ", "), more);
}

Names NamesOf(const torch::nn::Module& net) {
  Names names;
  for (const auto& item : net.named_parameters()) names.insert(item.key());
  return names;
}

absl::Status WriteText(const std::string& path, absl::string_view text) {
  LOCKSTEP_ASSIGN_OR_RETURN(const auto file, checkpoint::file::AtomicFile::Create(path, /*sync=*/true));
  LOCKSTEP_RETURN_IF_ERROR(file->Append(text.data(), text.size()));
  return file->Commit();
}

// The files that the index at `path` names.
absl::StatusOr<Names> ReadIndex(const std::string& path) {
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string text, checkpoint::file::ReadFile(path, kLongestIndex));
  LOCKSTEP_ASSIGN_OR_RETURN(const auto json, checkpoint::pt2::ParseJson(text));
  JsonReader reader;
  Names files;
  for (const auto& [name, file] : reader.Object(json, "weight_map").items()) {
    const std::string& found = *files.insert(reader.AsText(file, name)).first;
    if (reader.ok() && (absl::StrContains(found, '/') || !absl::EndsWith(found, ".safetensors")))
      reader.Damaged(absl::StrCat(name, " is in \"", found, "\", expected a .safetensors file of this folder"));
  }
  LOCKSTEP_RETURN_IF_ERROR(reader.status());
  if (files.empty()) return absl::DataLossError("weight_map names no file");
  return files;
}

// As transformers: an index is only read if there is no single file.
absl::StatusOr<Names> WeightFiles(absl::string_view folder) {
  const std::string index = PathOf(folder, kIndex);
  if (access(PathOf(folder, kWeights).c_str(), F_OK) == 0) return Names{std::string(kWeights)};
  if (access(index.c_str(), F_OK) != 0)
    return absl::NotFoundError(absl::StrCat(folder, ": has neither ", kWeights, " nor ", kIndex));
  absl::StatusOr<Names> files = ReadIndex(index);
  if (!files.ok()) return Annotate(files.status(), index);
  return files;
}

// Buffers that older versions of transformers wrote.
bool IsOldBuffer(absl::string_view name) {
  return absl::EndsWith(name, ".attn.bias") || absl::EndsWith(name, ".attn.masked_bias") ||
         absl::EndsWith(name, "rotary_emb.inv_freq");
}

// Fills a model from one file after the other.
class Loader {
 public:
  Loader(CausalLM net, bool convert) : net_(std::move(net)), convert_(convert) {}

  absl::Status Load(const std::string& path) {
    LOCKSTEP_ASSIGN_OR_RETURN(const auto file, checkpoint::LoadSafetensors(path));
    Value state_dict = Value::Dict();
    for (const auto& [key, value] : file.tensors.entries()) {
      LOCKSTEP_RETURN_IF_ERROR(Annotate(Take(FullName(key.string_value()), value, state_dict), path));
    }
    return Annotate(checkpoint::LoadStateDict(*net_, state_dict, {.strict = false}), path);
  }

  // Call it after the last file.
  absl::Status Finish(const std::string& path) const {
    const Names expected = NamesOf(*net_);
    Names missing, unexpected;
    std::set_difference(expected.begin(), expected.end(), found_.begin(), found_.end(),
                        std::inserter(missing, missing.end()));
    std::set_difference(found_.begin(), found_.end(), expected.begin(), expected.end(),
                        std::inserter(unexpected, unexpected.end()));
    std::vector<std::string> problems;
    if (!missing.empty()) problems.push_back(absl::StrCat("missing: ", Quoted(missing)));
    if (!unexpected.empty()) problems.push_back(absl::StrCat("unexpected: ", Quoted(unexpected)));
    if (tied_head_.defined() && problems.empty() && !IsEmbedding(tied_head_))
      problems.push_back(absl::StrCat("\"", kHead, "\" differs from the embedding, but tie_word_embeddings is true"));
    if (problems.empty()) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(path, ": ", absl::StrJoin(problems, "; ")));
  }

  const CausalLM& net() const { return net_; }

 private:
  std::string FullName(const std::string& name) const {
    const absl::string_view prefix = net_->config().is_gpt2() ? "transformer." : "model.";
    return absl::StartsWith(name, prefix) || name == kHead ? name : absl::StrCat(prefix, name);
  }

  absl::Status Take(const std::string& name, const Value& value, Value& state_dict) {
    if (IsOldBuffer(name)) return absl::OkStatus();
    const at::ScalarType dtype = value.tensor().scalar_type();
    if (!convert_ && dtype != at::kFloat)
      return absl::InvalidArgumentError(
          absl::StrCat("\"", name, "\" is ", c10::toString(dtype), ", expected Float: pass a dtype to convert it"));
    if (name == kHead && net_->config().tie_word_embeddings) {
      tied_head_ = value.tensor();
    } else if (found_.insert(name).second) {
      state_dict.Set(name, value);
    } else {
      return absl::InvalidArgumentError(absl::StrCat("\"", name, "\" is there twice"));
    }
    return absl::OkStatus();
  }

  bool IsEmbedding(const at::Tensor& head) const {
    const at::Tensor embedding = net_->parameters()[0].detach();
    return head.sizes() == embedding.sizes() && head.to(embedding.options()).equal(embedding);
  }

  CausalLM net_;
  const bool convert_;
  Names found_;
  at::Tensor tied_head_;
};

// A file's tensors, in the order of the parameters.
using Shard = std::vector<std::pair<std::string, at::Tensor>>;

// The division of huggingface_hub's split_torch_state_dict_into_shards: a tensor that is too large gets a file of its
// own, and does not end the file before.
std::vector<Shard> Divide(const Shard& tensors, int64_t max_bytes) {
  std::vector<Shard> shards;
  Shard open;
  int64_t open_bytes = 0;
  for (const auto& named : tensors) {
    const int64_t bytes = named.second.nbytes();
    if (bytes > max_bytes) {
      shards.push_back({named});
      continue;
    }
    if (open_bytes + bytes > max_bytes) {
      shards.push_back(std::exchange(open, {}));
      open_bytes = 0;
    }
    open.push_back(named);
    open_bytes += bytes;
  }
  if (!open.empty()) shards.push_back(open);
  return shards;
}

std::string FileName(size_t shard, size_t shards) {
  return shards == 1 ? std::string(kWeights) : absl::StrFormat("model-%05d-of-%05d.safetensors", shard + 1, shards);
}

std::string IndexJson(const std::vector<Shard>& shards) {
  nlohmann::json weight_map;
  int64_t parameters = 0, bytes = 0;
  for (size_t i = 0; i < shards.size(); ++i) {
    for (const auto& [name, tensor] : shards[i]) {
      weight_map[name] = FileName(i, shards.size());
      parameters += tensor.numel();
      bytes += tensor.nbytes();
    }
  }
  const nlohmann::json metadata = {{"total_parameters", parameters}, {"total_size", bytes}};
  return nlohmann::json{{"metadata", metadata}, {"weight_map", weight_map}}.dump(2) + "\n";
}

// The parameters of `net`, which must be the config's.
absl::StatusOr<Shard> CheckedTensors(const torch::nn::Module& net, const CausalLMConfig& config) {
  LOCKSTEP_RETURN_IF_ERROR(CheckConfig(config));
  const CausalLM expected(config, /*initialize=*/false);
  const auto wanted = expected->named_parameters(), found = net.named_parameters();
  Shard tensors;
  Names others;
  for (const auto& item : found) {
    const at::Tensor* fitting = wanted.find(item.key());
    if (!fitting || fitting->sizes() != item.value().sizes()) others.insert(item.key());
    tensors.emplace_back(item.key(), item.value().detach());
  }
  for (const auto& item : wanted) {
    if (!found.contains(item.key())) others.insert(item.key());
  }
  if (others.empty()) return tensors;
  return absl::InvalidArgumentError(
      absl::StrCat("the module's parameters are not the config's: ", Quoted(others), " differ"));
}

bool IsWeightFile(const std::string& name) {
  return name == kIndex || name == kWeights ||
         (absl::StartsWith(name, "model-") && absl::StrContains(name, "-of-") && absl::EndsWith(name, ".safetensors"));
}

absl::Status RemoveOthers(absl::string_view folder, const Names& written) {
  for (const std::string& name : NamesIn(std::string(folder))) {
    if (!IsWeightFile(name) || written.count(name) > 0) continue;
    const std::string path = PathOf(folder, name);
    if (unlink(path.c_str()) != 0) return absl::ErrnoToStatus(errno, absl::StrCat("remove ", path));
  }
  return absl::OkStatus();
}

absl::Status WriteShards(absl::string_view folder, const std::vector<Shard>& shards) {
  Names written;
  for (size_t i = 0; i < shards.size(); ++i) {
    Value tensors = Value::Dict();
    for (const auto& [name, tensor] : shards[i]) tensors.Set(name, tensor);
    const std::string file = *written.insert(FileName(i, shards.size())).first;
    LOCKSTEP_RETURN_IF_ERROR(checkpoint::SaveSafetensors(PathOf(folder, file), tensors, {{"format", "pt"}}));
  }
  if (shards.size() > 1) {
    written.insert(std::string(kIndex));
    LOCKSTEP_RETURN_IF_ERROR(WriteText(PathOf(folder, kIndex), IndexJson(shards)));
  }
  return RemoveOthers(folder, written);
}

}  // namespace

absl::StatusOr<CausalLM> LoadPretrained(absl::string_view folder, std::optional<at::ScalarType> dtype) {
  LOCKSTEP_ASSIGN_OR_RETURN(const CausalLMConfig config, ReadConfig(PathOf(folder, kConfig)));
  LOCKSTEP_ASSIGN_OR_RETURN(const Names files, WeightFiles(folder));
  LOCKSTEP_ASSIGN_OR_RETURN(const CausalLM net, TorchStatusOr(folder, [&] {
                              CausalLM made(config, /*initialize=*/false);
                              if (dtype) made->to(*dtype);
                              return made;
                            }));
  Loader loader(net, /*convert=*/dtype.has_value());
  for (const std::string& file : files) LOCKSTEP_RETURN_IF_ERROR(loader.Load(PathOf(folder, file)));
  LOCKSTEP_RETURN_IF_ERROR(loader.Finish(files.size() == 1 ? PathOf(folder, *files.begin()) : PathOf(folder, kIndex)));
  return net;
}

absl::Status SavePretrained(absl::string_view folder, const torch::nn::Module& net, const CausalLMConfig& config,
                            int64_t max_shard_bytes) {
  if (max_shard_bytes < 1)
    return absl::InvalidArgumentError(absl::StrCat("max_shard_bytes is ", max_shard_bytes, ", expected at least 1"));
  LOCKSTEP_ASSIGN_OR_RETURN(const Shard tensors, CheckedTensors(net, config));
  if (const auto failed = MakeFolders(std::string(folder), /*lasting=*/true))
    return absl::ErrnoToStatus(failed->error, absl::StrCat("make the directory ", failed->folder));
  LOCKSTEP_RETURN_IF_ERROR(Annotate(WriteText(PathOf(folder, kConfig), ConfigJson(config)), folder));
  return WriteShards(folder, Divide(tensors, max_shard_bytes));
}

}  // namespace lockstep::models
