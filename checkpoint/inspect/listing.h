// Lists the contents of a checkpoint, for people and for programs.

#ifndef LOCKSTEP_CHECKPOINT_INSPECT_LISTING_H_
#define LOCKSTEP_CHECKPOINT_INSPECT_LISTING_H_

#include <string>

#include "absl/status/statusor.h"
#include "lockstep/checkpoint/archive/storage_loader.h"
#include "lockstep/checkpoint/safetensors/safetensors.h"
#include "lockstep/checkpoint/value.h"

namespace lockstep::checkpoint::inspect {

struct OpenedFile {
  Value value;
  SafetensorsMetadata metadata;
  bool has_metadata = false;
  // For a .pt file. For a storage that it does not contain, use the device of its tensors.
  archive::SavedDevices saved_devices;
};

// A line for each tensor (name, dtype, shape, bytes, device) and each other value, and one of totals. Returns the
// errors of Leaves.
absl::StatusOr<std::string> ListText(const OpenedFile& file);

// {"tensors": [{"name", "dtype", "shape", "bytes", "device"}], "values": [{"name", "value"}], "metadata": {}}, in
// lines.
absl::StatusOr<std::string> ListJson(const OpenedFile& file);

// "7 tensors with 120 bytes, in 7 storages of 120 bytes; 0 other values"
absl::StatusOr<std::string> Totals(const OpenedFile& file);

}  // namespace lockstep::checkpoint::inspect

#endif  // LOCKSTEP_CHECKPOINT_INSPECT_LISTING_H_
