// Hurts a training that runs under launch, again and again. Shows that it ends with the same file as one that nobody
// has disturbed, that it never stands still, and that it leaves nothing behind.
//
//   bazel run //elastic/chaos -- --faults=60 --faults_per_second=1 --seed=1 --ranks=4
//   bazel run //elastic/chaos -- --faults=60 --hosts=3 --ranks=2
//   bazel run //elastic/chaos -- --faults=20 --long --network --hosts=3 --ranks=2 --hang_seconds=120
//   bazel run //elastic/chaos -- --endings=40
//
// The disturbed run comes first. It ends after its last fault, and the quiet run then trains for as many steps.

#include <errno.h>
#include <gflags/gflags.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "lockstep/base/command_line.h"
#include "lockstep/base/flag_error.h"
#include "lockstep/base/posix/deadline.h"
#include "lockstep/base/status.h"
#include "lockstep/elastic/chaos/internal/board.h"
#include "lockstep/elastic/chaos/internal/endings.h"
#include "lockstep/elastic/chaos/internal/faults.h"
#include "lockstep/elastic/chaos/internal/injector.h"
#include "lockstep/elastic/chaos/internal/job.h"
#include "lockstep/elastic/chaos/internal/sha256.h"
#include "lockstep/elastic/chaos/internal/step_watch.h"
#include "lockstep/elastic/chaos/internal/summary.h"

DEFINE_int64(faults, 60, "The number of faults.");
DEFINE_int64(endings, 0,
             "Instead: the number of short trainings that are hurt once each, after their last step or while their "
             "ranks exit.");
DEFINE_double(faults_per_second, 1, "At most so many. A fault waits until enough ranks train.");
DEFINE_uint64(seed, 1, "Chooses the faults and whom they hit.");
DEFINE_string(only, "", "Only faults whose name contains this, such as SIGKILL. Empty: all kinds.");
DEFINE_bool(
    long, false,
    "Only faults that take long: a launcher of another job, a rank that sleeps, and with --network lost packets. Pass "
    "--hang_seconds=120 too.");
DEFINE_bool(network, false,
            "Each host is a network namespace, so that packets between them can be lost. Needs root, and etcd-v3.");
DEFINE_bool(stall_timeout, false, "The launchers get --stall-timeout=30, and replace a rank that sleeps.");
DEFINE_bool(sharded, false,
            "The disturbed run has a ShardedOptimizer, and no fault ends two ranks at once, which may have its state.");
DEFINE_bool(sharded_model, false,
            "The disturbed run has a ShardedModel and a ShardedOptimizer, and the same faults as with --sharded.");
DEFINE_int32(ranks, 4, "The ranks of a host, and of the quiet run.");
DEFINE_int32(
    hosts, 1,
    "The hosts of the disturbed run: launchers on this machine. With more than one, launchers are hurt too, and "
    "started again. --hosts=3 --ranks=2 is a world of 1 to 6 ranks, 8 at most.");
DEFINE_string(
    rdzv, "etcd-v3",
    "Where several hosts meet. etcd-v3: at a server that this program starts. tcp: at the first launcher, which "
    "is not hurt then.");
DEFINE_double(hang_seconds, 5, "A job without a step for so long hangs, which is a failure.");
DEFINE_double(leave_seconds, 3, "How long a rank may take to leave a broken generation.");
DEFINE_int64(hidden, 512, "The width of the network's layers.");
DEFINE_bool(gpt, false, "The network is a GPT-2 of two layers.");
DEFINE_int64(pause_us, 0, "A pause between the steps of the disturbed run, so that the quiet run is shorter.");
DEFINE_string(data_dir, "/usr/share/datasets/fashion-mnist", "The folder of Fashion-MNIST's files.");
DEFINE_string(launch, "", "The launcher. Empty: the one that was built beside this program.");
DEFINE_string(program, "", "The training. Empty: the one that was built beside this program.");
DEFINE_string(folder, "", "A new folder for the files of both runs. Empty: in $TMPDIR or /tmp.");
DEFINE_string(timeline, "", "A file that gets faults, generations and steps a second of the disturbed run, as JSON.");

namespace lockstep::elastic::chaos {
namespace {

using internal::Board;
using internal::Fault;
using internal::FaultKind;
using internal::Held;
using internal::Injected;
using internal::Injector;
using internal::Job;
using internal::JobOptions;
using internal::Moment;
using internal::Rendezvous;
using internal::StepWatch;

constexpr absl::Duration kFirstStep = absl::Minutes(2);
constexpr int64_t kLastSteps = 100;  // after the last fault
constexpr int64_t kShortSteps = 20;  // of a training that is hurt at its end
// A launcher may hold so much more at the end: pages that its allocator keeps.
constexpr int64_t kKibibytesMore = 8 << 10;
// And connections to etcd: libcurl keeps as many as were in use at once.
constexpr int kConnectionsMore = 2;
constexpr double kMostRanks = 8;  // as many as the training has virtual ranks
constexpr int kFirstHeld = 10;    // the fault after which the launchers are measured first

double SecondsOf(int64_t ns) { return static_cast<double>(ns) * 1e-9; }

// The events of the disturbed run, a line of JSON each.
class Timeline {
 public:
  explicit Timeline(const std::string& path) {
    if (!path.empty()) file_.open(path);
  }
  void Add(const std::string& line) { file_ << line << "\n"; }

 private:
  std::ofstream file_;
};

class DisturbedRun {
 public:
  DisturbedRun(Job* job, std::vector<FaultKind> kinds)
      : job_(*job),
        watch_(job, kFirstStep, absl::Seconds(FLAGS_hang_seconds)),
        injector_(job, &watch_),
        schedule_(FLAGS_seed, std::move(kinds), absl::Seconds(FLAGS_leave_seconds)),
        timeline_(FLAGS_timeline) {}

  // Returns the number of steps.
  absl::StatusOr<int64_t> Run() {
    LOCKSTEP_RETURN_IF_ERROR(watch_.Await("the first step", kFirstStep, [&] { return job_.board().steps() > 0; }));
    start_ns_ = MonotonicNanos();
    for (int64_t fault = 1; fault <= FLAGS_faults; ++fault) {
      LOCKSTEP_RETURN_IF_ERROR(Annotate(Disturb(fault), absl::StrCat("fault ", fault)));
      if (fault == kFirstHeld) {
        LOCKSTEP_ASSIGN_OR_RETURN(held_first_, MeasureLaunchers());
      }
    }
    LOCKSTEP_ASSIGN_OR_RETURN(const HeldByHost held, MeasureLaunchers());
    for (const auto& [host, now] : held) LOCKSTEP_RETURN_IF_ERROR(CheckLauncher(host, now));
    const int64_t last = job_.board().steps() + kLastSteps;
    job_.board().last_step() = last;
    LOCKSTEP_RETURN_IF_ERROR(job_.AwaitEnd(absl::Minutes(2)));
    LOCKSTEP_RETURN_IF_ERROR(CheckSteps(last));
    WriteTimeline(last);
    return last;
  }

  const internal::Summary& summary() const { return summary_; }

 private:
  using HeldByHost = std::map<int, Held>;

  absl::Status Disturb(int64_t number) {
    const Fault fault = schedule_.Next();
    LOCKSTEP_RETURN_IF_ERROR(watch_.Check());
    watch_.LongestPauseSince(MonotonicNanos());
    const int64_t begin_ns = MonotonicNanos();
    const absl::StatusOr<Injected> done = injector_.Inject(fault);
    if (!done.ok()) return Annotate(done.status(), FaultName(fault.kind));
    const absl::StatusOr<int64_t> step_ns = watch_.AwaitStep(done->ns, done->generation);
    if (!step_ns.ok()) return Annotate(step_ns.status(), FaultName(fault.kind));
    const int64_t next_ns = start_ns_ + static_cast<int64_t>(number * 1e9 / FLAGS_faults_per_second);
    LOCKSTEP_RETURN_IF_ERROR(watch_.Sleep(absl::Nanoseconds(std::max<int64_t>(next_ns - MonotonicNanos(), 0))));
    Report(number, fault, *done, absl::Nanoseconds(*step_ns - done->ns), watch_.LongestPauseSince(begin_ns));
    return absl::OkStatus();
  }

  void Report(int64_t number, const Fault& fault, const Injected& done, absl::Duration next_step,
              absl::Duration pause) {
    const std::string name = FaultName(fault.kind);
    const double at = SecondsOf(done.ns - start_ns_);
    const double next_ms = absl::ToDoubleMilliseconds(next_step), pause_ms = absl::ToDoubleMilliseconds(pause);
    std::cout << absl::StrFormat("%8.3f s  fault %d: %s: %s, pid %d, with %d ranks; ", at, number, name, done.victim,
                                 done.pid, done.ranks)
              << absl::StrFormat("next step after %.1f ms, longest pause %.1f ms\n", next_ms, pause_ms) << std::flush;
    timeline_.Add(absl::StrFormat(R"({"event":"fault","s":%.6f,"name":"%s","next_step_ms":%.3f,"pause_ms":%.3f})", at,
                                  name, next_ms, pause_ms));
    summary_.Add(fault.kind, next_step, pause);
  }

  // With as many ranks as at first.
  absl::StatusOr<HeldByHost> MeasureLaunchers() {
    const size_t all = FLAGS_hosts * FLAGS_ranks;
    LOCKSTEP_RETURN_IF_ERROR(watch_.Await("all ranks train", kFirstStep, [&] { return job_.Members().size() == all; }));
    return job_.held();
  }

  // A launcher that has lived since the first measurement.
  absl::Status CheckLauncher(int host, const Held& held) const {
    const auto found = held_first_.find(host);
    if (found == held_first_.end() || found->second.pid != held.pid) return absl::OkStatus();
    const Held& first = found->second;
    std::cout << absl::StrFormat(
        "launcher %d: %d descriptors, %d KiB after fault %d; %d descriptors, %d KiB at the end\n", host,
        first.descriptors, first.kibibytes, kFirstHeld, held.descriptors, held.kibibytes);
    const int descriptors_more = FLAGS_hosts > 1 ? kConnectionsMore : 0;
    if (held.descriptors <= first.descriptors + descriptors_more &&
        held.kibibytes <= first.kibibytes + kKibibytesMore) {
      return absl::OkStatus();
    }
    return absl::InternalError(absl::StrCat("launcher ", host, " holds more than after its first faults"));
  }

  // Each step was completed, and none after a later one.
  absl::Status CheckSteps(int64_t last) const {
    Board& board = job_.board();
    if (board.undone() != 0) return absl::InternalError(absl::StrCat(board.undone(), " completed steps were undone"));
    for (int64_t step = 1; step <= last; ++step) {
      if (board.Commit(step).ns == 0) return absl::InternalError(absl::StrCat("step ", step, " was not completed"));
    }
    return absl::OkStatus();
  }

  void WriteTimeline(int64_t last) {
    for (int64_t number = 1; number <= job_.board().generation(); ++number) {
      const Moment moment = job_.board().Generation(number);
      if (moment.ns == 0) continue;
      timeline_.Add(absl::StrFormat(R"({"event":"generation","s":%.6f,"number":%d,"ranks":%d})",
                                    SecondsOf(moment.ns - start_ns_), number, moment.value));
    }
    for (int64_t step = 1; step <= last; ++step) {
      timeline_.Add(
          absl::StrFormat(R"({"event":"step","s":%.6f})", SecondsOf(job_.board().Commit(step).ns - start_ns_)));
    }
  }

  Job& job_;
  StepWatch watch_;
  Injector injector_;
  internal::FaultSchedule schedule_;
  internal::Summary summary_;
  Timeline timeline_;
  int64_t start_ns_ = 0;
  HeldByHost held_first_;
};

std::string Beside(const std::string& flag, const std::string& path) {
  if (!flag.empty()) return flag;
  char self[4096];
  const ssize_t length = readlink("/proc/self/exe", self, sizeof(self));
  const std::string folder(self, std::max<ssize_t>(length, 0));
  return absl::StrCat(folder.substr(0, folder.rfind('/')), "/", path);
}

JobOptions OptionsOf(int hosts, int64_t pause_us, bool sharded, bool sharded_model) {
  JobOptions options;
  options.launch = Beside(FLAGS_launch, "../../launch/launch");
  options.program = Beside(FLAGS_program, "training");
  options.hosts = hosts;
  options.ranks = FLAGS_ranks;
  options.network = hosts > 1 && FLAGS_network;
  options.replaces_stalled = FLAGS_stall_timeout;
  options.rendezvous = FLAGS_rdzv == "tcp" ? Rendezvous::kTcp : Rendezvous::kEtcd;
  options.environment = {{"DATA", FLAGS_data_dir},
                         {"HIDDEN", absl::StrCat(FLAGS_hidden)},
                         {"GPT", FLAGS_gpt ? "1" : "0"},
                         {"SHARDED", sharded ? "1" : "0"},
                         {"SHARDED_MODEL", sharded_model ? "1" : "0"},
                         {"PAUSE_US", absl::StrCat(pause_us)},
                         {"LEAVE_TIMEOUT_MS", absl::StrCat(static_cast<int64_t>(FLAGS_leave_seconds * 1000))}};
  return options;
}

absl::StatusOr<std::string> NewFolder() {
  if (!FLAGS_folder.empty()) {
    if (mkdir(FLAGS_folder.c_str(), 0700) == 0) return FLAGS_folder;
    return FlagError("folder", FLAGS_folder, absl::StrCat("a path for a new folder: ", strerror(errno)));
  }
  const char* const base = getenv("TEST_TMPDIR") ? getenv("TEST_TMPDIR") : getenv("TMPDIR");
  std::string path = absl::StrCat(base ? base : "/tmp", "/chaos.XXXXXX");
  if (!mkdtemp(path.data())) return absl::FailedPreconditionError(absl::StrCat("cannot make ", path));
  return path;
}

std::vector<FaultKind> Kinds() {
  const absl::Status shm = internal::MountPrivateDevShm();
  if (!shm.ok()) std::cout << shm.message() << ": it is not filled\n";
  std::vector<FaultKind> kinds;
  for (const FaultKind kind : internal::AllFaultKinds()) {
    if (kind == FaultKind::kFullDevShm && !shm.ok()) continue;
    if (internal::RanksNeeded(kind) > FLAGS_ranks * FLAGS_hosts) continue;
    if (internal::HostsNeeded(kind) > FLAGS_hosts) continue;
    if (internal::IsLong(kind) != FLAGS_long) continue;
    if (internal::IsCut(kind) && !FLAGS_network) continue;
    // With tcp the first launcher leads.
    if (kind == FaultKind::kKillLeader && FLAGS_rdzv == "tcp") continue;
    if ((FLAGS_sharded || FLAGS_sharded_model) && internal::EndsSeveralRanks(kind)) continue;
    if (absl::StrContains(internal::FaultName(kind), FLAGS_only)) kinds.push_back(kind);
  }
  return kinds;
}

absl::Status CheckLeftovers(const Job& job) {
  const std::vector<std::string> left = job.Leftovers();
  if (left.empty()) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("the job has left behind:\n", absl::StrJoin(left, "\n")));
}

absl::Status RunQuietly(const std::string& folder, const JobOptions& options, int64_t steps) {
  LOCKSTEP_ASSIGN_OR_RETURN(const auto job, Job::Start(folder, options));
  job->board().last_step() = steps;
  StepWatch watch(job.get(), kFirstStep, absl::Seconds(FLAGS_hang_seconds));
  const auto is_done = [&] { return job->board().steps() >= steps; };
  LOCKSTEP_RETURN_IF_ERROR(watch.Await("the last step", absl::InfiniteDuration(), is_done));
  LOCKSTEP_RETURN_IF_ERROR(job->AwaitEnd(absl::Minutes(2)));
  return CheckLeftovers(*job);
}

// Each training ends with the file of a quiet one, and leaves nothing behind.
absl::Status RunEndings(const std::string& folder, const JobOptions& options, const JobOptions& quiet_options) {
  const std::string quiet = absl::StrCat(folder, "/quiet"), hurt = absl::StrCat(folder, "/hurt");
  LOCKSTEP_RETURN_IF_ERROR(Annotate(RunQuietly(quiet, quiet_options, kShortSteps), "the quiet run"));
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string expected, internal::Sha256OfFile(absl::StrCat(quiet, "/net.pt")));
  std::mt19937_64 random(FLAGS_seed);
  int64_t in_time = 0;
  for (int64_t number = 0; number < FLAGS_endings; ++number) {
    const internal::Ending ending = internal::NextEnding(number, FLAGS_hosts * FLAGS_ranks, &random);
    const std::string what = absl::StrCat("ending ", number + 1, ": ", internal::EndingText(ending));
    LOCKSTEP_ASSIGN_OR_RETURN(auto job, Job::Start(hurt, options));
    job->board().last_step() = kShortSteps;
    StepWatch watch(job.get(), kFirstStep, absl::Seconds(FLAGS_hang_seconds));
    const absl::StatusOr<bool> ran = internal::DisturbEnding(ending, kShortSteps, job.get(), &watch);
    if (!ran.ok()) return Annotate(ran.status(), what);
    LOCKSTEP_RETURN_IF_ERROR(Annotate(CheckLeftovers(*job), what));
    LOCKSTEP_ASSIGN_OR_RETURN(const std::string digest, internal::Sha256OfFile(absl::StrCat(hurt, "/net.pt")));
    if (digest != expected) return absl::InternalError(absl::StrCat(what, ": it ends with another file"));
    std::cout << what << (*ran ? "" : ": the process had ended") << "\n" << std::flush;
    in_time += *ran;
    job.reset();
    std::error_code ignored;
    std::filesystem::remove_all(hurt, ignored);
  }
  std::cout << absl::StrFormat("%d endings, %d of them hurt; SHA-256 of all: %s\n", FLAGS_endings, in_time, expected);
  return absl::OkStatus();
}

absl::Status Run() {
  LOCKSTEP_RETURN_IF_ERROR(
      CheckRanges({{"faults", FLAGS_faults * 1.0, 1},
                   {"endings", FLAGS_endings * 1.0, 0},
                   {"faults_per_second", FLAGS_faults_per_second, 1e-3},
                   {"hosts", FLAGS_hosts * 1.0, 1, 8},
                   {"ranks", FLAGS_ranks * 1.0, FLAGS_hosts == 1 ? 2.0 : 1.0, kMostRanks / FLAGS_hosts},
                   {"hang_seconds", FLAGS_hang_seconds, 1},
                   {"leave_seconds", FLAGS_leave_seconds, 0.1},
                   {"hidden", FLAGS_hidden * 1.0, 1},
                   {"pause_us", FLAGS_pause_us * 1.0, 0}}));
  if (FLAGS_rdzv != "etcd-v3" && FLAGS_rdzv != "tcp") return FlagError("rdzv", FLAGS_rdzv, "etcd-v3 or tcp");
  if (FLAGS_network && FLAGS_rdzv != "etcd-v3") return FlagError("rdzv", FLAGS_rdzv, "etcd-v3 with --network");
  const JobOptions disturbed_options = OptionsOf(FLAGS_hosts, FLAGS_pause_us, FLAGS_sharded, FLAGS_sharded_model);
  const JobOptions quiet_options = OptionsOf(1, 0, /*sharded=*/false, /*sharded_model=*/false);
  // After the look at /proc/self/exe, which has no path any more in another mount namespace.
  const std::vector<FaultKind> kinds = Kinds();
  if (kinds.empty()) return FlagError("only", FLAGS_only, "a part of the name of a fault");
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string folder, NewFolder());
  if (FLAGS_endings > 0) return RunEndings(folder, disturbed_options, quiet_options);
  const std::string disturbed = absl::StrCat(folder, "/disturbed"), quiet = absl::StrCat(folder, "/quiet");
  LOCKSTEP_ASSIGN_OR_RETURN(const auto job, Job::Start(disturbed, disturbed_options));
  DisturbedRun run(job.get(), kinds);
  LOCKSTEP_ASSIGN_OR_RETURN(const int64_t steps, run.Run());
  LOCKSTEP_RETURN_IF_ERROR(CheckLeftovers(*job));
  std::cout << absl::StrFormat("%d faults, %d steps, %d generations; nothing is left of the job\n\n%s\n",
                               run.summary().faults(), steps, job->board().generation(), run.summary().Table())
            << std::flush;
  LOCKSTEP_RETURN_IF_ERROR(Annotate(RunQuietly(quiet, quiet_options, steps), "the quiet run"));
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string digest, internal::Sha256OfFile(absl::StrCat(disturbed, "/net.pt")));
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string expected, internal::Sha256OfFile(absl::StrCat(quiet, "/net.pt")));
  std::cout << absl::StrCat("SHA-256 of the disturbed run: ", digest, "\nSHA-256 of the quiet run:     ", expected,
                            "\n");
  return digest == expected ? absl::OkStatus() : absl::InternalError("the runs end with different files");
}

}  // namespace
}  // namespace lockstep::elastic::chaos

int main(int argc, char** argv) {
  lockstep::ParseCommandLine(
      argc, argv, {.source = __FILE__, .description = "Hurts a training, and compares it with a quiet one."});
  const absl::Status status = lockstep::elastic::chaos::Run();
  if (status.ok()) std::cout << "chaos: the files are the same\n";
  if (!status.ok()) std::cerr << absl::StrCat("chaos: ", status.message(), "\n");
  return status.ok() ? 0 : 1;
}
