// Reads storages from an archive, each once, onto the device that map_location gives.
//
//   LOCKSTEP_ASSIGN_OR_RETURN(const c10::Storage weight, loader.Get(storage, sizeof(float), "[\"weight\"]"));
//   LOCKSTEP_RETURN_IF_ERROR(loader.ReadAll());  // fills it

#ifndef LOCKSTEP_CHECKPOINT_ARCHIVE_STORAGE_LOADER_H_
#define LOCKSTEP_CHECKPOINT_ARCHIVE_STORAGE_LOADER_H_

#include <c10/core/Storage.h>

#include <memory>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lockstep/checkpoint/deferred/tensors.h"
#include "lockstep/checkpoint/map_location.h"
#include "lockstep/checkpoint/pickle/graph.h"
#include "lockstep/checkpoint/zip/reader.h"

namespace lockstep::checkpoint::archive {

// The device of each storage in the file, by its name there.
using SavedDevices = absl::flat_hash_map<const c10::StorageImpl*, std::string>;

class StorageLoader {
 public:
  // The references must outlive the loader. If `deferred` is not null, storages are added to it, and not read.
  StorageLoader(std::shared_ptr<const zip::ZipReader> zip, const std::string& archive, const MapLocation& map_location,
                bool verify, DeferredTensors* deferred)
      : zip_(std::move(zip)), archive_(archive), map_location_(map_location), verify_(verify), deferred_(deferred) {}

  // On the CPU its bytes are undefined until ReadAll. `element_size`: the size of the storage's own type, or 1 if it is
  // untyped. `where`: its name in ReadAll's errors.
  absl::StatusOr<c10::Storage> Get(const pickle::PickleStorage& wanted, size_t element_size, absl::string_view where);

  // Call it once, while the storages are alive. With `verify` it also checks the CRC-32 of every other record. Returns
  // the error of the first failed record in the file.
  absl::Status ReadAll();

  // For all results of Get.
  SavedDevices saved_devices() const;

 private:
  struct Loaded {
    c10::Storage storage;
    absl::string_view location;
  };

  struct Pending {
    char* to;
    std::string where;
  };

  absl::StatusOr<c10::Storage> Allocate(const zip::ZipRecord& record, c10::Device device, absl::string_view where);

  const std::shared_ptr<const zip::ZipReader> zip_;
  const std::string& archive_;
  const MapLocation& map_location_;
  const bool verify_;
  DeferredTensors* const deferred_;
  absl::flat_hash_map<absl::string_view, Loaded> loaded_;
  // By record. Records that are already on a device are absent.
  absl::flat_hash_map<const zip::ZipRecord*, Pending> pending_;
  absl::flat_hash_set<const zip::ZipRecord*> done_;
};

}  // namespace lockstep::checkpoint::archive

#endif  // LOCKSTEP_CHECKPOINT_ARCHIVE_STORAGE_LOADER_H_
