#include "lockstep/launch/simulator/schedules.h"

#include <cstddef>

#include "absl/strings/str_cat.h"

namespace lockstep::launch::simulator {
namespace {

constexpr size_t kMostViolations = 10;

}  // namespace

void Tally::Run(const Schedule& schedule, const std::vector<Death>& deaths, bool trace) {
  const Report report = schedule.run(deaths, trace);
  ++schedules;
  events += report.events;
  for (const auto& [what, count] : report.counts) counts[what] += count;
  ++results[report.violation.empty() ? report.result : "a broken rule"];
  states.insert(report.states.begin(), report.states.end());
  if (report.violation.empty() || violations.size() == kMostViolations) return;
  std::string text = schedule.text;
  for (const Death& death : deaths) absl::StrAppend(&text, ", ", death.who, " dies before event ", death.event);
  violations.push_back(absl::StrCat(text, ": ", report.violation));
}

std::string Tally::Text() const {
  std::string text = absl::StrCat(schedules, " schedules, ", events, " events");
  for (const auto& [what, count] : counts) absl::StrAppend(&text, ", ", count, " ", what);
  if (!states.empty()) absl::StrAppend(&text, ", ", states.size(), " states");
  for (const auto& [result, count] : results) absl::StrAppend(&text, "\n  ", result, ": ", count);
  for (const std::string& violation : violations) absl::StrAppend(&text, "\n", violation);
  return text + "\n";
}

Tally RunRandom(int64_t first, int64_t schedules, bool until_violation, bool trace) {
  Tally tally;
  for (int64_t seed = first; seed < first + schedules; ++seed) {
    tally.Run(Level::Random(seed), {}, trace);
    if (until_violation && !tally.violations.empty()) break;
  }
  return tally;
}

Tally DeathAtEveryEvent(int least, int most) {
  Tally tally;
  for (int size = least; size <= most; ++size) {
    for (const Schedule& schedule : Level::Quiet(size, /*deaths=*/1)) {
      const int64_t events = schedule.run({}, false).events;
      for (int64_t event = 0; event < events; ++event) {
        for (int who = 0; who < size; ++who) tally.Run(schedule, {{who, event}});
      }
    }
  }
  return tally;
}

namespace {

// The second death is before each event that is left after the first one.
void RunPairs(const Schedule& schedule, const Death& first, Tally* tally) {
  const int64_t events = schedule.run({first}, false).events;
  for (int64_t event = first.event; event < events; ++event) {
    for (int who = 0; who < schedule.size; ++who) {
      if (who != first.who || schedule.replaced) tally->Run(schedule, {first, {who, event}});
    }
  }
}

}  // namespace

Tally DeathsAtEveryPair(int least, int most) {
  Tally tally;
  for (int size = least; size <= most; ++size) {
    for (const Schedule& schedule : Level::Quiet(size, /*deaths=*/2)) {
      const int64_t events = schedule.run({}, false).events;
      for (int64_t event = 0; event < events; ++event) {
        for (int who = 0; who < size; ++who) RunPairs(schedule, {who, event}, &tally);
      }
    }
  }
  return tally;
}

}  // namespace lockstep::launch::simulator
