// Programs as values. models/exported/inspect_test.cc has larger ones, through the program.

#include "lockstep/checkpoint/inspect/programs.h"

#include <cstring>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/checkpoint/inspect/listing.h"

namespace lockstep::checkpoint::inspect {
namespace {

using ::testing::HasSubstr;

constexpr char kFile[] = "checkpoint/testdata/exported.pt2";

std::string Bytes() {
  const auto source = file::OpenFile(kFile);
  EXPECT_TRUE(source.ok()) << source.status();
  std::string bytes(source->size, '\0');
  EXPECT_TRUE(source->read(0, bytes.data(), bytes.size()).ok());
  return bytes;
}

file::ByteSource SourceOf(const std::string& bytes) {
  return {bytes.size(), [&bytes](uint64_t offset, void* to, size_t count) {
            memcpy(to, bytes.data() + offset, count);
            return absl::OkStatus();
          }};
}

TEST(Programs, HaveWeightsSignatureAndOperators) {
  const std::string bytes = Bytes();
  const absl::StatusOr<Value> programs = ReadPrograms(SourceOf(bytes));
  ASSERT_TRUE(programs.ok()) << programs.status();
  OpenedFile file;
  file.value = *programs;
  const absl::StatusOr<std::string> text = ListText(file);
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_EQ(*text, R"(model.state_dict.weight                        float32  [1, 1]  4  cpu
model.state_dict.bias                          float32  [1]     4  cpu
model.constants                                dict of 0
model.inputs.p_weight                          str "parameter weight"
model.inputs.p_bias                            str "parameter bias"
model.inputs.input                             str "float32 [1, 1]"
model.outputs.linear                           str "float32 [1, 1]"
model.sizes                                    dict of 0
model.operators.torch.ops.aten.linear.default  int 1
model.torch_version                            str "2.11.0+cu130"
model.schema_version                           str "8.17"
2 tensors with 8 bytes, in 2 storages of 8 bytes; 9 other values
)");
}

TEST(Programs, DamageIsFound) {
  const std::string bytes = Bytes();
  std::string flipped = bytes;
  const size_t inputs = flipped.find("PK", flipped.find("e/data/sample_inputs/model.pt"));  // an archive in the archive
  flipped[inputs + 600] = static_cast<char>(flipped[inputs + 600] ^ 1);
  const absl::Status status = ReadPrograms(SourceOf(flipped)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(status.message(), HasSubstr("sample_inputs/model.pt"));
  std::string cut = bytes.substr(0, bytes.size() - 100);
  EXPECT_EQ(ReadPrograms(SourceOf(cut)).status().code(), absl::StatusCode::kDataLoss);
}

}  // namespace
}  // namespace lockstep::checkpoint::inspect
