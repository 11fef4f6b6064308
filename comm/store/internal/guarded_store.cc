#include "lockstep/comm/store/internal/guarded_store.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "lockstep/base/torch_status.h"

namespace lockstep::comm::internal {
namespace {

// Each piece of a wait is another request to the store, so later pieces are longer.
constexpr std::chrono::milliseconds kFirstPiece(250);

}  // namespace

GuardedStore::GuardedStore(std::string prefix, c10::intrusive_ptr<c10d::Store> store,
                           std::function<absl::Status()> failure, std::chrono::milliseconds longest_piece)
    : PrefixStore(std::move(prefix), std::move(store)), failure_(std::move(failure)), longest_piece_(longest_piece) {}

std::vector<uint8_t> GuardedStore::get(const std::string& key) {
  wait({key});
  return PrefixStore::get(key);
}

bool GuardedStore::check(const std::vector<std::string>& keys) {
  ThrowIfError(failure_());
  return keys.empty() || PrefixStore::check(keys);
}

void GuardedStore::wait(const std::vector<std::string>& keys) { wait(keys, getTimeout()); }

void GuardedStore::wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  for (auto piece = std::min(kFirstPiece, longest_piece_);; piece = std::min(2 * piece, longest_piece_)) {
    ThrowIfError(failure_());
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    if (left <= piece) return PrefixStore::wait(keys, std::max(left, std::chrono::milliseconds(1)));
    const absl::Status waited = TorchStatus("", [&] { PrefixStore::wait(keys, piece); });
    if (waited.ok()) return;
    if (!absl::IsDeadlineExceeded(waited)) ThrowIfError(waited);
  }
}

std::vector<std::vector<uint8_t>> GuardedStore::multiGet(const std::vector<std::string>& keys) {
  wait(keys);
  return PrefixStore::multiGet(keys);
}

}  // namespace lockstep::comm::internal
