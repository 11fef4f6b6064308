// Reads storages from an archive, each once, onto the device that map_location gives.
//
//   LOCKSTEP_ASSIGN_OR_RETURN(const c10::Storage weight, loader.Get(storage, sizeof(float), "[\"weight\"]"));
//   LOCKSTEP_RETURN_IF_ERROR(loader.ReadAll());  // fills it

#ifndef LOCKSTEP_CHECKPOINT_ARCHIVE_STORAGE_LOADER_H_
#define LOCKSTEP_CHECKPOINT_ARCHIVE_STORAGE_LOADER_H_

#include <c10/core/Storage.h>

#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lockstep/checkpoint/map_location.h"
#include "lockstep/checkpoint/pickle/graph.h"
#include "lockstep/checkpoint/zip/reader.h"

namespace lockstep::checkpoint::archive {

// Where each storage was saved, as the file names it.
using SavedDevices = absl::flat_hash_map<const c10::StorageImpl*, std::string>;

class StorageLoader {
 public:
  // The arguments must outlive the loader.
  StorageLoader(const zip::ZipReader& zip, const std::string& archive, const MapLocation& map_location, bool verify)
      : zip_(zip), archive_(archive), map_location_(map_location), verify_(verify) {}

  // Its bytes are undefined until ReadAll, if it is on the CPU. `element_size`: of the storage's own type, 1 for an
  // untyped one. `where`: what ReadAll's errors call it.
  absl::StatusOr<c10::Storage> Get(const pickle::PickleStorage& wanted, size_t element_size, absl::string_view where);

  // To be called once, when the storages are still held. With `verify` every other record's CRC-32 is checked too. The
  // error of the first record in the file that has one.
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

  const zip::ZipReader& zip_;
  const std::string& archive_;
  const MapLocation& map_location_;
  const bool verify_;
  absl::flat_hash_map<absl::string_view, Loaded> loaded_;
  // By record. Those that a device has already are absent.
  absl::flat_hash_map<const zip::ZipRecord*, Pending> pending_;
  absl::flat_hash_set<const zip::ZipRecord*> done_;
};

}  // namespace lockstep::checkpoint::archive

#endif  // LOCKSTEP_CHECKPOINT_ARCHIVE_STORAGE_LOADER_H_
