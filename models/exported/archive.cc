#include "lockstep/models/exported/archive.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <memory>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "lockstep/base/status.h"
#include "lockstep/checkpoint/pt2/archive.h"
#include "lockstep/checkpoint/pt2/tensors.h"
#include "lockstep/checkpoint/zip/writer.h"
#include "lockstep/models/exported/graph_parser.h"

namespace lockstep::models::exported {
namespace {

using checkpoint::pt2::DtypeOfSchema;
using checkpoint::pt2::Pt2Archive;
using checkpoint::pt2::StoredTensor;
using checkpoint::pt2::ViewOf;
using checkpoint::zip::ZipWriter;
using Tensors = absl::flat_hash_map<std::string, at::Tensor>;  // by Python name

// Returns the tensor of an input of the graph, checked against the graph; undefined for a user's input.
absl::StatusOr<at::Tensor> TensorOf(const ExportedGraph& graph, size_t input, const Tensors& tensors) {
  const InputSpec& spec = graph.inputs[input];
  if (spec.kind == InputSpec::Kind::kUserInput || spec.kind == InputSpec::Kind::kConstantInput) return at::Tensor();
  const auto found = tensors.find(spec.target);
  if (found == tensors.end()) {
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

// Old layouts do not tell parameters that need no gradient from buffers.
void MarkParameters(const ExportedGraph& graph, std::vector<StoredTensor>& weights) {
  absl::flat_hash_set<absl::string_view> parameters;
  for (const InputSpec& input : graph.inputs) {
    if (input.kind == InputSpec::Kind::kParameter) parameters.insert(input.target);
  }
  for (StoredTensor& weight : weights) weight.payload.is_parameter |= parameters.contains(weight.payload.name);
}

// Save needs the tensors that the graph does not have, too.
void KeepUnused(const ExportedGraph& graph, std::vector<StoredTensor>& stored) {
  absl::flat_hash_set<absl::string_view> used;
  for (const InputSpec& input : graph.inputs) used.insert(input.target);
  for (StoredTensor& one : stored) {
    if (used.contains(one.payload.name)) one.tensor = at::Tensor();
  }
}

absl::Status CheckFits(const at::Tensor& tensor, const at::Tensor& view, const std::string& name) {
  if (tensor.sizes() == view.sizes() && tensor.scalar_type() == view.scalar_type()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("\"", name, "\" has dtype ", c10::toString(tensor.scalar_type()),
                                                    " and shape [", absl::StrJoin(tensor.sizes(), ", "),
                                                    "], and the program expects ", c10::toString(view.scalar_type()),
                                                    " and [", absl::StrJoin(view.sizes(), ", "), "]"));
}

// Writes the records of tensors with their present values.
absl::Status WriteTensors(ZipWriter& zip, absl::string_view folder, const std::vector<StoredTensor>& saved,
                          const Tensors& present) {
  const c10::NoGradGuard no_grad;
  absl::flat_hash_map<std::string, std::vector<const StoredTensor*>> records;
  for (const StoredTensor& one : saved) records[one.payload.record].push_back(&one);
  for (const StoredTensor& first : saved) {
    std::vector<const StoredTensor*>& views = records[first.payload.record];
    if (views.empty()) continue;
    const at::Tensor bytes = at::zeros({first.record_bytes}, at::kByte);
    for (const StoredTensor* one : views) {
      const std::string& name = one->payload.name;
      const auto found = present.find(name);
      const at::Tensor& tensor = found == present.end() ? one->tensor : found->second;
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
  LOCKSTEP_ASSIGN_OR_RETURN(const Pt2Archive archive, Pt2Archive::Open(source, options.verify));
  SavedRecords saved;
  LOCKSTEP_ASSIGN_OR_RETURN(saved.name, archive.Choose(options.program));
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string json, archive.Program(saved.name));
  absl::StatusOr<ExportedGraph> graph = ParseProgram(json);
  if (!graph.ok()) return Annotate(graph.status(), absl::StrCat("program \"", saved.name, "\""));
  LOCKSTEP_ASSIGN_OR_RETURN(saved.weights, archive.Weights(saved.name, options.device));
  LOCKSTEP_ASSIGN_OR_RETURN(saved.constants, archive.Constants(saved.name, options.device));
  MarkParameters(*graph, saved.weights);
  LOCKSTEP_ASSIGN_OR_RETURN(saved.records, archive.OtherRecords(saved.name, saved.weights, saved.constants));
  Tensors tensors;
  for (std::vector<StoredTensor>* some : {&saved.weights, &saved.constants}) {
    for (const StoredTensor& one : *some) tensors[one.payload.name] = one.tensor;
    KeepUnused(*graph, *some);
  }
  Program program;
  program.device = options.device;
  for (size_t i = 0; i < graph->inputs.size(); ++i) {
    LOCKSTEP_ASSIGN_OR_RETURN(program.tensors.emplace_back(), TensorOf(*graph, i, tensors));
  }
  program.graph = std::make_shared<ExportedGraph>(*std::move(graph));
  program.saved = std::make_shared<SavedRecords>(std::move(saved));
  return program;
}

absl::Status WriteProgram(const checkpoint::file::ByteSink& sink, const std::string& archive, const Program& program) {
  const ExportedGraph& graph = *program.graph;
  Tensors present;
  for (size_t i = 0; i < graph.inputs.size(); ++i) {
    if (program.tensors[i].defined()) present[graph.inputs[i].target] = program.tensors[i];
  }
  ZipWriter zip(sink, archive);
  LOCKSTEP_RETURN_IF_ERROR(WriteTensors(zip, checkpoint::pt2::kWeights, program.saved->weights, present));
  LOCKSTEP_RETURN_IF_ERROR(WriteTensors(zip, checkpoint::pt2::kConstants, program.saved->constants, present));
  for (const auto& [name, text] : program.saved->records) LOCKSTEP_RETURN_IF_ERROR(zip.Add(name, text));
  LOCKSTEP_RETURN_IF_ERROR(zip.Add(checkpoint::pt2::kFingerprint, zip.Fingerprint()));
  return zip.Finish();
}

}  // namespace lockstep::models::exported
