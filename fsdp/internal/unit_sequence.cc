#include "lockstep/fsdp/internal/unit_sequence.h"

#include <algorithm>
#include <utility>

namespace lockstep::fsdp::internal {

const UnitSequence::Part* UnitSequence::Expected() const {
  return !current_.empty() && current_.size() <= last_.size() ? &last_[current_.size() - 1] : nullptr;
}

void UnitSequence::BeginPart() {
  if (current_.size() == kMostParts) current_.pop_back();
  current_.emplace_back();
  as_expected_ = Expected() != nullptr;
}

void UnitSequence::Add(Entry entry) {
  if (current_.empty()) return;
  Part& part = current_.back();
  const Part* const expected = Expected();
  as_expected_ = as_expected_ && part.size() < expected->size() && (*expected)[part.size()] == entry;
  part.push_back(entry);
}

void UnitSequence::EndStep() {
  last_ = std::exchange(current_, {});
  as_expected_ = false;
}

int64_t UnitSequence::Fingerprint() const {
  if (!as_expected_) return 0;
  uint64_t hash = 14695981039346656037U;  // FNV-1a
  for (const Entry& entry : *Expected())
    hash = (hash ^ (2 * entry.unit + (entry.reduces ? 1 : 0) + 1)) * 1099511628211U;
  return static_cast<int64_t>(hash);
}

std::vector<UnitSequence::Entry> UnitSequence::Next(size_t count) const {
  if (!as_expected_) return {};
  const Part& expected = *Expected();
  const size_t begin = current_.back().size(), end = std::min(expected.size(), begin + count);
  return {expected.begin() + static_cast<int64_t>(begin), expected.begin() + static_cast<int64_t>(end)};
}

}  // namespace lockstep::fsdp::internal
