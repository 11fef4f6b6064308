#include "lockstep/checkpoint/safetensors/header.h"

#include <algorithm>
#include <tuple>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lockstep/base/status.h"
#include "lockstep/checkpoint/file/foreign_format.h"
#include "lockstep/checkpoint/file/text.h"
#include "lockstep/checkpoint/safetensors/json_scanner.h"

namespace lockstep::checkpoint::safetensors {
namespace {

using file::Quoted;

constexpr size_t kLengthSize = 8;
constexpr uint64_t kMaxHeader = 100'000'000;
constexpr size_t kMaxDimensions = 64;  // LibTorch's
// Memory for a tensor's description here, and later for the tensor and its entry in a dict.
constexpr size_t kTensorMemory = 512;

// In the order in which the format's own implementation sorts tensors.
constexpr SafetensorsDtype kDtypes[] = {
    {"BOOL", "bool", 1},
    {"U8", "uint8", 1},
    {"I8", "int8", 1},
    {"F8_E5M2", "float8_e5m2", 1},
    {"F8_E4M3", "float8_e4m3fn", 1},
    {"F8_E8M0", "float8_e8m0fnu", 1},
    {"F8_E4M3FNUZ", "float8_e4m3fnuz", 1},
    {"F8_E5M2FNUZ", "float8_e5m2fnuz", 1},
    {"I16", "int16", 2},
    {"U16", "uint16", 2},
    {"F16", "float16", 2},
    {"BF16", "bfloat16", 2},
    {"I32", "int32", 4},
    {"U32", "uint32", 4},
    {"F32", "float32", 4},
    {"C64", "complex64", 8},
    {"F64", "float64", 8},
    {"I64", "int64", 8},
    {"U64", "uint64", 8},
};

absl::Status Malformed(absl::string_view what) { return absl::DataLossError(what); }

std::string TensorNamed(absl::string_view name) { return absl::StrCat("tensor ", Quoted(name)); }

absl::StatusOr<const SafetensorsDtype*> ParseDtype(absl::string_view name) {
  for (const SafetensorsDtype& dtype : kDtypes) {
    if (dtype.name == name) return &dtype;
  }
  return absl::UnimplementedError(absl::StrCat("dtype ", Quoted(name), " is not supported"));
}

// Bytes of a tensor's elements, with zero dimensions counted as one.
absl::StatusOr<uint64_t> SizeOf(const SafetensorsTensor& tensor) {
  int64_t size = static_cast<int64_t>(tensor.dtype->size);
  bool empty = false;
  for (const int64_t dimension : tensor.shape) {
    empty |= dimension == 0;
    if (__builtin_mul_overflow(size, dimension == 0 ? 1 : dimension, &size)) {
      return Malformed("its shape is out of range");
    }
  }
  return empty ? 0 : size;
}

absl::Status CheckSize(const SafetensorsTensor& tensor) {
  LOCKSTEP_ASSIGN_OR_RETURN(const uint64_t size, SizeOf(tensor));
  if (tensor.end >= tensor.begin && tensor.end - tensor.begin == size) return absl::OkStatus();
  return Malformed(absl::StrCat("shape [", absl::StrJoin(tensor.shape, ", "), "] of ", tensor.dtype->name, " takes ",
                                size, " bytes, data_offsets are [", tensor.begin, ", ", tensor.end, "]"));
}

absl::Status CheckUnique(std::vector<absl::string_view> names, absl::string_view what) {
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  return twice == names.end() ? absl::OkStatus() : Malformed(absl::StrCat("two ", what, " named ", Quoted(*twice)));
}

// Each tensor must begin where the previous one ends, and the last must end at the end of the file.
absl::Status CheckPlaces(const std::vector<SafetensorsTensor>& tensors, uint64_t data_size) {
  uint64_t end = 0;
  for (const SafetensorsTensor& tensor : tensors) {
    if (tensor.begin < end) return Malformed(absl::StrCat(TensorNamed(tensor.name), " overlaps the one before it"));
    if (tensor.begin > end) {
      return Malformed(absl::StrCat("bytes ", end, " to ", tensor.begin, " of the data, before ",
                                    TensorNamed(tensor.name), ", belong to no tensor"));
    }
    end = tensor.end;
  }
  if (end == data_size) return absl::OkStatus();
  return Malformed(absl::StrCat("the tensors take ", end, " bytes and ", data_size, " follow the header",
                                data_size < end ? "; the file is truncated" : ""));
}

class HeaderParser {
 public:
  HeaderParser(absl::string_view text, size_t memory_limit) : json_(text, memory_limit) {}

  absl::StatusOr<SafetensorsHeader> Run() {
    LOCKSTEP_RETURN_IF_ERROR(json_.Object([&](std::string key) -> absl::Status {
      if (key == kSafetensorsMetadata) return Annotate(Metadata(), kSafetensorsMetadata);
      header_.tensors.emplace_back().name = std::move(key);
      return Annotate(Tensor(header_.tensors.back()), TensorNamed(header_.tensors.back().name));
    }));
    LOCKSTEP_RETURN_IF_ERROR(json_.End());
    LOCKSTEP_RETURN_IF_ERROR(CheckNames());
    std::stable_sort(header_.tensors.begin(), header_.tensors.end(),
                     [](const auto& a, const auto& b) { return std::tie(a.begin, a.end) < std::tie(b.begin, b.end); });
    return std::move(header_);
  }

 private:
  absl::Status Metadata();
  absl::Status Tensor(SafetensorsTensor& tensor);
  absl::Status Field(absl::string_view key, SafetensorsTensor& tensor);
  absl::Status Dtype(SafetensorsTensor& tensor);
  absl::Status Shape(SafetensorsTensor& tensor);
  absl::Status Offsets(SafetensorsTensor& tensor);
  absl::Status CheckNames() const;

  JsonScanner json_;
  SafetensorsHeader header_;
};

absl::Status HeaderParser::Metadata() {
  if (std::exchange(header_.has_metadata, true)) return Malformed("stands twice");
  return json_.Object([&](std::string key) -> absl::Status {
    LOCKSTEP_RETURN_IF_ERROR(json_.Charge(2 * sizeof(header_.metadata[0])));
    LOCKSTEP_ASSIGN_OR_RETURN(std::string value, json_.String());
    header_.metadata.emplace_back(std::move(key), std::move(value));
    return absl::OkStatus();
  });
}

absl::Status HeaderParser::Tensor(SafetensorsTensor& tensor) {
  LOCKSTEP_RETURN_IF_ERROR(json_.Charge(kTensorMemory));
  std::vector<std::string> fields;
  LOCKSTEP_RETURN_IF_ERROR(json_.Object([&](std::string key) -> absl::Status {
    LOCKSTEP_RETURN_IF_ERROR(Annotate(Field(key, tensor), Quoted(key)));
    fields.push_back(std::move(key));
    return CheckUnique({fields.begin(), fields.end()}, "fields");
  }));
  if (fields.size() < 3) {
    return Malformed(absl::StrCat("expected dtype, shape and data_offsets, found ", absl::StrJoin(fields, ", ")));
  }
  return CheckSize(tensor);
}

absl::Status HeaderParser::Field(absl::string_view key, SafetensorsTensor& tensor) {
  if (key == "dtype") return Dtype(tensor);
  if (key == "shape") return Shape(tensor);
  return key == "data_offsets" ? Offsets(tensor) : Malformed("no field of the format");
}

absl::Status HeaderParser::Dtype(SafetensorsTensor& tensor) {
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string name, json_.String());
  LOCKSTEP_ASSIGN_OR_RETURN(tensor.dtype, ParseDtype(name));
  return absl::OkStatus();
}

absl::Status HeaderParser::Shape(SafetensorsTensor& tensor) {
  return json_.Array([&]() -> absl::Status {
    LOCKSTEP_ASSIGN_OR_RETURN(const uint64_t dimension, json_.Unsigned());
    if (dimension > INT64_MAX) return Malformed("a dimension is out of range");
    if (tensor.shape.size() == kMaxDimensions)
      return Malformed(absl::StrCat("more than ", kMaxDimensions, " dimensions"));
    LOCKSTEP_RETURN_IF_ERROR(json_.Charge(2 * sizeof(int64_t)));
    tensor.shape.push_back(static_cast<int64_t>(dimension));
    return absl::OkStatus();
  });
}

absl::Status HeaderParser::Offsets(SafetensorsTensor& tensor) {
  int count = 0;
  LOCKSTEP_RETURN_IF_ERROR(json_.Array([&]() -> absl::Status {
    LOCKSTEP_ASSIGN_OR_RETURN((count == 0 ? tensor.begin : tensor.end), json_.Unsigned());
    return ++count > 2 ? Malformed("expected two numbers, found more") : absl::OkStatus();
  }));
  return count == 2 ? absl::OkStatus() : Malformed(absl::StrCat("expected two numbers, found ", count));
}

absl::Status HeaderParser::CheckNames() const {
  std::vector<absl::string_view> names, keys;
  for (const SafetensorsTensor& tensor : header_.tensors) names.push_back(tensor.name);
  for (const auto& entry : header_.metadata) keys.push_back(entry.first);
  LOCKSTEP_RETURN_IF_ERROR(CheckUnique(std::move(names), "tensors"));
  return Annotate(CheckUnique(std::move(keys), "entries"), kSafetensorsMetadata);
}

absl::StatusOr<uint64_t> ReadLength(const file::ByteSource& source) {
  if (source.size < kLengthSize) return Malformed("no safetensors file: it has less than 8 bytes");
  unsigned char bytes[kLengthSize];
  LOCKSTEP_RETURN_IF_ERROR(source.read(0, bytes, sizeof(bytes)));
  uint64_t length = 0;
  for (size_t i = 0; i < kLengthSize; ++i) length |= uint64_t{bytes[i]} << (8 * i);
  if ((length & 0xffffffff) == 0x04034b50)
    return absl::InvalidArgumentError("a zip archive, such as a .pt file; use Load");
  if (length > kMaxHeader) {
    LOCKSTEP_RETURN_IF_ERROR(file::CheckForeignFormat(source));
    return Malformed(absl::StrCat("no safetensors file: it should begin with the header's length, at most ", kMaxHeader,
                                  ", and begins with ", length));
  }
  if (length <= source.size - kLengthSize) return length;
  return Malformed(absl::StrCat("the header should have ", length, " bytes and the file has ", source.size,
                                "; it is truncated or no safetensors file"));
}

void AppendTensor(const SafetensorsTensor& tensor, std::string& json) {
  absl::StrAppend(&json, JsonString(tensor.name), R"(:{"dtype":")", tensor.dtype->name, R"(","shape":[)",
                  absl::StrJoin(tensor.shape, ","), R"(],"data_offsets":[)", tensor.begin, ",", tensor.end, "]}");
}

void AppendMetadata(const std::vector<std::pair<std::string, std::string>>& metadata, std::string& json) {
  absl::StrAppend(&json, JsonString(kSafetensorsMetadata), ":{");
  for (const auto& [key, value] : metadata) {
    absl::StrAppend(&json, absl::EndsWith(json, "{") ? "" : ",", JsonString(key), ":", JsonString(value));
  }
  json.push_back('}');
}

}  // namespace

const SafetensorsDtype* FindSafetensorsDtype(absl::string_view torch) {
  for (const SafetensorsDtype& dtype : kDtypes) {
    if (dtype.torch == torch) return &dtype;
  }
  return nullptr;
}

absl::StatusOr<SafetensorsHeader> ReadSafetensorsHeader(const file::ByteSource& source, size_t memory_limit) {
  LOCKSTEP_ASSIGN_OR_RETURN(const uint64_t length, ReadLength(source));
  std::string text(length, '\0');
  LOCKSTEP_RETURN_IF_ERROR(source.read(kLengthSize, text.data(), length));
  if (!absl::StartsWith(text, "{")) return Malformed("no safetensors file: the header does not begin with '{'");
  absl::StatusOr<SafetensorsHeader> header = HeaderParser(text, memory_limit).Run();
  LOCKSTEP_RETURN_IF_ERROR(Annotate(header.status(), "header"));
  header->data = kLengthSize + length;
  LOCKSTEP_RETURN_IF_ERROR(Annotate(CheckPlaces(header->tensors, source.size - header->data), "header"));
  return header;
}

void PlaceSafetensors(std::vector<SafetensorsTensor>& tensors) {
  std::sort(tensors.begin(), tensors.end(),
            [](const auto& a, const auto& b) { return std::tie(b.dtype, a.name) < std::tie(a.dtype, b.name); });
  uint64_t end = 0;
  for (SafetensorsTensor& tensor : tensors) {
    const uint64_t size = tensor.end - tensor.begin;
    tensor.begin = end;
    end = tensor.end = tensor.begin + size;
  }
}

absl::StatusOr<std::string> SafetensorsHeaderBytes(const SafetensorsHeader& header) {
  std::string json = "{";
  if (header.has_metadata || !header.metadata.empty()) AppendMetadata(header.metadata, json);
  for (const SafetensorsTensor& tensor : header.tensors) {
    if (json.size() > 1) json.push_back(',');
    AppendTensor(tensor, json);
  }
  json.push_back('}');
  // So that the data begin at a multiple of 8.
  json.append((8 - json.size() % 8) % 8, ' ');
  if (json.size() > kMaxHeader) {
    return absl::InvalidArgumentError(absl::StrCat("names, shapes and metadata take ", json.size(),
                                                   " bytes; a safetensors file has room for ", kMaxHeader));
  }
  std::string bytes;
  for (size_t i = 0; i < kLengthSize; ++i) bytes.push_back(static_cast<char>(json.size() >> (8 * i)));
  return bytes + json;
}

}  // namespace lockstep::checkpoint::safetensors
