#include "lockstep/comm/testing/backend_conformance.h"

#include <algorithm>

#include "lockstep/comm/testing/init_ranks.h"

namespace lockstep::comm::testing {

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(BackendConformance);

void BackendConformance::OnRanks(int ranks, const std::function<void(ProcessGroup& group)>& body) const {
  if (ranks > GetParam().max_ranks) return;
  InitOptions options;
  options.backend = GetParam().backend;
  options.timeout = absl::Seconds(60);
  const std::vector<absl::Status> results = InitRanks(options, ranks, [&](ProcessGroup& group) {
    body(group);
    return absl::OkStatus();
  });
  for (int rank = 0; rank < ranks; ++rank) EXPECT_EQ(results[rank], absl::OkStatus()) << "rank " << rank;
}

void BackendConformance::ForEachSize(const std::function<void(ProcessGroup& group)>& body) const {
  for (int ranks = 1; ranks <= GetParam().max_ranks; ++ranks) OnRanks(ranks, body);
}

}  // namespace lockstep::comm::testing
