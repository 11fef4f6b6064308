#include "lockstep/data/internal/foreign_kind.h"

#include <cstddef>

#include "absl/strings/match.h"

namespace lockstep::data::internal {
namespace {

struct Start {
  absl::string_view bytes;
  absl::string_view kind;
};

constexpr Start kStarts[] = {
    {"GIF87a", "a GIF image"},
    {"GIF89a", "a GIF image"},
    {{"\0\0\0\x0cjP  ", 8}, "a JPEG 2000 image"},
    {"\xff\x4f\xff\x51", "a JPEG 2000 image"},
    {{"\0\0\0\x0cJXL ", 8}, "a JPEG XL image"},
    {"\xff\x0a", "a JPEG XL image"},
    {{"II+\0", 4}, "a BigTIFF image"},
    {{"MM\0+", 4}, "a BigTIFF image"},
    {"8BPS", "a Photoshop image"},
    {{"\0\0\1\0", 4}, "an ICO image"},
    {"icns", "an ICNS image"},
    {"DDS ", "a DDS image"},
    {"qoif", "a QOI image"},
    {"\x76\x2f\x31\x01", "an OpenEXR image"},
    {"#?RADIANCE", "a Radiance HDR image"},
    {"Pf\n", "a PFM image"},
    {"PF\n", "a PFM image"},
    {"P7\n", "a PAM image"},
    {"%PDF", "a PDF document"},
    {"%!PS", "a PostScript document"},
    {{"\0\5\x16\7", 4}, "an AppleDouble file, which macOS puts beside others as \"._NAME\""},
    {"version https://git-lfs", "a pointer of Git LFS in place of the file"},
    {"\x93NUMPY", "a NumPy array"},
    {"\x1f\x8b", "a gzip file"},
    {"PK\3\4", "a ZIP archive"},
};

// Texts, in upper or lower case.
constexpr Start kTexts[] = {
    {"<!doctype html", "an HTML page"},
    {"<html", "an HTML page"},
    {"<svg", "an SVG image"},
    {"<?xml", "an XML or SVG document"},
};

// Brands of the container that starts with a box "ftyp".
constexpr Start kBrands[] = {
    {"avif", "an AVIF image"}, {"avis", "an AVIF image"}, {"heic", "a HEIC image"},
    {"heix", "a HEIC image"},  {"hevc", "a HEIC image"},  {"heim", "a HEIC image"},
    {"heis", "a HEIC image"},  {"mif1", "a HEIF image"},  {"msf1", "a HEIF image"},
};

absl::string_view KindOfContainer(absl::string_view brand) {
  for (const Start& known : kBrands) {
    if (absl::StartsWith(brand, known.bytes)) return known.kind;
  }
  return "an MP4 or QuickTime file";
}

}  // namespace

absl::string_view ForeignKind(absl::string_view bytes) {
  constexpr size_t kBrand = 8;
  for (const Start& known : kStarts) {
    if (absl::StartsWith(bytes, known.bytes)) return known.kind;
  }
  for (const Start& known : kTexts) {
    if (absl::StartsWithIgnoreCase(bytes, known.bytes)) return known.kind;
  }
  if (bytes.size() > kBrand && bytes.substr(4, 4) == "ftyp") return KindOfContainer(bytes.substr(kBrand));
  return "";
}

}  // namespace lockstep::data::internal
