// Loads and saves programs of torch.export (.pt2), to be trained. Python writes them by
// torch.export.save(torch.export.export(net, inputs), path), and reads them by torch.export.load(path).
//
//   LOCKSTEP_ASSIGN_OR_RETURN(models::exported::ExportedModule net, models::exported::Load("net.pt2"));
//   ...                                                                   // train it
//   LOCKSTEP_RETURN_IF_ERROR(models::exported::Save("trained.pt2", net));
//
// A program calls operators that are registered in this process, and nothing else.

#ifndef LOCKSTEP_MODELS_EXPORTED_FILE_H_
#define LOCKSTEP_MODELS_EXPORTED_FILE_H_

#include <c10/core/Device.h>

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lockstep/models/exported/exported_module.h"

namespace lockstep::models::exported {

struct LoadOptions {
  // The device of all tensors, including the ones that the program creates. Default: the devices of the export.
  std::optional<c10::Device> device = {};
  // The program's name in a file that has several. Default: "model", or the only one.
  std::string program = {};
  // Checks the CRC-32 of every record.
  bool verify = true;
};

// Loads a program to be trained, in the mode (train or eval) in which it was exported. Every rank may load the same
// file. Blocks. Several threads may call it at a time.
//
// Errors name `path` and, if a part of the program is the reason, the node, its operator and the line of Python that
// it comes from. NotFound, PermissionDenied: errors of the system. DataLoss: the file is damaged, or of another kind,
// which is named. NotFound: the file has no program of this name (the error lists its programs). Unimplemented: a
// schema of another major version, a weight of a tensor subclass, an operator that is not registered in this process,
// or a higher-order operator that is not supported. InvalidArgument: a directory. FailedPrecondition: this program
// does not have the device.
absl::StatusOr<ExportedModule> Load(absl::string_view path, const LoadOptions& options = {});

struct SaveOptions {
  // Flushes the file and its directory to the disk before returning.
  bool sync = true;
};

// Writes the program with the module's present weights, and replaces an existing file in one step: at every moment
// `path` is either the whole previous file or the whole new one. On any error the previous file is intact. The file has
// this program alone, in the mode of its export. Call it on one rank. It blocks. Errors name `path` and are the
// system's. InvalidArgument: the name does not end in .pt2, which torch.export.load asks for. FailedPrecondition: the
// module's parameters have other shapes or dtypes than the program's.
absl::Status Save(absl::string_view path, const ExportedModule& module, const SaveOptions& options = {});

}  // namespace lockstep::models::exported

#endif  // LOCKSTEP_MODELS_EXPORTED_FILE_H_
