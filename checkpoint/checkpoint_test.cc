#include "lockstep/checkpoint/checkpoint.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/imag.h>
#include <ATen/ops/ones.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <sstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/checkpoint/pickle/writer.h"
#include "lockstep/checkpoint/zip/reader.h"
#include "lockstep/checkpoint/zip/writer.h"

namespace lockstep::checkpoint {
namespace {

using ::testing::HasSubstr;

std::string TestPath(const std::string& name) { return testing::TempDir() + "/" + name; }

std::string ReadFile(const std::string& path) {
  std::ostringstream contents;
  contents << std::ifstream(path, std::ios::binary).rdbuf();
  return contents.str();
}

void WriteFile(const std::string& path, const std::string& contents) {
  std::ofstream(path, std::ios::binary | std::ios::trunc).write(contents.data(), contents.size());
}

Value RoundTrip(const Value& value) {
  const std::string path = TestPath("round_trip.pt");
  const absl::Status saved = Save(path, value, {.sync = false});
  EXPECT_TRUE(saved.ok()) << saved;
  const auto loaded = Load(path);
  EXPECT_TRUE(loaded.ok()) << loaded.status();
  return loaded.ok() ? *loaded : Value();
}

std::string SaveError(const Value& value) { return std::string(Save(TestPath("bad.pt"), value).message()); }

Value SmallCheckpoint() {
  Value state_dict = Value::OrderedDict({{"weight", at::arange(4.0)}});
  state_dict.SetAttributes(Value::Dict({{"_metadata", Value::OrderedDict({{"", Value::Dict({{"version", 1}})}})}}));
  return Value::Dict({{"epoch", 3}, {"state_dict", state_dict}, {"b", Value::Bytes("\xff")}});
}

TEST(SaveAndLoad, EveryPlainValueComesBack) {
  Value attributed = Value::OrderedDict({{"a", 1}});
  attributed.SetAttributes(Value::Dict({{"_metadata", Value::OrderedDict()}}));
  std::vector<Value> many(2500, Value("repeated"));
  std::vector<Value::Entry> entries;
  for (int i = 0; i < 2500; ++i) entries.emplace_back(i, i * 0.5);
  for (const Value& value : std::vector<Value>{Value(),
                                               true,
                                               false,
                                               0,
                                               -1,
                                               255,
                                               256,
                                               65535,
                                               65536,
                                               INT32_MIN,
                                               INT64_MIN,
                                               INT64_MAX,
                                               0.1,
                                               -0.0,
                                               std::nan(""),
                                               "",
                                               "text \u20ac",
                                               Value::Bytes(absl::string_view("\0\xff\x7f\x80", 4)),
                                               Value::List(),
                                               Value::List({1, "x", Value()}),
                                               Value::Tuple(),
                                               Value::Tuple({1}),
                                               Value::Tuple({1, 2, 3, 4}),
                                               Value::Dict(),
                                               Value::Dict({{1, 2}, {Value(), 3}, {0.5, 4}, {Value::Bytes("k"), 5}}),
                                               attributed,
                                               Value::Dict({{3, 1}}, Value::DictKind::kCounter),
                                               Value::List(many),
                                               Value::Dict(entries)}) {
    EXPECT_TRUE(Identical(RoundTrip(value), value)) << value.type_name();
  }
}

TEST(SaveAndLoad, EveryDtypeComesBackToTheBit) {
  for (int type = 0; type < static_cast<int>(at::ScalarType::NumOptions); ++type) {
    const auto scalar_type = static_cast<at::ScalarType>(type);
    const std::string name = c10::toString(scalar_type);
    if (scalar_type == at::ScalarType::Undefined) continue;
    // Quantized, and integers of 1 to 7 bits, which exist as Python subclasses only.
    if (c10::isQIntType(scalar_type) ||
        (type >= static_cast<int>(at::ScalarType::UInt1) && type <= static_cast<int>(at::ScalarType::Int7)))
      continue;
    const at::Tensor tensor = at::empty({3}, scalar_type);
    for (size_t i = 0; i < tensor.nbytes(); ++i) static_cast<char*>(tensor.data_ptr())[i] = i % 3 == 0;
    EXPECT_TRUE(Identical(RoundTrip(tensor), tensor)) << name;
  }
}

TEST(SaveAndLoad, ViewsKeepTheirStorageAndStrides) {
  const at::Tensor base = at::arange(12.0);
  const Value loaded = RoundTrip(
      Value::Dict({{"transposed", base.view({3, 4}).t()}, {"tail", base.slice(0, 8)}, {"again", base.slice(0, 8)}}));
  const at::Tensor transposed = *GetTensor(loaded, "transposed"), tail = *GetTensor(loaded, "tail");
  EXPECT_EQ(transposed.strides(), (std::vector<int64_t>{1, 4}));
  EXPECT_TRUE(transposed.equal(base.view({3, 4}).t()));
  EXPECT_EQ(tail.storage_offset(), 8);
  EXPECT_TRUE(tail.is_alias_of(transposed));
  EXPECT_TRUE(GetTensor(loaded, "again")->is_alias_of(tail));
}

TEST(SaveAndLoad, OneObjectStaysOne) {
  const Value list = Value::List({1});
  const at::Tensor tensor = at::ones({2});
  const Value loaded = RoundTrip(Value::List({list, list, tensor, tensor, Value::Parameter(tensor)}));
  EXPECT_EQ(loaded.items()[0].identity(), loaded.items()[1].identity());
  EXPECT_TRUE(loaded.items()[2].tensor().is_same(loaded.items()[3].tensor()));
  EXPECT_TRUE(loaded.items()[4].is_parameter());
  EXPECT_TRUE(loaded.items()[4].tensor().is_alias_of(loaded.items()[2].tensor()));
}

TEST(SaveAndLoad, GradientAndConjugateFlagsStay) {
  const at::Tensor leaf = at::ones({2}).set_requires_grad(true);
  const at::Tensor complex = at::ones({2}, at::kComplexFloat);
  const Value value = Value::List({leaf, Value::Parameter(leaf), complex.conj(), at::imag(complex.clone().conj())});
  EXPECT_TRUE(Identical(RoundTrip(value), value));
}

TEST(Save, AlignsEveryRecordAndNamesTheArchiveAsTorchSaveDoes) {
  const std::string path = TestPath("a model.v2.pt");
  ASSERT_TRUE(Save(path, SmallCheckpoint()).ok());
  const std::string bytes = ReadFile(path);
  const auto zip = zip::ZipReader::Open({bytes.size(), [&](uint64_t offset, void* to, size_t count) {
                                           std::memcpy(to, bytes.data() + offset, count);
                                           return absl::OkStatus();
                                         }});
  ASSERT_TRUE(zip.ok());
  std::vector<std::string> names;
  for (const auto& record : zip->records()) {
    names.push_back(record.name.substr(record.name.find('/')));
    EXPECT_EQ(record.offset % 64, 0);
    EXPECT_EQ(record.name.substr(0, record.name.find('/')), "a model.v2");
  }
  EXPECT_THAT(names, testing::ElementsAre("/data.pkl", "/.format_version", "/.storage_alignment", "/byteorder",
                                          "/data/0", "/version", "/.data/serialization_id"));
}

// [[], [[]], [[[]]], ...]: a list in which the next item contains each item, so that no path that visits only new
// items is longer than 2.
Value EachInTheNext(int count) {
  Value item = Value::List(), list = Value::List({item});
  while (list.size() < count) {
    item = Value::List({item});
    list.Append(item);
  }
  return list;
}

TEST(SaveAndLoad, WhatIsSavedIsNotTooDeepToBeLoaded) {
  EXPECT_TRUE(Identical(RoundTrip(EachInTheNext(500)), EachInTheNext(500)));
  EXPECT_THAT(SaveError(EachInTheNext(501)), HasSubstr("nested more than 500 deep"));
}

TEST(Save, NamesTheValueThatCannotBeSaved) {
  EXPECT_THAT(SaveError(Value::Dict({{"a", Value::List({at::Tensor()})}})),
              HasSubstr("bad.pt: [\"a\"][0]: an undefined tensor"));
  EXPECT_THAT(SaveError(Value::Dict({{"s", "\xff"}})),
              HasSubstr("[\"s\"]: a string that is not UTF-8; use Value::Bytes"));
  EXPECT_THAT(SaveError(at::ones({2}).to_sparse()), HasSubstr("a sparse or nested tensor is not supported"));
  EXPECT_THAT(SaveError(at::empty({2}, at::kMeta)), HasSubstr("on the meta device"));
  const at::Tensor floats = at::ones({2});
  EXPECT_THAT(SaveError(Value::List({floats, floats.view(at::kInt)})),
              HasSubstr("[1]: a view as torch.int32 of memory that another tensor here views as torch.float32"));
  Value deep = 1;
  for (int i = 0; i < 600; ++i) deep = Value::List({deep});
  EXPECT_THAT(SaveError(deep), HasSubstr("nested more than 500 deep"));
  EXPECT_EQ(access(TestPath("bad.pt").c_str(), F_OK), -1);
}

TEST(Save, LeavesThePreviousFileOnAnError) {
  const std::string path = TestPath("kept.pt");
  ASSERT_TRUE(Save(path, 1).ok());
  EXPECT_FALSE(Save(path, at::Tensor()).ok());
  EXPECT_EQ(Load(path)->int_value(), 1);
  EXPECT_EQ(Save(TestPath("none/x.pt"), 1).code(), absl::StatusCode::kNotFound);
  ASSERT_EQ(mkdir(TestPath("folder.pt").c_str(), 0755), 0);
  EXPECT_EQ(Save(TestPath("folder.pt"), 1), absl::FailedPreconditionError(TestPath("folder.pt") + ": is a directory"));
}

TEST(Load, DamageInATensorNamesFileAndRecord) {
  const std::string path = TestPath("damaged.pt");
  ASSERT_TRUE(Save(path, SmallCheckpoint()).ok());
  std::string bytes = ReadFile(path);
  const float one = 1;
  bytes[bytes.find(std::string(reinterpret_cast<const char*>(&one), 4))] ^= 1;
  WriteFile(path, bytes);
  const absl::Status status = Load(path).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(
      std::string(status.message()),
      HasSubstr("damaged.pt: [\"state_dict\"][\"weight\"]: tensor: record \"damaged/data/0\": its CRC-32 should be"));
}

// A file with one tensor whose numbers the test chooses.
struct Crafted {
  int64_t count = 4;
  int64_t offset = 0;
  std::vector<int64_t> sizes = {4};
  std::vector<int64_t> strides = {1};
  std::string type = "FloatStorage";
  std::string key = "0";
  std::string location = "cpu";
};

void Ints(pickle::PickleWriter& pickle, const std::vector<int64_t>& ints) {
  pickle.Mark();
  for (const int64_t i : ints) pickle.Int(i);
  pickle.Tuple();
}

std::string CraftedPickle(const Crafted& crafted) {
  pickle::PickleWriter pickle;
  pickle.Global("torch._utils", "_rebuild_tensor_v2");
  pickle.Mark();
  pickle.Mark();
  pickle.String("storage");
  pickle.Global("torch", crafted.type);
  pickle.String(crafted.key);
  pickle.String(crafted.location);
  pickle.Int(crafted.count);
  pickle.Tuple();
  pickle.PersistentId();
  pickle.Int(crafted.offset);
  Ints(pickle, crafted.sizes);
  Ints(pickle, crafted.strides);
  pickle.Bool(false);
  pickle.None();
  pickle.Tuple();
  pickle.Reduce();
  return std::move(pickle).Finish();
}

absl::StatusOr<Value> LoadPickle(const std::string& pickle, const LoadOptions& options = {}) {
  std::string bytes;
  zip::ZipWriter zip(
      [&](const void* from, size_t count) {
        bytes.append(static_cast<const char*>(from), count);
        return absl::OkStatus();
      },
      "crafted");
  zip.Add("data.pkl", pickle).IgnoreError();
  zip.Add("data/0", std::string(16, '\0')).IgnoreError();
  zip.Finish().IgnoreError();
  WriteFile(TestPath("crafted.pt"), bytes);
  return Load(TestPath("crafted.pt"), options);
}

std::string CraftedError(const std::function<void(Crafted&)>& change) {
  Crafted crafted;
  change(crafted);
  return std::string(LoadPickle(CraftedPickle(crafted)).status().message());
}

TEST(Load, ChecksATensorsBoundsBeforeMakingIt) {
  EXPECT_EQ(CraftedError([](Crafted&) {}), "");
  EXPECT_EQ(CraftedError([](Crafted& c) { c.sizes = {2, 0}, c.strides = {1, 1}; }), "");
  EXPECT_THAT(CraftedError([](Crafted& c) { c.sizes = {5}; }), HasSubstr("reaches element 0 + 5 of a storage of 4"));
  EXPECT_THAT(CraftedError([](Crafted& c) { c.offset = 1; }), HasSubstr("reaches element 1 + 4 of a storage of 4"));
  EXPECT_THAT(CraftedError([](Crafted& c) { c.offset = INT64_MAX; }), HasSubstr("of a storage of 4"));
  EXPECT_THAT(CraftedError([](Crafted& c) { c.offset = -1; }), HasSubstr("negative offset"));
  EXPECT_THAT(CraftedError([](Crafted& c) { c.strides = {-1}; }), HasSubstr("negative size or stride"));
  EXPECT_THAT(CraftedError([](Crafted& c) { c.strides = {INT64_MAX}; }), HasSubstr("shape is out of range"));
  EXPECT_THAT(CraftedError([](Crafted& c) { c.strides = {1, 1}; }), HasSubstr("do not fit"));
  EXPECT_THAT(CraftedError([](Crafted& c) {
                c.sizes = {INT64_MAX, INT64_MAX}, c.strides = {0, 0};
              }),
              HasSubstr("shape is out of range"));
  EXPECT_THAT(CraftedError([](Crafted& c) { c.count = 5; }),
              HasSubstr("record \"crafted/data/0\" has 16 bytes and should have 5 elements of 4"));
  EXPECT_THAT(CraftedError([](Crafted& c) { c.key = "../1"; }), HasSubstr("record \"crafted/data/../1\" is missing"));
  EXPECT_THAT(CraftedError([](Crafted& c) { c.location = "moon"; }), HasSubstr("\"moon\" is not a device"));
}

TEST(SaveAndLoad, TakeAsManyTensorsAndValuesAsThereAre) {
  Value tensors = Value::OrderedDict(), names = Value::Dict();
  for (int i = 0; i < 20000; ++i) tensors.Set("layers." + std::to_string(i) + ".weight", at::arange(i % 3));
  for (int i = 0; i < 300000; ++i) names.Set(i, std::to_string(i));
  const Value indices = Value::List(std::vector<Value>(1100000, 70000));
  for (const Value& saved : {tensors, names, indices}) EXPECT_TRUE(Identical(RoundTrip(saved), saved));
}

TEST(SaveAndLoad, TensorsKeepTheirAttributes) {
  const at::Tensor tensor = at::ones({2}).set_requires_grad(true);
  Value buffer = at::ones({3}, at::kUInt16), parameter = Value::Parameter(tensor);
  buffer.SetAttributes(Value::Dict({{"persistent", true}, {"_is_buffer", true}}));
  parameter.SetAttributes(Value::Dict({{"names", Value::List({"a", tensor})}}));
  const Value value = Value::Dict({{"buffer", buffer}, {"parameter", parameter}, {"again", buffer}, {"plain", tensor}});
  const Value loaded = RoundTrip(value);
  EXPECT_TRUE(Identical(loaded, value));
  EXPECT_EQ(loaded.Find("buffer")->identity(), loaded.Find("again")->identity());
  EXPECT_TRUE(
      GetTensor(loaded.Find("parameter")->attributes(), {"names", 1})->is_alias_of(*GetTensor(loaded, "plain")));
}

TEST(SaveAndLoad, EachNanIsAKey) {
  const Value value = Value::Dict({{std::nan(""), 1}, {std::nan(""), 2}, {1, std::nan("")}});
  EXPECT_EQ(RoundTrip(value).size(), 3);
  EXPECT_TRUE(Identical(RoundTrip(value), value));
}

// Python's own pickler writes a float again at each occurrence. Another pickler may refer to one object twice.
TEST(Load, OneNanObjectIsOneKey) {
  const std::string nan("G\x7f\xf8\0\0\0\0\0\0", 9), memo("q\0", 2), same("h\0", 2);
  const auto loaded = LoadPickle("\x80\x02}(" + nan + memo + "K\x01K\x07K\x08" + same + "K\x02" + nan + "K\x03u.");
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  std::vector<int64_t> values;
  for (const auto& entry : loaded->entries()) values.push_back(entry.second.int_value());
  EXPECT_THAT(values, testing::ElementsAre(2, 8, 3));
}

TEST(Load, NamesWhatIsRefusedByItsPath) {
  const std::string args("\x80\x02}X\x04\0\0\0argscargparse\nNamespace\n)\x81}bs.", 38);
  EXPECT_EQ(LoadPickle(args).status(),
            absl::InvalidArgumentError(TestPath("crafted.pt") +
                                       ": record \"crafted/data.pkl\": [\"args\"]: an argparse.Namespace "
                                       "(argparse.Namespace) is not allowed in a checkpoint; save vars(args)"));
}

TEST(Load, RefusesWhatContainsItselfOrIsTooDeepOrTooLarge) {
  std::string self("\x80\x02]q\0h\0a.", 9);
  EXPECT_THAT(std::string(LoadPickle(self).status().message()), HasSubstr("[0]: a container that contains itself"));
  std::string deep = "\x80\x02]";
  for (int i = 0; i < 100000; ++i) deep += "]";
  for (int i = 0; i < 100000; ++i) deep += "a";
  EXPECT_THAT(std::string(LoadPickle(deep + ".").status().message()), HasSubstr("nested more than 500 deep"));
  // Each list is an item of the root before it is one of the next list.
  std::string each_in_the_next("\x80\x02]]q\0a", 7);
  for (int i = 0; i < 100000; ++i) each_in_the_next.append("]h\0aq\0a", 7);
  EXPECT_THAT(std::string(LoadPickle(each_in_the_next + ".").status().message()),
              HasSubstr("nested more than 500 deep"));
  LoadOptions options;
  options.memory_limit = 1 << 20;
  EXPECT_EQ(LoadPickle(deep + ".", options).status().code(), absl::StatusCode::kResourceExhausted);
}

TEST(Load, SurvivesRandomDamageThatKeepsTheCrcRight) {
  const std::string pickle = CraftedPickle({});
  for (size_t at = 0; at < pickle.size(); ++at) {
    for (const int change : {1, 16, 255}) {
      std::string changed = pickle;
      changed[at] = static_cast<char>(changed[at] ^ change);
      LoadPickle(changed).IgnoreError();
    }
  }
}

TEST(LoadEntry, LoadsOneEntryAndChecksTheRest) {
  const std::string path = TestPath("entry.pt");
  const at::Tensor shared = at::arange(6.0);
  ASSERT_TRUE(
      Save(path, Value::Dict({{"epoch", 3}, {"part", Value::List({shared})}, {"large", at::ones({5000})}})).ok());
  EXPECT_EQ(LoadEntry(path, "epoch")->int_value(), 3);
  EXPECT_TRUE(LoadEntry(path, "part")->items()[0].tensor().equal(shared));
  EXPECT_EQ(LoadEntry(path, "none").status(),
            absl::NotFoundError(path + ": [\"none\"]: no such key; the dict has \"epoch\", \"part\", \"large\""));
  std::string contents = ReadFile(path);
  contents[contents.size() / 2] ^= 1;
  WriteFile(path, contents);
  EXPECT_EQ(LoadEntry(path, "epoch").status().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(LoadEntry(path, "epoch", {.verify = false})->int_value(), 3);
  ASSERT_TRUE(Save(path, Value::List({1})).ok());
  EXPECT_EQ(LoadEntry(path, "epoch").status(),
            absl::InvalidArgumentError(path + ": [\"epoch\"]: expected to look into a dict, found list"));
}

}  // namespace
}  // namespace lockstep::checkpoint
