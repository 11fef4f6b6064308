#include "lockstep/checkpoint/internal/storage_loader.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

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

absl::StatusOr<c10::Storage> StorageLoader::Read(const ZipRecord& record, absl::string_view location) const {
  LOCKSTEP_ASSIGN_OR_RETURN(const c10::Device device, DeviceFor(location));
  at::Tensor bytes;
  LOCKSTEP_RETURN_IF_ERROR(TorchStatus("", [&] { bytes = at::empty({static_cast<int64_t>(record.size)}, at::kByte); }));
  LOCKSTEP_RETURN_IF_ERROR(zip_.Read(record, bytes.data_ptr(), verify_));
  if (device.is_cpu()) return bytes.storage();
  LOCKSTEP_RETURN_IF_ERROR(TorchStatus("", [&] { bytes = bytes.to(device); }));
  return bytes.storage();
}

absl::StatusOr<c10::Storage> StorageLoader::Get(const PickleStorage& wanted, size_t element_size) {
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
  LOCKSTEP_ASSIGN_OR_RETURN(const c10::Storage storage, Read(*record, wanted.location));
  loaded_.emplace(wanted.key, Loaded{storage, wanted.location});
  return storage;
}

absl::Status StorageLoader::VerifyOthers() const {
  const std::string folder = absl::StrCat(archive_, "/data/");
  for (const ZipRecord& record : zip_.records()) {
    const absl::string_view name = record.name;
    if (absl::StartsWith(name, folder) && loaded_.contains(name.substr(folder.size()))) continue;
    LOCKSTEP_RETURN_IF_ERROR(zip_.Verify(record));
  }
  return absl::OkStatus();
}

}  // namespace lockstep::checkpoint::internal
