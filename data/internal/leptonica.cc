#include "lockstep/data/internal/leptonica.h"

namespace lockstep::data::internal {

void SilenceLeptonica() {
  static const int severity = [] {
    leptSetStderrHandler([](const char*) {});
    return setMsgSeverity(L_SEVERITY_NONE);
  }();
  static_cast<void>(severity);
}

PixPointer ReadPix(absl::string_view bytes) {
  return PixPointer(pixReadMem(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()));
}

PixPointer ToRgb(PixPointer image) { return PixPointer(pixConvertTo32(image.get())); }

void CopyRgbRow(Pix* image, int64_t y, uint8_t* out) {
  const l_uint32* const row = pixGetData(image) + y * pixGetWpl(image);
  for (int x = 0; x < pixGetWidth(image); ++x) {
    for (const int shift : {L_RED_SHIFT, L_GREEN_SHIFT, L_BLUE_SHIFT}) *out++ = row[x] >> shift;
  }
}

}  // namespace lockstep::data::internal
