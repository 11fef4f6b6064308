#include "lockstep/checkpoint/tensors/placement.h"

#include <ATen/ops/empty.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <sys/mman.h>

#include <cstdint>

#include "absl/strings/str_cat.h"
#include "lockstep/base/status.h"
#include "lockstep/base/torch_status.h"

namespace lockstep::checkpoint::tensors {
namespace {

bool IsHere(c10::Device device) {
  if (device.is_cpu()) return true;
  if (!c10::impl::hasDeviceGuardImpl(device.type())) return false;
  return (device.has_index() ? device.index() : 0) < c10::impl::getDeviceGuardImpl(device.type())->deviceCount();
}

// One page fault for every 2 MiB instead of every 4 KiB, of which 1 GiB takes 262,144. The huge pages at both ends
// include neighbours, which are mostly other loaded tensors. Without those pages an eighth of a tensor of 16 MiB would
// be in small pages.
void AdviseHugePages(char* memory, size_t size) {
  constexpr uintptr_t kHugePage = uintptr_t{2} << 20;
  if (size < kHugePage) return;
  const uintptr_t begin = reinterpret_cast<uintptr_t>(memory) / kHugePage * kHugePage;
  const uintptr_t end = (reinterpret_cast<uintptr_t>(memory) + size + kHugePage - 1) / kHugePage * kHugePage;
  madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);
}

}  // namespace

absl::StatusOr<c10::Device> DeviceFor(c10::Device saved, const MapLocation& map_location) {
  LOCKSTEP_ASSIGN_OR_RETURN(const c10::Device device, map_location.Map(saved));
  if (device.is_meta()) return absl::UnimplementedError("loading to the meta device is not supported");
  if (IsHere(device)) return device;
  if (device == saved) {
    return absl::FailedPreconditionError(
        absl::StrCat("it was saved on ", saved.str(),
                     ", which this program does not have; use LoadOptions::map_location, such as \"cpu\""));
  }
  return absl::FailedPreconditionError(absl::StrCat("map_location sends it from ", saved.str(), " to ", device.str(),
                                                    ", which this program does not have"));
}

absl::StatusOr<at::Tensor> HostTensor(c10::IntArrayRef sizes, at::ScalarType type) {
  LOCKSTEP_ASSIGN_OR_RETURN(const at::Tensor tensor, TorchStatusOr("", [&] { return at::empty(sizes, type); }));
  AdviseHugePages(static_cast<char*>(tensor.data_ptr()), tensor.nbytes());
  return tensor;
}

}  // namespace lockstep::checkpoint::tensors
