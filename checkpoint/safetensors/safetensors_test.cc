// Files that Python's safetensors 0.8.0 wrote (testdata/make_golden.py), files written here, and damaged files.

#include "lockstep/checkpoint/safetensors/safetensors.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <sstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep::checkpoint {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

const SaveOptions kUnsynced{.sync = false};

std::string Golden(const std::string& name) { return absl::StrCat("checkpoint/testdata/", name, ".safetensors"); }

std::string TestFile() {
  return absl::StrCat(testing::TempDir(), "/", testing::UnitTest::GetInstance()->current_test_info()->name());
}

std::string Contents(const std::string& path) {
  std::ostringstream contents;
  contents << std::ifstream(path, std::ios::binary).rdbuf();
  return contents.str();
}

Safetensors LoadFile(const std::string& path, const LoadOptions& options = {}) {
  const auto file = LoadSafetensors(path, options);
  EXPECT_TRUE(file.ok()) << file.status();
  return file.ok() ? *file : Safetensors();
}

std::string WhyNotSaved(const Value& tensors, const SafetensorsMetadata& metadata = {}) {
  const std::string path = TestFile();
  const absl::Status status = SaveSafetensors(path, tensors, metadata, kUnsynced);
  EXPECT_FALSE(std::ifstream(path).good()) << "nothing is written";
  EXPECT_TRUE(absl::StartsWith(status.message(), path + ": ")) << status;
  return std::string(status.message().substr(std::min(path.size() + 2, status.message().size())));
}

TEST(Safetensors, LoadsAStateDict) {
  const Safetensors file = LoadFile(Golden("state_dict"));
  EXPECT_THAT(file.metadata, ElementsAre(Pair("format", "pt")));
  ASSERT_EQ(file.tensors.size(), 7);
  EXPECT_EQ(file.tensors.entries()[0].first.string_value(), "1.num_batches_tracked") << "the order of the bytes";
  EXPECT_TRUE(GetTensor(file.tensors, "0.weight")->equal(at::arange(6.0, at::kFloat).reshape({3, 2})));
  EXPECT_TRUE(GetTensor(file.tensors, "1.running_var")->equal(at::arange(50.0, 53.0, at::kFloat)));
  EXPECT_EQ(GetTensor(file.tensors, "1.num_batches_tracked")->item<int64_t>(), 60);
}

TEST(Safetensors, EveryDtypeComesBackToTheBit) {
  const Safetensors file = LoadFile(Golden("dtypes"));
  EXPECT_EQ(file.tensors.size(), 19);
  for (const auto& [name, value] : file.tensors.entries()) {
    ASSERT_EQ(value.tensor().nbytes(), 32) << name.string_value();
    const char* data = static_cast<const char*>(value.tensor().data_ptr());
    for (int i = 0; i < 32; ++i) EXPECT_EQ(data[i], i % 4 == 0 || i % 4 == 3) << name.string_value() << " byte " << i;
  }
  EXPECT_EQ(GetTensor(file.tensors, "float8_e4m3fn")->scalar_type(), at::kFloat8_e4m3fn);
  EXPECT_EQ(GetTensor(file.tensors, "float8_e8m0fnu")->scalar_type(), at::kFloat8_e8m0fnu);
  EXPECT_EQ(GetTensor(file.tensors, "complex64")->scalar_type(), at::kComplexFloat);
}

TEST(Safetensors, NamesAndMetadataMayBeAnyText) {
  const Safetensors file = LoadFile(Golden("names"));
  EXPECT_THAT(file.metadata, ElementsAre(Pair("na\u00efve\n", "\U0001f600")));
  EXPECT_EQ(GetTensor(file.tensors, "")->item<int64_t>(), 7);
  EXPECT_EQ(GetTensor(file.tensors, "quote\" back\\slash/ tab\t \x01\x7f na\u00efve \u20ac \U0001f600")->sizes(),
            (std::vector<int64_t>{0, 3}));
}

TEST(Safetensors, WritesTheVeryBytesThatPythonWrites) {
  for (const char* name : {"state_dict", "dtypes", "names", "none"}) {
    const Safetensors file = LoadFile(Golden(name));
    // In another order than the file's.
    std::vector<Value::Entry> entries(file.tensors.entries().rbegin(), file.tensors.entries().rend());
    ASSERT_TRUE(SaveSafetensors(TestFile(), Value::OrderedDict(entries), file.metadata, kUnsynced).ok());
    EXPECT_EQ(Contents(TestFile()), Contents(Golden(name))) << name;
  }
}

TEST(Safetensors, ElementsAreWrittenInOrderWhateverTheStrides) {
  const at::Tensor matrix = at::arange(12.0).view({3, 4});
  const at::Tensor complex = at::ones({2}, at::kComplexFloat) * c10::complex<float>(1, 2);
  const Value tensors = Value::Dict({{"transposed", matrix.t()},
                                     {"expanded", at::arange(2.0).view({2, 1}).expand({2, 3})},
                                     {"step", at::arange(10).slice(0, 0, 10, 3)},
                                     {"conjugate", complex.conj()},
                                     {"e8m0", at::zeros({4, 4}, at::kByte).view(at::kFloat8_e8m0fnu).t()},
                                     {"parameter", Value::Parameter(at::ones({2}).set_requires_grad(true))}});
  ASSERT_TRUE(SaveSafetensors(TestFile(), tensors, {}, kUnsynced).ok());
  const Safetensors file = LoadFile(TestFile());
  for (const auto& [name, value] : tensors.entries()) {
    const at::Tensor plain = value.tensor().detach().resolve_conj();
    EXPECT_TRUE(Identical(*file.tensors.Find(name), plain)) << name.string_value();
    EXPECT_TRUE(file.tensors.Find(name)->tensor().is_contiguous());
  }
}

TEST(Safetensors, PartsOfOneMemoryThatDoNotMeetAreFine) {
  const at::Tensor base = at::arange(8.0);
  const Value tensors =
      Value::Dict({{"tail", base.slice(0, 4)}, {"head", base.slice(0, 0, 4)}, {"none", base.slice(0, 2, 2)}});
  ASSERT_TRUE(SaveSafetensors(TestFile(), tensors, {}, kUnsynced).ok());
  EXPECT_TRUE(GetTensor(LoadFile(TestFile()).tensors, "tail")->equal(at::arange(4.0, 8.0, at::kFloat)));
}

TEST(Safetensors, SharedMemoryIsRefusedByName) {
  const at::Tensor base = at::arange(8.0);
  EXPECT_EQ(
      WhyNotSaved(Value::Dict({{"decoder", base}, {"other", at::ones({3})}, {"encoder", base}})),
      "[\"decoder\"] and [\"encoder\"] share memory, which the format cannot express; leave one out, or clone() it");
  EXPECT_THAT(WhyNotSaved(Value::Dict({{"b", base.slice(0, 0, 5)}, {"a", base.slice(0, 4)}})),
              HasSubstr("[\"b\"] and [\"a\"] share memory"));
  EXPECT_THAT(WhyNotSaved(Value::Dict({{"whole", base}, {"first", base[0]}, {"last", base[7]}})),
              HasSubstr("share memory"));
}

TEST(Safetensors, WhatIsNoFlatDictOfTensorsIsRefusedByName) {
  const at::Tensor tensor = at::ones({1});
  EXPECT_EQ(WhyNotSaved(Value::List({tensor})), "expected a dict of tensors, found list");
  EXPECT_EQ(WhyNotSaved(Value::Dict({{"state_dict", Value::OrderedDict({{"w", tensor}})}})),
            "[\"state_dict\"]: expected Tensor, found OrderedDict; a safetensors file holds a flat dict of tensors");
  EXPECT_EQ(WhyNotSaved(Value::Dict({{3, tensor}})), "[3]: expected a str as name, found int");
  EXPECT_EQ(WhyNotSaved(Value::Dict({{"__metadata__", tensor}})),
            "[\"__metadata__\"]: the format uses this name for its metadata");
  EXPECT_THAT(WhyNotSaved(Value::Dict({{"\xed\xa0\x80", tensor}})), HasSubstr("a name that is not UTF-8"));
}

TEST(Safetensors, TensorsThatTheFormatLacksAreRefusedByName) {
  EXPECT_EQ(WhyNotSaved(Value::Dict({{"z", at::ones({1}, at::kComplexDouble)}})),
            "[\"z\"]: the format does not hold tensors of dtype torch.complex128");
  EXPECT_EQ(WhyNotSaved(Value::Dict({{"s", at::eye(2).to_sparse()}})),
            "[\"s\"]: a sparse or nested tensor is not supported");
  EXPECT_EQ(WhyNotSaved(Value::Dict({{"u", at::Tensor()}})), "[\"u\"]: an undefined tensor");
  EXPECT_EQ(WhyNotSaved(Value::Dict({{"m", at::empty({1}, at::kMeta)}})),
            "[\"m\"]: a tensor on the meta device has no data");
}

TEST(Safetensors, MetadataIsChecked) {
  EXPECT_EQ(WhyNotSaved(Value::Dict(), {{"a", "1"}, {"a", "2"}}), "metadata [\"a\"] stands twice");
  EXPECT_EQ(WhyNotSaved(Value::Dict(), {{"a", "\xff"}}), "metadata [\"a\"]: a string that is not UTF-8");
}

TEST(Safetensors, MetadataKeepsItsOrder) {
  const SafetensorsMetadata metadata = {{"z", "1"}, {"a", "2"}, {"", ""}};
  ASSERT_TRUE(SaveSafetensors(TestFile(), Value::Dict(), metadata, kUnsynced).ok());
  EXPECT_EQ(LoadFile(TestFile()).metadata, metadata);
}

TEST(Safetensors, AnEmptyMapOfMetadataStays) {
  const Safetensors file = LoadFile(Golden("empty_metadata"));
  EXPECT_TRUE(file.has_metadata);
  EXPECT_TRUE(file.metadata.empty());
  ASSERT_EQ(SaveSafetensors(TestFile(), file, kUnsynced), absl::OkStatus());
  EXPECT_EQ(Contents(TestFile()), Contents(Golden("empty_metadata")));
  EXPECT_FALSE(LoadFile(Golden("dtypes")).has_metadata);
}

TEST(Safetensors, LargeTensorsComeBackWhole) {
  const Value tensors = Value::Dict({{"a", at::arange(5 << 20, at::kInt)}, {"b", at::arange(3 << 20, at::kShort)}});
  ASSERT_TRUE(SaveSafetensors(TestFile(), tensors, {}, kUnsynced).ok());
  EXPECT_TRUE(Identical(LoadFile(TestFile()).tensors, tensors));
}

TEST(Safetensors, MapLocationIsAskedAboutTheCpu) {
  LoadOptions options;
  options.map_location = {{"cpu", "cuda:0"}};
  const auto file = LoadSafetensors(Golden("names"), options);
  EXPECT_EQ(file.status(), absl::FailedPreconditionError(
                               "checkpoint/testdata/names.safetensors: [\"\"]: map_location sends it from cpu "
                               "to cuda:0, which this program does not have"));
  options.map_location = "gpu";
  EXPECT_EQ(LoadSafetensors(Golden("names"), options).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(Safetensors, OtherFilesAreNamed) {
  const auto why = [](const std::string& path) { return std::string(LoadSafetensors(path).status().message()); };
  EXPECT_EQ(why(Golden("f4")),
            "checkpoint/testdata/f4.safetensors: header: tensor \"float4_e2m1fn_x2\": \"dtype\": dtype \"F4\" is not "
            "supported");
  EXPECT_EQ(why("checkpoint/testdata/views.pt"),
            "checkpoint/testdata/views.pt: a zip archive, such as a .pt file; use Load");
  EXPECT_EQ(LoadSafetensors("no such file").status().code(), absl::StatusCode::kNotFound);
}

class DamagedSafetensors : public testing::Test {
 protected:
  DamagedSafetensors() : whole_(LoadFile(Golden("state_dict"))), bytes_(Contents(Golden("state_dict"))) {
    uint64_t length;
    std::memcpy(&length, bytes_.data(), sizeof(length));
    data_ = 8 + length;
  }

  absl::StatusOr<Safetensors> LoadBytes(const std::string& bytes) {
    // File systems flush a file that is truncated and written again, which takes as long as the disk needs.
    std::remove(TestFile().c_str());
    std::ofstream(TestFile(), std::ios::binary) << bytes;
    return LoadSafetensors(TestFile());
  }

  // The positions of the tensors that differ.
  size_t Differing(const Safetensors& file) {
    if (file.tensors.size() != whole_.tensors.size()) return SIZE_MAX;
    size_t count = 0;
    for (size_t i = 0; i < file.tensors.size(); ++i) {
      count += !Identical(file.tensors.entries()[i].second, whole_.tensors.entries()[i].second);
    }
    return count;
  }

  const Safetensors whole_;
  const std::string bytes_;
  size_t data_;
};

TEST_F(DamagedSafetensors, EveryTruncationIsRefused) {
  for (size_t size = 0; size < bytes_.size(); ++size) {
    const auto file = LoadBytes(bytes_.substr(0, size));
    EXPECT_EQ(file.status().code(), absl::StatusCode::kDataLoss) << size << " bytes: " << file.status();
  }
  EXPECT_EQ(LoadBytes(bytes_ + "x").status().code(), absl::StatusCode::kDataLoss);
}

TEST_F(DamagedSafetensors, AFlippedBitOfTheHeaderIsRefusedOrChangesANameOnly) {
  for (size_t bit = 0; bit < 8 * data_; ++bit) {
    std::string bytes = bytes_;
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << bit % 8));
    const auto file = LoadBytes(bytes);
    EXPECT_EQ(file.ok() ? Differing(*file) : 0, 0) << "bit " << bit;
  }
}

TEST_F(DamagedSafetensors, AFlippedBitOfTheDataChangesOneTensor) {
  for (size_t bit = 8 * data_; bit < 8 * bytes_.size(); ++bit) {
    std::string bytes = bytes_;
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << bit % 8));
    const auto file = LoadBytes(bytes);
    ASSERT_TRUE(file.ok()) << file.status();
    EXPECT_EQ(Differing(*file), 1) << "bit " << bit;
  }
}

}  // namespace
}  // namespace lockstep::checkpoint
