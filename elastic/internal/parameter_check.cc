#include "lockstep/elastic/internal/parameter_check.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lockstep/base/status.h"
#include "lockstep/elastic/internal/fast_hash.h"

namespace lockstep::elastic::internal {
namespace {

// The sum of finite numbers may overflow, so only a finite sum decides at once.
bool IsFinite(const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.layout() != c10::kStrided || tensor.numel() == 0) return true;
  return tensor.sum().isfinite().item<bool>() || tensor.isfinite().all().item<bool>();
}

std::string GradientText(const std::string& name) { return absl::StrCat("the gradient of ", name, " is not finite"); }

std::string NonFiniteHere(const std::vector<NamedTensor>& parameters) {
  const c10::NoGradGuard no_grad;
  for (const NamedTensor& parameter : parameters) {
    if (!IsFinite(parameter.tensor.grad())) return GradientText(parameter.name);
    if (!IsFinite(parameter.tensor)) return absl::StrCat(parameter.name, " is not finite");
  }
  return "";
}

absl::StatusOr<std::vector<std::vector<uint64_t>>> Gather(comm::ProcessGroup& group,
                                                          const std::vector<uint64_t>& mine) {
  const auto size = static_cast<int64_t>(mine.size());
  const at::Tensor own = at::empty({size}, at::kLong), all = at::empty({group.size(), size}, at::kLong);
  std::copy(mine.begin(), mine.end(), own.mutable_data_ptr<int64_t>());
  LOCKSTEP_RETURN_IF_ERROR(group.AllGatherIntoTensor(all, own));
  std::vector<std::vector<uint64_t>> gathered;
  for (int rank = 0; rank < group.size(); ++rank) {
    const int64_t* const begin = static_cast<const int64_t*>(all.const_data_ptr()) + rank * size;
    gathered.emplace_back(begin, begin + size);
  }
  return gathered;
}

}  // namespace

absl::StatusOr<std::optional<Vote>> CompareParameters(comm::ProcessGroup& group,
                                                      const std::vector<NamedTensor>& parameters) {
  std::vector<uint64_t> hashes;
  std::vector<std::string> names;
  uint64_t sum = 0;
  for (const NamedTensor& parameter : parameters) {
    const at::Tensor tensor = OnCpu(parameter.tensor);
    hashes.push_back(FastHash(tensor.const_data_ptr(), tensor.nbytes()));
    names.push_back(parameter.name);
    sum = CombineHashes(sum, hashes.back());
  }
  LOCKSTEP_ASSIGN_OR_RETURN(const auto sums, Gather(group, {sum}));
  if (std::all_of(sums.begin(), sums.end(), [&](const auto& other) { return other == sums[0]; })) return std::nullopt;
  LOCKSTEP_ASSIGN_OR_RETURN(const auto all, Gather(group, hashes));
  return CountVotes(all, names);
}

GradientWatch::GradientWatch(std::vector<NamedTensor> parameters)
    : parameters_(std::move(parameters)), first_(parameters_.size()) {
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const at::Tensor& tensor = parameters_[i].tensor;
    hooks_.push_back(!tensor.requires_grad() ? 0 : tensor.register_hook([this, i](const at::Tensor& gradient) {
      const c10::NoGradGuard no_grad;
      if (i < first_ && !IsFinite(gradient)) first_ = i;
    }));
  }
}

GradientWatch::~GradientWatch() {
  for (size_t i = 0; i < parameters_.size(); ++i) {
    if (parameters_[i].tensor.requires_grad()) parameters_[i].tensor.remove_hook(hooks_[i]);
  }
}

std::string GradientWatch::found() const {
  return first_ == parameters_.size() ? "" : GradientText(parameters_[first_].name);
}

// Once averaged, a gradient that one rank has made is not finite on any.
absl::StatusOr<std::optional<NonFinite>> FindNonFinite(comm::ProcessGroup& group,
                                                       const std::vector<NamedTensor>& parameters,
                                                       const std::string& made_here) {
  std::string what = made_here.empty() ? NonFiniteHere(parameters) : made_here;
  const int64_t place = group.size() - group.rank();
  const at::Tensor words = at::zeros({3}, at::kLong);  // the lowest rank that has made it, that has it; one has not
  int64_t* const word = words.mutable_data_ptr<int64_t>();
  if (!made_here.empty()) word[0] = place;
  (what.empty() ? word[2] : word[1]) = place;
  LOCKSTEP_RETURN_IF_ERROR(group.AllReduce(words, comm::ReduceOp::kMax));
  if (word[1] == 0) return std::nullopt;
  const int source = group.size() - static_cast<int>(word[0] != 0 ? word[0] : word[1]);
  const bool is_known = word[0] != 0 || word[2] != 0 || group.size() == 1;
  LOCKSTEP_RETURN_IF_ERROR(group.BroadcastBytes(what, source));
  return NonFinite{is_known ? source : -1, what};
}

}  // namespace lockstep::elastic::internal
