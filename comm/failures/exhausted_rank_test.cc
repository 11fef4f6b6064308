// A rank that runs out of file descriptors or threads while InitProcessGroup() makes the backend.

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "lockstep/base/testing/few_descriptors.h"
#include "lockstep/base/testing/thread_budget.h"
#include "lockstep/comm/backend.h"
#include "lockstep/comm/failures/backends.h"
#include "lockstep/comm/testing/rank_processes.h"

namespace lockstep::comm {
namespace {

using ::lockstep::testing::FewDescriptors;
using ::lockstep::testing::ThreadBudget;
using testing::Process;
using testing::RankProcesses;
using testing::SayStatus;

constexpr int kSize = 3;

// Takes a rank's descriptors or threads while its backend is made. The ranks' processes are forked with it.
struct Hindrance {
  int culprit = 0;
  std::function<std::shared_ptr<void>()> begin;
};
Hindrance& TheHindrance() {
  static auto* const hindrance = new Hindrance();
  return *hindrance;
}

std::string Hindered(const std::string& backend) { return absl::StrCat(backend, "_hindered"); }
constexpr char kLazyGloo[] = "lazy_gloo_hindered";

absl::StatusOr<c10::intrusive_ptr<c10d::Backend>> CreateHindered(const BackendContext& context,
                                                                 const std::string& backend) {
  const auto real = FindBackend(backend);
  const std::shared_ptr<void> hindrance =
      context.rank == TheHindrance().culprit ? TheHindrance().begin() : std::shared_ptr<void>();
  return real->create(context);
}

bool Register(const std::string& name,
              std::function<absl::StatusOr<c10::intrusive_ptr<c10d::Backend>>(const BackendContext&)> create) {
  BackendInfo info;
  info.name = name;
  info.devices = {c10::DeviceType::CPU};
  info.preference = -1;
  info.create = std::move(create);
  return RegisterBackend(std::move(info));
}

[[maybe_unused]] const bool registered = [] {
  for (const std::string& backend : BackendsUnderTest()) {
    Register(Hindered(backend), [backend](const BackendContext& context) { return CreateHindered(context, backend); });
  }
  return Register(kLazyGloo, [](BackendContext context) {
    context.connect_lazily = true;
    return CreateHindered(context, "gloo");
  });
}();

// How many ranks have a group that works. The others say so within 5 s, with `text` and the culprit's name. Every
// process ends by returning from main. Nothing where a rank said nothing.
std::optional<int> CountMade(RankProcesses& ranks, int culprit, const std::string& text) {
  int made = 0;
  for (int rank = 0; rank < ranks.size(); ++rank) {
    const auto making = ranks[rank].AwaitLine("making"), status = ranks.AwaitStatus(rank);
    if (!making || !status) {
      ADD_FAILURE() << "rank " << rank << " said nothing";
      return std::nullopt;
    }
    EXPECT_LT(status->time - making->time, absl::Seconds(5)) << "rank " << rank << ": " << status->text;
    EXPECT_EQ(ranks[rank].Wait(), 0) << "rank " << rank << " after: " << status->text;
    if (status->text == "OK") {
      ++made;
      continue;
    }
    EXPECT_TRUE(absl::StrContains(status->text, text)) << "rank " << rank << ": " << status->text;
    if (rank == culprit) continue;
    EXPECT_TRUE(absl::StrContains(status->text, ranks.name(culprit))) << "rank " << rank << ": " << status->text;
  }
  return made;
}

class ExhaustedRank : public FailureTest {
 protected:
  // Returns whether the group is made and works. If not, all ranks say so soon, with `text` and the culprit's name.
  static bool Make(int culprit, const std::string& text, const std::function<std::shared_ptr<void>()>& hinder,
                   const std::string& backend = Hindered(GetParam())) {
    TheHindrance() = {culprit, hinder};
    InitOptions options = Options(absl::Seconds(60));
    options.backend = backend;
    Ranks ranks(kSize, options, [](const InitOptions& options, const Process::Say& say) {
      say("making");
      const auto group = InitProcessGroup(options);
      // A rank may have its group when another one fails.
      SayStatus(say, group.ok() ? (*group)->Barrier() : group.status());
      return 0;
    });
    const std::optional<int> made = CountMade(ranks, culprit, text);
    EXPECT_TRUE(made == 0 || made == kSize) << made.value_or(-1) << " ranks have a group";
    return made.value_or(0) > 0;
  }
};
INSTANTIATE_TEST_SUITE_P(Backends, ExhaustedRank, ::testing::ValuesIn(BackendsUnderTest()),
                         [](const auto& param) { return param.param; });

TEST_P(ExhaustedRank, WithoutDescriptorsIsNamedAtOnceByAll) {
  for (const int culprit : {0, 2}) {
    for (const int free : {0, 3, 8, 30}) {
      if (Make(culprit, "Too many open files", [&] { return std::make_shared<FewDescriptors>(free); })) break;
      EXPECT_LT(free, 30);
      if (HasFailure()) break;
    }
  }
}

TEST_P(ExhaustedRank, WithoutThreadsIsNamedAtOnceByAll) {
  for (const int culprit : {0, 2}) {
    for (const int given : {0, 2, 30}) {
      if (Make(culprit, "Resource temporarily unavailable", [&] { return std::make_shared<ThreadBudget>(given); })) {
        break;
      }
      EXPECT_LT(given, 30);
      if (HasFailure()) break;
    }
  }
}

class ExhaustedRankOverGloo : public ExhaustedRank {};
INSTANTIATE_TEST_SUITE_P(Backends, ExhaustedRankOverGloo, ::testing::Values("gloo"),
                         [](const auto& param) { return param.param; });

TEST_P(ExhaustedRankOverGloo, NeedsADescriptorForEachRankUnlessItConnectsLazily) {
  const auto few = [] { return std::make_shared<FewDescriptors>(9); };
  EXPECT_FALSE(Make(2, "opening 11 descriptors, of which 9 are free: Too many open files", few));
  EXPECT_TRUE(Make(2, "", few, kLazyGloo));
}

}  // namespace
}  // namespace lockstep::comm
