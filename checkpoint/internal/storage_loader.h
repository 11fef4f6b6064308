// Reads storages from an archive, each once, onto the device that map_location says.

#ifndef LOCKSTEP_CHECKPOINT_INTERNAL_STORAGE_LOADER_H_
#define LOCKSTEP_CHECKPOINT_INTERNAL_STORAGE_LOADER_H_

#include <c10/core/Storage.h>

#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "lockstep/checkpoint/internal/pickle_graph.h"
#include "lockstep/checkpoint/internal/zip_reader.h"
#include "lockstep/checkpoint/map_location.h"

namespace lockstep::checkpoint::internal {

class StorageLoader {
 public:
  // The arguments must outlive the loader.
  StorageLoader(const ZipReader& zip, const std::string& archive, const MapLocation& map_location, bool verify)
      : zip_(zip), archive_(archive), map_location_(map_location), verify_(verify) {}

  // `element_size`: of the storage's own type, 1 for an untyped one.
  absl::StatusOr<c10::Storage> Get(const PickleStorage& wanted, size_t element_size);

  // Checks the CRC-32 of every record that Get did not read.
  absl::Status VerifyOthers() const;

 private:
  struct Loaded {
    c10::Storage storage;
    absl::string_view location;
  };

  absl::StatusOr<c10::Device> DeviceFor(absl::string_view location) const;
  absl::StatusOr<c10::Storage> Read(const ZipRecord& record, absl::string_view location) const;

  const ZipReader& zip_;
  const std::string& archive_;
  const MapLocation& map_location_;
  const bool verify_;
  absl::flat_hash_map<absl::string_view, Loaded> loaded_;
};

}  // namespace lockstep::checkpoint::internal

#endif  // LOCKSTEP_CHECKPOINT_INTERNAL_STORAGE_LOADER_H_
