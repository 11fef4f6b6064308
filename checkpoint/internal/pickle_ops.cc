#include "lockstep/checkpoint/internal/pickle_ops.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace lockstep::checkpoint::internal {
namespace {

const char* WhatItMakes(uint8_t opcode) {
  switch (opcode) {
    case 0x8b:  // LONG4
      return "an int that does not fit into 64 bits";
    case 0x8d:  // BINUNICODE8
    case 0x8e:  // BINBYTES8
      return "a string of more than 4 GiB";
    case 0x8f:  // EMPTY_SET
      return "a set";
    case 0x91:  // FROZENSET
      return "a frozenset";
    case 0x96:  // BYTEARRAY8
      return "a bytearray";
    default:
      return nullptr;
  }
}

}  // namespace

absl::Status OpcodeError(uint8_t opcode) {
  if (const char* what = WhatItMakes(opcode)) return absl::UnimplementedError(absl::StrCat(what, " is not supported"));
  return absl::InvalidArgumentError(absl::StrFormat("the pickle opcode 0x%02x is not allowed", opcode));
}

}  // namespace lockstep::checkpoint::internal
