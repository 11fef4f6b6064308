#include "lockstep/comm/backend.h"

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/comm/internal/choice_text.h"

namespace lockstep::comm {
namespace {

using ::testing::ElementsAre;

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

std::string Chosen(const BackendCandidates& candidates, const UnavailableBackends& unavailable) {
  const auto choices = ChooseBackends(candidates, unavailable, World());
  return choices.ok() ? choices->at(c10::DeviceType::CPU).backend.name : std::string(choices.status().message());
}

TEST(ChooseBackends, AutoTakesTheFirstThatEveryRankHasAndThatIsUsable) {
  EXPECT_EQ(Chosen(Candidates(true, {Info("fast"), Info("slow")}), {}), "fast");
  EXPECT_EQ(Chosen(Candidates(true, {Info("fast", kSeveralHosts), Info("slow")}), {}), "slow");
  EXPECT_EQ(Chosen(Candidates(true, {Info("fast"), Info("slow")}), {{"fast", "rank 1 has not linked it"}}), "slow");
}

TEST(ChooseBackends, SaysWhatWasPassedOverAndWhatWasNotAsked) {
  const auto choices = ChooseBackends(
      Candidates(true, {Info("faster"), Info("fast", kSeveralHosts), Info("slow"), Info("slower", kSeveralHosts)}),
      {{"faster", "rank 1 has not linked it"}}, World());
  ASSERT_TRUE(choices.ok()) << choices.status();
  const BackendChoice& choice = choices->at(c10::DeviceType::CPU);
  ASSERT_EQ(choice.passed_over.size(), 2);
  EXPECT_EQ(choice.passed_over[0].name, "faster");
  EXPECT_EQ(choice.passed_over[0].reason, "rank 1 has not linked it");
  EXPECT_EQ(choice.passed_over[1].name, "fast");
  EXPECT_EQ(choice.passed_over[1].reason, "the ranks are on several hosts");
  EXPECT_THAT(choice.less_preferred, ElementsAre("slower"));
}

TEST(ChooseBackends, ABackendThatWasNamedMustBeUsable) {
  EXPECT_EQ(Chosen(Candidates(false, {Info("fast", kSeveralHosts)}), {}),
            "backend \"fast\" cannot serve group \"world\": the ranks are on several hosts");
  EXPECT_EQ(Chosen(Candidates(false, {Info("fast")}), {{"fast", "rank 1 has not linked it"}}),
            "backend \"fast\" cannot serve group \"world\": rank 1 has not linked it");
}

TEST(ChooseBackends, ListsEachReasonWhereNoneIsLeft) {
  const std::string message =
      Chosen(Candidates(true, {Info("fast", kSeveralHosts), Info("slow")}), {{"slow", "rank 1 has not linked it"}});
  EXPECT_EQ(
      message,
      "backend \"fast\" cannot serve group \"world\": the ranks are on several hosts; backend \"slow\" cannot serve "
      "group \"world\": rank 1 has not linked it");
}

// ---- How a choice is told.

// A group with so many ranks on each host.
BackendContext Ranks(const std::vector<int>& ranks_of_host) {
  BackendContext context = World();
  for (size_t host = 0; host < ranks_of_host.size(); ++host) {
    for (int i = 0; i < ranks_of_host[host]; ++i) {
      RankIdentity rank;
      rank.rank = static_cast<int>(context.ranks.size());
      rank.boot_id = rank.network_namespace = absl::StrCat("host ", host);
      context.ranks.push_back(rank);
    }
  }
  context.size = static_cast<int>(context.ranks.size());
  return context;
}

std::string Told(const std::vector<BackendInfo>& of_cpu, const UnavailableBackends& unavailable,
                 const BackendContext& context, bool is_auto = true) {
  const auto choices = ChooseBackends(Candidates(is_auto, of_cpu), unavailable, context);
  return choices.ok() ? internal::ChoiceText(*choices, is_auto, context) : std::string(choices.status().message());
}

TEST(ChoiceText, SaysWhyOthersWereNotTaken) {
  const absl::Status several = absl::FailedPreconditionError("hierarchical is for ranks on several hosts");
  EXPECT_EQ(Told({Info("hierarchical", several), Info("shm"), Info("gloo")}, {}, Ranks({2})),
            "rank 0 of 2: group \"world\" over cpu:shm (all ranks on one host; hierarchical is for ranks on several "
            "hosts; also linked: gloo)");
  EXPECT_EQ(Told({Info("shm"), Info("gloo")}, {{"shm", "rank 1 has not linked it"}}, Ranks({2})),
            "rank 0 of 2: group \"world\" over cpu:gloo (all ranks on one host; shm: rank 1 has not linked it)");
}

TEST(ChoiceText, NamesTheTargetWhereTheProgramHasNotLinkedTheFasterBackend) {
  EXPECT_EQ(
      Told({Info("gloo")}, {}, Ranks({2})),
      "rank 0 of 2: group \"world\" over cpu:gloo (all ranks on one host; shm is faster but not linked: depend on "
      "@lockstep//comm:cpu_backends, or lockstep::comm_cpu in CMake)");
  EXPECT_EQ(Told({Info("shm", kSeveralHosts), Info("gloo")}, {}, Ranks({2, 1})),
            "rank 0 of 3: group \"world\" over cpu:gloo (3 ranks on 2 hosts; shm: the ranks are on several hosts; "
            "hierarchical is faster but not linked: depend on @lockstep//comm:cpu_backends, or "
            "lockstep::comm_cpu in CMake)");
}

TEST(ChoiceText, HasNoAdviceWhereThereIsNothingFaster) {
  EXPECT_EQ(Told({Info("gloo")}, {}, Ranks({1, 1})),
            "rank 0 of 2: group \"world\" over cpu:gloo (each rank on another host)");
  EXPECT_EQ(Told({Info("gloo")}, {}, Ranks({2}), /*is_auto=*/false),
            "rank 0 of 2: group \"world\" over cpu:gloo, as the program asks");
}

TEST(ChoiceText, SaysThatARankIsPython) {
  BackendContext context = World();  // whose ranks are not known then
  context.size = 2;
  EXPECT_EQ(Told({Info("shm"), Info("gloo")}, {{"shm", "a rank runs Python PyTorch"}}, context),
            "rank 0 of 2: group \"world\" over cpu:gloo (shm: a rank runs Python PyTorch)");
}

TEST(ParseBackendSpec, SaysThatNoneIsLinked) {
  EXPECT_EQ(ParseBackendSpec("auto").status(),
            absl::NotFoundError("backend \"auto\" is not linked into this program; linked: none (depend on "
                                "@lockstep//comm:cpu_backends, or lockstep::comm_cpu in CMake)"));
}

}  // namespace
}  // namespace lockstep::comm
