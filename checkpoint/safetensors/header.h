// The header of a safetensors file: its tensors, their positions, and its metadata. Sources: the specification at
// https://github.com/huggingface/safetensors and, for the order and bytes when writing, its implementation.
//
// A file is the header's length (8 bytes, little-endian), the header (a JSON object, optionally followed by spaces) and
// the tensors' bytes, each in the order of its elements.

#ifndef LOCKSTEP_CHECKPOINT_SAFETENSORS_HEADER_H_
#define LOCKSTEP_CHECKPOINT_SAFETENSORS_HEADER_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lockstep/checkpoint/file/byte_stream.h"

namespace lockstep::checkpoint::safetensors {

struct SafetensorsDtype {
  absl::string_view name;   // as in the file
  absl::string_view torch;  // torch.`torch`
  uint64_t size;            // bytes of an element
};

// nullptr if the format does not have it, or it is not supported (elements of less than a byte).
const SafetensorsDtype* FindSafetensorsDtype(absl::string_view torch);

struct SafetensorsTensor {
  std::string name;
  const SafetensorsDtype* dtype = nullptr;
  std::vector<int64_t> shape;
  // Its bytes, counted from `data`.
  uint64_t begin = 0;
  uint64_t end = 0;
};

struct SafetensorsHeader {
  // In the order of their bytes; the empty ones among those at one place in the header's order.
  std::vector<SafetensorsTensor> tensors;
  // An empty map is not the same as none.
  bool has_metadata = false;
  std::vector<std::pair<std::string, std::string>> metadata;
  // Where in the file the tensors' bytes begin; they fill the rest.
  uint64_t data = 0;
};

// Reads and checks the header. If it is accepted, names are unique, shape and dtype give the number of bytes without
// overflow (zero dimensions counted as one), and the tensors cover every byte of the file after the header exactly
// once. Uses at most the header's length and `memory_limit`, of which 512 bytes are reserved for each tensor.
//
// Unimplemented: a dtype is not supported. ResourceExhausted: the limit is exceeded. DataLoss: any other error.
absl::StatusOr<SafetensorsHeader> ReadSafetensorsHeader(const file::ByteSource& source, size_t memory_limit);

// Sorts the tensors as the format's own implementation does (dtypes of wide elements first, and by name within a dtype)
// and assigns their positions. Requires: end - begin is each one's size.
void PlaceSafetensors(std::vector<SafetensorsTensor>& tensors);

// The bytes of the file before the tensors, as in the format's own implementation. InvalidArgument: they are longer
// than the format allows. Requires: names and metadata are UTF-8.
absl::StatusOr<std::string> SafetensorsHeaderBytes(const SafetensorsHeader& header);

// The key of the metadata. No tensor can have this name.
inline constexpr absl::string_view kSafetensorsMetadata = "__metadata__";

}  // namespace lockstep::checkpoint::safetensors

#endif  // LOCKSTEP_CHECKPOINT_SAFETENSORS_HEADER_H_
