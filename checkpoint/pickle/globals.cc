#include "lockstep/checkpoint/pickle/globals.h"

#include <algorithm>
#include <iterator>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"

namespace lockstep::checkpoint::pickle {
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
    {"torch._utils", "_rebuild_tensor", PickleGlobal::kRebuildTensor},
    {"torch._utils", "_rebuild_tensor_v2", PickleGlobal::kRebuildTensorV2},
    {"torch._utils", "_rebuild_tensor_v3", PickleGlobal::kRebuildTensorV3},
    {"torch._utils", "_rebuild_parameter", PickleGlobal::kRebuildParameter},
    {"torch._utils", "_rebuild_parameter_with_state", PickleGlobal::kRebuildParameterWithState},
    {"torch._tensor", "_rebuild_from_type_v2", PickleGlobal::kRebuildFromType},
    {"torch", "Tensor", PickleGlobal::kTensorType},
    {"torch.nn.parameter", "Parameter", PickleGlobal::kParameterType},
    {"_codecs", "encode", PickleGlobal::kEncode},
    {"__builtin__", "bytes", PickleGlobal::kBytes},
    {"builtins", "bytes", PickleGlobal::kBytes},
    {"__builtin__", "bytearray", PickleGlobal::kByteArray},
    {"builtins", "bytearray", PickleGlobal::kByteArray},
    {"__builtin__", "set", PickleGlobal::kSet},
    {"builtins", "set", PickleGlobal::kSet},
    {"__builtin__", "frozenset", PickleGlobal::kSet},
    {"builtins", "frozenset", PickleGlobal::kSet},
    {"torch.serialization", "_get_layout", PickleGlobal::kLayout},
    {"torch", "device", PickleGlobal::kDevice},
    {"torch", "Size", PickleGlobal::kSize},
};

struct Refused {
  absl::string_view module;
  absl::string_view name;
  absl::string_view what;
  absl::string_view instead;  // what to save, or empty
};

// PyTorch's own unpickler (weights_only=True) makes these.
constexpr Refused kUnsupported[] = {
    {"torch._utils", "_rebuild_qtensor", "a quantized tensor", "save x.dequantize()"},
    {"torch._utils", "_rebuild_sparse_tensor", "a sparse tensor", "save x.to_dense()"},
    {"torch._utils", "_rebuild_nested_tensor", "a nested tensor", "save x.unbind()"},
    {"torch._utils", "_rebuild_meta_tensor_no_storage", "a tensor on the meta device, which has no data", ""},
    {"torch._utils", "_rebuild_wrapper_subclass", "a subclass of Tensor", "save the tensor within"},
    {"__builtin__", "complex", "a complex number", "save [x.real, x.imag]"},
    {"builtins", "complex", "a complex number", "save [x.real, x.imag]"},
};

// An entry without a name matches the whole module and its submodules. The first match is used.
constexpr Refused kForbidden[] = {
    {"numpy.core.multiarray", "scalar", "a numpy scalar", "save float(x) or int(x)"},
    {"numpy._core.multiarray", "scalar", "a numpy scalar", "save float(x) or int(x)"},
    {"numpy", "dtype", "a numpy dtype", "save str(x)"},
    {"numpy", "", "a numpy array", "save torch.from_numpy(x)"},
    {"argparse", "Namespace", "an argparse.Namespace", "save vars(args)"},
    {"types", "SimpleNamespace", "a SimpleNamespace", "save vars(x)"},
    {"omegaconf", "", "an OmegaConf object", "save OmegaConf.to_container(x)"},
    {"collections", "defaultdict", "a defaultdict", "save dict(x)"},
    {"collections", "deque", "a deque", "save list(x)"},
    {"pathlib", "", "a path", "save str(x)"},
    {"datetime", "timedelta", "a timedelta", "save x.total_seconds()"},
    {"datetime", "", "a date or time", "save x.isoformat()"},
    {"decimal", "Decimal", "a Decimal", "save str(x)"},
    {"fractions", "Fraction", "a Fraction", "save str(x)"},
    {"uuid", "UUID", "a UUID", "save str(x)"},
    {"__builtin__", "xrange", "a range", "save list(x)"},
    {"builtins", "range", "a range", "save list(x)"},
    {"__builtin__", "", "a Python function or class", "leave it out, or save its name"},
    {"builtins", "", "a Python function or class", "leave it out, or save its name"},
    {"functools", "", "a Python function", "leave it out, or save its name"},
    {"torch.torch_version", "TorchVersion", "torch.__version__", "save str(torch.__version__)"},
    {"torch.nn.parallel", "", "a wrapped module", "save model.module.state_dict()"},
    {"torch.nn", "", "a whole module", "save model.state_dict()"},
    {"torchvision.models", "", "a whole module", "save model.state_dict()"},
    {"torch.optim.lr_scheduler", "", "a whole scheduler", "save scheduler.state_dict()"},
    {"torch.optim", "", "a whole optimizer", "save optimizer.state_dict()"},
    {"torch.amp", "", "a whole GradScaler", "save scaler.state_dict()"},
    {"torch.cuda.amp", "", "a whole GradScaler", "save scaler.state_dict()"},
    {"torch.distributed.tensor", "", "a DTensor", "save x.full_tensor()"},
    {"torch._C", "Generator", "a Generator", "save generator.get_state()"},
};

constexpr absl::string_view kOtherwise =
    "save plain values: vars(x) of an object, dataclasses.asdict(x), x.value of an enum, tuple(x) of a namedtuple, "
    "state_dict() of a module";

constexpr absl::string_view kStorageTypes[] = {
    "DoubleStorage",  "FloatStorage", "HalfStorage",   "LongStorage",     "IntStorage",           "ShortStorage",
    "CharStorage",    "ByteStorage",  "BoolStorage",   "BFloat16Storage", "ComplexDoubleStorage", "ComplexFloatStorage",
    "UntypedStorage", "QInt8Storage", "QUInt8Storage", "QInt32Storage",
};

constexpr absl::string_view kOldTensorTypes[] = {
    "DoubleTensor", "FloatTensor", "HalfTensor", "LongTensor", "IntTensor", "ShortTensor", "CharTensor", "ByteTensor",
};

constexpr absl::string_view kNames[] = {
    "float64",
    "float32",
    "float16",
    "bfloat16",
    "int64",
    "int32",
    "int16",
    "int8",
    "uint8",
    "bool",
    "complex128",
    "complex64",
    "complex32",
    "bcomplex32",
    "uint16",
    "uint32",
    "uint64",
    "float8_e5m2",
    "float8_e4m3fn",
    "float8_e5m2fnuz",
    "float8_e4m3fnuz",
    "float8_e8m0fnu",
    "float4_e2m1fn_x2",
    "bits8",
    "bits16",
    "bits1x8",
    "bits2x4",
    "bits4x2",
    "qint8",
    "quint8",
    "qint32",
    "per_tensor_affine",
    "per_tensor_symmetric",
    "per_channel_affine",
    "per_channel_symmetric",
    "per_channel_affine_float_qparams",
};

template <typename Range>
bool Contains(const Range& range, absl::string_view name) {
  return std::find(std::begin(range), std::end(range), name) != std::end(range);
}

bool IsStorageModule(absl::string_view module) {
  return module == "torch" || module == "torch.cuda" || module == "torch.storage";
}

bool Fits(const Refused& refused, absl::string_view module, absl::string_view name) {
  if (!refused.name.empty()) return refused.module == module && refused.name == name;
  return module == refused.module || (absl::StartsWith(module, refused.module) && module[refused.module.size()] == '.');
}

const Refused* FindRefused(absl::Span<const Refused> table, absl::string_view module, absl::string_view name) {
  const auto* const found =
      std::find_if(table.begin(), table.end(), [&](const Refused& refused) { return Fits(refused, module, name); });
  return found == table.end() ? nullptr : &*found;
}

std::string Why(const Refused& refused, absl::string_view module, absl::string_view name, absl::string_view verb) {
  return absl::StrCat(refused.what, " (", module, ".", name, ") is not ", verb, refused.instead.empty() ? "" : "; ",
                      refused.instead);
}

}  // namespace

absl::StatusOr<PickleGlobal> FindPickleGlobal(absl::string_view module, absl::string_view name) {
  for (const Callable& known : kCallables) {
    if (known.module == module && known.name == name) return known.global;
  }
  if (IsStorageModule(module) && Contains(kStorageTypes, name)) return PickleGlobal::kStorageType;
  if (module == "torch" && Contains(kNames, name)) return PickleGlobal::kName;
  if ((module == "torch" || module == "torch.cuda") && Contains(kOldTensorTypes, name)) {
    return PickleGlobal::kOldTensorType;
  }
  if (const Refused* refused = FindRefused(kUnsupported, module, name)) {
    return absl::UnimplementedError(Why(*refused, module, name, "supported"));
  }
  if (module == "torch" && absl::StartsWith(name, "Q") && absl::EndsWith(name, "Storage")) {
    return absl::UnimplementedError(Why(kUnsupported[0], module, name, "supported"));
  }
  if (const Refused* refused = FindRefused(kForbidden, module, name)) {
    return absl::InvalidArgumentError(Why(*refused, module, name, "allowed in a checkpoint"));
  }
  return absl::InvalidArgumentError(
      absl::StrCat("the Python object ", module, ".", name, " is not allowed in a checkpoint; ", kOtherwise));
}

}  // namespace lockstep::checkpoint::pickle
