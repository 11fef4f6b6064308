#include "lockstep/comm/watch/watch.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "lockstep/base/posix/unique_fd.h"
#include "lockstep/base/status.h"
#include "lockstep/comm/watch/internal/endpoint.h"
#include "lockstep/comm/watch/internal/hub.h"
#include "lockstep/comm/watch/internal/participant.h"
#include "lockstep/comm/watch/internal/process_handle.h"
#include "lockstep/comm/watch/internal/spoke.h"
#include "lockstep/comm/watch/internal/wording.h"

namespace lockstep::comm {
namespace {

using internal::Clock;
using internal::Endpoint;
using internal::Frame;
using internal::Hub;
using internal::Participant;
using internal::Spoke;

constexpr char kEndpointKey[] = "watch";
constexpr auto kLatecomerPatience = std::chrono::seconds(1);
// How often a rank that waits for the hub's endpoint checks whether the hub still lives. Each time is another request
// to the store, so it does so less often later.
constexpr absl::Duration kInterruptionInterval = absl::Milliseconds(20);
constexpr absl::Duration kFirstStoreInterval = absl::Milliseconds(250);
constexpr absl::Duration kMostStoreInterval = absl::Seconds(1);

Clock::time_point ToClock(absl::Time deadline) {
  return Clock::now() + absl::ToChronoMicroseconds(std::min(deadline - absl::Now(), absl::Hours(24 * 365)));
}

bool AllOnOneHost(const std::vector<RankIdentity>& ranks) {
  return std::all_of(ranks.begin(), ranks.end(), [&](const auto& rank) { return OnOneHost(ranks[0], rank); });
}

// Listens at `endpoint`, which it fills in.
absl::StatusOr<std::unique_ptr<Hub>> MakeHub(const WatchOptions& options, Endpoint& endpoint,
                                             Participant* participant) {
  const std::vector<RankIdentity>& ranks = participant->ranks();
  internal::HubOptions hub{ranks, options.hub, AllOnOneHost(ranks), internal::RandomToken(), ToClock(options.deadline)};
  endpoint.token = hub.token;
  UniqueFd listener;
  if (ranks.size() > 1 && hub.on_one_host) {
    LOCKSTEP_ASSIGN_OR_RETURN(listener, ListenOnThisHost(endpoint));
  } else if (ranks.size() > 1) {
    const std::string& host = options.host.empty() ? ranks[options.hub].host : options.host;
    LOCKSTEP_ASSIGN_OR_RETURN(listener, ListenOnNetwork(host, endpoint));
  }
  return std::make_unique<Hub>(std::move(hub), std::move(listener), participant);
}

absl::StatusOr<std::string> AwaitEndpoint(const WatchOptions& options, const internal::ProcessHandle& hub) {
  absl::Duration interval = kFirstStoreInterval;
  while (true) {
    if (options.interruption) LOCKSTEP_RETURN_IF_ERROR(options.interruption());
    if (options.interruption) interval = kInterruptionInterval;
    const absl::Time until = std::min(options.deadline, absl::Now() + interval);
    interval = std::min(2 * interval, kMostStoreInterval);
    const absl::StatusOr<std::string> text = options.get(kEndpointKey, until);
    if (text.ok() || !absl::IsDeadlineExceeded(text.status())) return text;
    const std::string fate = hub.Fate();
    if (!fate.empty()) return absl::UnavailableError(internal::LostText(hub.identity(), fate, ""));
    if (absl::Now() >= options.deadline) return absl::DeadlineExceededError(internal::MissingText({hub.identity()}));
  }
}

absl::StatusOr<std::unique_ptr<Spoke>> MakeSpoke(const WatchOptions& options, Participant* participant) {
  internal::ProcessHandle hub(participant->ranks()[options.hub], participant->ranks()[options.rank]);
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string text, AwaitEndpoint(options, hub));
  LOCKSTEP_ASSIGN_OR_RETURN(const Endpoint endpoint, internal::DecodeEndpoint(text));
  LOCKSTEP_ASSIGN_OR_RETURN(internal::Joined joined,
                            JoinHub(endpoint, options.rank, hub, options.deadline, options.interruption));
  return std::make_unique<Spoke>(std::move(joined), std::move(hub), participant);
}

std::function<void(const Frame&)> StallCallback(std::function<void(const Stall&)> on_stall) {
  if (!on_stall) return nullptr;
  return [on_stall = std::move(on_stall)](const Frame& frame) {
    on_stall({frame.text, frame.rank, absl::Milliseconds(frame.value)});
  };
}

// When a rank first asks what the others call. Over TCP it does not ask before the stall: what is sent to a host that
// has vanished makes the kernel count its 20 s anew.
absl::Duration FirstQuestion(const WatchOptions& options) {
  return AllOnOneHost(options.ranks) ? std::min(absl::Seconds(6), options.stall_after) : options.stall_after;
}

}  // namespace

class Watch::Impl {
 public:
  // Takes `options.ranks`: a copy for each of many ranks is dear.
  explicit Impl(WatchOptions& options) : Impl(options, FirstQuestion(options)) {}

  absl::Status Connect(const WatchOptions& options) {
    LOCKSTEP_RETURN_IF_ERROR(options.rank == options.hub ? StartHub(options) : StartSpoke(options));
    const absl::Status welcome = participant.AwaitWelcome(options.interruption);
    if (options.interruption) LOCKSTEP_RETURN_IF_ERROR(options.interruption());  // of which the others know
    // At the deadline the other ranks find this out themselves.
    if (hub && !welcome.ok() && !absl::IsDeadlineExceeded(welcome)) hub->AwaitLatecomers(kLatecomerPatience);
    return welcome;
  }

  // The hub's endpoint is published only after the hub runs. If it cannot run, the reason is published instead.
  absl::Status StartHub(const WatchOptions& options) {
    Endpoint endpoint;
    const absl::Status started = RunHub(options, endpoint);
    if (participant.ranks().size() == 1) return started;
    const absl::Status told =
        options.set(kEndpointKey, started.ok() ? EncodeEndpoint(endpoint)
                                               : internal::EncodeNoEndpoint(internal::FailedText(
                                                     participant.ranks()[options.hub], started.message())));
    return started.ok() ? told : started;
  }

  absl::Status RunHub(const WatchOptions& options, Endpoint& endpoint) {
    LOCKSTEP_ASSIGN_OR_RETURN(hub, MakeHub(options, endpoint, &participant));
    participant.set_send([this](const Frame& frame) { hub->Send(frame); });
    return hub->Start();
  }

  absl::Status StartSpoke(const WatchOptions& options) {
    LOCKSTEP_ASSIGN_OR_RETURN(spoke, MakeSpoke(options, &participant));
    participant.set_send([this](const Frame& frame) { spoke->Send(frame); });
    const absl::Status started = spoke->Start();
    if (!started.ok()) participant.Abort(started);  // so that the others do not wait for this rank
    return started;
  }

  Impl(WatchOptions& options, absl::Duration first_question)
      : participant(options.rank, std::move(options.ranks), options.hub, std::move(options.on_failure),
                    StallCallback(std::move(options.on_stall)), absl::ToChronoMicroseconds(options.stall_after),
                    absl::ToChronoMicroseconds(first_question)) {}

  Participant participant;
  // One of them; its thread uses the participant.
  std::unique_ptr<Hub> hub;
  std::unique_ptr<Spoke> spoke;
};

Watch::Watch(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
Watch::~Watch() = default;

absl::StatusOr<std::unique_ptr<Watch>> Watch::Create(WatchOptions options) {
  const int size = static_cast<int>(options.ranks.size());
  if (options.rank < 0 || options.rank >= size) {
    return absl::InvalidArgumentError(absl::StrCat("rank ", options.rank, " is not a rank of a group of ", size));
  }
  if (options.hub < 0 || options.hub >= size) {
    return absl::InvalidArgumentError(absl::StrCat("the hub ", options.hub, " is not a rank of a group of ", size));
  }
  auto impl = std::make_shared<Impl>(options);
  LOCKSTEP_RETURN_IF_ERROR(impl->Connect(options));
  return std::unique_ptr<Watch>(new Watch(std::move(impl)));
}

void Watch::Begin(int64_t sequence, const char* operation) { impl_->participant.Begin(sequence, operation); }
void Watch::End(int64_t sequence) { impl_->participant.End(sequence); }

absl::Status Watch::Explain(const absl::Status& error) { return impl_->participant.Explain(error); }

absl::Status Watch::ExplainTimeout(int64_t sequence, const char* operation, absl::Duration timeout) {
  return impl_->participant.ExplainTimeout(sequence, operation, timeout);
}

absl::Status Watch::Agree(int64_t sequence, const std::string& fingerprint, absl::Time deadline) {
  return impl_->participant.Agree(sequence, fingerprint, deadline);
}

void Watch::Abort(const absl::Status& cause) { impl_->participant.Abort(cause); }

absl::Status Watch::failure() const { return impl_->participant.failure(); }

}  // namespace lockstep::comm
