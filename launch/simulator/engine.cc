#include "lockstep/launch/simulator/engine.h"

#include <algorithm>
#include <iostream>
#include <utility>

#include "absl/strings/str_cat.h"

namespace lockstep::launch::simulator {

Engine::Engine(const Config& config, absl::Duration tick)
    : random_(config.seed), deaths_(config.deaths), trace_(config.trace), tick_(tick) {}

void Engine::RunEvents(int64_t horizon, int64_t most_events, const std::function<void(int)>& die,
                       const std::function<bool()>& after) {
  for (bool goes_on = true; goes_on && report_.violation.empty();) {
    if (events_.empty() || events_.top().at > horizon || report_.events >= most_events) return;
    const Event event = events_.top();
    events_.pop();
    now_ = event.at;
    for (const Death& death : deaths_) {
      if (death.event == report_.events) die(death.who);
    }
    ++report_.events;
    event.run();
    goes_on = after();
  }
}

void Engine::After(int64_t ticks, Then run) { events_.push({now_ + ticks, order_++, std::move(run)}); }

int64_t Engine::Random(int64_t bound) {
  return static_cast<int64_t>(random_() % static_cast<uint64_t>(std::max<int64_t>(bound, 1)));
}

void Engine::Trace(const std::string& text) const {
  if (trace_) std::cout << absl::StrCat(report_.events, " ", absl::FormatDuration(now_ * tick_), ": ", text, "\n");
}

void Engine::Violation(const std::string& text) {
  Trace("VIOLATION " + text);
  if (!report_.violation.empty()) return;
  report_.violation = absl::StrCat(text, " (event ", report_.events, ", ", absl::FormatDuration(now_ * tick_), ")");
}

}  // namespace lockstep::launch::simulator
