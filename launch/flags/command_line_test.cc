#include "lockstep/launch/flags/command_line.h"

#include <fstream>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/launch/flags/flag_table.h"
#include "lockstep/launch/testing/processes.h"

namespace lockstep::launch {
namespace {

using ::testing::StartsWith;

using Environment = std::map<std::string, std::string>;

// A file that Python would start.
const std::string& Script() {
  static const auto* const path = [] {
    auto* const script = new std::string(testing::NewFolder() + "train.py");
    std::ofstream(*script) << "pass";
    return script;
  }();
  return *path;
}

// A value of a flag, and what shows that it was read.
struct Case {
  std::string value;
  std::function<std::string(const CommandLine&)> effect;
  std::string expected;
  Environment others;  // variables without which the value would be an error
  std::string program = Script();
};

std::string Streams3(const RankStreams& streams) { return absl::StrCat(static_cast<int>(streams.every_rank)); }

// Every flag that has an effect, by its name.
std::map<std::string, Case> Cases() {
  using Line = const CommandLine&;
  const Environment tcp = {{"PET_RDZV_BACKEND", "tcp"}, {"PET_NNODES", "2"}, {"PET_RDZV_ENDPOINT", "a:1"}};
  const auto with = [](Environment variables, const std::string& name) {
    variables.erase(name);
    return variables;
  };
  const auto program = [](Line line) { return absl::StrJoin(line.program, " "); };
  return {
      {"nproc_per_node", {"3", [](Line l) { return absl::StrCat(l.options.nproc_per_node); }, "3", {}}},
      {"nnodes", {"3", [](Line l) { return absl::StrCat(l.rendezvous.max_nodes); }, "3", with(tcp, "PET_NNODES")}},
      {"node_rank", {"1", [](Line l) { return absl::StrCat(l.rendezvous.node_rank.value_or(-1)); }, "1", tcp}},
      {"master_addr", {"b", [](Line l) { return l.options.master_addr; }, "b", {}}},
      {"master_port", {"7", [](Line l) { return absl::StrCat(l.options.master_port); }, "7", {}}},
      {"rdzv_endpoint",
       {"b:8", [](Line l) { return absl::StrCat(l.rendezvous.endpoints[0].host, l.rendezvous.endpoints[0].port); },
        "b8", with(tcp, "PET_RDZV_ENDPOINT")}},
      {"rdzv_backend",
       {"etcd-v3", [](Line l) { return absl::StrCat(l.rendezvous.backend == RendezvousOptions::Backend::kEtcd); }, "1",
        with(tcp, "PET_RDZV_BACKEND")}},
      {"rdzv_id", {"x", [](Line l) { return l.options.run_id; }, "x", {}}},
      {"rdzv_conf", {"user=u", [](Line l) { return l.rendezvous.user; }, "u", tcp}},
      {"local_addr", {"c", [](Line l) { return l.rendezvous.local_addr; }, "c", tcp}},
      {"role", {"r", [](Line l) { return l.options.role; }, "r", {}}},
      {"log_dir", {"d", [](Line l) { return l.options.log_dir; }, "d", {}}},
      {"redirects", {"3", [](Line l) { return Streams3(l.options.redirects); }, "3", {}}},
      {"tee", {"3", [](Line l) { return Streams3(l.options.tee); }, "3", {}}},
      {"local_ranks_filter", {"0", [](Line l) { return absl::StrJoin(l.options.shown_local_ranks, ","); }, "0", {}}},
      {"duplicate_stdout_filters",
       {"a,b", [](Line l) { return absl::StrJoin(l.options.duplicate_stdout_filters, ";"); }, "a;b", {}}},
      {"duplicate_stderr_filters",
       {"a,b", [](Line l) { return absl::StrJoin(l.options.duplicate_stderr_filters, ";"); }, "a;b", {}}},
      {"numa_binding",
       {"socket", [](Line l) { return absl::StrCat(l.options.numa_binding == NumaBinding::kSocket); }, "1", {}}},
      {"event_log", {"e", [](Line l) { return l.options.event_log; }, "e", {}}},
      {"max_restarts", {"3", [](Line l) { return absl::StrCat(l.options.max_restarts); }, "3", {}}},
      {"spares", {"2", [](Line l) { return absl::StrCat(l.options.spares); }, "2", {}}},
      {"restart_window",
       {"60",
        [](Line l) { return absl::FormatDuration(l.options.restart_window); },
        "1m",
        {{"PET_MAX_RESTARTS", "1"}}}},
      {"stall_timeout", {"60", [](Line l) { return absl::FormatDuration(l.options.stall_timeout); }, "1m", {}}},
      {"grace", {"5", [](Line l) { return absl::FormatDuration(l.options.grace); }, "5s", {}}},
      {"shutdown_timeout", {"5", [](Line l) { return absl::FormatDuration(l.options.grace); }, "5s", {}}},
      {"standalone",
       {"1", [](Line l) { return absl::StrCat(l.rendezvous.meets_others); }, "0", with(tcp, "PET_NNODES")}},
      {"virtual_local_rank", {"1", [](Line l) { return absl::StrCat(l.options.virtual_local_rank); }, "1", {}}},
      {"module", {"1", program, "python3 -u -m " + Script(), {}}},
      {"run_path", {"1", program, "python3 -u script", {}, "script"}},
      {"no_python", {"1", program, Script(), {}}},
      {"no_use_env", {"1", [](Line l) { return absl::StrCat(l.options.local_rank_argument.value_or(-1)); }, "3", {}}},
  };
}

std::string VariableOf(const std::string& flag) { return absl::StrCat("PET_", absl::AsciiStrToUpper(flag)); }

std::string EffectWith(const Case& flag, const Environment& environment) {
  const absl::StatusOr<CommandLine> line = ParseCommandLine({flag.program}, environment);
  EXPECT_TRUE(line.ok()) << line.status();
  return line.ok() ? flag.effect(*line) : "";
}

TEST(ParseCommandLine, ReadsTheVariableOfEachFlag) {
  for (const auto& [name, flag] : Cases()) {
    Environment environment = flag.others;
    environment[VariableOf(name)] = flag.value;
    EXPECT_EQ(EffectWith(flag, environment), flag.expected) << name;
  }
}

TEST(ParseCommandLine, TakesTheFlagInsteadOfItsVariable) {
  const absl::StatusOr<CommandLine> line = ParseCommandLine({"--role=flag", Script()}, {{"PET_ROLE", "variable"}});
  ASSERT_TRUE(line.ok()) << line.status();
  EXPECT_EQ(line->options.role, "flag");
}

// A variable without an effect is read too, since a mistake in it is an error.
TEST(ParseCommandLine, NamesTheVariableThatIsWrong) {
  const std::map<std::string, std::string> wrong = {
      {"signals_to_handle", "SIGKILL"}, {"monitor_interval", "often"}, {"use_env", "1"}};
  std::set<std::string> seen;
  for (const auto& [name, flag] : Cases()) seen.insert(name);
  for (const auto& [name, value] : wrong) {
    const absl::Status status =
        ParseCommandLine({Script()}, {{VariableOf(name), value}, {"PET_NO_USE_ENV", "1"}}).status();
    EXPECT_THAT(std::string(status.message()), StartsWith(VariableOf(name))) << name;
    seen.insert(name);
  }
  for (const std::string& name : FlagNames()) {
    if (FindFlag(name)->kind == Flag::kQuestion) {
      const absl::Status status = ParseCommandLine({Script()}, {{VariableOf(name), "1"}}).status();
      EXPECT_EQ(status.message(), absl::StrCat("unknown environment variable ", VariableOf(name), "; unset it"));
      seen.insert(name);
    }
    if (FindFlag(name)->kind != Flag::kUnsupported) continue;
    const absl::Status status = ParseCommandLine({Script()}, {{VariableOf(name), "1"}}).status();
    EXPECT_THAT(std::string(status.message()),
                StartsWith(absl::StrCat("environment variable ", VariableOf(name), " is not supported: ")));
    seen.insert(name);
  }
  for (const std::string& name : FlagNames()) EXPECT_EQ(seen.count(name), 1) << "no test has " << VariableOf(name);
}

}  // namespace
}  // namespace lockstep::launch
