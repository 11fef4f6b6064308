// Runs the inspect binary on files that Python wrote (testdata/make_golden.py).

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <stdlib.h>
#include <sys/wait.h>

#include <fstream>
#include <limits>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/checkpoint/safetensors/safetensors.h"

namespace lockstep::checkpoint {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;
using ::testing::StartsWith;

constexpr char kTestdata[] = "checkpoint/testdata";

std::string TestFile(const std::string& name) { return testing::TempDir() + "/" + name; }

std::string Contents(const std::string& path) {
  std::ostringstream contents;
  contents << std::ifstream(path, std::ios::binary).rdbuf();
  return contents.str();
}

struct Outcome {
  int exit_code;
  std::string out;
  std::string err;
};

// `arguments` in the shell's syntax; $T/ is the folder testdata.
Outcome Inspect(const std::string& arguments) {
  const std::string out = TestFile("out"), err = TestFile("err");
  const std::string command =
      "T=" + std::string(kTestdata) + "; " + getenv("INSPECT") + " " + arguments + " > " + out + " 2> " + err;
  const int status = system(command.c_str());
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, Contents(out), Contents(err)};
}

void SaveBoth(const Value& a, const Value& b) {
  ASSERT_TRUE(Save(TestFile("a.pt"), a, {.sync = false}).ok());
  ASSERT_TRUE(Save(TestFile("b.pt"), b, {.sync = false}).ok());
}

Outcome Diff() { return Inspect("diff " + TestFile("a.pt") + " " + TestFile("b.pt")); }

TEST(InspectList, ShowsTensorsAndMetadataOfSafetensors) {
  const Outcome outcome = Inspect("list $T/state_dict.safetensors");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(outcome.out, R"(1.num_batches_tracked  int64    []       8  cpu
0.bias                 float32  [3]     12  cpu
0.weight               float32  [3, 2]  24  cpu
1.bias                 float32  [3]     12  cpu
1.running_mean         float32  [3]     12  cpu
1.running_var          float32  [3]     12  cpu
1.weight               float32  [3]     12  cpu
metadata format = pt
7 tensors with 92 bytes, in 7 storages of 92 bytes; 0 other values
)");
}

// Compared with Python: hashlib.sha256(b"float32 [3]\n" + tensor.numpy().tobytes()).hexdigest()
TEST(InspectDigest, IsTheSha256OfDtypeShapeAndElements) {
  Value value = Value::Dict();
  value.Set("b", Value(at::arange(3, at::kFloat)));
  value.Set("a", Value(at::ones({2, 2}, at::kInt).t()));
  value.Set("epoch", Value(int64_t{3}));
  ASSERT_TRUE(Save(TestFile("a.pt"), value, {.sync = false}).ok());
  const Outcome outcome = Inspect("digest " + TestFile("a.pt"));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(outcome.out, R"(496fda1c2d1ad2ca471393d92fe28cf28dc7648be5d4840ecb4439fef4fd35d6  a
38692c30146fbd1b2f8332fa832af001106b4497aae00755852f338e4b10cad8  b
e6f6607a75bbbecb5be238e15079e3dc962a2de255a9dffb37765fe195baad20  all tensors
)");
  EXPECT_EQ(Inspect("digest " + TestFile("a.pt") + " --key=b").out.substr(0, 66),
            "38692c30146fbd1b2f8332fa832af001106b4497aae00755852f338e4b10cad8  ");
}

TEST(InspectDigest, CountsNothingElseOfTheFile) {
  Value a = Value::Dict(), b = Value::Dict();
  const at::Tensor base = at::arange(12.0);
  a.Set("x", Value(base.slice(0, 2, 8)));
  a.Set("y", Value(at::ones({2})));
  b.Set("y", Value(at::ones({2})));
  b.Set("x", Value(base.slice(0, 2, 8).clone()));
  b.Set("note", Value("another"));
  SaveBoth(a, b);
  const std::string digest = Inspect("digest " + TestFile("a.pt")).out;
  EXPECT_EQ(Inspect("digest " + TestFile("b.pt")).out, digest);
  b.Set("y", Value(at::ones({2, 1})));
  SaveBoth(a, b);
  EXPECT_NE(Inspect("digest " + TestFile("b.pt")).out, digest) << "another shape";
}

TEST(InspectList, ShowsTheDeviceThatATensorWasSavedOn) {
  EXPECT_EQ(Inspect("list $T/cuda.pt").out, R"(model.weight  float32  [3]  12  cuda:0
1 tensors with 12 bytes, in 1 storages of 12 bytes; 0 other values
)");
}

TEST(InspectList, ShowsOtherValuesInShort) {
  EXPECT_EQ(Inspect("list $T/protocol4.pt").out, R"(a.0  int 1
a.1  float 2.5
a.2  bytes, 1
a.3  str "x"
t    int64  [3]  24  cpu
1 tensors with 24 bytes, in 1 storages of 24 bytes; 4 other values
)");
}

TEST(InspectList, CountsSharedMemoryOnce) {
  EXPECT_THAT(Inspect("list $T/views.pt").out, HasSubstr("\n11 tensors with 296 bytes, in 5 storages of 80 bytes; 0"));
}

TEST(InspectVerify, TakesMoreThanAMillionValues) {
  ASSERT_TRUE(Save(TestFile("a.pt"), Value::List(std::vector<Value>(1000001, 7)), {.sync = false}).ok());
  const Outcome outcome = Inspect("verify " + TestFile("a.pt"));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("; 1000001 other values"));
}

TEST(InspectVerify, BoundsWhatASmallFileUnfoldsTo) {
  Value shared = Value::List({1});
  for (int i = 0; i < 21; ++i) shared = Value::List({shared, shared});
  ASSERT_TRUE(Save(TestFile("a.pt"), shared, {.sync = false}).ok());
  EXPECT_THAT(Inspect("verify " + TestFile("a.pt")).err,
              HasSubstr("more than 1000000 values in containers that stand in several places"));
  const Value named = Value::Dict({{std::string(1 << 20, 'k'), Value::List(std::vector<Value>(300, 7))}});
  ASSERT_TRUE(Save(TestFile("a.pt"), named, {.sync = false}).ok());
  EXPECT_THAT(Inspect("verify " + TestFile("a.pt")).err, HasSubstr("the names of its values take more than 256 MiB"));
}

TEST(InspectList, TakesAKey) {
  EXPECT_EQ(Inspect("list --key=model $T/cuda.pt").out, R"(weight  float32  [3]  12  cuda:0
1 tensors with 12 bytes, in 1 storages of 12 bytes; 0 other values
)");
  const Outcome wrong = Inspect("list --key=model.bias $T/cuda.pt");
  EXPECT_EQ(wrong.exit_code, 1);
  EXPECT_EQ(wrong.err,
            "inspect: checkpoint/testdata/cuda.pt: [\"model\"][\"bias\"]: no such key; the dict has \"weight\"\n");
}

TEST(Inspect, TakesSparseAndQuantizedTensorsByTheirParts) {
  EXPECT_EQ(Inspect("list $T/sparse.pt").out, R"(s.sparse_coo  str "[2, 2]"
s.indices     int64    [2, 2]  32  cpu
s.values      float32  [2]      8  cpu
2 tensors with 40 bytes, in 2 storages of 40 bytes; 1 other values
)");
  EXPECT_THAT(Inspect("list $T/quantized.pt").out, HasSubstr("q.int_repr    int8  [2]  2  cpu"));
  for (const char* file : {"objects.pt", "legacy_objects.pt"}) {
    for (const char* command : {"list", "list --json", "verify", "digest"}) {
      EXPECT_EQ(Inspect(absl::StrCat(command, " $T/", file)).exit_code, 0) << command << " " << file;
    }
  }
  EXPECT_EQ(Inspect("diff $T/objects.pt $T/legacy_objects.pt").exit_code, 0);
}

TEST(InspectList, WithAKeyOtherPartsMayBeRefused) {
  EXPECT_EQ(Inspect("list --key=state_dict $T/refused.pt").out.substr(0, 22), "w  float32  [3]  12  c");
  const Outcome whole = Inspect("list $T/refused.pt");
  EXPECT_EQ(whole.exit_code, 1);
  EXPECT_THAT(whole.err, HasSubstr("[\"args\"]: an argparse.Namespace"));
}

TEST(InspectList, SpeaksJson) {
  EXPECT_EQ(Inspect("list --json $T/cuda.pt").out, R"({
 "tensors": [
  {
   "name": "model.weight",
   "dtype": "float32",
   "shape": [
    3
   ],
   "bytes": 12,
   "device": "cuda:0"
  }
 ],
 "values": [],
 "metadata": {}
}
)");
  EXPECT_THAT(Inspect("list --json $T/names.safetensors").out,
              HasSubstr("\"metadata\": {\n  \"na\u00efve\\n\": \"\U0001f600\"\n }"));
}

TEST(InspectVerify, SaysWhatIsSound) {
  const Outcome pt = Inspect("verify $T/state_dict.pt");
  EXPECT_EQ(pt.exit_code, 0);
  EXPECT_EQ(pt.out,
            "checkpoint/testdata/state_dict.pt: sound; 7 tensors with 92 bytes, in 7 storages of 92 bytes; 0 other "
            "values\n");
  EXPECT_THAT(Inspect("verify $T/none.safetensors").out,
              HasSubstr("its header is sound, and the format has no checksums; 0 tensors"));
}

TEST(InspectVerify, NamesTheRecordThatIsDamaged) {
  std::string bytes = Contents(std::string(kTestdata) + "/state_dict.pt");
  // The float32 elements 0, 1 of 0.weight.
  const size_t at = bytes.find(std::string("\0\0\0\0\0\0\x80\x3f", 8));
  ASSERT_NE(at, std::string::npos);
  bytes[at + 4] ^= 1;
  std::ofstream(TestFile("damaged.pt"), std::ios::binary) << bytes;
  const Outcome outcome = Inspect("verify " + TestFile("damaged.pt"));
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_EQ(outcome.out, "");
  EXPECT_THAT(outcome.err,
              HasSubstr("damaged.pt: [\"0.weight\"]: tensor: record \"state_dict/data/0\": its CRC-32 should be"));
}

TEST(InspectDiff, FormatsDoNotCount) {
  const Outcome outcome = Inspect("diff $T/state_dict.pt $T/state_dict.safetensors");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.out << outcome.err;
  EXPECT_EQ(outcome.out, "equal: 7 tensors with 92 bytes, in 7 storages of 92 bytes; 0 other values\n");
}

TEST(InspectDiff, AFileIsTheSameAsItself) {
  for (const char* name : {"nested.pt", "dtypes.pt"}) {
    EXPECT_THAT(Inspect(std::string("diff $T/") + name + " $T/" + name).out, StartsWith("equal: ")) << name;
  }
}

TEST(InspectDiff, NamesWhatIsMissingAndWhatIsDifferent) {
  const at::Tensor ones = at::ones({2, 3});
  SaveBoth(Value::Dict({{"shape", ones}, {"dtype", ones}, {"epoch", 3}, {"same", ones}, {"a", Value::List({1})}}),
           Value::Dict({{"same", ones}, {"shape", ones.t()}, {"dtype", ones.to(at::kHalf)}, {"epoch", 4}, {"b", 1.5}}));
  const Outcome outcome = Diff();
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_EQ(outcome.out, R"(shape: float32 [2, 3] / float32 [3, 2]
dtype: float32 [2, 3] / float16 [2, 3]
epoch: int 3 / int 4
a.0: only in the first
b: only in the second
)");
}

TEST(InspectDiff, CountsElementsAndMeasures) {
  const at::Tensor numbers = at::arange(10.0);
  const at::Tensor others = numbers.clone();
  others[3] += 0.25;
  others[7] -= 1.5;
  const at::Tensor nan = at::full({2}, std::numeric_limits<double>::quiet_NaN());
  SaveBoth(Value::Dict({{"w", numbers}, {"z", at::ones({2}, at::kComplexFloat)}, {"b", numbers > 4}, {"nan", nan}}),
           Value::Dict({{"w", others}, {"z", -at::ones({2}, at::kComplexFloat)}, {"b", numbers > 3}, {"nan", nan}}));
  EXPECT_EQ(Diff().out, R"(w: 2 of 10 elements differ, by 1.5 at most
z: 2 of 2 elements differ, by 2 at most
b: 1 of 10 elements differ, by 1 at most
)");
}

TEST(InspectDiff, TroubleIsTwo) {
  const Outcome outcome = Inspect("diff $T/none.pt $T/views.pt");
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_EQ(outcome.err, "inspect: checkpoint/testdata/none.pt: open: No such file or directory\n");
}

TEST(InspectConvert, JoinsNestedDictsWithDots) {
  const std::string to = TestFile("cuda.safetensors");
  ASSERT_EQ(Inspect("convert $T/cuda.pt " + to).exit_code, 0);
  const auto file = LoadSafetensors(to);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_TRUE(GetTensor(file->tensors, "model.weight")->equal(at::arange(3.0, at::kFloat)));
  EXPECT_THAT(file->metadata, ElementsAre(Pair("format", "pt")));
}

TEST(InspectConvert, GoesBothWays) {
  const std::string pt = TestFile("names.pt"), back = TestFile("names.safetensors");
  ASSERT_EQ(Inspect("convert $T/names.safetensors " + pt).exit_code, 0);
  ASSERT_EQ(Inspect("convert " + pt + " " + back).exit_code, 0);
  EXPECT_EQ(Inspect("diff " + back + " $T/names.safetensors").exit_code, 0);
}

TEST(InspectConvert, PythonsBytesComeOut) {
  const std::string to = TestFile("state_dict.safetensors");
  ASSERT_EQ(Inspect("convert $T/state_dict.pt " + to).exit_code, 0);
  EXPECT_EQ(Contents(to), Contents(std::string(kTestdata) + "/state_dict.safetensors"));
}

TEST(InspectConvert, SaysWhatDoesNotFit) {
  const std::string to = TestFile("refused.safetensors");
  const auto why = [&](const char* name) {
    const Outcome outcome = Inspect(std::string("convert $T/") + name + " " + to);
    EXPECT_EQ(outcome.exit_code, 1);
    EXPECT_FALSE(std::ifstream(to).good());
    return outcome.err;
  };
  EXPECT_EQ(why("protocol4.pt"), "inspect: " + to +
                                     ": [\"a\"]: expected Tensor, found list; a safetensors file holds a flat dict of "
                                     "tensors (--key chooses a part of the file)\n");
  EXPECT_THAT(why("views.pt"), HasSubstr("share memory, which the format cannot express"));
}

TEST(InspectConvert, AnEmptyMapOfMetadataStays) {
  const std::string to = TestFile("empty_metadata.safetensors");
  ASSERT_EQ(Inspect("convert $T/empty_metadata.safetensors " + to).exit_code, 0);
  EXPECT_EQ(Contents(to), Contents(std::string(kTestdata) + "/empty_metadata.safetensors"));
}

TEST(Inspect, ExplainsItselfAndItsMistakes) {
  for (const char* help : {"--help", "-h"}) {
    const Outcome outcome = Inspect(help);
    EXPECT_EQ(outcome.exit_code, 0);
    EXPECT_EQ(outcome.err, "");
    EXPECT_THAT(outcome.out, HasSubstr("inspect diff A B"));
  }
  for (const auto& [line, what] : std::vector<std::pair<std::string, std::string>>{
           {"", "expected one of list, verify, digest, diff, convert; --help shows how"},
           {"diff a", "expected diff A B, found 1 files; --help shows how"},
           {"verfy a", "unknown command \"verfy\"; did you mean verify? --help shows how"},
           {"a.pt", "unknown command \"a.pt\"; expected one of list, verify, digest, diff, convert; --help shows how"},
           {"list --jsn a", "unknown flag --jsn; did you mean --json? --help lists the flags"}}) {
    const Outcome outcome = Inspect(line);
    EXPECT_EQ(outcome.exit_code, 2) << line;
    EXPECT_EQ(outcome.err, "inspect: " + what + "\n");
  }
}

}  // namespace
}  // namespace lockstep::checkpoint
