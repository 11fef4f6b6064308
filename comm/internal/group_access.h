// The functions of ProcessGroup that its own library, DistributedDataParallel and tests use, and other users do not.

#ifndef LOCKSTEP_COMM_INTERNAL_GROUP_ACCESS_H_
#define LOCKSTEP_COMM_INTERNAL_GROUP_ACCESS_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "lockstep/comm/process_group.h"

namespace lockstep::comm::internal {

struct GroupAccess {
  static std::unique_ptr<ProcessGroup> FromParts(GroupParts parts);

  // Like ProcessGroup::FromC10d(), for backends that fit together and fulfil the guarantees of comm/backend.h. Throws
  // if they do not fit.
  static std::unique_ptr<ProcessGroup> FromBackends(c10::intrusive_ptr<c10d::Store> store, BackendMap backends,
                                                    absl::Duration timeout = absl::Minutes(30));

  // Returns whether this rank has verified that every rank is a Lockstep rank, so that the ranks may communicate
  // through the store. False if there are Python ranks in the group, and for a group from FromC10d().
  static bool OnlyLockstepRanks(const ProcessGroup& group) { return group.OnlyLockstepRanks(); }

  // Sets and returns whether the ranks may make different numbers of steps now, as under ddp::Join. Then a rank that
  // has finished takes part in the collectives of forward and backward only.
  static void SetUneven(ProcessGroup& group, bool uneven) { group.SetUneven(uneven); }
  static bool Uneven(const ProcessGroup& group) { return group.uneven(); }

  // Returns a new key for the store: "`purpose`/n" for the n-th call. If all ranks call it in one order, they get the
  // same keys.
  static std::string NextKey(ProcessGroup& group, absl::string_view purpose) { return group.NextKey(purpose); }

  // Returns whether the group's collectives take tensors of the device.
  static bool HasBackend(const ProcessGroup& group, c10::DeviceType device) { return group.HasBackend(device); }

  // Returns whether AllocateShared() returns memory that the ranks share.
  static bool SharesMemory(const ProcessGroup& group) { return group.SharesMemory(); }

  // Multiplies each rank's tensor, float or double, by its `factor` and sums over all ranks, in place: PyTorch's
  // PREMUL_SUM. The factor and the products are rounded to the dtype. With SharesMemory(), CPU tensors are multiplied
  // in the pass that sums them, and otherwise in a separate pass before.
  static Work AllReducePremulSumAsync(ProcessGroup& group, const at::Tensor& tensor, double factor) {
    return group.AllReducePremulSumAsync(tensor, factor);
  }

  // Returns the backend for the device if it can add by itself; null if it has no tree sum. For comm/tree_sum.
  static TreeSumBackend* TreeSumBackendOf(const ProcessGroup& group, c10::DeviceType device) {
    return group.TreeSumBackendOf(device);
  }
  static Work TreeSumAsync(ProcessGroup& group, const at::Tensor& output, const std::vector<at::Tensor>& sums,
                           std::shared_ptr<const TreeSumOrder> order) {
    return group.TreeSumAsync(output, sums, std::move(order));
  }

  // Adds up the ranks' leaves where order->counts is 1, and gives each rank its slice (order->slices). `leaf` is in
  // memory of AllocateShared(), also on a rank whose count is 0. Needs TreeSumBackendOf().
  static Work TreeScatterAsync(ProcessGroup& group, const at::Tensor& slice, const at::Tensor& leaf,
                               std::shared_ptr<const TreeSumOrder> order) {
    return group.TreeScatterAsync(slice, leaf, std::move(order));
  }

  // As HostSumBackend::SumOnHosts(). The first returns null if the backend is none, or has no hosts().
  static HostSumBackend* HostSumBackendOf(const ProcessGroup& group, c10::DeviceType device) {
    return group.HostSumBackendOf(device);
  }
  static Work SumOnHostsAsync(ProcessGroup& group, const at::Tensor& received, const at::Tensor& leaf,
                              std::shared_ptr<const HostSums> sums) {
    return group.SumOnHostsAsync(received, leaf, std::move(sums));
  }

  // Returns the names of the hosts, in the order of their first ranks, and the ranks of the group on each, ascending: the
  // same on every rank. FailedPrecondition: Python ranks are in the group, or it is from FromC10d().
  static absl::StatusOr<std::vector<std::pair<std::string, std::vector<int>>>> RanksByHost(const ProcessGroup& group);

  // Allocates bytes that are the same memory on all ranks, uninitialised. Every rank must call it with the same number.
  // Rank 0's tensor must live as long as any rank uses the memory. FailedPrecondition: the backend shares no memory.
  // ResourceExhausted, on all ranks: it ran out.
  static absl::StatusOr<at::Tensor> AllocateCommon(ProcessGroup& group, int64_t bytes) {
    return group.AllocateCommon(bytes);
  }
};

}  // namespace lockstep::comm::internal

#endif  // LOCKSTEP_COMM_INTERNAL_GROUP_ACCESS_H_
