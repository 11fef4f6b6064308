// Programs in //checkpoint/inspect.

#include <stdlib.h>

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/checkpoint/testing/folder.h"
#include "lockstep/models/exported/file.h"

namespace lockstep::models::exported {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

struct Outcome {
  int exit_code = 0;
  std::string output;  // of both kinds
};

class Inspect : public ::testing::Test {
 protected:
  Outcome Run(const std::string& arguments) const {
    const std::string command = std::string(getenv("INSPECT")) + " " + arguments + " > " + Path("out") + " 2>&1";
    const int status = system(command.c_str());
    return {WEXITSTATUS(status), folder_.Read("out")};
  }

  std::string Path(const std::string& name) const { return folder_.path() + "/" + name; }

  checkpoint::testing::Folder folder_;
};

constexpr char kNet[] = "models/exported/testdata/net.pt2";
constexpr char kPrograms[] = "models/exported/testdata/programs.pt2";

TEST_F(Inspect, ListsSymbolicSizesBuffersAndOperators) {
  const Outcome listed = Run(std::string("list ") + kNet + " | tr -s ' '");
  EXPECT_EQ(listed.exit_code, 0);
  for (const char* line :
       {"model.state_dict.norm.running_mean float64 [5] 40 cpu\n", "model.constants.scale float64 [4] 32 cpu\n",
        "model.inputs.b_norm_running_mean str \"buffer norm.running_mean\"\n", "model.inputs.rows str \"float64 [s",
        ", 4]\"\n", " str \"3 to 100\"\n", "model.operators.torch.ops.aten.linear.default int 3\n",
        "model.torch_version str \"2.11.0"})
    EXPECT_THAT(listed.output, HasSubstr(line));
}

TEST_F(Inspect, CountsOperatorsInBodies) {
  const Outcome listed = Run("list models/exported/fuzz/small.pt2 | tr -s ' '");
  EXPECT_THAT(listed.output, AllOf(HasSubstr("model.operators.torch.ops.higher_order.cond int 1\n"),
                                   HasSubstr("model.operators.torch.ops.aten.sin.default int 1\n")));
}

TEST_F(Inspect, TellsProgramsOfOneFileApart) {
  const Outcome listed = Run(std::string("list ") + kPrograms);
  EXPECT_THAT(listed.output, AllOf(HasSubstr("train.state_dict.0.weight "), HasSubstr("eval.state_dict.0.weight ")));
}

TEST_F(Inspect, ComparesTwoFilesBitByBit) {
  const ExportedModule net = *Load(kNet);
  ASSERT_TRUE(Save(Path("same.pt2"), net).ok());
  EXPECT_EQ(Run(std::string("diff ") + kNet + " " + Path("same.pt2")).exit_code, 0);
  {
    const c10::NoGradGuard no_grad;
    net->parameters()[0][1][2].add_(0.5);
  }
  ASSERT_TRUE(Save(Path("changed.pt2"), net).ok());
  const Outcome changed = Run(std::string("diff ") + kNet + " " + Path("changed.pt2"));
  EXPECT_EQ(changed.exit_code, 1);
  EXPECT_EQ(changed.output,
            "model.state_dict.last.weight: 1 of 20 elements differ, by 0.5 at most\n"
            "model.state_dict.tied.weight: 1 of 20 elements differ, by 0.5 at most\n");
}

TEST_F(Inspect, VerifiesEveryRecord) {
  EXPECT_THAT(Run(std::string("verify ") + kNet).output, HasSubstr("net.pt2: sound; 12 tensors with "));
  ASSERT_TRUE(Save(Path("net.pt2"), *Load(kNet)).ok());
  std::string bytes = folder_.Read("net.pt2");
  const size_t weight = bytes.find("weight_0") + 80;
  bytes[weight] = static_cast<char>(bytes[weight] ^ 1);
  folder_.Write("net.pt2", bytes);
  const Outcome damaged = Run("verify " + Path("net.pt2"));
  EXPECT_EQ(damaged.exit_code, 1);
  EXPECT_THAT(damaged.output, AllOf(HasSubstr("net.pt2: "), HasSubstr("net/data/weights/weight_0")));
}

TEST_F(Inspect, ConvertsTheWeightsAndRefusesToMakeAProgram) {
  const std::string weights = Path("net.safetensors");
  const Outcome converted = Run(std::string("convert ") + kPrograms + " " + weights + " --key=train.state_dict");
  EXPECT_EQ(converted.exit_code, 0) << converted.output;
  EXPECT_THAT(Run("list " + weights).output, HasSubstr("0.weight  float32  [2, 2]"));
  const Outcome refused = Run("convert " + weights + " " + Path("again.pt2"));
  EXPECT_EQ(refused.exit_code, 1);
  EXPECT_THAT(refused.output, HasSubstr("again.pt2: only torch.export makes a program\n"));
}

}  // namespace
}  // namespace lockstep::models::exported
