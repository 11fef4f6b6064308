// Loads and saves TorchScript files, which contain a module's code and its tensors. Python writes them by
// torch.jit.script(net).save(path), and reads them by torch.jit.load(path).
//
//   LOCKSTEP_ASSIGN_OR_RETURN(models::scripted::ScriptModule net, models::scripted::Load("net.ts"));
//   ...                                                                   // train it
//   LOCKSTEP_RETURN_IF_ERROR(models::scripted::Save("trained.ts", net));
//
// The code is executed when a method runs. Load only files that you trust.

#ifndef LOCKSTEP_MODELS_SCRIPTED_FILE_H_
#define LOCKSTEP_MODELS_SCRIPTED_FILE_H_

#include <c10/core/Device.h>

#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lockstep/models/scripted/script_module.h"

namespace lockstep::models::scripted {

struct LoadOptions {
  // The device of all tensors, including constants of the code. Default: the devices from which they were saved.
  std::optional<c10::Device> device = {};
  ScriptOptions script = {};
  // Checks the CRC-32 of every record, which LibTorch does not do. A file that Python wrote with CRCs turned off has
  // none, and is rejected.
  bool verify = true;
};

// Loads a module to be trained, in the mode (train or eval) in which it was saved. Every rank may load the same file.
// Blocks. Several threads may call it at a time.
//
// Errors name `path`. NotFound, PermissionDenied: errors of the system. DataLoss: the file is damaged, or of another
// kind, which is named. InvalidArgument: a directory; a file of torch.save, which has no code; a module without
// parameters, as torch.jit.freeze makes it. NotFound: the module does not have script.method (the error lists its
// methods). Unimplemented: a .pt2, safetensors or legacy (pre-1.6) file. Internal: LibTorch rejects the file, for
// example because it uses an operator that is unknown here.
absl::StatusOr<ScriptModule> Load(absl::string_view path, const LoadOptions& options = {});

struct SaveOptions {
  // Flushes the file and its directory to the disk before returning.
  bool sync = true;
};

// Writes the module with its present values, and replaces an existing file in one step: at every moment `path` is
// either the whole previous file or the whole new one. On any error the previous file is intact. The mode is saved too,
// so call eval() before, if Python shall evaluate the module without it. Errors name `path` and are the system's, or
// Internal: LibTorch cannot save an attribute.
absl::Status Save(absl::string_view path, const ScriptModule& module, const SaveOptions& options = {});

}  // namespace lockstep::models::scripted

#endif  // LOCKSTEP_MODELS_SCRIPTED_FILE_H_
