#include "lockstep/examples/program/testing/same_bits.h"

#include <stdlib.h>

#include <memory>
#include <optional>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "lockstep/comm/testing/network_hosts.h"
#include "lockstep/examples/program/testing/program.h"

namespace lockstep::examples::testing {

std::string DigestOf(const std::string& path) {
  int code;
  const std::string output = RunProgram({getenv("INSPECT"), "digest", path}, &code);
  const std::string label = "  all tensors\n";
  constexpr size_t kDigits = 64;  // of a SHA-256
  const size_t end = output.size() - label.size();
  if (code != 0 || output.size() < kDigits + label.size() || output.substr(end) != label) {
    ADD_FAILURE() << path << ": " << output;
    return "";
  }
  return output.substr(end - kDigits, kDigits);
}

std::string RunOnTwoHosts(int ranks, const std::vector<std::string>& command, int* code) {
  *code = -1;
  const auto hosts = comm::testing::NetworkHosts::Create(2);
  if (!hosts.ok()) {
    ADD_FAILURE() << hosts.status();
    return "";
  }
  std::optional<Program> programs[2];
  for (int host = 0; host < 2; ++host) {
    std::vector<std::string> launch = {getenv("LAUNCH"),
                                       absl::StrCat("--nproc_per_node=", ranks),
                                       "--nnodes=2",
                                       absl::StrCat("--node_rank=", host),
                                       absl::StrCat("--master_addr=", (*hosts)->Address(0)),
                                       "--master_port=29500"};
    launch.insert(launch.end(), command.begin(), command.end());
    (*hosts)->Run(host, [&] { programs[host].emplace(launch); });
  }
  *code = programs[0]->Wait();
  EXPECT_EQ(programs[1]->Wait(), *code);
  return programs[0]->Output() + programs[1]->Output();
}

}  // namespace lockstep::examples::testing
