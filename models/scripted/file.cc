#include "lockstep/models/scripted/file.h"

#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/serialization/export.h>
#include <torch/csrc/jit/serialization/import.h>
#include <zlib.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "lockstep/base/status.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/checkpoint/file/atomic_file.h"
#include "lockstep/checkpoint/file/byte_stream.h"
#include "lockstep/checkpoint/file/foreign_format.h"
#include "lockstep/checkpoint/file/path.h"
#include "lockstep/checkpoint/zip/reader.h"

namespace lockstep::models::scripted {
namespace {

using checkpoint::file::ByteSource;
using checkpoint::zip::ZipRead;
using checkpoint::zip::ZipReader;
using checkpoint::zip::ZipRecord;

constexpr char kExport[] = "export the module in Python by torch.jit.script(net).save(path)";

// Checks that the archive contains a module; the error says what it is instead.
absl::Status CheckKind(const ZipReader& zip) {
  if (zip.records().empty()) return absl::DataLossError("an archive without records");
  const std::string& first = zip.records().front().name;
  const std::string archive = first.substr(0, first.find('/'));
  const auto has = [&](absl::string_view name) { return zip.Find(absl::StrCat(archive, "/", name)) != nullptr; };
  if (has("constants.pkl") && has("data.pkl")) return absl::OkStatus();
  if (has("archive_format") && has("archive_version")) {
    return absl::UnimplementedError(absl::StrCat("an archive of torch.export.save (.pt2), not TorchScript; ", kExport));
  }
  if (has("data.pkl")) {
    return absl::InvalidArgumentError(
        absl::StrCat("a file of torch.save, which has tensors but no code; load it by checkpoint::Load, or ", kExport));
  }
  return absl::DataLossError("a zip archive without TorchScript's record data.pkl; it is not a TorchScript file");
}

// The CRC-32 of a record's contents. LibTorch compresses code, but no tensors.
absl::StatusOr<uint32_t> CrcOfCompressed(const ByteSource& source, const ZipRecord& record) {
  std::vector<unsigned char> packed(record.size), block(64 << 10);
  LOCKSTEP_RETURN_IF_ERROR(source.read(record.offset, packed.data(), packed.size()));
  z_stream stream = {};
  if (inflateInit2(&stream, -MAX_WBITS) != Z_OK) return absl::ResourceExhaustedError("zlib: out of memory");
  const auto end = absl::MakeCleanup([&] { inflateEnd(&stream); });
  stream.next_in = packed.data();
  stream.avail_in = static_cast<uInt>(packed.size());
  uLong crc = crc32(0, nullptr, 0);
  for (int result = Z_OK; result != Z_STREAM_END;) {
    stream.next_out = block.data();
    stream.avail_out = static_cast<uInt>(block.size());
    result = inflate(&stream, Z_NO_FLUSH);
    if (result != Z_OK && result != Z_STREAM_END) return absl::DataLossError("its compressed data is damaged");
    crc = crc32(crc, block.data(), static_cast<uInt>(block.size() - stream.avail_out));
  }
  return static_cast<uint32_t>(crc);
}

absl::Status Verify(const ByteSource& source, const ZipReader& zip) {
  std::vector<ZipRead> stored;
  for (const ZipRecord& record : zip.records()) {
    if (!record.compressed) {
      stored.push_back({&record});
      continue;
    }
    const absl::StatusOr<uint32_t> crc = CrcOfCompressed(source, record);
    absl::Status status = crc.status();
    if (crc.ok() && *crc != record.crc32) status = absl::DataLossError("its CRC-32 is wrong; the file is damaged");
    LOCKSTEP_RETURN_IF_ERROR(Annotate(status, absl::StrCat("record \"", record.name, "\"")));
  }
  zip.ReadAll(stored, /*verify=*/true);
  for (const ZipRead& read : stored) LOCKSTEP_RETURN_IF_ERROR(read.status);
  return absl::OkStatus();
}

absl::Status CheckFile(const std::string& path, bool verify) {
  LOCKSTEP_ASSIGN_OR_RETURN(const ByteSource source, checkpoint::file::OpenFile(path));
  LOCKSTEP_RETURN_IF_ERROR(checkpoint::file::CheckForeignFormat(source));
  LOCKSTEP_ASSIGN_OR_RETURN(const bool safetensors, checkpoint::file::IsSafetensors(source));
  if (safetensors) {
    return absl::UnimplementedError(absl::StrCat("a safetensors file, which has no code; ", kExport));
  }
  LOCKSTEP_ASSIGN_OR_RETURN(const ZipReader zip, ZipReader::Open(source));
  LOCKSTEP_RETURN_IF_ERROR(CheckKind(zip));
  return verify ? Verify(source, zip) : absl::OkStatus();
}

absl::Status CheckModule(const torch::jit::Module& module, const std::string& method) {
  if (module.parameters().size() == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("the module has no parameters to train; torch.jit.freeze makes them constants, so ", kExport));
  }
  if (module.find_method(method)) return absl::OkStatus();
  std::vector<std::string> methods;
  for (const torch::jit::Method& one : module.get_methods()) methods.push_back(one.name());
  return absl::NotFoundError(absl::StrCat("the module has no method \"", method, "\"; its methods: ",
                                          methods.empty() ? "none" : absl::StrJoin(methods, ", ")));
}

}  // namespace

absl::StatusOr<ScriptModule> Load(absl::string_view path, const LoadOptions& options) {
  const std::string file(path);
  std::optional<ScriptModule> loaded;
  LOCKSTEP_RETURN_IF_ERROR(checkpoint::file::AtPath(path, [&]() -> absl::Status {
    LOCKSTEP_RETURN_IF_ERROR(CheckFile(file, options.verify));
    const torch::jit::Module module = torch::jit::load(file, options.device);
    LOCKSTEP_RETURN_IF_ERROR(CheckModule(module, options.script.method));
    loaded.emplace(ScriptModule(module, options.script));
    return absl::OkStatus();
  }));
  return *loaded;
}

absl::Status Save(absl::string_view path, const ScriptModule& module, const SaveOptions& options) {
  using checkpoint::file::AtomicFile;
  return checkpoint::file::AtPath(path, [&]() -> absl::Status {
    LOCKSTEP_ASSIGN_OR_RETURN(const std::unique_ptr<AtomicFile> file,
                              AtomicFile::Create(std::string(path), options.sync));
    absl::Status written;
    const absl::Status exported = TorchStatus("", [&] {
      torch::jit::ExportModule(module->jit(), [&](const void* from, size_t count) {
        written.Update(file->Append(from, count));
        return written.ok() ? count : 0;
      });
    });
    LOCKSTEP_RETURN_IF_ERROR(written);
    LOCKSTEP_RETURN_IF_ERROR(exported);
    return file->Commit();
  });
}

}  // namespace lockstep::models::scripted
