// Loads files that Python PyTorch 2.11 wrote (testdata/make_golden.py). Checks their values, the errors for files that
// are not supported, and the errors for files that are not checkpoints.

#include <ATen/ops/arange.h>
#include <ATen/ops/imag.h>

#include <cmath>
#include <fstream>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/libtorch_version.h"
#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/checkpoint/safetensors/safetensors.h"
#include "lockstep/checkpoint/zip/writer.h"

namespace lockstep::checkpoint {
namespace {

using ::testing::HasSubstr;

Value LoadGolden(const std::string& name, const LoadOptions& options = {}) {
  const auto value = Load("checkpoint/testdata/" + name, options);
  EXPECT_TRUE(value.ok()) << value.status();
  return value.ok() ? *value : Value();
}

std::string WhyNot(const std::string& name, const LoadOptions& options = {}) {
  return std::string(Load("checkpoint/testdata/" + name, options).status().message());
}

std::string TestPath(const std::string& name) { return testing::TempDir() + "/" + name; }

void WriteFile(const std::string& path, const std::string& contents) {
  std::ofstream(path, std::ios::binary | std::ios::trunc).write(contents.data(), contents.size());
}

TEST(Golden, StateDictKeepsNamesOrderAndMetadata) {
  const Value value = LoadGolden("state_dict.pt");
  ASSERT_EQ(value.type_name(), "OrderedDict");
  std::vector<std::string> names;
  for (const auto& entry : value.entries()) names.push_back(entry.first.string_value());
  EXPECT_THAT(names, testing::ElementsAre("0.weight", "0.bias", "1.weight", "1.bias", "1.running_mean", "1.running_var",
                                          "1.num_batches_tracked"));
  EXPECT_TRUE(GetTensor(value, "0.weight")->equal(at::arange(6).reshape({3, 2})));
  EXPECT_TRUE(GetTensor(value, "1.running_var")->equal(at::arange(50, 53)));
  EXPECT_EQ(GetTensor(value, "1.num_batches_tracked")->scalar_type(), at::kLong);
  EXPECT_EQ(*GetInt(value.attributes(), {"_metadata", "1", "version"}), 2);
}

TEST(Golden, NestedValuesComeBackWhole) {
  const Value value = LoadGolden("nested.pt");
  EXPECT_TRUE(value.Find("none")->is_none());
  EXPECT_TRUE(Identical(*value.Find("flags"), Value::Tuple({true, false})));
  EXPECT_TRUE(Identical(*value.Find("ints"), Value::List({0, -1, 255, 256, 65535, 65536, INT32_MIN, int64_t{1} << 31,
                                                          INT64_MAX, INT64_MIN})));
  EXPECT_TRUE(Identical(*value.Find("floats"),
                        Value::List({0.1, -0.0, std::numeric_limits<double>::infinity(), std::nan("")})));
  EXPECT_EQ(*GetString(value, "text"), "na\u00efve \u20ac \U0001f600");
  EXPECT_TRUE(Identical(*value.Find("bytes"), Value::Bytes(absl::string_view("\x00\xff\x80"
                                                                             "a",
                                                                             4))));
  EXPECT_TRUE(Identical(*value.Find("empty"), Value::List({Value::Bytes(""), "", Value::List(), Value::Tuple(),
                                                           Value::Dict(), Value::OrderedDict()})));
  EXPECT_EQ(value.Find(3)->string_value(), "int key");
  EXPECT_EQ(value.Find(2.5)->string_value(), "float key");
  EXPECT_EQ(value.Find(true)->string_value(), "bool key");
  EXPECT_EQ(value.Find(Value())->string_value(), "None key");
  EXPECT_EQ(value.Find(Value::Bytes("k"))->string_value(), "bytes key");
  EXPECT_EQ(value.Find("shared")->items()[0].identity(), value.Find("shared")->items()[1].identity());
  EXPECT_TRUE(Identical(*value.Find("milestones"), Value::Dict({{30, 2}, {80, 1}}, Value::DictKind::kCounter)));
  EXPECT_TRUE(Identical(*value.Find("size"), Value::Tuple({2, 3})));
  EXPECT_EQ(*GetString(value, "device"), "cuda:1");
  EXPECT_EQ(*GetString(value, "dtype"), "torch.bfloat16");
}

TEST(Golden, ParametersAndGradientFlagsComeBack) {
  const Value value = LoadGolden("nested.pt");
  EXPECT_TRUE(value.Find("parameter")->is_parameter());
  EXPECT_TRUE(value.Find("parameter")->tensor().requires_grad());
  EXPECT_TRUE(value.Find("frozen")->is_parameter());
  EXPECT_FALSE(value.Find("frozen")->tensor().requires_grad());
  EXPECT_FALSE(value.Find("leaf")->is_parameter());
  EXPECT_TRUE(value.Find("leaf")->tensor().requires_grad());
}

#if LOCKSTEP_LIBTORCH_AT_LEAST(2, 8)  // the file has a float4_e2m1fn_x2
TEST(Golden, EveryDtypeComesBackToTheBit) {
  const Value value = LoadGolden("dtypes.pt");
  EXPECT_EQ(value.size(), 22);
  for (const auto& [name, tensor] : value.entries()) {
    const at::Tensor& t = tensor.tensor();
    ASSERT_EQ(t.nbytes(), 32) << name.string_value();
    const char* data = static_cast<const char*>(t.data_ptr());
    for (int i = 0; i < 32; ++i) EXPECT_EQ(data[i], i % 4 == 0 || i % 4 == 3) << name.string_value() << " byte " << i;
  }
  EXPECT_EQ(GetTensor(value, "float8_e4m3fn")->scalar_type(), at::kFloat8_e4m3fn);
  EXPECT_EQ(GetTensor(value, "complex32")->scalar_type(), at::kComplexHalf);
  EXPECT_EQ(GetTensor(value, "uint64")->scalar_type(), at::kUInt64);
}
#endif

TEST(Golden, ViewsShareOneStorageAndKeepTheirStrides) {
  const Value value = LoadGolden("views.pt");
  const auto tensor = [&](const char* name) { return *GetTensor(value, name); };
  EXPECT_TRUE(tensor("tail").equal(at::arange(4.0, 12.0, at::kFloat)));
  EXPECT_EQ(tensor("tail").storage_offset(), 4);
  EXPECT_EQ(tensor("transposed").strides(), (std::vector<int64_t>{1, 4}));
  EXPECT_EQ(tensor("expanded").strides(), (std::vector<int64_t>{0}));
  EXPECT_EQ(tensor("every_other").numel(), 6);
  for (const char* name : {"tail", "matrix", "transposed", "every_other", "expanded"}) {
    EXPECT_TRUE(tensor(name).is_alias_of(tensor("base"))) << name;
  }
  EXPECT_TRUE(tensor("same").is_same(tensor("base"))) << "one object in Python is one here";
  EXPECT_EQ(tensor("scalar").item<int64_t>(), 7);
  EXPECT_EQ(tensor("empty").sizes(), (std::vector<int64_t>{0, 3}));
  EXPECT_TRUE(tensor("conjugate").is_conj());
  EXPECT_EQ(at::imag(tensor("conjugate").resolve_conj())[0].item<float>(), -2);
  EXPECT_TRUE(tensor("negative").is_neg());
  EXPECT_EQ(tensor("negative").resolve_neg().item<float>(), -6);
}

TEST(Golden, Protocol4Loads) {
  const Value value = LoadGolden("protocol4.pt");
  EXPECT_TRUE(Identical(*value.Find("a"), Value::List({1, 2.5, Value::Bytes("\x01"), "x"})));
  EXPECT_TRUE(GetTensor(value, "t")->equal(at::arange(3)));
}

TEST(Golden, ACudaCheckpointNamesTheTensorAndTheWayOut) {
  EXPECT_EQ(WhyNot("cuda.pt"),
            "checkpoint/testdata/cuda.pt: [\"model\"][\"weight\"]: tensor: it was saved on cuda:0, which this program "
            "does not have; use "
            "LoadOptions::map_location, such as \"cpu\"");
}

TEST(Golden, MapLocationMovesIt) {
  const c10::Device cpu(c10::kCPU);
  for (const MapLocation& map : std::vector<MapLocation>{
           "cpu", cpu, c10::kCPU, {{"cuda:1", "cuda:7"}, {"cuda:0", "cpu"}}, [&](c10::Device) { return cpu; }}) {
    LoadOptions options;
    options.map_location = map;
    EXPECT_TRUE(GetTensor(LoadGolden("cuda.pt", options), {"model", "weight"})->equal(at::arange(3.0, at::kFloat)));
  }
}

TEST(Golden, MapLocationSaysWhereItWouldHaveGone) {
  LoadOptions options;
  options.map_location = {{"cuda:0", "cuda:1"}};
  EXPECT_THAT(WhyNot("cuda.pt", options),
              HasSubstr("map_location sends it from cuda:0 to cuda:1, which this program does not have"));
  options.map_location = "gpu";
  EXPECT_THAT(WhyNot("cuda.pt", options), HasSubstr("\"gpu\" is not a device"));
  options.map_location = [](c10::Device) -> c10::Device { throw std::runtime_error("no such rank"); };
  EXPECT_THAT(WhyNot("cuda.pt", options), HasSubstr("map_location: no such rank"));
}

TEST(Golden, WhatIsNotSupportedIsNamed) {
  EXPECT_THAT(WhyNot("make_golden.py"), HasSubstr("not a zip archive"));
  EXPECT_THAT(WhyNot("torchscript.pt"), HasSubstr("a TorchScript archive (torch.jit.save), not a checkpoint"));
  EXPECT_THAT(WhyNot("exported.pt2"), HasSubstr("an archive of torch.export.save (.pt2), not a checkpoint"));
  EXPECT_THAT(WhyNot(""), HasSubstr("is a directory, not a file"));
  EXPECT_EQ(Load("checkpoint/testdata/none.pt").status().code(), absl::StatusCode::kNotFound);
}

TEST(Golden, AFileWithoutCrcsIsRefusedUnlessAsked) {
  EXPECT_THAT(WhyNot("no_crc.pt"), HasSubstr("carries no CRC-32"));
  EXPECT_TRUE(GetTensor(LoadGolden("no_crc.pt", {.verify = false}), "w")->equal(at::arange(3)));
}

TEST(OtherFiles, AreNamed) {
  const std::string path = TestPath("foreign.pt");
  for (const auto& [contents, what] : std::vector<std::pair<std::string, std::string>>{
           {"", "the file is empty"},
           {"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12\n", "a Git LFS pointer"},
           {"\n<!DOCTYPE html>\n<html><head><title>404</title>", "a web page (HTML)"},
           {std::string("\x1f\x8b\x08\0\0\0\0\0\0\x03", 10), "compressed with gzip; unpack it with gunzip"},
           {std::string("\x80\x04\x95\x10\0\0\0\0\0\0\0}\x94.", 14), "a pickle without torch.save's archive"},
           {std::string(257, 'x') + "ustar", "a tar archive"},
           {std::string("PK\x03\x04 and no more"), "the file is truncated or is not a zip archive"}}) {
    WriteFile(path, contents);
    const absl::Status status = Load(path).status();
    EXPECT_TRUE(absl::StartsWith(status.message(), path + ": ")) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(what));
    const absl::Status as_safetensors = LoadSafetensors(path).status();
    EXPECT_TRUE(absl::StartsWith(as_safetensors.message(), path + ": ")) << as_safetensors;
  }
  WriteFile(path, "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12\n");
  EXPECT_THAT(std::string(LoadSafetensors(path).status().message()), HasSubstr("a Git LFS pointer"));
}

TEST(OtherFiles, AZipArchiveIsNamed) {
  std::string bytes;
  zip::ZipWriter zip(
      [&](const void* from, size_t count) {
        bytes.append(static_cast<const char*>(from), count);
        return absl::OkStatus();
      },
      "folder");
  zip.Add("notes.txt", "x").IgnoreError();
  zip.Finish().IgnoreError();
  WriteFile(TestPath("plain.zip"), bytes);
  EXPECT_THAT(std::string(Load(TestPath("plain.zip")).status().message()),
              HasSubstr("a zip archive without torch.save's record data.pkl"));
}

}  // namespace
}  // namespace lockstep::checkpoint
