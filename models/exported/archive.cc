#include "lockstep/models/exported/archive.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "lockstep/base/status.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/checkpoint/zip/reader.h"
#include "lockstep/checkpoint/zip/writer.h"
#include "lockstep/models/exported/graph_parser.h"
#include "lockstep/models/exported/operands.h"
#include "lockstep/models/exported/payloads.h"

namespace lockstep::models::exported {
namespace {

using checkpoint::zip::ZipRead;
using checkpoint::zip::ZipReader;
using checkpoint::zip::ZipRecord;
using checkpoint::zip::ZipWriter;

constexpr char kExport[] = "save the program in Python by torch.export.save(torch.export.export(net, inputs), path)";
constexpr char kModels[] = "models/", kJson[] = ".json", kWeights[] = "data/weights/", kConstants[] = "data/constants/";
constexpr char kFingerprint[] = ".data/serialization_id";

class ProgramReader {
 public:
  ProgramReader(const ZipReader& zip, const ReadOptions& options) : zip_(zip), options_(options) {
    const std::string& first = zip.records().front().name;
    archive_ = absl::StrCat(first.substr(0, first.find('/')), "/");
  }

  absl::StatusOr<Program> Read() {
    LOCKSTEP_RETURN_IF_ERROR(CheckKind());
    SavedRecords saved;
    LOCKSTEP_ASSIGN_OR_RETURN(saved.name, ChooseProgram());
    LOCKSTEP_ASSIGN_OR_RETURN(const std::string json, Text(absl::StrCat(kModels, saved.name, kJson)));
    absl::StatusOr<ExportedGraph> graph = ParseProgram(json);
    if (!graph.ok()) return Annotate(graph.status(), absl::StrCat("program \"", saved.name, "\""));
    if (Find(absl::StrCat(kWeights, saved.name, ".pt"))) {
      return absl::UnimplementedError(
          "weights as older versions of PyTorch save them: save it again with PyTorch 2.11");
    }
    LOCKSTEP_ASSIGN_OR_RETURN(saved.weights, ReadTensors(kWeights, absl::StrCat(saved.name, "_weights_config.json")));
    LOCKSTEP_ASSIGN_OR_RETURN(saved.constants,
                              ReadTensors(kConstants, absl::StrCat(saved.name, "_constants_config.json")));
    LOCKSTEP_RETURN_IF_ERROR(ReadOthers(saved));
    Program program;
    program.device = options_.device;
    for (size_t i = 0; i < graph->inputs.size(); ++i) {
      LOCKSTEP_ASSIGN_OR_RETURN(program.tensors.emplace_back(), TensorOf(*graph, i));
    }
    KeepUnused(*graph, saved);
    program.graph = std::make_shared<ExportedGraph>(*std::move(graph));
    program.saved = std::make_shared<SavedRecords>(std::move(saved));
    return program;
  }

 private:
  const ZipRecord* Find(absl::string_view name) const { return zip_.Find(absl::StrCat(archive_, name)); }

  absl::StatusOr<std::string> Text(absl::string_view name) const {
    const ZipRecord* record = Find(name);
    if (!record) return absl::DataLossError(absl::StrCat("the archive has no record \"", name, "\""));
    std::string text(record->size, '\0');
    LOCKSTEP_RETURN_IF_ERROR(
        Annotate(zip_.Read(*record, text.data(), options_.verify), absl::StrCat("record \"", name, "\"")));
    return text;
  }

  absl::Status CheckKind() const {
    const absl::StatusOr<std::string> format = Find("archive_format") ? Text("archive_format") : std::string();
    LOCKSTEP_RETURN_IF_ERROR(format.status());
    if (*format == "pt2") {
      const absl::StatusOr<std::string> order = Find("byteorder") ? Text("byteorder") : std::string("little");
      LOCKSTEP_RETURN_IF_ERROR(order.status());
      return *order == "little" ? absl::OkStatus() : absl::UnimplementedError("an archive of a big-endian machine");
    }
    if (Find("constants.pkl") && Find("data.pkl")) {
      return absl::InvalidArgumentError(
          absl::StrCat("a TorchScript file; load it by models::scripted::Load, or ", kExport));
    }
    if (Find("data.pkl")) {
      return absl::InvalidArgumentError(absl::StrCat(
          "a file of torch.save, which has tensors but no program; load it by checkpoint::Load, or ", kExport));
    }
    if (zip_.Find("serialized_exported_program.json")) {
      return absl::UnimplementedError("a program of PyTorch 2.7 or older: save it again with PyTorch 2.11");
    }
    return absl::DataLossError(absl::StrCat("a zip archive without a program; ", kExport));
  }

  absl::StatusOr<std::string> ChooseProgram() const {
    std::vector<std::string> names;
    for (const ZipRecord& record : zip_.records()) {
      absl::string_view name = record.name;
      if (absl::ConsumePrefix(&name, absl::StrCat(archive_, kModels)) && absl::ConsumeSuffix(&name, kJson)) {
        names.emplace_back(name);
      }
    }
    std::string wanted = options_.program;
    if (wanted.empty()) wanted = names.size() == 1 ? names[0] : "model";
    for (const std::string& name : names) {
      if (name == wanted) return wanted;
    }
    if (names.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("the archive has no program, only code of AOTInductor; ", kExport));
    }
    return absl::NotFoundError(
        absl::StrCat("the file has no program \"", wanted, "\"; its programs: ", absl::StrJoin(names, ", ")));
  }

  absl::StatusOr<std::vector<Payload>> Payloads(absl::string_view folder, absl::string_view name) const {
    const std::string record = absl::StrCat(folder, name);
    LOCKSTEP_ASSIGN_OR_RETURN(const std::string text, Text(record));
    absl::StatusOr<std::vector<Payload>> payloads = ParsePayloads(text);
    if (!payloads.ok()) return Annotate(payloads.status(), absl::StrCat("record \"", record, "\""));
    return payloads;
  }

  // Reads the records of all payloads of a configuration, and makes their tensors.
  absl::StatusOr<std::vector<SavedTensor>> ReadTensors(absl::string_view folder, absl::string_view configuration) {
    LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<Payload> payloads, Payloads(folder, configuration));
    absl::flat_hash_map<std::string, Stored> stored;
    std::vector<ZipRead> reads;
    std::vector<SavedTensor> saved;
    for (const Payload& payload : payloads) {
      const ZipRecord* record = Find(absl::StrCat(folder, payload.record));
      if (!record) {
        return absl::DataLossError(
            absl::StrCat("the archive has no record \"", folder, payload.record, "\" for \"", payload.name, "\""));
      }
      saved.push_back({payload, static_cast<int64_t>(record->size)});
      Stored& into = stored[payload.record];
      if (into.bytes.defined()) continue;
      into.bytes = at::empty({static_cast<int64_t>(record->size)}, at::kByte);
      reads.push_back({record, static_cast<char*>(into.bytes.data_ptr())});
      tensor_records_.insert(record->name);
    }
    zip_.ReadAll(reads, options_.verify);
    for (const ZipRead& read : reads) LOCKSTEP_RETURN_IF_ERROR(read.status);
    for (const Payload& payload : payloads) {
      const absl::Status placed = Place(payload, stored[payload.record]);
      if (!placed.ok()) return Annotate(placed, absl::StrCat("\"", payload.name, "\""));
    }
    return saved;
  }

  // The contents of a record, and the tensors that view it.
  struct Stored {
    at::Tensor bytes;
    std::vector<at::Tensor> views;
  };

  // Makes the tensor of a payload. The first one of a record moves it to its device.
  absl::Status Place(const Payload& payload, Stored& stored) {
    if (payload.tensor) {
      const DeviceName& saved = payload.tensor->device;
      LOCKSTEP_ASSIGN_OR_RETURN(const c10::Device device, DeviceOfSchema(saved.type, saved.index, options_.device));
      const absl::Status moved = TorchStatus("", [&] { stored.bytes = stored.bytes.to(device); });
      if (!moved.ok()) return absl::FailedPreconditionError(moved.message());
    }
    LOCKSTEP_ASSIGN_OR_RETURN(at::Tensor view, ViewOf(stored.bytes, payload));
    // Tied weights are one tensor.
    for (const at::Tensor& other : stored.views) {
      if (other.sizes() == view.sizes() && other.strides() == view.strides() && other.dtype() == view.dtype() &&
          other.storage_offset() == view.storage_offset()) {
        view = other;
      }
    }
    if (payload.is_parameter) view.set_requires_grad(payload.tensor->requires_grad);
    stored.views.push_back(view);
    tensors_[payload.name] = view;
    return absl::OkStatus();
  }

  // Reads what Save writes again, and checks all that the program does not use.
  absl::Status ReadOthers(SavedRecords& saved) const {
    for (const ZipRecord& record : zip_.records()) {
      absl::string_view name = record.name;
      if (!absl::ConsumePrefix(&name, archive_) || tensor_records_.contains(record.name)) continue;
      if (name == kFingerprint || OfAnotherProgram(name, saved.name)) continue;
      absl::StatusOr<std::string> text = Text(name);
      LOCKSTEP_RETURN_IF_ERROR(text.status());
      saved.records.emplace_back(std::string(name), *std::move(text));
    }
    return absl::OkStatus();
  }

  static bool OfAnotherProgram(absl::string_view name, absl::string_view program) {
    if (absl::StartsWith(name, kModels)) return name != absl::StrCat(kModels, program, kJson);
    if (absl::StartsWith(name, kWeights)) return name != absl::StrCat(kWeights, program, "_weights_config.json");
    if (absl::StartsWith(name, kConstants)) return name != absl::StrCat(kConstants, program, "_constants_config.json");
    if (absl::StartsWith(name, "data/sample_inputs/"))
      return name != absl::StrCat("data/sample_inputs/", program, ".pt");
    return absl::StartsWith(name, "data/aotinductor/");
  }

  // The tensor of an input of the graph, checked against the graph; undefined for a user's input.
  absl::StatusOr<at::Tensor> TensorOf(const ExportedGraph& graph, size_t input) const {
    const InputSpec& spec = graph.inputs[input];
    if (spec.kind == InputSpec::Kind::kUserInput || spec.kind == InputSpec::Kind::kConstantInput) return at::Tensor();
    const auto found = tensors_.find(spec.target);
    if (found == tensors_.end()) {
      return absl::DataLossError(absl::StrCat("the file has no weight or constant \"", spec.target, "\""));
    }
    const TensorMeta& meta = *graph.graph.values[graph.graph.inputs[input].value].tensor;
    std::vector<int64_t> sizes;
    for (const Extent& size : meta.sizes) sizes.push_back(size.number);
    LOCKSTEP_ASSIGN_OR_RETURN(const c10::ScalarType dtype, DtypeOfSchema(meta.dtype));
    if (found->second.sizes() != sizes || found->second.scalar_type() != dtype) {
      return absl::DataLossError(absl::StrCat("\"", spec.target, "\" has dtype ",
                                              c10::toString(found->second.scalar_type()), " and shape [",
                                              absl::StrJoin(found->second.sizes(), ", "), "], and the program expects ",
                                              c10::toString(dtype), " and [", absl::StrJoin(sizes, ", "), "]"));
    }
    return found->second;
  }

  // Save needs the tensors that the graph does not have, too.
  void KeepUnused(const ExportedGraph& graph, SavedRecords& saved) const {
    absl::flat_hash_set<std::string> used;
    for (const InputSpec& input : graph.inputs) used.insert(input.target);
    for (std::vector<SavedTensor>* some : {&saved.weights, &saved.constants}) {
      for (SavedTensor& one : *some) {
        if (!used.contains(one.payload.name)) one.unused = tensors_.at(one.payload.name);
      }
    }
  }

  const ZipReader& zip_;
  const ReadOptions& options_;
  std::string archive_;
  absl::flat_hash_map<std::string, at::Tensor> tensors_;  // by Python name
  absl::flat_hash_set<std::string> tensor_records_;
};

absl::Status CheckFits(const at::Tensor& tensor, const at::Tensor& view, const std::string& name) {
  if (tensor.sizes() == view.sizes() && tensor.scalar_type() == view.scalar_type()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("\"", name, "\" has dtype ", c10::toString(tensor.scalar_type()),
                                                    " and shape [", absl::StrJoin(tensor.sizes(), ", "),
                                                    "], and the program expects ", c10::toString(view.scalar_type()),
                                                    " and [", absl::StrJoin(view.sizes(), ", "), "]"));
}

// Writes the records of tensors with their present values.
absl::Status WriteTensors(ZipWriter& zip, absl::string_view folder, const std::vector<SavedTensor>& saved,
                          const absl::flat_hash_map<std::string, at::Tensor>& present) {
  const c10::NoGradGuard no_grad;
  absl::flat_hash_map<std::string, std::vector<const SavedTensor*>> records;
  for (const SavedTensor& one : saved) records[one.payload.record].push_back(&one);
  for (const SavedTensor& first : saved) {
    std::vector<const SavedTensor*>& views = records[first.payload.record];
    if (views.empty()) continue;
    const at::Tensor bytes = at::zeros({first.record_bytes}, at::kByte);
    for (const SavedTensor* one : views) {
      const std::string& name = one->payload.name;
      const auto found = present.find(name);
      const at::Tensor& tensor = found == present.end() ? one->unused : found->second;
      LOCKSTEP_ASSIGN_OR_RETURN(const at::Tensor view, ViewOf(bytes, one->payload));
      LOCKSTEP_RETURN_IF_ERROR(CheckFits(tensor, view, name));
      view.copy_(tensor);
    }
    LOCKSTEP_RETURN_IF_ERROR(
        zip.Add(absl::StrCat(folder, first.payload.record),
                absl::string_view(static_cast<const char*>(bytes.data_ptr()), static_cast<size_t>(bytes.numel()))));
    views.clear();
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Program> ReadProgram(const checkpoint::file::ByteSource& source, const ReadOptions& options) {
  LOCKSTEP_ASSIGN_OR_RETURN(const ZipReader zip, ZipReader::Open(source));
  if (zip.records().empty()) return absl::DataLossError("an archive without records");
  return ProgramReader(zip, options).Read();
}

absl::Status WriteProgram(const checkpoint::file::ByteSink& sink, const std::string& archive, const Program& program) {
  const ExportedGraph& graph = *program.graph;
  absl::flat_hash_map<std::string, at::Tensor> present;
  for (size_t i = 0; i < graph.inputs.size(); ++i) {
    if (program.tensors[i].defined()) present[graph.inputs[i].target] = program.tensors[i];
  }
  ZipWriter zip(sink, archive);
  LOCKSTEP_RETURN_IF_ERROR(WriteTensors(zip, kWeights, program.saved->weights, present));
  LOCKSTEP_RETURN_IF_ERROR(WriteTensors(zip, kConstants, program.saved->constants, present));
  for (const auto& [name, text] : program.saved->records) LOCKSTEP_RETURN_IF_ERROR(zip.Add(name, text));
  LOCKSTEP_RETURN_IF_ERROR(zip.Add(kFingerprint, zip.Fingerprint()));
  return zip.Finish();
}

}  // namespace lockstep::models::exported
