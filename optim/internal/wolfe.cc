#include "lockstep/optim/internal/wolfe.h"

#include <algorithm>
#include <cstddef>

namespace lockstep::optim::internal {
namespace {

constexpr double kDecrease = 1e-4, kCurvature = 0.9;

// The minimum of the cubic polynomial that has the losses and slopes of two points, or the middle if it has none.
Scalar CubicMinimum(const LinePoint& a, const LinePoint& b, const Scalar& low, const Scalar& high) {
  const Scalar d1 = a.slope + b.slope - 3 * (a.loss - b.loss) / (a.t - b.t);
  const Scalar square = d1 * d1 - a.slope * b.slope;
  if (!(0 <= square)) return (low + high) / 2;
  const Scalar d2 = Sqrt(square);
  const bool ascends = a.t <= b.t;
  const LinePoint &first = ascends ? a : b, &last = ascends ? b : a;
  const Scalar place = last.t - (last.t - first.t) * ((last.slope + d2 - d1) / (last.slope - first.slope + 2 * d2));
  return std::min(std::max(place, low), high);
}

}  // namespace

LinePoint LineSearch::Evaluate(const Scalar& t) {
  ++evaluations_;
  return evaluate_(t);
}

bool LineSearch::IsTooHigh(const LinePoint& point) const {
  return start_.loss + kDecrease * point.t * start_.slope < point.loss;
}

bool LineSearch::IsFlat(const LinePoint& point) const { return Abs(point.slope) <= -kCurvature * start_.slope; }

// Returns two points with such a point between them, or the point itself.
std::vector<LinePoint> LineSearch::Bracket(const Scalar& t) {
  LinePoint previous = start_, point = Evaluate(t);
  for (; steps_ < limit_; ++steps_) {
    if (IsTooHigh(point) || (steps_ > 1 && point.loss >= previous.loss)) return {previous, point};
    if (IsFlat(point)) return {point};
    if (0 <= point.slope) return {previous, point};
    const Scalar next = CubicMinimum(previous, point, point.t + 0.01 * (point.t - previous.t), point.t * 10);
    previous = point;
    point = Evaluate(next);
  }
  return {start_, point};
}

// Interpolates. The second time that the result is close to an end, it keeps a tenth away.
Scalar LineSearch::Within(const std::vector<LinePoint>& bracket) {
  const Scalar low = std::min(bracket[0].t, bracket[1].t), high = std::max(bracket[0].t, bracket[1].t);
  const Scalar t = CubicMinimum(bracket[0], bracket[1], low, high), margin = 0.1 * (high - low);
  const bool is_close = std::min(high - t, t - low) < margin;
  const bool moves = is_close && (is_slow_ || high <= t || t <= low);
  is_slow_ = is_close && !moves;
  if (!moves) return t;
  return Abs(t - high) < Abs(t - low) ? high - margin : low + margin;
}

LinePoint LineSearch::Zoom(std::vector<LinePoint> bracket) {
  if (bracket.size() == 1) return bracket.front();
  const auto lower = [&] { return bracket[0].loss <= bracket[1].loss ? size_t{0} : size_t{1}; };
  size_t low = lower();
  for (; steps_ < limit_; ++steps_) {
    if (Abs(bracket[1].t - bracket[0].t) * reach_ < tolerance_) break;
    const LinePoint point = Evaluate(Within(bracket));
    if (IsTooHigh(point) || point.loss >= bracket[low].loss) {
      bracket[1 - low] = point;
      low = lower();
      continue;
    }
    if (IsFlat(point)) return point;
    if (0 <= point.slope * (bracket[1 - low].t - bracket[low].t)) bracket[1 - low] = bracket[low];
    bracket[low] = point;
  }
  return bracket[low];
}

}  // namespace lockstep::optim::internal
