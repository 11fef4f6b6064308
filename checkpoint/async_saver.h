// Saves in the background: training goes on as soon as the tensors are copied.

#ifndef LOCKSTEP_CHECKPOINT_ASYNC_SAVER_H_
#define LOCKSTEP_CHECKPOINT_ASYNC_SAVER_H_

#include <functional>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "lockstep/checkpoint/internal/snapshot.h"
#include "lockstep/checkpoint/options.h"
#include "lockstep/checkpoint/value.h"

namespace lockstep::checkpoint {

// Writes what Save of checkpoint.h writes, on a thread of its own.
//
//   AsyncSaver saver;
//   for (...) {
//     Train(...);
//     if (step % 1000 == 0) LOCKSTEP_RETURN_IF_ERROR(saver.Save("last.pt", Checkpoint(step)));
//   }
//   LOCKSTEP_RETURN_IF_ERROR(saver.Wait());
//
// The tensors may change the moment Save returns. One save is under way at a time: a Save waits for the one before. The
// copies take as much host memory as the largest value saved; it is kept until the saver is destroyed, since fresh
// memory would make each copy several times slower. Tensors of a CUDA device are copied to pinned memory, once what
// their current stream was given is done; the file says that they were there. Where the system refuses a thread, Save
// itself writes the file.
//
// One thread at a time may use a saver. The destructor waits for the save under way; its error is then lost. A program
// that is killed in the middle of a save leaves the previous file as it was.
class AsyncSaver {
 public:
  AsyncSaver() = default;
  ~AsyncSaver();
  AsyncSaver(const AsyncSaver&) = delete;
  AsyncSaver& operator=(const AsyncSaver&) = delete;

  // Copies `value`, begins to write it to `path` and returns. `then`, if there is one, runs on the saver's thread once
  // the file is in place; its error is the save's. A relative path is taken from the directory that the program is in
  // now.
  //
  // Errors name `path`: those of Save of checkpoint.h that the value causes, and ResourceExhausted where there is no
  // memory for the copies. If the save before failed and Wait has not told so, its error is returned and nothing begun.
  absl::Status Save(absl::string_view path, const Value& value, const SaveOptions& options = {},
                    std::function<absl::Status()> then = {});

  // Has the memory ready for saves of values like `value`, in the background: else the first save, which touches fresh
  // memory, keeps its caller many times longer than the others do (1 GiB on a virtual machine: seconds). Waits for the
  // save under way. Errors: those of Save that the value causes.
  absl::Status Prepare(const Value& value);

  // Blocks until nothing is under way. The outcome of the last save, each time it is called; OK if there was none.
  absl::Status Wait();

 private:
  absl::Status Begin(const std::string& path, const Value& value, const SaveOptions& options,
                     std::function<absl::Status()> then);
  void Run(const std::function<void()>& work);

  internal::Snapshot snapshot_;
  std::thread thread_;    // of what is under way
  absl::Status outcome_;  // the thread's, until it is joined
  bool told_ = true;      // whether the caller knows outcome_
};

}  // namespace lockstep::checkpoint

#endif  // LOCKSTEP_CHECKPOINT_ASYNC_SAVER_H_
