#include "lockstep/checkpoint/internal/storage_loader.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <sys/mman.h>

#include <cstdint>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/status.h"
#include "lockstep/base/torch_status.h"

namespace lockstep::checkpoint::internal {
namespace {

bool IsHere(c10::Device device) {
  if (device.is_cpu()) return true;
  if (!c10::impl::hasDeviceGuardImpl(device.type())) return false;
  return (device.has_index() ? device.index() : 0) < c10::impl::getDeviceGuardImpl(device.type())->deviceCount();
}

// A page fault for every 2 MiB in place of one for every 4 KiB, of which 1 GiB takes 262,144.
void AdviseHugePages(char* memory, size_t size) {
  constexpr size_t kHugePage = size_t{2} << 20;
  const size_t past = reinterpret_cast<uintptr_t>(memory) % kHugePage;
  const size_t skipped = past == 0 ? 0 : kHugePage - past;
  if (size < skipped + kHugePage) return;
  madvise(memory + skipped, (size - skipped) / kHugePage * kHugePage, MADV_HUGEPAGE);
}

}  // namespace

absl::StatusOr<c10::Device> StorageLoader::DeviceFor(absl::string_view location) const {
  LOCKSTEP_ASSIGN_OR_RETURN(const c10::Device saved, ParseDevice(location));
  LOCKSTEP_ASSIGN_OR_RETURN(const c10::Device device, map_location_.Map(saved));
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

absl::StatusOr<c10::Storage> StorageLoader::Allocate(const ZipRecord& record, c10::Device device,
                                                     absl::string_view where) {
  at::Tensor bytes;
  LOCKSTEP_RETURN_IF_ERROR(TorchStatus("", [&] { bytes = at::empty({static_cast<int64_t>(record.size)}, at::kByte); }));
  char* const to = static_cast<char*>(bytes.data_ptr());
  AdviseHugePages(to, record.size);
  if (device.is_cpu()) {
    pending_.emplace(&record, Pending{to, std::string(where)});
    return bytes.storage();
  }
  // At once, so that the host's memory holds one at a time.
  std::vector<ZipRead> reads = {{&record, to}};
  zip_.ReadAll(reads, verify_);
  LOCKSTEP_RETURN_IF_ERROR(reads[0].status);
  done_.insert(&record);
  LOCKSTEP_RETURN_IF_ERROR(TorchStatus("", [&] { bytes = bytes.to(device); }));
  return bytes.storage();
}

absl::StatusOr<c10::Storage> StorageLoader::Get(const PickleStorage& wanted, size_t element_size,
                                                absl::string_view where) {
  const std::string name = absl::StrCat(archive_, "/data/", wanted.key);
  const ZipRecord* record = zip_.Find(name);
  if (record == nullptr) return absl::DataLossError(absl::StrCat("record \"", name, "\" is missing"));
  // A storage that is no multiple of its elements has a rest.
  if (wanted.count < 0 || static_cast<uint64_t>(wanted.count) != record->size / element_size) {
    return absl::DataLossError(absl::StrCat("record \"", name, "\" has ", record->size, " bytes and should have ",
                                            wanted.count, " elements of ", element_size));
  }
  const auto known = loaded_.find(wanted.key);
  if (known != loaded_.end()) {
    if (known->second.location == wanted.location) return known->second.storage;
    return absl::DataLossError(absl::StrCat("record \"", name, "\" is on two devices"));
  }
  LOCKSTEP_ASSIGN_OR_RETURN(const c10::Device device, DeviceFor(wanted.location));
  LOCKSTEP_ASSIGN_OR_RETURN(const c10::Storage storage, Allocate(*record, device, where));
  loaded_.emplace(wanted.key, Loaded{storage, wanted.location});
  return storage;
}

absl::Status StorageLoader::ReadAll() {
  std::vector<ZipRead> reads;
  for (const ZipRecord& record : zip_.records()) {
    const auto pending = pending_.find(&record);
    if (pending != pending_.end()) {
      reads.push_back({&record, pending->second.to});
    } else if (verify_ && !done_.contains(&record)) {
      reads.push_back({&record, nullptr});
    }
  }
  zip_.ReadAll(reads, verify_);
  for (const ZipRead& read : reads) {
    const auto pending = pending_.find(read.record);
    LOCKSTEP_RETURN_IF_ERROR(pending == pending_.end() ? read.status : Annotate(read.status, pending->second.where));
  }
  return absl::OkStatus();
}

}  // namespace lockstep::checkpoint::internal
