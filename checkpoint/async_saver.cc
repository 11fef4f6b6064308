#include "lockstep/checkpoint/async_saver.h"

#include <string>
#include <utility>

#include "lockstep/base/status.h"
#include "lockstep/base/thread.h"
#include "lockstep/checkpoint/archive/encoder.h"
#include "lockstep/checkpoint/archive/snapshot.h"
#include "lockstep/checkpoint/archive/writer.h"
#include "lockstep/checkpoint/file/path.h"

namespace lockstep::checkpoint {
namespace {

absl::Status WriteAndThen(const std::string& path, const archive::EncodedValue& encoded, const SaveOptions& options,
                          const std::function<absl::Status()>& then) {
  LOCKSTEP_RETURN_IF_ERROR(archive::WriteEncodedFile(path, encoded, options));
  return then ? then() : absl::OkStatus();
}

}  // namespace

AsyncSaver::AsyncSaver() : snapshot_(std::make_unique<archive::Snapshot>()) {}

AsyncSaver::~AsyncSaver() {
  if (thread_.joinable()) thread_.join();
}

absl::Status AsyncSaver::Save(absl::string_view path, const Value& value, const SaveOptions& options,
                              std::function<absl::Status()> then) {
  const bool told = told_;
  const absl::Status earlier = Wait();
  if (!told) LOCKSTEP_RETURN_IF_ERROR(earlier);
  return file::AtPath(path, [&] { return Begin(std::string(path), value, options, std::move(then)); });
}

absl::Status AsyncSaver::Begin(const std::string& path, const Value& value, const SaveOptions& options,
                               std::function<absl::Status()> then) {
  LOCKSTEP_ASSIGN_OR_RETURN(archive::EncodedValue encoded, archive::Encode(value));
  LOCKSTEP_RETURN_IF_ERROR(snapshot_->Take(encoded));
  const std::string file = file::AbsolutePath(path);
  told_ = false;
  Run([this, path, file, options, then = std::move(then), encoded = std::move(encoded)] {
    outcome_ = file::AtPath(path, [&] { return WriteAndThen(file, encoded, options, then); });
  });
  return absl::OkStatus();
}

void AsyncSaver::Run(const std::function<void()>& work) {
  absl::StatusOr<std::thread> thread = StartThread("the saver's thread", work);
  if (thread.ok()) {
    thread_ = *std::move(thread);
  } else {
    work();
  }
}

absl::Status AsyncSaver::Prepare(const Value& value) {
  if (thread_.joinable()) thread_.join();
  return file::Guarded([&]() -> absl::Status {
    LOCKSTEP_ASSIGN_OR_RETURN(const archive::EncodedValue encoded, archive::Encode(value));
    LOCKSTEP_RETURN_IF_ERROR(snapshot_->Reserve(encoded));
    Run([this] { snapshot_->Touch(); });
    return absl::OkStatus();
  });
}

absl::Status AsyncSaver::Wait() {
  if (thread_.joinable()) thread_.join();
  told_ = true;
  return outcome_;
}

}  // namespace lockstep::checkpoint
