// A pickle's graph as a Value, with its tensors read from the archive.

#ifndef LOCKSTEP_CHECKPOINT_ARCHIVE_DECODER_H_
#define LOCKSTEP_CHECKPOINT_ARCHIVE_DECODER_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "lockstep/checkpoint/archive/storage_loader.h"
#include "lockstep/checkpoint/deferred/tensors.h"
#include "lockstep/checkpoint/map_location.h"
#include "lockstep/checkpoint/pickle/graph.h"
#include "lockstep/checkpoint/value.h"
#include "lockstep/checkpoint/zip/reader.h"

namespace lockstep::checkpoint::archive {

struct DecodeOptions {
  // Records are named `archive`/data/...
  std::string archive;
  MapLocation map_location = {};
  bool verify = true;
  // The path of the graph's root in the file's value, for errors.
  std::string root_path = {};
  // If not null, set to the devices from which the storages were saved.
  SavedDevices* saved_devices = nullptr;
  // If not null, no storage is read: all are added to it, and a fetch reads one. All are on the CPU.
  DeferredTensors* deferred = nullptr;
};

// Reads each storage that the graph uses once, and with `verify` checks the other records too. Errors are Load's.
absl::StatusOr<Value> Decode(const pickle::PickleGraph& graph, std::shared_ptr<const zip::ZipReader> zip,
                             const DecodeOptions& options);

}  // namespace lockstep::checkpoint::archive

#endif  // LOCKSTEP_CHECKPOINT_ARCHIVE_DECODER_H_
