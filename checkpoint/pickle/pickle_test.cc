#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/checkpoint/pickle/reader.h"
#include "lockstep/checkpoint/pickle/writer.h"

namespace lockstep::checkpoint::pickle {
namespace {

using ::testing::HasSubstr;

constexpr size_t kLimit = 64 << 20;

std::string Message(absl::string_view pickle, size_t limit = kLimit) {
  return std::string(ReadPickle(pickle, limit).status().message());
}

void WriteStorage(PickleWriter& pickle) {
  pickle.Mark();
  pickle.String("storage");
  pickle.Global("torch", "FloatStorage");
  pickle.String("0");
  pickle.String("cpu");
  pickle.Int(4);
  pickle.Tuple();
  pickle.PersistentId();
}

void WriteTensor(PickleWriter& pickle) {
  pickle.Global("torch._utils", "_rebuild_tensor_v2");
  pickle.Mark();
  WriteStorage(pickle);
  pickle.Int(0);
  pickle.Int(2);
  pickle.Int(2);
  pickle.Tuple2();
  pickle.Int(2);
  pickle.Int(1);
  pickle.Tuple2();
  pickle.Bool(false);
  pickle.Global("collections", "OrderedDict");
  pickle.EmptyTuple();
  pickle.Reduce();
  pickle.Tuple();
  pickle.Reduce();
}

std::string OneOfEach() {
  PickleWriter pickle;
  pickle.EmptyDict();
  pickle.Mark();
  pickle.String("tensor");
  WriteTensor(pickle);
  pickle.String("bytes");
  pickle.Bytes(absl::string_view("\xff\0a", 3));
  pickle.String("list");
  pickle.EmptyList();
  pickle.Mark();
  for (const int64_t i : {int64_t{0}, int64_t{-1}, int64_t{255}, int64_t{256}, int64_t{65536}, INT64_MIN, INT64_MAX})
    pickle.Int(i);
  pickle.Double(0.1);
  pickle.None();
  pickle.String("list");
  pickle.Appends();
  pickle.SetItems();
  return std::move(pickle).Finish();
}

TEST(Pickle, ReadsWhatItWrote) {
  const std::string pickle = OneOfEach();
  const auto graph = ReadPickle(pickle, kLimit);
  ASSERT_TRUE(graph.ok()) << graph.status();
  ASSERT_EQ(graph->root.kind, PickleKind::kDict);
  const auto& entries = graph->dicts[graph->root.index].entries;
  ASSERT_EQ(entries.size(), 3);

  const PickleTensor& tensor = graph->tensors[entries[0].second.index];
  EXPECT_EQ(tensor.sizes, (std::vector<int64_t>{2, 2}));
  EXPECT_EQ(tensor.strides, (std::vector<int64_t>{2, 1}));
  EXPECT_EQ(graph->storages[tensor.storage].type, "FloatStorage");
  EXPECT_EQ(graph->storages[tensor.storage].location, "cpu");
  EXPECT_EQ(graph->storages[tensor.storage].count, 4);

  EXPECT_EQ(graph->strings[entries[1].second.index], absl::string_view("\xff\0a", 3));
  const auto& list = graph->sequences[entries[2].second.index];
  EXPECT_EQ(list[1].integer, -1);
  EXPECT_EQ(list[4].integer, 65536);
  EXPECT_EQ(list[5].integer, INT64_MIN);
  EXPECT_EQ(list[6].integer, INT64_MAX);
  EXPECT_EQ(list[7].real, 0.1);
  EXPECT_EQ(list[9].index, entries[2].first.index) << "one str object";
}

TEST(Pickle, ExecutesNothing) {
  EXPECT_EQ(Message("\x80\x02"
                    "cos\nsystem\nK\x01\x85R."),
            "the Python object os.system is not allowed in a checkpoint; save plain values: vars(x) of an object, "
            "dataclasses.asdict(x), x.value of an enum, tuple(x) of a namedtuple, state_dict() of a module");
  EXPECT_THAT(Message("\x80\x02"
                      "ctorch._utils\n_rebuild_qtensor\n."),
              HasSubstr("a quantized tensor (torch._utils._rebuild_qtensor) is not supported"));
  EXPECT_THAT(Message("\x80\x02i."), HasSubstr("opcode 0x69 is not allowed"));
  EXPECT_THAT(Message("\x80\x06."), HasSubstr("protocol 6"));
}

// The str that is the pickle's value.
std::string TextOf(const std::string& pickle) {
  const auto graph = ReadPickle(pickle, kLimit);
  EXPECT_TRUE(graph.ok()) << graph.status();
  if (!graph.ok() || graph->root.kind != PickleKind::kString) return "no str";
  return std::string(graph->strings[graph->root.index]);
}

TEST(Pickle, ReadsIntsOfAnySizeAsDigits) {
  EXPECT_EQ(TextOf(absl::StrCat("\x80\x02\x8a\x09", std::string(8, '\0'), "\x01.")), "18446744073709551616");
  EXPECT_EQ(TextOf(absl::StrCat("\x80\x02\x8a\x09", std::string(8, '\0'), "\xff.")), "-18446744073709551616");
  EXPECT_EQ(TextOf(absl::StrCat("\x80\x02\x8a\x0a", std::string(9, '\xff'), "\x7f.")), "604462909807314587353087");
  EXPECT_EQ(TextOf(absl::StrCat("\x80\x02\x8b\x09", std::string(3, '\0'), std::string(9, '\0'), ".")), "0");
  EXPECT_THAT(Message(absl::StrCat("\x80\x02\x8b", std::string("\x01\x04\0\0", 4), std::string(1025, '\1'), ".")),
              HasSubstr("an int of more than 8192 bits is not supported"));
}

// The error of {"a": [<value>]}, where `value` is the opcodes of an object.
std::string WhyNotInside(absl::string_view value) {
  return Message(
      absl::StrCat("\x80\x04}\x8c\x01"
                   "a]",
                   value, "as."));
}

TEST(Pickle, NamesThePathToWhatItRefusesAndWhatToSaveInstead) {
  const std::string date = "cdatetime\ndate\nC\x04\x07\xe4\x01\x01\x85R";
  for (const auto& [value, why] : std::vector<std::pair<std::string, std::string>>{
           {"cnumpy._core.multiarray\nscalar\ncnumpy\ndtype\n\x8c\x02"
            "f8\x89\x88\x87R(K\x03\x8c\x01<NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xfftbC\x01x\x86R",
            "[0]: a numpy scalar (numpy._core.multiarray.scalar) is not allowed in a checkpoint; save float(x) or "
            "int(x)"},
           {"cargparse\nNamespace\n)\x81}\x8c\x02lrK\x01sb",
            "[0]: an argparse.Namespace (argparse.Namespace) is not allowed in a checkpoint; save vars(args)"},
           {"ccollections\ndefaultdict\nc__builtin__\nlist\n\x85R\x8c\x01x]s",
            "[0]: a defaultdict (collections.defaultdict) is not allowed in a checkpoint; save dict(x)"},
           {"ccollections\ndeque\n)R(K\x01K\x02"
            "e",
            "[0]: a deque (collections.deque) is not allowed in a checkpoint; save list(x)"},
           {date, "[0]: a date or time (datetime.date) is not allowed in a checkpoint; save x.isoformat()"},
           {"]}" + date + "K\x01sa", "[0][0]: a key: a date or time"},
           {"})K\x01s", "[0]: a key: a dict key that is not a scalar is not supported; save str(key)"},
           {"c__main__\nNet\n)\x81}(\x8c\x08training\x88\x8c\x0b_parameters}ub",
            "[0]: the Python object __main__.Net is not allowed in a checkpoint; it is a whole module: save "
            "module.state_dict()"},
           {"ctorch.nn.modules.linear\nLinear\n)\x81}(\x8c\x0b_parameters}ub",
            "[0]: a whole module (torch.nn.modules.linear.Linear) is not allowed in a checkpoint; save "
            "model.state_dict()"},
           {"}(K\x01K\x02K\x03"
            "cbuiltins\nslice\n"
            "u",
            "[0][3]: a Python function or class"}}) {
    EXPECT_THAT(WhyNotInside(value), testing::StartsWith("[\"a\"]" + why)) << value;
  }
}

TEST(Pickle, RefusesWhatIsNotPartOfTheValueToo) {
  EXPECT_THAT(Message("\x80\x02]cos\nsystem\n0."), testing::StartsWith("byte 3: the Python object os.system"));
  EXPECT_THAT(Message("\x80\x02]cos\nsystem\na"), testing::StartsWith("byte 3: the Python object os.system"))
      << "a truncated pickle";
}

TEST(Pickle, KeepsWhatItRefusesIfThePartsAreAskedFor) {
  const std::string pickle =
      "\x80\x04}(\x8c\x01"
      "acos\nsystem\n\x8c\x01"
      "bK\x07"
      "u.";
  auto graph = ReadPickleParts(pickle, kLimit);
  ASSERT_TRUE(graph.ok()) << graph.status();
  EXPECT_THAT(std::string(CheckRefused(*graph).message()), testing::StartsWith("[\"a\"]: the Python object os.system"));
  graph->root = graph->dicts[graph->root.index].entries.at(1).second;
  EXPECT_EQ(CheckRefused(*graph), absl::OkStatus());
  EXPECT_EQ(graph->root.integer, 7);
  EXPECT_EQ(ReadPickleParts(pickle + "x", kLimit).status().code(), absl::StatusCode::kDataLoss);
}

TEST(Pickle, ReadsTheFirstOfSeveral) {
  const std::string pickle = OneOfEach();
  const auto first = ReadFirstPickle(pickle + "more", kLimit);
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ(first->size, pickle.size());
  EXPECT_EQ(ReadFirstPickle(pickle.substr(0, 20), kLimit).status().code(), absl::StatusCode::kOutOfRange);
}

TEST(Pickle, FindsWhatItRefusesInADeepPickle) {
  const int depth = 100000;
  EXPECT_THAT(Message("\x80\x02" + std::string(depth, ']') + "cos\nsystem\n" + std::string(depth, 'a') + "."),
              testing::ContainsRegex("^...(\\[0\\])+: the Python object os.system"));
}

// A dict whose key is an object with a state and whose value is the result of a call.
std::string Objects() {
  PickleWriter pickle;
  pickle.EmptyDict();
  pickle.Mark();
  pickle.Global("package.module", "Key");
  pickle.EmptyTuple();
  pickle.NewObject();
  pickle.EmptyDict();
  pickle.Mark();
  pickle.String("name");
  pickle.String("weight");
  pickle.SetItems();
  pickle.Build();
  pickle.Global("package.module", "make");
  pickle.Int(7);
  pickle.Tuple1();
  pickle.Reduce();
  pickle.SetItems();
  return std::move(pickle).Finish();
}

TEST(Pickle, DescribesObjectsOfTheClassesItIsGiven) {
  const std::string pickle = Objects();
  const auto graph = ReadPickle(pickle, kLimit, {{"package.module", "Key"}, {"package.module", "make"}});
  ASSERT_TRUE(graph.ok()) << graph.status();
  const auto& [key, value] = graph->dicts[graph->root.index].entries.at(0);
  ASSERT_EQ(key.kind, PickleKind::kObject);
  EXPECT_EQ(graph->objects[key.index].name, "Key");
  const PickleDict& state = graph->dicts[graph->objects[key.index].state.index];
  EXPECT_EQ(graph->strings[state.entries.at(0).second.index], "weight");
  ASSERT_EQ(value.kind, PickleKind::kObject);
  EXPECT_EQ(graph->objects[value.index].module, "package.module");
  EXPECT_EQ(graph->sequences[graph->objects[value.index].arguments.index].at(0).integer, 7);
  EXPECT_EQ(graph->objects[value.index].state.kind, PickleKind::kNone);
}

TEST(Pickle, MakesNoObjectsOtherwise) {
  EXPECT_THAT(Message(Objects()), HasSubstr("the Python object package.module.Key is not allowed"));
  EXPECT_THAT(std::string(ReadPickle(Objects(), kLimit, {{"package.module", "Key"}}).status().message()),
              HasSubstr("the Python object package.module.make is not allowed"));
  EXPECT_THAT(Message("\x80\x02"
                      "ctorch\nSize\n)\x81."),
              HasSubstr("an object whose class is not a class"));
  EXPECT_THAT(Message("\x80\x02"
                      "}}b."),
              HasSubstr("attributes are allowed on an OrderedDict only"));
}

TEST(Pickle, BoundsMemory) {
  std::string pickle = "\x80\x02]";
  for (int i = 0; i < 100000; ++i) pickle += "Na";
  pickle += ".";
  EXPECT_TRUE(ReadPickle(pickle, kLimit).ok());
  EXPECT_THAT(Message(pickle, 1 << 20), HasSubstr("needs more memory than LoadOptions::memory_limit allows"));
  EXPECT_THAT(Message("\x80\x02]r\xff\xff\xff\xff."), HasSubstr("memo number is out of range"));
  EXPECT_THAT(Message("\x80\x02X\xff\xff\xff\xff"), HasSubstr("ends in the middle"));
  EXPECT_THAT(Message(std::string("\x80\x02") + std::string(1 << 20, '('), 1 << 20), HasSubstr("memory_limit"));
}

TEST(Pickle, RefusesEveryTruncationAndSurvivesEveryByte) {
  const std::string pickle = OneOfEach();
  for (size_t size = 0; size < pickle.size(); ++size) EXPECT_FALSE(ReadPickle(pickle.substr(0, size), kLimit).ok());
  for (size_t at = 0; at < pickle.size(); ++at) {
    for (int byte = 0; byte < 256; ++byte) {
      std::string changed = pickle;
      changed[at] = static_cast<char>(byte);
      ReadPickle(changed, kLimit).IgnoreError();
    }
  }
}

TEST(Pickle, SurvivesRandomOpcodes) {
  std::mt19937 random(0);
  const std::string ops = "(.0JKMNQRTUXabcehjqrstu}])G\x80\x81\x85\x86\x87\x88\x89\x8a\x8c\x93\x94\x95";
  const std::string base = OneOfEach();
  for (int round = 0; round < 100000; ++round) {
    std::string pickle = base;
    for (int change = 0; change < 4; ++change) pickle[2 + random() % (pickle.size() - 2)] = ops[random() % ops.size()];
    ReadPickle(pickle, 1 << 20).IgnoreError();
  }
}

}  // namespace
}  // namespace lockstep::checkpoint::pickle
