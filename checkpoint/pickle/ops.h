// The opcodes of Python's pickle format that plain data needs. Source: CPython's Lib/pickletools.py.

#ifndef LOCKSTEP_CHECKPOINT_PICKLE_OPS_H_
#define LOCKSTEP_CHECKPOINT_PICKLE_OPS_H_

#include <cstdint>

namespace lockstep::checkpoint::pickle {

enum PickleOp : uint8_t {
  kOpMark = '(',
  kOpStop = '.',
  kOpPop = '0',
  kOpPopMark = '1',
  kOpDup = '2',
  kOpBinInt = 'J',
  kOpBinInt1 = 'K',
  kOpBinInt2 = 'M',
  kOpNone = 'N',
  kOpBinPersId = 'Q',
  kOpReduce = 'R',
  kOpBinString = 'T',
  kOpShortBinString = 'U',
  kOpBinUnicode = 'X',
  kOpAppend = 'a',
  kOpBuild = 'b',
  kOpGlobal = 'c',
  kOpAppends = 'e',
  kOpBinGet = 'h',
  kOpLongBinGet = 'j',
  kOpBinPut = 'q',
  kOpLongBinPut = 'r',
  kOpSetItem = 's',
  kOpTuple = 't',
  kOpSetItems = 'u',
  kOpEmptyDict = '}',
  kOpEmptyList = ']',
  kOpEmptyTuple = ')',
  kOpBinFloat = 'G',
  // Protocol 2, which torch.save writes by default.
  kOpProto = 0x80,
  kOpNewObj = 0x81,
  kOpTuple1 = 0x85,
  kOpTuple2 = 0x86,
  kOpTuple3 = 0x87,
  kOpNewTrue = 0x88,
  kOpNewFalse = 0x89,
  kOpLong1 = 0x8a,
  // Protocols 3 and 4.
  kOpBinBytes = 'B',
  kOpShortBinBytes = 'C',
  kOpShortBinUnicode = 0x8c,
  kOpStackGlobal = 0x93,
  kOpMemoize = 0x94,
  kOpFrame = 0x95,
  kOpLong4 = 0x8b,
  kOpBinUnicode8 = 0x8d,
  kOpBinBytes8 = 0x8e,
  kOpEmptySet = 0x8f,
  kOpAddItems = 0x90,
  kOpFrozenSet = 0x91,
  kOpNewObjEx = 0x92,
  kOpByteArray8 = 0x96,
};

}  // namespace lockstep::checkpoint::pickle

#endif  // LOCKSTEP_CHECKPOINT_PICKLE_OPS_H_
