#include "lockstep/comm/internal/group_factory.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <iostream>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "lockstep/base/logging.h"
#include "lockstep/base/posix/descriptors.h"
#include "lockstep/base/posix/socket.h"
#include "lockstep/base/status.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/comm/internal/choice_text.h"
#include "lockstep/comm/internal/group_access.h"
#include "lockstep/comm/internal/stall_lines.h"
#include "lockstep/comm/internal/uncaught.h"
#include "lockstep/comm/store/internal/guarded_store.h"
#include "lockstep/comm/watch/watch.h"

namespace lockstep::comm::internal {
namespace {

BackendContext ContextOf(const GroupFactory& factory, const NewGroupOptions& options) {
  BackendContext context;
  context.rank = options.rank;
  context.size = static_cast<int>(options.world_ranks.size());
  context.timeout = factory.timeout;
  context.master_addr = factory.master_addr;
  context.group = options.name;
  if (!factory.ranks.empty()) context.ranks.reserve(options.world_ranks.size());
  for (size_t i = 0; i < options.world_ranks.size() && !factory.ranks.empty(); ++i) {
    context.ranks.push_back(factory.ranks[options.world_ranks[i]]);
    context.ranks.back().rank = static_cast<int>(i);
  }
  return context;
}

class WatchOfGroup : public GroupWatch {
 public:
  explicit WatchOfGroup(std::unique_ptr<Watch> watch) : watch_(std::move(watch)) {}
  void Begin(int64_t sequence, const char* operation) override { watch_->Begin(sequence, operation); }
  void End(int64_t sequence) override { watch_->End(sequence); }
  absl::Status Explain(const absl::Status& error) override { return watch_->Explain(error); }
  absl::Status ExplainTimeout(int64_t sequence, const char* operation, absl::Duration timeout) override {
    return watch_->ExplainTimeout(sequence, operation, timeout);
  }
  absl::Status Agree(int64_t sequence, const std::string& fingerprint, absl::Time deadline) override {
    return watch_->Agree(sequence, fingerprint, deadline);
  }
  void Abort(const absl::Status& cause) override { watch_->Abort(cause); }

 private:
  const std::unique_ptr<Watch> watch_;
};

absl::StatusOr<std::string> Get(c10d::Store& store, const std::string& key, absl::Time deadline) {
  return TorchStatusOr("", [&] {
    store.wait({key}, absl::ToChronoMilliseconds(std::max(deadline - absl::Now(), absl::Milliseconds(1))));
    return store.get_to_str(key);
  });
}

// At so many ranks the process of the first rank needs another one to share its descriptors with.
constexpr size_t kLargeGroup = 32;

// The address of the group's first rank, and of the others on its host. The master's address is the address of world
// rank 0.
std::string WatchHost(const GroupFactory& factory, const NewGroupOptions& options) {
  if (options.world_ranks[0] == 0 && !factory.master_addr.empty()) return factory.master_addr;
  const std::string own = factory.master_addr.empty() ? "" : LocalAddressTowards(factory.master_addr);
  return own.empty() ? factory.ranks[options.world_ranks[0]].host : own;
}

constexpr absl::Duration kLongestStall = absl::Hours(24 * 365);

// Returns the function that a call which lasts long runs. Unless the caller of InitProcessGroup() gives one, one rank
// writes a line.
std::function<void(const Stall&)> OnStall(const GroupFactory& factory, const NewGroupOptions& options, int hub) {
  if (factory.on_stall) return factory.on_stall;
  if (options.rank != hub || factory.stall_after == absl::InfiniteDuration()) return nullptr;
  return [name = options.name, lines = StallLines(factory.stall_after)](const Stall& stall) mutable {
    if (lines.IsDue(stall.lasted)) std::cerr << absl::StrCat("group \"", name, "\": ", stall.text, "\n") << std::flush;
  };
}

// Creates the group's watch. Null for a group of one rank, and if some rank does not take part.
absl::StatusOr<std::shared_ptr<GroupWatch>> MakeWatch(const GroupFactory& factory, const NewGroupOptions& options,
                                                      std::vector<RankIdentity> ranks,
                                                      const std::shared_ptr<GroupState>& state) {
  if (ranks.size() < 2) return nullptr;
  const auto store = Prefixed(options.store, "watch");
  WatchOptions watch;
  watch.rank = options.rank;
  watch.hub = WatchHub(ranks, options.number);
  // For each rank a connection, before Linux 6.16 a handle on its process, and later a connection of Gloo.
  if (options.rank == watch.hub) MakeRoomForDescriptors(3 * static_cast<int>(ranks.size()));
  watch.ranks = std::move(ranks);
  watch.host = WatchHost(factory, options);
  watch.set = [store](const std::string& key, const std::string& value) {
    return TorchStatus("", [&] { store->set(key, value); });
  };
  watch.get = [store](const std::string& key, absl::Time deadline) { return Get(*store, key, deadline); };
  watch.deadline = absl::Now() + factory.timeout;
  watch.interruption = factory.interruption;
  // Weak: a group that is destroyed destroys its watch, which waits for this.
  watch.on_failure = [weak = std::weak_ptr<GroupState>(state)](const absl::Status& cause) {
    if (const auto group = weak.lock()) group->LearnFailure(cause);
  };
  watch.on_stall = OnStall(factory, options, watch.hub);
  watch.stall_after = std::min(factory.stall_after, kLongestStall);
  LOCKSTEP_ASSIGN_OR_RETURN(auto made, Watch::Create(std::move(watch)));
  return std::make_shared<WatchOfGroup>(std::move(made));
}

GroupState::Options StateOptions(const GroupFactory& factory, const BackendContext& context) {
  GroupState::Options options;
  options.rank = context.rank;
  options.size = context.size;
  options.name = context.group;
  options.timeout = factory.timeout;
  options.detail = factory.detail;
  return options;
}

// How often a rank that waits for another one's address looks whether the group has failed. If there may be an
// interruption, as in elastic training, somebody waits for that. A look is a request to the store: at most 10,000 a
// second from all ranks.
std::chrono::milliseconds LongestPiece(const GroupFactory& factory, int ranks) {
  constexpr std::chrono::milliseconds kUnhurried(1000), kHurried(20);
  return factory.interruption ? std::max(kHurried, std::chrono::milliseconds(ranks / 10)) : kUnhurried;
}

// Sets the store of `context` for each backend.
absl::StatusOr<BackendMap> MakeBackends(const GroupFactory& factory,
                                        const std::map<c10::DeviceType, BackendChoice>& choices,
                                        BackendContext& context, const c10::intrusive_ptr<c10d::Store>& store,
                                        const std::shared_ptr<GroupState>& state) {
  BackendMap backends;
  // Ends with this function: a group's failure does not disturb what its backends do with their stores later.
  // Unless one of them could not be made: its thread may still ask.
  const auto scope = std::make_shared<std::shared_ptr<GroupState>>(state);
  const auto given_up = std::make_shared<std::atomic<bool>>(false);
  const auto failure = [weak = std::weak_ptr(scope), given_up, interruption = factory.interruption]() -> absl::Status {
    const auto group = weak.lock();
    if (!group) return *given_up ? absl::AbortedError("the group has not formed") : absl::OkStatus();
    if ((*group)->failed()) return (*group)->failure();
    return interruption ? interruption() : absl::OkStatus();
  };
  for (const auto& [device, choice] : choices) {
    context.store =
        c10::make_intrusive<GuardedStore>(absl::StrCat(c10::DeviceTypeName(device, /*lower_case=*/true), "/"), store,
                                          failure, LongestPiece(factory, context.size));
    auto backend = choice.backend.create(context);
    *given_up = !backend.ok();
    if (!backend.ok()) return backend.status();
    backends[device] = *std::move(backend);
  }
  return backends;
}

// The announcement goes to standard error, not to glog: a program that has not set glog up would print a second line.
void Inform(const GroupFactory& factory, const BackendContext& context,
            const std::map<c10::DeviceType, BackendChoice>& choices, bool announce) {
  const bool print = announce && context.rank == 0 && context.size > 1;
  if (!factory.info && !print) return;
  const std::string text = ChoiceText(choices, factory.candidates.is_auto, context);
  if (factory.info) LOG(INFO) << text << ", timeout " << context.timeout;
  if (print) std::cerr << absl::StrCat(text, "\n") << std::flush;
}

}  // namespace

int WatchHub(const std::vector<RankIdentity>& ranks, int64_t number) {
  if (ranks.size() < kLargeGroup) return 0;
  std::vector<int> beside;
  for (size_t rank = 1; rank < ranks.size(); ++rank) {
    if (OnOneHost(ranks[0], ranks[rank])) beside.push_back(static_cast<int>(rank));
  }
  return beside.empty() ? 0 : beside[number % beside.size()];
}

c10::intrusive_ptr<c10d::Store> Prefixed(const c10::intrusive_ptr<c10d::Store>& store, absl::string_view prefix) {
  return c10::make_intrusive<c10d::PrefixStore>(std::string(prefix), store);
}

absl::StatusOr<std::unique_ptr<ProcessGroup>> GroupFactory::Make(NewGroupOptions options) const {
  BackendContext context = ContextOf(*this, options);
  LOCKSTEP_ASSIGN_OR_RETURN(const auto choices, ChooseBackends(candidates, unavailable, context));
  const auto state = std::make_shared<GroupState>(StateOptions(*this, context));
  // Before the backends, so that the error names a rank that dies while they are created.
  LOCKSTEP_ASSIGN_OR_RETURN(auto watch, MakeWatch(*this, options, context.ranks, state));
  state->SetWatch(watch);
  auto backends = MakeBackends(*this, choices, context, options.backend_store, state);
  if (!backends.ok()) {
    state->RecordOwnError(backends.status());
    const absl::Status cause = watch ? watch->Explain(backends.status()) : backends.status();
    // The watch's thread may hold the state for a moment. If that thread destroyed it, the watch would join itself.
    watch.reset();
    state->Close();
    return cause;
  }
  Inform(*this, context, choices, options.announce);
  GroupParts parts;
  parts.state = state;
  parts.backends = *std::move(backends);
  parts.store = std::move(options.store);
  parts.master = server;
  parts.abortable = true;
  parts.world_ranks = std::move(options.world_ranks);
  parts.factory = shared_from_this();
  auto group = GroupAccess::FromParts(std::move(parts));
  if (report_uncaught_exceptions) ReportUncaughtExceptions(state);
  return group;
}

}  // namespace lockstep::comm::internal
