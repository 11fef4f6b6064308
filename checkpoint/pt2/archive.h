// Reads the archive of torch.export.save (.pt2): the programs as JSON, their weights and constants as tensors. Files of
// all layouts since PyTorch 2.5 look alike here, as files of 2.11.
//
//   LOCKSTEP_ASSIGN_OR_RETURN(const Pt2Archive archive, Pt2Archive::Open(source, /*verify=*/true));
//   LOCKSTEP_ASSIGN_OR_RETURN(const std::string name, archive.Choose(""));
//   LOCKSTEP_ASSIGN_OR_RETURN(const std::string json, archive.Program(name));
//   LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<StoredTensor> weights, archive.Weights(name, std::nullopt));

#ifndef LOCKSTEP_CHECKPOINT_PT2_ARCHIVE_H_
#define LOCKSTEP_CHECKPOINT_PT2_ARCHIVE_H_

#include <c10/core/Device.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lockstep/checkpoint/file/byte_stream.h"
#include "lockstep/checkpoint/pt2/tensors.h"
#include "lockstep/checkpoint/zip/reader.h"

namespace lockstep::checkpoint::pt2 {

// The folders of an archive, and suffixes of the records in them.
constexpr char kModels[] = "models/", kWeights[] = "data/weights/", kConstants[] = "data/constants/";
constexpr char kSampleInputs[] = "data/sample_inputs/", kFingerprint[] = ".data/serialization_id";

class Pt2Archive {
 public:
  // With `verify`, each read checks the record's CRC-32. DataLoss: the file is damaged, or an archive of another kind.
  // InvalidArgument: it is a TorchScript file or a file of torch.save. Unimplemented: it comes from a big-endian
  // machine. The error tells how to make a .pt2 file.
  static absl::StatusOr<Pt2Archive> Open(const file::ByteSource& source, bool verify);

  // In the order of the file.
  const std::vector<std::string>& programs() const { return programs_; }

  // Returns `wanted`, or if it is empty the name of the only program, or else "model". NotFound: the file has no such
  // program; the error lists its programs. InvalidArgument: it has none.
  absl::StatusOr<std::string> Choose(const std::string& wanted) const;

  // The JSON of a program. DataLoss: the record is missing or damaged.
  absl::StatusOr<std::string> Program(absl::string_view name) const;

  // Parameters and persistent buffers; and the other buffers, and tensors in the code. `device` replaces the devices of
  // the file. DataLoss: a record is missing, damaged, or too short. Unimplemented: a tensor is pickled, sparse or of an
  // unknown dtype. FailedPrecondition: this program does not have the device. Errors name the tensor.
  absl::StatusOr<std::vector<StoredTensor>> Weights(absl::string_view program, std::optional<c10::Device> device) const;
  absl::StatusOr<std::vector<StoredTensor>> Constants(absl::string_view program,
                                                      std::optional<c10::Device> device) const;

  // All other records that the program needs to be written again in the layout of 2.11, by their names without the
  // archive's. `weights` and `constants` are the program's.
  absl::StatusOr<std::vector<std::pair<std::string, std::string>>> OtherRecords(
      absl::string_view program, const std::vector<StoredTensor>& weights,
      const std::vector<StoredTensor>& constants) const;

  // Reads every record, and checks its CRC-32. DataLoss names the first that is damaged.
  absl::Status VerifyAll() const;

 private:
  Pt2Archive(zip::ZipReader zip, bool verify);

  const zip::ZipRecord* Find(absl::string_view name) const;
  absl::Status CheckKind() const;
  absl::StatusOr<std::string> Text(absl::string_view name) const;
  absl::StatusOr<std::vector<StoredTensor>> Tensors(absl::string_view folder, absl::string_view program,
                                                    std::optional<c10::Device> device) const;

  zip::ZipReader zip_;
  bool verify_;
  std::vector<std::string> programs_;
  // The names of zip_.records() in the layout of 2.11, without the archive's; empty if the layout has no such record.
  std::vector<std::string> names_;
  absl::flat_hash_map<std::string, size_t> places_;  // in names_
};

}  // namespace lockstep::checkpoint::pt2

#endif  // LOCKSTEP_CHECKPOINT_PT2_ARCHIVE_H_
