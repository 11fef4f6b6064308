// The header of a safetensors file: which tensors it holds, where, and its metadata. Source: the format's description
// at https://github.com/huggingface/safetensors, and for the order and the bytes of what is written its implementation.
//
// A file is the header's length (8 bytes, little-endian), the header (a JSON object, which may end in spaces) and the
// tensors' bytes, each in the order of its elements.

#ifndef LOCKSTEP_CHECKPOINT_INTERNAL_SAFETENSORS_HEADER_H_
#define LOCKSTEP_CHECKPOINT_INTERNAL_SAFETENSORS_HEADER_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lockstep/checkpoint/internal/byte_stream.h"

namespace lockstep::checkpoint::internal {

struct SafetensorsDtype {
  absl::string_view name;   // as in the file
  absl::string_view torch;  // torch.`torch`
  uint64_t size;            // bytes of an element
};

// nullptr where the format has none, or it is not supported (those of less than a byte).
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

// Reads and checks it. Of what is accepted the names differ, shape and dtype give the bytes' number without overflow
// (zero dimensions counted as one), and the tensors cover all of the file behind the header, each byte once. Takes no
// more memory than the header's length and `memory_limit`, 512 bytes of which are reserved for each tensor.
//
// DataLoss: anything else. Unimplemented: a dtype that is not supported. ResourceExhausted: past the limit.
absl::StatusOr<SafetensorsHeader> ReadSafetensorsHeader(const ByteSource& source, size_t memory_limit);

// Puts the tensors into the order in which the format's own implementation writes them, dtypes of wide elements first,
// those of one dtype by name, and moves each to its place. Requires: end - begin is what each takes.
void PlaceSafetensors(std::vector<SafetensorsTensor>& tensors);

// The file up to the tensors' bytes, as the format's own implementation writes it. InvalidArgument where it is longer
// than the format allows. Requires: names and metadata are UTF-8.
absl::StatusOr<std::string> SafetensorsHeaderBytes(const SafetensorsHeader& header);

// The key under which the metadata stand; no tensor can have this name.
inline constexpr absl::string_view kSafetensorsMetadata = "__metadata__";

}  // namespace lockstep::checkpoint::internal

#endif  // LOCKSTEP_CHECKPOINT_INTERNAL_SAFETENSORS_HEADER_H_
