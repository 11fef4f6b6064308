// Loads files of testdata/make_objects_golden.py: objects that are more than plain data, objects that are refused
// beside others that are asked for, and torch.save's legacy format.

#include <ATen/ops/arange.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <fstream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/checkpoint/safetensors/safetensors.h"
#include "lockstep/checkpoint/serialize.h"
#include "lockstep/checkpoint/state_dict.h"

namespace lockstep::checkpoint {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string Golden(const std::string& name) { return "checkpoint/testdata/" + name; }

Value LoadGolden(const std::string& name) {
  const auto value = Load(Golden(name));
  EXPECT_TRUE(value.ok()) << value.status();
  return value.ok() ? *value : Value::Dict();
}

std::string WhyNot(const std::string& name, const KeyPath& path) {
  return std::string(LoadEntry(Golden(name), path).status().message());
}

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

void WriteFile(const std::string& path, const std::string& contents) {
  std::ofstream(path, std::ios::binary | std::ios::trunc).write(contents.data(), contents.size());
}

// Protocol 2, protocol 5 and the legacy format.
class Objects : public testing::TestWithParam<const char*> {
 protected:
  const Value value_ = LoadGolden(GetParam());
};

TEST_P(Objects, BecomePlainValues) {
  const auto is = [&](const char* key, const Value& expected) {
    const Value* found = value_.Find(key);
    return found && Identical(*found, expected);
  };
  EXPECT_TRUE(is("complex", at::tensor(c10::complex<double>(1.5, -2), at::kComplexDouble)[0]));
  EXPECT_TRUE(is("bytearray", Value::Bytes(absl::string_view("\x00\xff"
                                                             "ab",
                                                             4))));
  EXPECT_TRUE(is("empty_bytearray", Value::Bytes("")));
  EXPECT_TRUE(is("set", Value::List({7})));
  EXPECT_TRUE(is("frozenset", Value::List({"a"})));
  EXPECT_TRUE(is("empty_set", Value::List()));
  EXPECT_TRUE(is("big", "18446744073709551616"));
  EXPECT_TRUE(is("bigger", "-1000000000000000000000000000007"));
  EXPECT_TRUE(is("huge", "1" + std::string(400, '0')));
  EXPECT_TRUE(is("layout", "torch.sparse_csr"));
  EXPECT_TRUE(is("qscheme", "torch.per_channel_affine"));
  EXPECT_TRUE(is("dtype", "<f4"));
  EXPECT_TRUE(is("keys", Value::Dict({{3, "three"}})));
}

TEST_P(Objects, OfNumpyBecomeNumbersAndTensors) {
  const std::vector<Value> scalars = *GetItems(value_, "scalars");
  EXPECT_TRUE(Identical(Value::List({scalars.begin(), scalars.begin() + 7}),
                        Value::List({0.1, 0.5, -2.0, -5, 200, "9223372036854775808", true})));
  EXPECT_TRUE(scalars.at(7).tensor().equal(at::tensor(c10::complex<double>(1, 2), at::kComplexDouble)[0]));
  const std::vector<Value> arrays = *GetItems(value_, "arrays");
  EXPECT_TRUE(arrays.at(0).tensor().equal(at::arange(6, at::kFloat).reshape({2, 3})));
  EXPECT_TRUE(arrays.at(1).tensor().equal(at::arange(6, at::kShort).reshape({2, 3})));
  EXPECT_EQ(arrays.at(1).tensor().strides(), (std::vector<int64_t>{1, 2})) << "the order of Fortran";
  EXPECT_TRUE(arrays.at(2).tensor().equal(at::zeros({0, 2}, at::kDouble)));
  EXPECT_EQ(arrays.at(3).tensor().item<int64_t>(), 7);
  EXPECT_TRUE(arrays.at(4).tensor().equal(at::arange(2).eq(0)));
  const std::vector<Value> state = *GetItems(value_, "numpy_rng");
  EXPECT_EQ(state.at(0).string_value(), "MT19937");
  EXPECT_EQ(state.at(1).tensor().scalar_type(), at::kUInt32);
  EXPECT_EQ(state.at(1).tensor().numel(), 624);
  EXPECT_EQ(GetItems(value_, {"python_rng", 1})->size(), 625);
}

TEST_P(Objects, SparseAndQuantizedTensorsLoad) {
  const auto tensor = [&](const char* key) { return *GetTensor(value_, key); };
  const at::Tensor dense = at::tensor({0.0, 1.0, 0.0, 2.0, 3.0, 0.0, 0.0, 0.0}, at::kFloat).reshape({2, 4});
  EXPECT_TRUE(tensor("coo").is_coalesced());
  EXPECT_EQ(tensor("coo").to_dense()[1][0].item<float>(), 4);
  EXPECT_FALSE(tensor("uncoalesced").is_coalesced());
  EXPECT_EQ(tensor("uncoalesced").to_dense()[0].item<float>(), 3);
  EXPECT_EQ(tensor("csr").layout(), at::kSparseCsr);
  for (const char* key : {"csr", "csc", "bsr"}) EXPECT_TRUE(tensor(key).to_dense().equal(dense)) << key;
  EXPECT_EQ(tensor("per_tensor").scalar_type(), at::kQUInt8);
  EXPECT_TRUE(tensor("per_tensor").dequantize().equal(at::tensor({0.0, 1.0, 2.0, -1.5}, at::kFloat).reshape({2, 2})));
  EXPECT_EQ(tensor("per_channel").qscheme(), at::kPerChannelAffine);
  EXPECT_TRUE(tensor("per_channel").dequantize().equal(at::tensor({1.0, 2.0, 3.0, 4.0}, at::kFloat).reshape({2, 2})));
}

INSTANTIATE_TEST_SUITE_P(Files, Objects, testing::Values("objects.pt", "objects_p5.pt", "legacy_objects.pt"),
                         [](const auto& info) { return std::string(info.param, strlen(info.param) - 3); });

TEST(SparseAndQuantized, OldGoldenFilesLoadAndSaveRefusesThem) {
  EXPECT_EQ(GetTensor(LoadGolden("quantized.pt"), "q")->dequantize().numel(), 2);
  EXPECT_EQ(GetTensor(LoadGolden("sparse.pt"), "s")->to_dense().sum().item<float>(), 2);
  EXPECT_THAT(std::string(Save(testing::TempDir() + "/sparse.pt", LoadGolden("sparse.pt")).message()),
              HasSubstr("[\"s\"]: a sparse or nested tensor is not supported"));
}

TEST(SparseAndQuantized, TensorsDoNotFitAnOrdinaryParameter) {
  torch::nn::Module net;
  net.register_parameter("s", at::zeros({2, 2}));
  net.register_parameter("t", at::zeros({2}));
  const Value state = Value::Dict({{"s", *LoadGolden("sparse.pt").Find("s")}, {"t", at::arange(2.0)}});
  EXPECT_THAT(std::string(LoadStateDict(net, state).message()),
              HasSubstr("1 mismatched: \"s\" (sparse [2, 2], the module has [2, 2])"));
  EXPECT_TRUE(net.named_parameters()["t"].equal(at::zeros({2}))) << "nothing is copied";
  const Value quantized = *LoadGolden("quantized.pt").Find("q");
  EXPECT_TRUE(Identical(quantized, quantized));
  EXPECT_FALSE(Identical(quantized, *LoadGolden("quantized.pt").Find("q")));
}

TEST(RefusedObjects, DoNotKeepOthersFromLoading) {
  EXPECT_TRUE(GetTensor(*LoadEntry(Golden("refused.pt"), "state_dict"), "w")->equal(at::arange(3.0, at::kFloat)));
  EXPECT_TRUE(LoadEntry(Golden("refused.pt"), {"state_dict", "w"})->is_tensor());
  EXPECT_EQ(*GetDouble(*LoadEntry(Golden("refused.pt"), "optimizer"), "best"), 0.5);
}

TEST(RefusedObjects, AreNamedWhenAskedFor) {
  EXPECT_THAT(std::string(Load(Golden("refused.pt")).status().message()),
              HasSubstr("record \"refused/data.pkl\": [\"args\"]: an argparse.Namespace"));
  EXPECT_THAT(WhyNot("refused.pt", "args"), HasSubstr("[\"args\"]: an argparse.Namespace (argparse.Namespace) is not "
                                                      "allowed in a checkpoint; save vars(args)"));
  EXPECT_THAT(WhyNot("refused.pt", "namespace"), HasSubstr("[\"namespace\"]: a SimpleNamespace"));
  EXPECT_THAT(WhyNot("refused.pt", "custom"), HasSubstr("[\"custom\"]: the Python object __main__.Custom"));
  EXPECT_THAT(WhyNot("refused.pt", "words"), HasSubstr("[\"words\"]: a numpy dtype \"U2\" is not supported"));
  EXPECT_THAT(WhyNot("refused.pt", "objects"), HasSubstr("[\"objects\"]: a numpy dtype \"O8\" is not supported"));
  EXPECT_THAT(WhyNot("refused.pt", "function"), HasSubstr("[\"function\"]: the Python object posixpath.join"));
  EXPECT_THAT(WhyNot("refused.pt", "module"), HasSubstr("[\"module\"]: a whole module"));
  EXPECT_THAT(WhyNot("refused.pt", {"optimizer", "worst"}),
              HasSubstr("[\"optimizer\"][\"worst\"]: no such key; the dict has \"lr\", \"best\""));
  EXPECT_THAT(WhyNot("refused.pt", {"state_dict", "w", "x"}),
              HasSubstr("[\"state_dict\"][\"w\"]: expected dict, found"));
}

TEST(Legacy, LoadsAsPythonDoes) {
  EXPECT_TRUE(LoadGolden("legacy_p4.pt").Find("x")->tensor().equal(at::arange(4)));
  EXPECT_TRUE(Load(Golden("legacy.pt"))->tensor().equal(at::arange(3)));
  const Value state_dict = *LoadEntry(Golden("legacy_state.pt"), "state_dict");
  EXPECT_EQ(state_dict.type_name(), "OrderedDict");
  EXPECT_EQ(state_dict.size(), 7);
  EXPECT_EQ(*GetInt(state_dict.attributes(), {"_metadata", "1", "version"}), 2);
  EXPECT_TRUE(LoadEntry(Golden("legacy_state.pt"), {"parameters", 0})->is_parameter());
  const std::vector<Value> views = LoadEntry(Golden("legacy_state.pt"), "views")->items();
  EXPECT_TRUE(views[1].tensor().is_alias_of(views[0].tensor()));
  EXPECT_TRUE(views[2].tensor().equal(at::arange(12.0, at::kFloat).view({3, 4}).t()));
  EXPECT_EQ(LoadEntry(Golden("legacy_state.pt"), "bfloat16")->tensor().sum().item<float>(), 3);
  EXPECT_EQ(LoadEntry(Golden("legacy_state.pt"), "epoch")->int_value(), 3);
  EXPECT_THAT(WhyNot("legacy_state.pt", "args"),
              HasSubstr("torch.save's legacy format: [\"args\"]: an argparse.Namespace"));
  EXPECT_THAT(std::string(LoadSafetensors(Golden("legacy.pt")).status().message()), HasSubstr("use Load"));
}

TEST(Legacy, LoadsTensorsAsPyTorchBefore04SpelledThem) {
  const Value old = LoadGolden("legacy_old.pt");
  EXPECT_TRUE(GetTensor(old, "rebuilt")->equal(at::arange(6.0, at::kFloat).reshape({2, 3})));
  EXPECT_TRUE(GetTensor(old, "tensor")->equal(at::tensor({0.5, 0.25}, at::kFloat)));
  EXPECT_FALSE(old.Find("tensor")->is_parameter());
  EXPECT_TRUE(GetTensor(old, "parameter")->equal(at::tensor({7.0, 8.0}, at::kFloat)));
  EXPECT_TRUE(old.Find("parameter")->is_parameter());
  EXPECT_TRUE(GetTensor(old, "parameter")->requires_grad());
  EXPECT_TRUE(GetTensor(old, "frozen")->equal(at::tensor({8.0}, at::kFloat)));
  EXPECT_FALSE(GetTensor(old, "frozen")->requires_grad());
}

TEST(Legacy, RefusesEveryTruncationAndWhatFollows) {
  const std::string path = testing::TempDir() + "/cut.pt";
  for (const char* name : {"legacy_old.pt", "legacy_p4.pt"}) {
    const std::string whole = ReadFile(Golden(name));
    for (size_t size = 0; size < whole.size(); ++size) {
      WriteFile(path, whole.substr(0, size));
      const absl::Status status = Load(path).status();
      EXPECT_FALSE(status.ok()) << name << ", " << size;
      EXPECT_THAT(std::string(status.message()), StartsWith(path + ": "));
    }
    WriteFile(path, whole + "x");
    EXPECT_THAT(std::string(Load(path).status().message()), HasSubstr("1 bytes follow the last storage"));
  }
}

// The indices of legacy_objects.pt's sparse tensors have no checksum.
TEST(Legacy, IndicesThatLeadOutOfASparseTensorAreRefused) {
  const std::string path = testing::TempDir() + "/indices.pt", whole = ReadFile(Golden("legacy_objects.pt"));
  const int64_t indices[] = {0, 1, 2, 2, 0, 1};
  const std::string bytes(reinterpret_cast<const char*>(indices), sizeof(indices));
  const size_t at = whole.find(bytes);
  ASSERT_NE(at, std::string::npos);
  ASSERT_EQ(whole.find(bytes, at + 1), std::string::npos);
  std::string changed = whole;
  changed[at + 2 * sizeof(int64_t)] = 3;
  WriteFile(path, changed);
  const absl::Status status = LoadEntry(path, "coo").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()), HasSubstr("[\"coo\"]: "));
  EXPECT_EQ(LoadEntry(path, "csr").status(), absl::OkStatus());
  for (size_t byte = whole.size() / 2; byte < whole.size(); byte += 13) {
    changed = whole;
    changed[byte] ^= 1 << byte % 8;
    Deserialize(changed).status().IgnoreError();  // it reads no memory outside
  }
}

// The contents of an element have no checksum, and neither have names.
TEST(Legacy, AFlippedBitIsRefusedOrChangesNoShape) {
  const std::string whole = ReadFile(Golden("legacy_p4.pt"));
  const size_t data = whole.size() - 4 * sizeof(int64_t), length = data - sizeof(int64_t);
  for (size_t bit = 0; bit < 8 * data; ++bit) {
    std::string flipped = whole;
    flipped[bit / 8] ^= 1 << bit % 8;
    const auto value = Deserialize(flipped);
    if (bit >= 8 * length) {
      EXPECT_THAT(std::string(value.status().message()), HasSubstr("expected the length 4")) << bit;
    }
    if (!value.ok() || !value->is_dict() || value->size() != 1 || !value->entries()[0].second.is_tensor()) continue;
    EXPECT_LE(value->entries()[0].second.tensor().numel(), 32 / value->entries()[0].second.tensor().element_size());
  }
}

}  // namespace
}  // namespace lockstep::checkpoint
