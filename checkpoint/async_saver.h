// Saves in the background: training continues as soon as the tensors are copied.

#ifndef LOCKSTEP_CHECKPOINT_ASYNC_SAVER_H_
#define LOCKSTEP_CHECKPOINT_ASYNC_SAVER_H_

#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "lockstep/checkpoint/options.h"
#include "lockstep/checkpoint/value.h"

namespace lockstep::checkpoint {
namespace archive {
class Snapshot;
}  // namespace archive

// Writes the same file as Save of checkpoint.h, on a separate thread.
//
//   AsyncSaver saver;
//   for (...) {
//     Train(...);
//     if (step % 1000 == 0) LOCKSTEP_RETURN_IF_ERROR(saver.Save("last.pt", Checkpoint(step)));
//   }
//   LOCKSTEP_RETURN_IF_ERROR(saver.Wait());
//
// The tensors may change as soon as Save returns. One save is under way at a time: Save waits for the previous one. The
// copies take as much host memory as the largest value saved. This memory is kept until the saver is destroyed, since
// newly allocated memory would make each copy several times slower. Tensors on a CUDA device are copied to pinned
// memory once their current stream has done its work, and the file records their device. If the system refuses a
// thread, Save itself writes the file.
//
// Only one thread at a time may use a saver. The destructor waits for the save under way, and its error is lost. If the
// program is killed in the middle of a save, the previous file is unchanged.
class AsyncSaver {
 public:
  AsyncSaver();
  ~AsyncSaver();
  AsyncSaver(const AsyncSaver&) = delete;
  AsyncSaver& operator=(const AsyncSaver&) = delete;

  // Copies `value`, starts to write it to `path` and returns. `then`, if it is set, runs on the saver's thread once the
  // file is in place, and its error becomes the save's. A relative path refers to the current directory at the time of
  // the call.
  //
  // Errors name `path`. They are the errors of Save of checkpoint.h that the value causes, and ResourceExhausted if
  // memory for the copies is not available. If the previous save failed and Wait has not reported it, Save returns that
  // error and starts nothing.
  absl::Status Save(absl::string_view path, const Value& value, const SaveOptions& options = {},
                    std::function<absl::Status()> then = {});

  // Allocates the memory for values like `value`, in the background. Without it the first save uses new memory and
  // blocks its caller many times longer than later ones (1 GiB on a virtual machine: seconds). Waits for the save under
  // way. Returns the errors of Save that the value causes.
  absl::Status Prepare(const Value& value);

  // Blocks until nothing is under way. Returns the outcome of the last save at every call, or OK if there was none.
  absl::Status Wait();

 private:
  absl::Status Begin(const std::string& path, const Value& value, const SaveOptions& options,
                     std::function<absl::Status()> then);
  void Run(const std::function<void()>& work);

  std::unique_ptr<archive::Snapshot> snapshot_;
  std::thread thread_;    // of the save under way
  absl::Status outcome_;  // of the thread, until it is joined
  bool told_ = true;      // whether outcome_ has been reported
};

}  // namespace lockstep::checkpoint

#endif  // LOCKSTEP_CHECKPOINT_ASYNC_SAVER_H_
