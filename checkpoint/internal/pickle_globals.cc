#include "lockstep/checkpoint/internal/pickle_globals.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace lockstep::checkpoint::internal {
namespace {

struct Callable {
  absl::string_view module;
  absl::string_view name;
  PickleGlobal global;
};

// Protocol 2 spells builtins as Python 2 did.
constexpr Callable kCallables[] = {
    {"collections", "OrderedDict", PickleGlobal::kOrderedDict},
    {"collections", "Counter", PickleGlobal::kCounter},
    {"torch._utils", "_rebuild_tensor_v2", PickleGlobal::kRebuildTensorV2},
    {"torch._utils", "_rebuild_tensor_v3", PickleGlobal::kRebuildTensorV3},
    {"torch._utils", "_rebuild_parameter", PickleGlobal::kRebuildParameter},
    {"_codecs", "encode", PickleGlobal::kEncode},
    {"__builtin__", "bytes", PickleGlobal::kBytes},
    {"builtins", "bytes", PickleGlobal::kBytes},
    {"torch", "device", PickleGlobal::kDevice},
    {"torch", "Size", PickleGlobal::kSize},
};

struct Refused {
  absl::string_view module;
  absl::string_view name;
  absl::string_view what;
};

constexpr Refused kRefused[] = {
    {"torch._utils", "_rebuild_qtensor", "a quantized tensor"},
    {"torch._utils", "_rebuild_sparse_tensor", "a sparse tensor"},
    {"torch._utils", "_rebuild_nested_tensor", "a nested tensor"},
    {"torch._utils", "_rebuild_meta_tensor_no_storage", "a tensor on the meta device, which has no data"},
    {"torch._utils", "_rebuild_parameter_with_state", "a Parameter with attributes of its own"},
    {"torch._tensor", "_rebuild_from_type_v2", "a subclass of Tensor or a tensor with attributes of its own"},
    {"__builtin__", "set", "a set"},
    {"builtins", "set", "a set"},
    {"__builtin__", "frozenset", "a frozenset"},
    {"builtins", "frozenset", "a frozenset"},
    {"__builtin__", "complex", "a complex number"},
    {"builtins", "complex", "a complex number"},
    {"__builtin__", "bytearray", "a bytearray"},
    {"builtins", "bytearray", "a bytearray"},
};

constexpr absl::string_view kStorageTypes[] = {
    "DoubleStorage",        "FloatStorage",        "HalfStorage",    "LongStorage", "IntStorage",
    "ShortStorage",         "CharStorage",         "ByteStorage",    "BoolStorage", "BFloat16Storage",
    "ComplexDoubleStorage", "ComplexFloatStorage", "UntypedStorage",
};

constexpr absl::string_view kDtypes[] = {
    "float64",         "float32",
    "float16",         "bfloat16",
    "int64",           "int32",
    "int16",           "int8",
    "uint8",           "bool",
    "complex128",      "complex64",
    "complex32",       "uint16",
    "uint32",          "uint64",
    "float8_e5m2",     "float8_e4m3fn",
    "float8_e5m2fnuz", "float8_e4m3fnuz",
    "float8_e8m0fnu",  "float4_e2m1fn_x2",
    "bits8",           "bits16",
    "bits1x8",         "bits2x4",
    "bits4x2",
};

template <typename Range>
bool Contains(const Range& range, absl::string_view name) {
  return std::find(std::begin(range), std::end(range), name) != std::end(range);
}

bool IsStorageModule(absl::string_view module) {
  return module == "torch" || module == "torch.cuda" || module == "torch.storage";
}

}  // namespace

absl::StatusOr<PickleGlobal> FindPickleGlobal(absl::string_view module, absl::string_view name) {
  for (const Callable& known : kCallables) {
    if (known.module == module && known.name == name) return known.global;
  }
  if (IsStorageModule(module) && Contains(kStorageTypes, name)) return PickleGlobal::kStorageType;
  if (module == "torch" && Contains(kDtypes, name)) return PickleGlobal::kDtype;
  for (const Refused& known : kRefused) {
    if (known.module == module && known.name == name) {
      return absl::UnimplementedError(absl::StrCat(known.what, " (", module, ".", name, ") is not supported"));
    }
  }
  if (module == "torch" && absl::StartsWith(name, "Q") && absl::EndsWith(name, "Storage")) {
    return absl::UnimplementedError(absl::StrCat("a quantized tensor (", module, ".", name, ") is not supported"));
  }
  return absl::InvalidArgumentError(
      absl::StrCat("the Python object ", module, ".", name, " is not allowed in a checkpoint"));
}

}  // namespace lockstep::checkpoint::internal
