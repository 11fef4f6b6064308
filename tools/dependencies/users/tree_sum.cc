#include "lockstep/comm/tree_sum/tree_sum.h"

#include <ATen/ops/ones.h>

int main() {
  const auto group = lockstep::comm::InitProcessGroup({});
  if (!group.ok()) return 1;
  const auto sum = lockstep::comm::TreeSum::Create(group->get(), lockstep::comm::EvenBounds(8, (*group)->size()));
  at::Tensor output = at::ones({1});
  return sum.ok() && sum->Start(output, {at::ones({1})}, /*divisor=*/8).Wait().ok() ? 0 : 1;
}
