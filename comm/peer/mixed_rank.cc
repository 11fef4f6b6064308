// One rank of a group, some of whose ranks are Python's: meets them, runs each collective once and checks its result.
//
//   mixed_rank INIT_METHOD RANK WORLD_SIZE TIMEOUT_SECONDS
//
// Prints "rank 1 agrees", and exits with 0; or the error, and exits with 1. RANK and WORLD_SIZE may be -1: from the
// environment.

#include <ATen/ATen.h>

#include <cstdio>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/status.h"
#include "lockstep/comm/process_group.h"

namespace lockstep::comm {
namespace {

absl::Status Expect(const at::Tensor& expected, const at::Tensor& found, absl::string_view what) {
  if (at::equal(expected, found)) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(what, ": expected ", expected.flatten()[0].item<double>(), "..., found ",
                                          found.flatten()[0].item<double>(), "..."));
}

// By their places in memory, and by their indices in all_gather.
absl::Status RunChannelsLast(ProcessGroup& group) {
  const int rank = group.rank(), size = group.size();
  const at::Tensor images = at::arange(120, at::kFloat).view({2, 3, 4, 5});
  const at::Tensor own = (images * (rank + 1)).contiguous(at::MemoryFormat::ChannelsLast), sum = own.clone();
  LOCKSTEP_RETURN_IF_ERROR(group.AllReduce(sum));
  LOCKSTEP_RETURN_IF_ERROR(Expect(images * (size * (size + 1) / 2), sum, "all_reduce of channels_last"));
  for (int root = 0; root < size; ++root) {
    const at::Tensor copied = own.clone();
    LOCKSTEP_RETURN_IF_ERROR(group.Broadcast(copied, root));
    LOCKSTEP_RETURN_IF_ERROR(Expect(images * (root + 1), copied, "broadcast of channels_last"));
  }
  std::vector<at::Tensor> all;
  for (int other = 0; other < size; ++other) all.push_back(at::zeros_like(own));
  LOCKSTEP_RETURN_IF_ERROR(group.AllGather(all, own));
  for (int other = 0; other < size; ++other) {
    LOCKSTEP_RETURN_IF_ERROR(Expect(images * (other + 1), all[other], "all_gather of channels_last"));
  }
  const absl::Status refused = group.Gather(rank == 0 ? all : std::vector<at::Tensor>(), own, 0);
  if (absl::IsInvalidArgument(refused)) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("gather of channels_last: ", refused.ToString()));
}

// Makes the same calls, in the same order, as run_collectives of the Python side.
absl::Status RunCollectives(ProcessGroup& group) {
  const int rank = group.rank(), size = group.size();
  for (int root = 0; root < size; ++root) {
    const at::Tensor tensor = at::full({5}, 10.0f * rank + root);
    LOCKSTEP_RETURN_IF_ERROR(group.Broadcast(tensor, root));
    LOCKSTEP_RETURN_IF_ERROR(Expect(at::full({5}, 11.0f * root), tensor, absl::StrCat("broadcast from ", root)));
  }
  const at::Tensor sum = at::arange(1000, at::kFloat) * (rank + 1);
  LOCKSTEP_RETURN_IF_ERROR(group.AllReduce(sum));
  LOCKSTEP_RETURN_IF_ERROR(Expect(at::arange(1000, at::kFloat) * (size * (size + 1) / 2), sum, "all_reduce"));
  const at::Tensor largest = at::full({3, 2}, rank, at::kLong);
  LOCKSTEP_RETURN_IF_ERROR(group.AllReduce(largest, ReduceOp::kMax));
  LOCKSTEP_RETURN_IF_ERROR(Expect(at::full({3, 2}, size - 1, at::kLong), largest, "all_reduce of int64"));
  std::vector<at::Tensor> all;
  for (int other = 0; other < size; ++other) all.push_back(at::zeros({4}, at::kLong));
  LOCKSTEP_RETURN_IF_ERROR(group.AllGather(all, at::arange(4, at::kLong) + 100 * rank));
  for (int other = 0; other < size; ++other) {
    LOCKSTEP_RETURN_IF_ERROR(Expect(at::arange(4, at::kLong) + 100 * other, all[other], "all_gather"));
  }
  LOCKSTEP_RETURN_IF_ERROR(RunChannelsLast(group));
  return group.Barrier();
}

absl::Status Run(const std::vector<std::string>& arguments) {
  InitOptions options;
  int seconds = 0;
  if (arguments.size() != 4 || !absl::SimpleAtoi(arguments[1], &options.rank) ||
      !absl::SimpleAtoi(arguments[2], &options.world_size) || !absl::SimpleAtoi(arguments[3], &seconds)) {
    return absl::InvalidArgumentError("usage: mixed_rank INIT_METHOD RANK WORLD_SIZE TIMEOUT_SECONDS");
  }
  options.init_method = arguments[0];
  options.timeout = absl::Seconds(seconds);
  options.backend = "gloo";
  LOCKSTEP_ASSIGN_OR_RETURN(const auto group, InitProcessGroup(options));
  LOCKSTEP_RETURN_IF_ERROR(RunCollectives(*group));
  printf("rank %d agrees\n", group->rank());
  return absl::OkStatus();
}

}  // namespace
}  // namespace lockstep::comm

int main(int argc, char** argv) {
  const absl::Status status = lockstep::comm::Run({argv + 1, argv + argc});
  if (!status.ok()) printf("%s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
