// The parts of the zip format that PyTorch's archives use. Source: PKWARE's APPNOTE.TXT 6.3.9, sections 4.3 and 4.5.3.

#ifndef LOCKSTEP_CHECKPOINT_ZIP_FORMAT_H_
#define LOCKSTEP_CHECKPOINT_ZIP_FORMAT_H_

#include <cstdint>

namespace lockstep::checkpoint::zip {

inline constexpr uint32_t kLocalHeader = 0x04034b50;
inline constexpr uint32_t kDataDescriptor = 0x08074b50;
inline constexpr uint32_t kCentralHeader = 0x02014b50;
inline constexpr uint32_t kZip64End = 0x06064b50;
inline constexpr uint32_t kZip64Locator = 0x07064b50;
inline constexpr uint32_t kEnd = 0x06054b50;

inline constexpr uint32_t kLocalHeaderSize = 30;
inline constexpr uint32_t kCentralHeaderSize = 46;
inline constexpr uint32_t kZip64EndSize = 56;
inline constexpr uint32_t kZip64LocatorSize = 20;
inline constexpr uint32_t kEndSize = 22;

inline constexpr uint16_t kEncrypted = 0x0001;
// The CRC and sizes follow the data; names are UTF-8.
inline constexpr uint16_t kPyTorchFlags = 0x0808;

inline constexpr uint16_t kZip64Extra = 0x0001;
// "FB": PyTorch's padding.
inline constexpr uint16_t kPaddingExtra = 0x4246;

// If a field has one of these values, its value is in the zip64 extra field or zip64 end record.
inline constexpr uint32_t kInZip64 = 0xffffffff;
inline constexpr uint16_t kCountInZip64 = 0xffff;

// Every record's data begins at a multiple of this, as in PyTorch, so that a mapped file serves as tensor memory.
inline constexpr uint32_t kAlignment = 64;

}  // namespace lockstep::checkpoint::zip

#endif  // LOCKSTEP_CHECKPOINT_ZIP_FORMAT_H_
