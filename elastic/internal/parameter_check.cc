#include "lockstep/elastic/internal/parameter_check.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <cstdint>

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

std::string NonFiniteHere(const std::vector<NamedTensor>& parameters) {
  const c10::NoGradGuard no_grad;
  for (const NamedTensor& parameter : parameters) {
    if (!IsFinite(parameter.tensor.grad())) return absl::StrCat("the gradient of ", parameter.name, " is not finite");
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

absl::StatusOr<std::optional<NonFinite>> FindNonFinite(comm::ProcessGroup& group,
                                                       const std::vector<NamedTensor>& parameters) {
  std::string what = NonFiniteHere(parameters);
  const at::Tensor word = at::full({1}, what.empty() ? 0 : group.size() - group.rank(), at::kLong);
  LOCKSTEP_RETURN_IF_ERROR(group.AllReduce(word, comm::ReduceOp::kMax));
  const int64_t highest = word.item<int64_t>();
  if (highest == 0) return std::nullopt;
  const int rank = group.size() - static_cast<int>(highest);
  LOCKSTEP_RETURN_IF_ERROR(group.BroadcastBytes(what, rank));
  return NonFinite{rank, what};
}

}  // namespace lockstep::elastic::internal
