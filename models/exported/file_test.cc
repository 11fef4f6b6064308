#include "lockstep/models/exported/file.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/checkpoint/state_dict.h"
#include "lockstep/checkpoint/testing/folder.h"
#include "lockstep/checkpoint/value.h"

namespace lockstep::models::exported {
namespace {

using checkpoint::testing::Folder;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr char kNet[] = "models/exported/testdata/net.pt2";
constexpr char kPrograms[] = "models/exported/testdata/programs.pt2";

std::string Path(const Folder& folder, const std::string& name = "net.pt2") { return folder.path() + "/" + name; }

TEST(File, SavedWeightsComeBack) {
  const Folder folder;
  const ExportedModule net = *Load(kNet);
  {
    const c10::NoGradGuard no_grad;
    for (at::Tensor& parameter : net->parameters()) parameter.mul_(1.5);
    for (at::Tensor& buffer : net->buffers()) buffer.add_(1);
  }
  ASSERT_TRUE(Save(Path(folder), net).ok());
  const absl::StatusOr<ExportedModule> again = Load(Path(folder));
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_TRUE(Identical(checkpoint::StateDict(**again), checkpoint::StateDict(*net)));
  EXPECT_TRUE((*again)->named_buffers()["scale"].equal(net->named_buffers()["scale"]));
  const torch::nn::Module& module = **again;  // which lists a tied parameter twice
  EXPECT_TRUE(module.named_parameters()["last.weight"].is_same(module.named_parameters()["tied.weight"]));
}

TEST(File, AnUnchangedProgramIsWrittenAgain) {
  const Folder folder;
  ASSERT_TRUE(Save(Path(folder), *Load(kNet)).ok());
  ASSERT_TRUE(Save(Path(folder, "again.pt2"), *Load(Path(folder))).ok());
  const std::string first = folder.Read("net.pt2"), second = folder.Read("again.pt2");
  EXPECT_THAT(folder.Names(), ElementsAre("again.pt2", "net.pt2"));
  EXPECT_NE(first, second);  // the names of the archives
  ASSERT_TRUE(Save(Path(folder), *Load(Path(folder, "again.pt2"))).ok());
  EXPECT_EQ(folder.Read("net.pt2"), first);
}

TEST(File, AProgramOf2_7IsWrittenInTodaysLayout) {
  const Folder folder;
  const ExportedModule net = *Load("models/exported/testdata/net_2.7.pt2");
  {
    const c10::NoGradGuard no_grad;
    for (at::Tensor& parameter : net->parameters()) parameter.mul_(1.5);
  }
  ASSERT_TRUE(Save(Path(folder), net).ok());
  for (const char* record : {"archive_format", "byteorder", ".data/version", "data/weights/model_weights_config.json"})
    EXPECT_THAT(folder.Read("net.pt2"), HasSubstr(std::string("net/") + record));
  const absl::StatusOr<ExportedModule> again = Load(Path(folder));
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_TRUE(Identical(checkpoint::StateDict(**again), checkpoint::StateDict(*net)));
  EXPECT_TRUE((*again)->named_buffers()["scale"].equal(net->named_buffers()["scale"]));
  EXPECT_EQ((*again)->parameters().size(), net->parameters().size());  // tied
}

TEST(File, ChoosesOneOfSeveralPrograms) {
  const absl::Status missing = Load(kPrograms).status();
  EXPECT_EQ(missing.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(missing.message(), HasSubstr("the file has no program \"model\"; its programs: train, eval"));
  LoadOptions options;
  options.program = "eval";
  const absl::StatusOr<ExportedModule> net = Load(kPrograms, options);
  ASSERT_TRUE(net.ok()) << net.status();
  EXPECT_FALSE((*net)->is_training());
  const Folder folder;
  ASSERT_TRUE(Save(Path(folder), *net).ok());
  EXPECT_TRUE(Load(Path(folder)).ok());  // it is the only one now
}

TEST(File, NamesFilesOfOtherKinds) {
  const Folder folder;
  const auto error = [&](const std::string& path) {
    const absl::Status status = Load(path).status();
    EXPECT_THAT(status.message(), StartsWith(path + ": "));
    return std::string(status.message());
  };
  EXPECT_THAT(error(Path(folder, "missing.pt2")), HasSubstr("No such file"));
  EXPECT_THAT(error("models/exported/testdata/net.pt"), HasSubstr("a file of torch.save, which has tensors but no"));
  folder.Write("text.pt2", "hello, this is a text and no archive, however long it may be");
  EXPECT_THAT(error(Path(folder, "text.pt2")), HasSubstr("text.pt2"));
  EXPECT_THAT(Save(Path(folder, "net.pt"), *Load(kNet)).message(), HasSubstr("the name must end in .pt2"));
}

TEST(File, FindsDamage) {
  const Folder folder;
  ASSERT_TRUE(Save(Path(folder), *Load(kNet)).ok());
  const std::string whole = folder.Read("net.pt2");
  const size_t weights = whole.find("weight_0") + 80;
  std::string flipped = whole;
  flipped[weights] = static_cast<char>(flipped[weights] ^ 1);
  folder.Write("flipped.pt2", flipped);
  EXPECT_EQ(Load(Path(folder, "flipped.pt2")).status().code(), absl::StatusCode::kDataLoss);
  folder.Write("cut.pt2", whole.substr(0, whole.size() / 2));
  EXPECT_EQ(Load(Path(folder, "cut.pt2")).status().code(), absl::StatusCode::kDataLoss);
}

TEST(File, RefusesToSaveOtherShapes) {
  const Folder folder;
  ExportedModule net = *Load(kNet);
  ASSERT_TRUE(Save(Path(folder), net).ok());
  const std::string before = folder.Read("net.pt2");
  net->to(at::kFloat);
  const absl::Status status = Save(Path(folder), net);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("\"last.weight\" has dtype Float"), HasSubstr("expects Double")));
  EXPECT_EQ(folder.Read("net.pt2"), before);
}

}  // namespace
}  // namespace lockstep::models::exported
