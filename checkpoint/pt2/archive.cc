#include "lockstep/checkpoint/pt2/archive.h"

#include <ATen/ATen.h>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "lockstep/base/status.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/checkpoint/pt2/tensors.h"
#include "lockstep/checkpoint/serialize.h"
#include "lockstep/checkpoint/value.h"

namespace lockstep::checkpoint::pt2 {
namespace {

using zip::ZipRead;
using zip::ZipReader;
using zip::ZipRecord;

constexpr char kExport[] = "save the program in Python by torch.export.save(torch.export.export(net, inputs), path)";
constexpr char kJson[] = ".json";

// The records of PyTorch 2.5 to 2.7, which stand in no folder, by the names that they have in 2.11.
std::string NameIn2_11(const ZipReader& zip, const std::string& archive, absl::string_view name) {
  if (!zip.Find("serialized_exported_program.json")) {
    return absl::ConsumePrefix(&name, archive) ? std::string(name) : std::string();
  }
  if (name == "serialized_exported_program.json") return absl::StrCat(kModels, "model", kJson);
  if (name == "serialized_state_dict.pt") return absl::StrCat(kWeights, "model.pt");
  if (name == "serialized_constants.pt") return absl::StrCat(kConstants, "model.pt");
  if (name == "serialized_example_inputs.pt") return absl::StrCat(kSampleInputs, "model.pt");
  return {};
}

// The record in `folder` that describes a program's tensors.
std::string ConfigurationOf(absl::string_view folder, absl::string_view program) {
  return absl::StrCat(folder, program, folder == kWeights ? "_weights_config.json" : "_constants_config.json");
}

bool OfAnotherProgram(absl::string_view name, absl::string_view program) {
  if (absl::StartsWith(name, kModels)) return name != absl::StrCat(kModels, program, kJson);
  if (absl::StartsWith(name, kWeights)) return name != ConfigurationOf(kWeights, program);
  if (absl::StartsWith(name, kConstants)) return name != ConfigurationOf(kConstants, program);
  if (absl::StartsWith(name, kSampleInputs)) return name != absl::StrCat(kSampleInputs, program, ".pt");
  return absl::StartsWith(name, "data/aotinductor/");
}

// The contents of a record, and the tensors that view it.
struct Record {
  at::Tensor bytes;
  std::vector<at::Tensor> views;
};
using Records = absl::flat_hash_map<std::string, Record>;

// Makes the tensor of a payload. The first one of a record moves it to its device.
absl::StatusOr<at::Tensor> Place(const Payload& payload, std::optional<c10::Device> moved, Record& record) {
  if (payload.tensor) {
    const DeviceName& saved = payload.tensor->device;
    LOCKSTEP_ASSIGN_OR_RETURN(const c10::Device device, DeviceOfSchema(saved.type, saved.index, moved));
    const absl::Status status = TorchStatus("", [&] { record.bytes = record.bytes.to(device); });
    if (!status.ok()) return absl::FailedPreconditionError(status.message());
  }
  LOCKSTEP_ASSIGN_OR_RETURN(at::Tensor view, ViewOf(record.bytes, payload));
  for (const at::Tensor& other : record.views) {
    if (other.sizes() == view.sizes() && other.strides() == view.strides() && other.dtype() == view.dtype() &&
        other.storage_offset() == view.storage_offset()) {
      view = other;
    }
  }
  if (payload.is_parameter) view.set_requires_grad(payload.tensor->requires_grad);
  record.views.push_back(view);
  return view;
}

absl::StatusOr<std::vector<StoredTensor>> PlaceAll(const std::vector<Payload>& payloads,
                                                   std::optional<c10::Device> device, Records& records) {
  std::vector<StoredTensor> stored;
  for (const Payload& payload : payloads) {
    Record& record = records[payload.record];
    const int64_t bytes = record.bytes.numel();
    absl::StatusOr<at::Tensor> tensor = Place(payload, device, record);
    if (!tensor.ok()) return Annotate(tensor.status(), absl::StrCat("\"", payload.name, "\""));
    stored.push_back({payload, bytes, *std::move(tensor)});
  }
  return stored;
}

// The tensors of a dict that torch.save wrote, as PyTorch 2.9 and older store them, with a record for each storage.
absl::StatusOr<std::vector<StoredTensor>> TensorsOfDict(const Value& dict, absl::string_view folder,
                                                        std::optional<c10::Device> device) {
  if (!dict.is_dict()) return absl::DataLossError(absl::StrCat("expected a dict of tensors, found ", dict.type_name()));
  std::vector<Payload> payloads;
  Records records;
  absl::flat_hash_map<const c10::StorageImpl*, std::string> names;
  for (const auto& [key, value] : dict.entries()) {
    if (!key.is_string() || !value.is_tensor()) {
      return absl::UnimplementedError(
          absl::StrCat(KeyPath(std::vector<Value>{key}).ToString(), ": expected a tensor, found ", value.type_name()));
    }
    Payload payload{key.string_value()};
    absl::StatusOr<TensorMeta> meta = MetaOf(value.tensor());
    if (!meta.ok()) return Annotate(meta.status(), absl::StrCat("\"", payload.name, "\""));
    payload.tensor = *std::move(meta);
    payload.is_parameter = payload.tensor->requires_grad;
    const c10::Storage& storage = value.tensor().storage();
    std::string& name = names[storage.unsafeGetStorageImpl()];
    if (name.empty()) {
      name = absl::StrCat(folder == kWeights ? "weight_" : "tensor_", names.size() - 1);
      const auto bytes = static_cast<int64_t>(storage.nbytes());
      records[name].bytes = at::empty({0}, at::kByte).set_(storage, 0, {bytes}, {1});
    }
    payload.record = name;
    payloads.push_back(std::move(payload));
  }
  return PlaceAll(payloads, device, records);
}

}  // namespace

Pt2Archive::Pt2Archive(ZipReader zip, bool verify) : zip_(std::move(zip)), verify_(verify) {
  const std::string& first = zip_.records().front().name;
  const std::string archive = absl::StrCat(first.substr(0, first.find('/')), "/");
  for (const ZipRecord& record : zip_.records()) {
    names_.push_back(NameIn2_11(zip_, archive, record.name));
    places_.emplace(names_.back(), names_.size() - 1);
    absl::string_view name = names_.back();
    if (absl::ConsumePrefix(&name, kModels) && absl::ConsumeSuffix(&name, kJson)) programs_.emplace_back(name);
  }
}

absl::StatusOr<Pt2Archive> Pt2Archive::Open(const file::ByteSource& source, bool verify) {
  LOCKSTEP_ASSIGN_OR_RETURN(ZipReader zip, ZipReader::Open(source));
  if (zip.records().empty()) return absl::DataLossError("an archive without records");
  Pt2Archive archive(std::move(zip), verify);
  LOCKSTEP_RETURN_IF_ERROR(archive.CheckKind());
  return archive;
}

const ZipRecord* Pt2Archive::Find(absl::string_view name) const {
  const auto found = places_.find(name);
  return found == places_.end() ? nullptr : &zip_.records()[found->second];
}

absl::StatusOr<std::string> Pt2Archive::Text(absl::string_view name) const {
  const ZipRecord* record = Find(name);
  if (!record) return absl::DataLossError(absl::StrCat("the archive has no record \"", name, "\""));
  std::string text(record->size, '\0');
  LOCKSTEP_RETURN_IF_ERROR(Annotate(zip_.Read(*record, text.data(), verify_), absl::StrCat("record \"", name, "\"")));
  return text;
}

absl::Status Pt2Archive::CheckKind() const {
  if (zip_.Find("serialized_exported_program.json")) return absl::OkStatus();
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
  return absl::DataLossError(absl::StrCat("a zip archive without a program; ", kExport));
}

absl::StatusOr<std::string> Pt2Archive::Choose(const std::string& wanted) const {
  const std::string name = !wanted.empty() ? wanted : programs_.size() == 1 ? programs_[0] : "model";
  for (const std::string& program : programs_) {
    if (program == name) return name;
  }
  if (programs_.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("the archive has no program, only code of AOTInductor; ", kExport));
  }
  return absl::NotFoundError(
      absl::StrCat("the file has no program \"", name, "\"; its programs: ", absl::StrJoin(programs_, ", ")));
}

absl::StatusOr<std::string> Pt2Archive::Program(absl::string_view name) const {
  return Text(absl::StrCat(kModels, name, kJson));
}

absl::StatusOr<std::vector<StoredTensor>> Pt2Archive::Weights(absl::string_view program,
                                                              std::optional<c10::Device> device) const {
  return Tensors(kWeights, program, device);
}

absl::StatusOr<std::vector<StoredTensor>> Pt2Archive::Constants(absl::string_view program,
                                                                std::optional<c10::Device> device) const {
  return Tensors(kConstants, program, device);
}

absl::StatusOr<std::vector<StoredTensor>> Pt2Archive::Tensors(absl::string_view folder, absl::string_view program,
                                                              std::optional<c10::Device> device) const {
  const std::string configuration = ConfigurationOf(folder, program);
  if (const std::string saved = absl::StrCat(folder, program, ".pt"); !Find(configuration) && Find(saved)) {
    LOCKSTEP_ASSIGN_OR_RETURN(const std::string bytes, Text(saved));
    const absl::StatusOr<Value> dict = Deserialize(bytes, {.map_location = "cpu", .verify = verify_});
    absl::StatusOr<std::vector<StoredTensor>> stored = dict.ok() ? TensorsOfDict(*dict, folder, device) : dict.status();
    if (!stored.ok()) return Annotate(stored.status(), absl::StrCat("record \"", saved, "\""));
    return stored;
  }
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string text, Text(configuration));
  const absl::StatusOr<std::vector<Payload>> payloads = ParsePayloads(text);
  if (!payloads.ok()) return Annotate(payloads.status(), absl::StrCat("record \"", configuration, "\""));
  Records records;
  std::vector<ZipRead> reads;
  for (const Payload& payload : *payloads) {
    const std::string name = absl::StrCat(folder, payload.record);
    const ZipRecord* record = Find(name);
    if (!record) {
      return absl::DataLossError(absl::StrCat("the archive has no record \"", name, "\" for \"", payload.name, "\""));
    }
    at::Tensor& bytes = records[payload.record].bytes;
    if (bytes.defined()) continue;
    bytes = at::empty({static_cast<int64_t>(record->size)}, at::kByte);
    reads.push_back({record, static_cast<char*>(bytes.data_ptr())});
  }
  zip_.ReadAll(reads, verify_);
  for (const ZipRead& read : reads) LOCKSTEP_RETURN_IF_ERROR(read.status);
  return PlaceAll(*payloads, device, records);
}

absl::StatusOr<std::vector<std::pair<std::string, std::string>>> Pt2Archive::OtherRecords(
    absl::string_view program, const std::vector<StoredTensor>& weights,
    const std::vector<StoredTensor>& constants) const {
  std::vector<std::pair<std::string, std::string>> others;
  absl::flat_hash_set<std::string> tensors;
  for (const auto& [folder, stored] : {std::pair(kWeights, &weights), std::pair(kConstants, &constants)}) {
    std::vector<Payload> payloads;
    for (const StoredTensor& one : *stored) {
      tensors.insert(absl::StrCat(folder, one.payload.record));
      payloads.push_back(one.payload);
    }
    const std::string configuration = ConfigurationOf(folder, program);
    if (!Find(configuration)) others.emplace_back(configuration, PayloadsText(payloads));
  }
  if (!Find("archive_format")) {
    others.insert(
        others.end(),
        {{"archive_format", "pt2"}, {"archive_version", "0"}, {"byteorder", "little"}, {".data/version", "6\n"}});
  }
  for (const std::string& name : names_) {
    if (name.empty() || tensors.contains(name) || name == kFingerprint || OfAnotherProgram(name, program)) continue;
    LOCKSTEP_ASSIGN_OR_RETURN(std::string text, Text(name));
    others.emplace_back(name, std::move(text));
  }
  return others;
}

absl::Status Pt2Archive::VerifyAll() const {
  std::vector<ZipRead> reads;
  for (const ZipRecord& record : zip_.records()) reads.push_back({&record});
  zip_.ReadAll(reads, /*verify=*/true);
  for (const ZipRead& read : reads) LOCKSTEP_RETURN_IF_ERROR(read.status);
  return absl::OkStatus();
}

}  // namespace lockstep::checkpoint::pt2
