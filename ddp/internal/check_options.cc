#include "lockstep/ddp/internal/check_options.h"

#include <torch/nn/module.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/status.h"

namespace lockstep::ddp::internal {
namespace {

constexpr double kMiB = 1 << 20;
constexpr double kDefaultBucketMiB = 25;

int64_t Bytes(double mib) { return static_cast<int64_t>(mib * kMiB); }

template <typename... Parts>
absl::Status Invalid(const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat(parts...));
}

absl::Status CheckSize(const char* option, double mib) {
  if (mib > 0 && std::isfinite(mib)) return absl::OkStatus();
  return Invalid(option, " is ", mib, ", expected a positive number");
}

absl::Status CheckSizes(const Options& options) {
  if (options.bucket_cap_mb) LOCKSTEP_RETURN_IF_ERROR(CheckSize("bucket_cap_mb", *options.bucket_cap_mb));
  for (const double mib : options.bucket_cap_mb_list) LOCKSTEP_RETURN_IF_ERROR(CheckSize("bucket_cap_mb_list", mib));
  if (options.bucket_cap_mb && !options.bucket_cap_mb_list.empty())
    return Invalid("bucket_cap_mb and bucket_cap_mb_list are both set: expected one of them");
  return absl::OkStatus();
}

absl::Status CheckDevices(const Options& options, const std::vector<NamedTensor>& trained) {
  std::set<std::string> devices;
  for (const NamedTensor& parameter : trained) {
    devices.insert(parameter.tensor.device().str());
    if (parameter.tensor.device().type() == trained.front().tensor.device().type()) continue;
    return Invalid("parameter ", parameter.name, " is on ", parameter.tensor.device().str(), " and ",
                   trained.front().name, " on ", trained.front().tensor.device().str(),
                   ": expected devices of one type");
  }
  if (options.device_ids.empty()) {
    if (options.output_device) return Invalid("output_device is set without device_ids");
    return absl::OkStatus();
  }
  if (options.device_ids.size() > 1)
    return Invalid("device_ids has ", options.device_ids.size(), " devices, expected one or none");
  if (devices.size() == 1 && *devices.begin() == options.device_ids.front().str()) return absl::OkStatus();
  return Invalid("device_ids is ", options.device_ids.front().str(), ", but parameter ", trained.front().name,
                 " is on ", trained.front().tensor.device().str(), ", and the module on ", devices.size(),
                 " devices: expected a module on that one device");
}

bool Holds(const std::vector<NamedTensor>& tensors, const std::string& name) {
  return std::any_of(tensors.begin(), tensors.end(), [&](const NamedTensor& tensor) { return tensor.name == name; });
}

absl::Status CheckNames(const Options& options, const torch::nn::Module& module,
                        const std::vector<NamedTensor>& trained) {
  const auto parameters = module.named_parameters();
  const auto buffers = module.named_buffers();
  for (const std::string& name : options.parameters_to_ignore) {
    if (!parameters.contains(name) && !buffers.contains(name))
      return Invalid("parameters_to_ignore names ", name, ", which the module does not have");
  }
  if (options.delay_all_reduce_named_params.empty() != options.param_to_hook_all_reduce.empty())
    return Invalid(
        "only one of delay_all_reduce_named_params and param_to_hook_all_reduce is set: expected both or neither");
  std::vector<std::string> names = options.delay_all_reduce_named_params;
  if (!names.empty()) names.push_back(options.param_to_hook_all_reduce);
  for (const std::string& name : names) {
    if (!Holds(trained, name))
      return Invalid("the all_reduce of ", name,
                     " cannot be delayed or waited for: the buckets reduce no parameter of that name");
  }
  return absl::OkStatus();
}

absl::Status CheckMixedPrecision(const MixedPrecision& mixed) {
  const std::pair<const char*, std::optional<c10::ScalarType>> dtypes[] = {
      {"param_dtype", mixed.param_dtype}, {"reduce_dtype", mixed.reduce_dtype}, {"buffer_dtype", mixed.buffer_dtype}};
  for (const auto& [name, dtype] : dtypes) {
    if (dtype && !c10::isFloatingType(*dtype))
      return Invalid("mixed_precision.", name, " is ", c10::toString(*dtype), ", expected a floating-point dtype");
  }
  return absl::OkStatus();
}

// Refuses options that would make a step depend on the number of ranks.
absl::Status CheckVirtualRanks(const Options& options, const torch::nn::Module& module, int ranks) {
  if (options.virtual_ranks == 0) return absl::OkStatus();
  if (options.virtual_ranks < 0) return Invalid("virtual_ranks is ", options.virtual_ranks, ", expected 0 or more");
  if (options.virtual_ranks < ranks)
    return Invalid("virtual_ranks is ", options.virtual_ranks, ", expected at least the number of ranks, ", ranks);
  if (!options.broadcast_buffers && options.init_sync && !module.buffers().empty())
    return Invalid(
        "virtual_ranks needs broadcast_buffers: each virtual rank would have buffers of its own. If the program "
        "gives all ranks rank 0's parameters and buffers, as elastic::World does, set init_sync = false too");
  for (const auto& item : module.named_parameters()) {
    if (item.value().requires_grad() && options.parameters_to_ignore.count(item.key()))
      return Invalid("parameters_to_ignore names ", item.key(),
                     ", whose gradient is each rank's own: with virtual_ranks, freeze it or let it be reduced");
  }
  for (const auto& item : module.named_modules("", /*include_self=*/false)) {
    if (options.virtual_ranks != ranks && absl::StrContains(item.value()->name(), "SyncBatchNorm"))
      return Invalid("module ", item.key(), " is a SyncBatchNorm: its forward needs all ranks at once, but ", ranks,
                     " ranks run the forward passes of ", options.virtual_ranks,
                     " virtual ranks one after another. Use as many ranks, or BatchNorm");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckOptions(const Options& options, const torch::nn::Module& module,
                          const std::vector<NamedTensor>& trained, int ranks) {
  if (trained.empty()) return Invalid("no parameter of the module requires gradients: there is nothing to average");
  LOCKSTEP_RETURN_IF_ERROR(CheckSizes(options));
  LOCKSTEP_RETURN_IF_ERROR(CheckDevices(options, trained));
  LOCKSTEP_RETURN_IF_ERROR(CheckNames(options, module, trained));
  LOCKSTEP_RETURN_IF_ERROR(CheckVirtualRanks(options, module, ranks));
  if (options.skip_all_reduce_unused_params && !options.find_unused_parameters && !options.static_graph)
    return Invalid("skip_all_reduce_unused_params is set, but neither find_unused_parameters nor static_graph");
  return options.mixed_precision ? CheckMixedPrecision(*options.mixed_precision) : absl::OkStatus();
}

ReducerOptions ToReducerOptions(const Options& options) {
  ReducerOptions reducer;
  for (const double mib : options.bucket_cap_mb_list) reducer.limits.push_back(Bytes(mib));
  const bool one_bucket_first = options.static_graph || !options.find_unused_parameters;
  if (reducer.limits.empty()) {
    if (!options.bucket_cap_mb) reducer.limits.push_back(Bytes(1));
    reducer.limits.push_back(Bytes(options.bucket_cap_mb.value_or(kDefaultBucketMiB)));
    reducer.first_limits =
        one_bucket_first ? std::vector<int64_t>{std::numeric_limits<int64_t>::max()} : reducer.limits;
  } else {
    reducer.first_limits = reducer.limits;
  }
  reducer.find_unused_parameters = options.find_unused_parameters;
  reducer.static_graph = options.static_graph;
  reducer.skip_all_reduce_unused_params = options.skip_all_reduce_unused_params;
  reducer.gradient_as_bucket_view = options.gradient_as_bucket_view;
  reducer.non_finite = options.non_finite;
  reducer.virtual_ranks = options.virtual_ranks;
  if (options.mixed_precision) {
    reducer.reduce_dtype = options.mixed_precision->reduce_dtype ? options.mixed_precision->reduce_dtype
                                                                 : options.mixed_precision->param_dtype;
  }
  return reducer;
}

}  // namespace lockstep::ddp::internal
