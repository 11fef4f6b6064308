#include "lockstep/checkpoint/archive/storage_loader.h"

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lockstep/base/status.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/checkpoint/tensors/placement.h"

namespace lockstep::checkpoint::archive {
namespace {

// The bytes of `record`. Errors name `where`.
absl::StatusOr<at::Tensor> Read(const zip::ZipReader& zip, const zip::ZipRecord& record, bool verify,
                                const std::string& where) {
  LOCKSTEP_ASSIGN_OR_RETURN(const at::Tensor bytes,
                            tensors::HostTensor({static_cast<int64_t>(record.size)}, at::kByte));
  LOCKSTEP_RETURN_IF_ERROR(Annotate(zip.Read(record, bytes.data_ptr(), verify), where));
  return bytes;
}

}  // namespace

absl::StatusOr<c10::Storage> StorageLoader::Allocate(const zip::ZipRecord& record, c10::Device device,
                                                     absl::string_view where) {
  if (deferred_) {
    return deferred_->AddStorage(record.size, [zip = zip_, &record, verify = verify_, name = std::string(where)] {
      return Read(*zip, record, verify, name);
    });
  }
  LOCKSTEP_ASSIGN_OR_RETURN(at::Tensor bytes, tensors::HostTensor({static_cast<int64_t>(record.size)}, at::kByte));
  char* const to = static_cast<char*>(bytes.data_ptr());
  if (device.is_cpu()) {
    pending_.emplace(&record, Pending{to, std::string(where)});
    return bytes.storage();
  }
  // Read immediately, so that host memory holds one at a time.
  std::vector<zip::ZipRead> reads = {{&record, to}};
  zip_->ReadAll(reads, verify_);
  LOCKSTEP_RETURN_IF_ERROR(reads[0].status);
  done_.insert(&record);
  LOCKSTEP_RETURN_IF_ERROR(TorchStatus("", [&] { bytes = bytes.to(device); }));
  return bytes.storage();
}

absl::StatusOr<c10::Storage> StorageLoader::Get(const pickle::PickleStorage& wanted, size_t element_size,
                                                absl::string_view where) {
  const std::string name = absl::StrCat(archive_, "/data/", wanted.key);
  const zip::ZipRecord* record = zip_->Find(name);
  if (!record) return absl::DataLossError(absl::StrCat("record \"", name, "\" is missing"));
  // A storage's size need not be a multiple of its element's size.
  if (wanted.count < 0 || static_cast<uint64_t>(wanted.count) != record->size / element_size) {
    return absl::DataLossError(absl::StrCat("record \"", name, "\" has ", record->size, " bytes and should have ",
                                            wanted.count, " elements of ", element_size));
  }
  const auto known = loaded_.find(wanted.key);
  if (known != loaded_.end()) {
    if (known->second.location == wanted.location) return known->second.storage;
    return absl::DataLossError(absl::StrCat("record \"", name, "\" is on two devices"));
  }
  LOCKSTEP_ASSIGN_OR_RETURN(const c10::Device saved, ParseDevice(wanted.location));
  LOCKSTEP_ASSIGN_OR_RETURN(const c10::Device device, tensors::DeviceFor(saved, map_location_));
  LOCKSTEP_ASSIGN_OR_RETURN(const c10::Storage storage, Allocate(*record, device, where));
  loaded_.emplace(wanted.key, Loaded{storage, wanted.location});
  return storage;
}

SavedDevices StorageLoader::saved_devices() const {
  SavedDevices devices;
  for (const auto& entry : loaded_) {
    devices.emplace(entry.second.storage.unsafeGetStorageImpl(), entry.second.location);
  }
  return devices;
}

absl::Status StorageLoader::ReadAll() {
  std::vector<zip::ZipRead> reads;
  for (const zip::ZipRecord& record : zip_->records()) {
    const auto pending = pending_.find(&record);
    if (pending != pending_.end()) {
      reads.push_back({&record, pending->second.to});
    } else if (verify_ && !done_.contains(&record)) {
      reads.push_back({&record, nullptr});
    }
  }
  zip_->ReadAll(reads, verify_);
  for (const zip::ZipRead& read : reads) {
    const auto pending = pending_.find(read.record);
    LOCKSTEP_RETURN_IF_ERROR(pending == pending_.end() ? read.status : Annotate(read.status, pending->second.where));
  }
  return absl::OkStatus();
}

}  // namespace lockstep::checkpoint::archive
