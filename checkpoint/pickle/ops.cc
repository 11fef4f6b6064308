#include "lockstep/checkpoint/pickle/ops.h"

#include "absl/strings/str_format.h"

namespace lockstep::checkpoint::pickle {
namespace {

// Names the object that the opcode creates, and a replacement to save.
const char* WhatItMakes(uint8_t opcode) {
  switch (opcode) {
    case kOpLong4:
      return "an int that does not fit into 64 bits is not supported; save str(x)";
    case 0x8d:  // BINUNICODE8
    case 0x8e:  // BINBYTES8
      return "a string of more than 4 GiB is not supported";
    case kOpEmptySet:
      return "a set is not supported; save list(x)";
    case kOpFrozenSet:
      return "a frozenset is not supported; save list(x)";
    case kOpByteArray8:
      return "a bytearray is not supported; save bytes(x)";
    default:
      return nullptr;
  }
}

}  // namespace

absl::Status OpcodeError(uint8_t opcode) {
  if (const char* what = WhatItMakes(opcode)) return absl::UnimplementedError(what);
  return absl::InvalidArgumentError(absl::StrFormat("the pickle opcode 0x%02x is not allowed", opcode));
}

}  // namespace lockstep::checkpoint::pickle
