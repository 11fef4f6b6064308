// The line search of LBFGS.

#ifndef LOCKSTEP_OPTIM_INTERNAL_WOLFE_H_
#define LOCKSTEP_OPTIM_INTERNAL_WOLFE_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "lockstep/optim/internal/scalar.h"

namespace lockstep::optim::internal {

// A point on the line: its place, the loss, the gradient, and the gradient's product with the line's direction.
struct LinePoint {
  Scalar t;
  double loss;
  at::Tensor gradient;
  Scalar slope;
};

// Finds a point that meets the strong Wolfe conditions: J. Nocedal, S. Wright, "Numerical Optimization", 2006, algorithms
// 3.5 and 3.6, with the bits of Python 2.11's LBFGS. Pure, apart from `evaluate`.
class LineSearch {
 public:
  // `start` has t = 0. `reach` is the largest component of the direction. Stops after `limit` steps, or if the bracket is
  // shorter than `tolerance`.
  LineSearch(std::function<LinePoint(const Scalar& t)> evaluate, LinePoint start, Scalar reach, double tolerance,
             int64_t limit)
      : evaluate_(std::move(evaluate)),
        start_(std::move(start)),
        reach_(std::move(reach)),
        tolerance_(tolerance),
        limit_(limit) {}

  // Begins with `t`. Call it once.
  LinePoint Run(const Scalar& t) { return Zoom(Bracket(t)); }
  int64_t evaluations() const { return evaluations_; }

 private:
  LinePoint Evaluate(const Scalar& t);
  bool IsTooHigh(const LinePoint& point) const;
  bool IsFlat(const LinePoint& point) const;
  std::vector<LinePoint> Bracket(const Scalar& t);
  Scalar Within(const std::vector<LinePoint>& bracket);
  LinePoint Zoom(std::vector<LinePoint> bracket);

  std::function<LinePoint(const Scalar& t)> evaluate_;
  LinePoint start_;
  Scalar reach_;
  double tolerance_;
  int64_t limit_, steps_ = 0, evaluations_ = 0;
  bool is_slow_ = false;  // the last interpolation was close to an end of the bracket
};

}  // namespace lockstep::optim::internal

#endif  // LOCKSTEP_OPTIM_INTERNAL_WOLFE_H_
