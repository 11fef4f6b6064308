#include "lockstep/comm/backend.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep::comm {
namespace {

using ::testing::HasSubstr;

BackendInfo Info(const std::string& name, absl::Status usable = absl::OkStatus()) {
  return {name, {c10::DeviceType::CPU}, 0, [usable](const BackendContext&) { return usable; }, nullptr};
}

BackendCandidates Candidates(bool is_auto, std::vector<BackendInfo> of_cpu) {
  BackendCandidates candidates;
  candidates.is_auto = is_auto;
  candidates.by_device[c10::DeviceType::CPU] = std::move(of_cpu);
  return candidates;
}

BackendContext World() {
  BackendContext context;
  context.group = "world";
  return context;
}

const absl::Status kSeveralHosts = absl::FailedPreconditionError("the ranks are on several hosts");

std::string Chosen(const BackendCandidates& candidates, const std::vector<std::string>& linked) {
  const auto selection = ChooseBackends(candidates, linked, World());
  return selection.ok() ? selection->at(c10::DeviceType::CPU).name : std::string(selection.status().message());
}

TEST(ChooseBackends, AutoTakesTheFirstThatEveryRankHasAndThatIsUsable) {
  const std::vector<std::string> linked = {"fast", "slow"};
  EXPECT_EQ(Chosen(Candidates(true, {Info("fast"), Info("slow")}), linked), "fast");
  EXPECT_EQ(Chosen(Candidates(true, {Info("fast", kSeveralHosts), Info("slow")}), linked), "slow");
  EXPECT_EQ(Chosen(Candidates(true, {Info("fast"), Info("slow")}), {"slow"}), "slow");
}

TEST(ChooseBackends, ABackendThatWasNamedMustBeUsable) {
  EXPECT_EQ(Chosen(Candidates(false, {Info("fast", kSeveralHosts)}), {"fast"}),
            "backend \"fast\" cannot serve group \"world\": the ranks are on several hosts");
  EXPECT_EQ(Chosen(Candidates(false, {Info("fast")}), {"slow"}),
            "backend \"fast\" cannot serve group \"world\": not every rank has it linked");
}

TEST(ChooseBackends, ListsEachReasonWhereNoneIsLeft) {
  const std::string message = Chosen(Candidates(true, {Info("fast", kSeveralHosts), Info("slow")}), {"fast"});
  EXPECT_THAT(message,
              HasSubstr("\"fast\" cannot serve group \"world\": the ranks are on several hosts; backend \"slow\""));
}

TEST(FindBackends, SaysThatNoneIsLinked) {
  EXPECT_EQ(FindBackends("auto").status(),
            absl::NotFoundError("backend \"auto\" is not linked into this program; linked: none (depend on "
                                "@lockstep//comm/gloo, for one)"));
}

}  // namespace
}  // namespace lockstep::comm
