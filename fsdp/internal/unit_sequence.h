// The units that a rank used and reduced in its last step, by which it guesses what comes next. Pure.

#ifndef LOCKSTEP_FSDP_INTERNAL_UNIT_SEQUENCE_H_
#define LOCKSTEP_FSDP_INTERNAL_UNIT_SEQUENCE_H_

#include <cstddef>
#include <cstdint>
#include <vector>

namespace lockstep::fsdp::internal {

// A step has a part for each forward, with the backward behind it. A part of the next step is expected to have the
// entries that the part in its place has in this one, until it has another. If a step has more than kMostParts, the last
// of them is the newest.
class UnitSequence {
 public:
  static constexpr size_t kMostParts = 1024;

  struct Entry {
    bool reduces = false;  // false: operators begin to use the unit
    size_t unit = 0;
    friend bool operator==(const Entry& a, const Entry& b) { return a.reduces == b.reduces && a.unit == b.unit; }
  };

  void BeginPart();
  // Adds to this part, and compares with the last step's.
  void Add(Entry entry);
  void EndStep();

  // A number that two ranks have in common if they expect the same entries of this part.
  int64_t Fingerprint() const;
  // The entries that are expected next in this part, at most `count` of them.
  std::vector<Entry> Next(size_t count) const;

 private:
  using Part = std::vector<Entry>;

  const Part* Expected() const;

  std::vector<Part> last_, current_;
  bool as_expected_ = false;  // this part
};

}  // namespace lockstep::fsdp::internal

#endif  // LOCKSTEP_FSDP_INTERNAL_UNIT_SEQUENCE_H_
