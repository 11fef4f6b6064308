#include "lockstep/checkpoint/archive/writer.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/status.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/checkpoint/file/atomic_file.h"
#include "lockstep/checkpoint/zip/writer.h"

namespace lockstep::checkpoint::archive {
namespace {

using zip::ZipWriter;

// The CRC is taken while a block is in the processor's cache, before the block is written.
constexpr size_t kBlock = size_t{1} << 20;
// Host memory that saving a device's tensor takes.
constexpr size_t kDeviceBlock = size_t{16} << 20;

absl::Status AppendInBlocks(ZipWriter& zip, const char* from, size_t count) {
  for (size_t done = 0; done < count; done += kBlock) {
    LOCKSTEP_RETURN_IF_ERROR(zip.Append(from + done, std::min(kBlock, count - done)));
  }
  return absl::OkStatus();
}

absl::Status AppendFromDevice(ZipWriter& zip, const c10::Storage& storage) {
  at::Tensor bytes;
  LOCKSTEP_RETURN_IF_ERROR(TorchStatus("", [&] {
    bytes = at::empty({0}, at::TensorOptions(storage.device()).dtype(at::kByte));
    bytes.set_(storage, 0, {static_cast<int64_t>(storage.nbytes())}, {1});
  }));
  for (size_t done = 0; done < storage.nbytes(); done += kDeviceBlock) {
    const int64_t count = std::min(kDeviceBlock, storage.nbytes() - done);
    LOCKSTEP_ASSIGN_OR_RETURN(const at::Tensor block, TorchStatusOr("copy from the device", [&] {
                                return bytes.narrow(0, done, count).cpu();
                              }));
    LOCKSTEP_RETURN_IF_ERROR(AppendInBlocks(zip, static_cast<const char*>(block.data_ptr()), count));
  }
  return absl::OkStatus();
}

absl::Status AddStorage(ZipWriter& zip, size_t number, const c10::Storage& storage, const DeferredTensors* deferred) {
  LOCKSTEP_RETURN_IF_ERROR(zip.Begin(absl::StrCat("data/", number), storage.nbytes()));
  if (deferred && deferred->Has(storage)) {
    LOCKSTEP_ASSIGN_OR_RETURN(const at::Tensor bytes, deferred->Bytes(storage));
    LOCKSTEP_RETURN_IF_ERROR(AppendInBlocks(zip, static_cast<const char*>(bytes.const_data_ptr()), bytes.nbytes()));
  } else if (storage.device().is_cpu()) {
    LOCKSTEP_RETURN_IF_ERROR(AppendInBlocks(zip, static_cast<const char*>(storage.data()), storage.nbytes()));
  } else {
    LOCKSTEP_RETURN_IF_ERROR(AppendFromDevice(zip, storage));
  }
  return zip.End();
}

}  // namespace

std::string ArchiveNameOf(absl::string_view path) {
  absl::string_view name = path.substr(path.rfind('/') + 1);  // npos + 1 is 0
  const size_t dot = name.rfind('.');
  if (dot != absl::string_view::npos && dot > 0) name = name.substr(0, dot);
  const bool plain = !name.empty() &&
                     std::all_of(name.begin(), name.end(), [](char c) { return absl::ascii_isprint(c) && c != '\\'; });
  return plain ? std::string(name) : "archive";
}

absl::Status WriteArchive(const file::ByteSink& sink, std::string archive, const EncodedValue& encoded,
                          const DeferredTensors* deferred) {
  ZipWriter zip(sink, std::move(archive));
  LOCKSTEP_RETURN_IF_ERROR(zip.Add("data.pkl", encoded.pickle));
  LOCKSTEP_RETURN_IF_ERROR(zip.Add(".format_version", "1"));
  LOCKSTEP_RETURN_IF_ERROR(zip.Add(".storage_alignment", "64"));
  LOCKSTEP_RETURN_IF_ERROR(zip.Add("byteorder", "little"));
  for (size_t i = 0; i < encoded.storages.size(); ++i)
    LOCKSTEP_RETURN_IF_ERROR(AddStorage(zip, i, encoded.storages[i], deferred));
  LOCKSTEP_RETURN_IF_ERROR(zip.Add("version", "3\n"));
  LOCKSTEP_RETURN_IF_ERROR(zip.Add(".data/serialization_id", zip.Fingerprint()));
  return zip.Finish();
}

absl::Status WriteEncodedFile(const std::string& path, const EncodedValue& encoded, const SaveOptions& options,
                              const DeferredTensors* deferred) {
  LOCKSTEP_ASSIGN_OR_RETURN(const std::unique_ptr<file::AtomicFile> file, file::AtomicFile::Create(path, options.sync));
  LOCKSTEP_RETURN_IF_ERROR(WriteArchive([&](const void* from, size_t count) { return file->Append(from, count); },
                                        ArchiveNameOf(path), encoded, deferred));
  return file->Commit();
}

}  // namespace lockstep::checkpoint::archive
