#include "lockstep/ddp/testing/random_combination.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <optional>
#include <random>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace lockstep::ddp::testing {
namespace {

constexpr int kWider = 10;

// std's distributions differ between libraries. A seed must give the same combination everywhere.
class Dice {
 public:
  explicit Dice(uint64_t seed) : engine_(seed) {}
  int Below(int n) { return static_cast<int>(engine_() % n); }
  int Between(int low, int high) { return low + Below(high - low + 1); }
  bool OneIn(int n) { return Below(n) == 0; }
  double Share() { return static_cast<double>(engine_() >> 11) / static_cast<double>(1ULL << 53); }

 private:
  std::mt19937_64 engine_;
};

bool HasBranch(const Combination& c) {
  return std::any_of(c.layers.begin(), c.layers.end(), [](const LayerSpec& layer) { return layer.branch; });
}

std::vector<LayerSpec> RandomLayers(Dice& dice) {
  std::vector<LayerSpec> layers;
  const int usual_width = dice.Between(1, 24);
  const int depth = dice.Between(1, 6);
  int in = Combination::kInputs;
  for (int i = 0; i < depth; ++i) {
    LayerSpec layer;
    layer.in = in;
    layer.out = dice.OneIn(3) ? dice.Between(1, 24) : usual_width;
    layer.frozen_weight = i > 0 && dice.OneIn(8);
    layer.frozen_bias = dice.OneIn(8);
    if (layer.in == layer.out && i > 0) {
      layer.branch = dice.OneIn(2);
      layer.times = dice.OneIn(3) ? 2 : 1;
    }
    for (int j = 1; j < i && layer.tied_to < 0; ++j) {
      if (layers[j].tied_to < 0 && layers[j].in == layer.in && layers[j].out == layer.out && dice.OneIn(2))
        layer.tied_to = j;
    }
    in = layer.out;
    layers.push_back(layer);
  }
  return layers;
}

// One or several limits, each from a single double to the whole model.
void RandomBuckets(Dice& dice, Options& options) {
  const auto limit = [&] { return std::pow(10.0, -5 + 4 * dice.Share()); };
  const int kind = dice.Below(4);
  if (kind == 0) options.bucket_cap_mb_list = {limit(), limit(), limit()};
  if (kind >= 2) options.bucket_cap_mb = limit();
}

// The option that finds parameters without gradients, and whether there are any.
void RandomUse(Dice& dice, Combination& c) {
  c.options.static_graph = dice.OneIn(4);
  c.options.find_unused_parameters = dice.OneIn(3);
  const bool finds = c.options.static_graph || c.options.find_unused_parameters;
  if (HasBranch(c) && finds) c.branches = c.options.static_graph ? BranchUse::kSomeNever : BranchUse::kByChance;
  c.options.skip_all_reduce_unused_params = finds && dice.OneIn(3);
}

// The parameters of the last layers, if all of them are first used after the first layer's weight.
void RandomDelay(Dice& dice, Combination& c) {
  if (c.branches != BranchUse::kAlways || c.layers.size() < 2 || !dice.OneIn(4)) return;
  const int last = static_cast<int>(c.layers.size()) - 1;
  for (int i = dice.Between(1, last); i <= last; ++i) {
    if (c.layers[i].tied_to < 0 && !c.layers[i].frozen_weight)
      c.options.delay_all_reduce_named_params.push_back(absl::StrCat("weight", i));
    if (!c.layers[i].frozen_bias) c.options.delay_all_reduce_named_params.push_back(absl::StrCat("bias", i));
  }
  if (!c.options.delay_all_reduce_named_params.empty()) c.options.param_to_hook_all_reduce = "weight0";
}

void RandomJoin(Dice& dice, Combination& c) {
  c.steps_of_rank.assign(c.ranks, c.steps);
  // In a static graph, a branch that only a finished rank took is still used, with gradients of zero.
  if (c.branches == BranchUse::kSomeNever || !dice.OneIn(4)) return;
  c.join = true;
  for (int& steps : c.steps_of_rank) steps = dice.Between(0, c.steps);
  c.steps_of_rank[dice.Below(c.ranks)] = c.steps;
  // With fewer ranks than the divisor counts, averages of earlier passes would shrink at each further one; a hook
  // divides by the number of all ranks.
  c.averaged = 1;
  c.twice = false;
  c.divide_by_initial_world_size = c.hook || dice.OneIn(2);
}

MixedPrecision RandomPrecision(Dice& dice, bool same_buffer_dtype) {
  MixedPrecision mixed;
  if (same_buffer_dtype || dice.OneIn(2)) mixed.param_dtype = c10::ScalarType::BFloat16;
  if (dice.OneIn(2)) mixed.reduce_dtype = dice.OneIn(3) ? c10::ScalarType::BFloat16 : c10::ScalarType::Float;
  if (same_buffer_dtype || dice.OneIn(2)) mixed.buffer_dtype = c10::ScalarType::BFloat16;
  return mixed;
}

}  // namespace

uint64_t Mix(std::initializer_list<int64_t> parts) {
  uint64_t mixed = 0x9E3779B97F4A7C15ULL;
  for (const int64_t part : parts) {
    mixed = (mixed ^ static_cast<uint64_t>(part)) * 0xBF58476D1CE4E5B9ULL;
    mixed ^= mixed >> 29;
  }
  return mixed;
}

Combination RandomCombination(int seed) {
  Dice dice(Mix({seed}));
  Combination c;
  c.seed = seed;
  c.ranks = dice.Between(1, 4);
  c.layers = RandomLayers(dice);
  c.buffer = dice.OneIn(3);
  RandomBuckets(dice, c.options);
  RandomUse(dice, c);
  c.options.gradient_as_bucket_view = dice.OneIn(2);
  c.options.init_sync = !dice.OneIn(4);
  if (dice.OneIn(4)) c.options.non_finite = NonFinite::kReport;
  RandomDelay(dice, c);
  c.hook = dice.OneIn(4);
  c.set_to_none = dice.OneIn(2);
  c.keep_old_gradients = c.set_to_none && dice.OneIn(2);
  c.steps = dice.Between(3, 6);
  c.unsynced = dice.OneIn(3) ? dice.Between(1, 2) : 0;
  c.averaged = dice.OneIn(3) ? 2 : 1;
  c.twice = dice.OneIn(6);
  c.momentum = dice.OneIn(2) ? 0.9 : 0;
  c.weight_decay = dice.OneIn(3) ? 0.01 : 0;
  RandomJoin(dice, c);
  return c;
}

Combination RandomVirtualCombination(int seed) {
  Combination c = RandomCombination(seed);
  Dice dice(Mix({seed, 1}));
  c.ranks = dice.OneIn(2) ? dice.Between(1, 5) : dice.Between(6, 16);
  c.options.virtual_ranks = c.ranks;
  c.options.virtual_seed = dice.Below(3);
  c.steps = std::min(c.steps, 4);
  c.steps_of_rank.assign(c.ranks, c.steps);
  c.join = c.twice = false;  // one averaged backward
  c.averaged = 1;
  if (dice.OneIn(5)) {
    for (size_t i = 0; i < c.layers.size(); ++i) {  // for the gradient allocator
      if (i > 0) c.layers[i].in *= kWider;
      c.layers[i].out *= kWider;
    }
  }
  c.norm = dice.OneIn(3);
  if (dice.OneIn(3)) c.dropout = 0.25;
  if (dice.OneIn(2)) c.dtype = c10::ScalarType::Float;
  if (dice.OneIn(3)) c.options.mixed_precision = RandomPrecision(dice, /*same_buffer_dtype=*/c.norm || c.buffer);
  c.steps_between_zero_grad = dice.OneIn(3) ? dice.Between(2, 3) : 1;
  const auto backend = [&] { return dice.OneIn(2) ? "threads" : "shm"; };
  c.runs = {{1, "threads"}, {c.ranks, backend()}, {dice.Between(1, c.ranks), backend()}};
  return c;
}

int FirstSeed() {
  const char* const first = std::getenv("LOCKSTEP_RANDOM_FIRST");
  return first ? std::atoi(first) : 0;
}

std::string Describe(const Combination& c) {
  std::vector<std::string> layers;
  for (const LayerSpec& l : c.layers) {
    layers.push_back(absl::StrCat(l.in, "-", l.out, l.branch ? " branch" : "",
                                  l.tied_to >= 0 ? absl::StrCat(" tied to ", l.tied_to) : "",
                                  l.times > 1 ? absl::StrCat(" x", l.times) : "",
                                  l.frozen_weight ? " weight frozen" : "", l.frozen_bias ? " bias frozen" : ""));
  }
  std::vector<std::string> runs;
  for (const VirtualRun& run : c.runs) runs.push_back(absl::StrCat(run.ranks, " over ", run.backend));
  const Options& o = c.options;
  const auto dtype = [](std::optional<c10::ScalarType> type) { return type ? c10::toString(*type) : "none"; };
  const MixedPrecision mixed = o.mixed_precision.value_or(MixedPrecision());
  const char* const test = c.runs.empty() ? "random_test" : "virtual_ranks_random_test";
  return absl::StrCat(
      "./bazelw test //ddp:", test, " --test_env=LOCKSTEP_RANDOM_FIRST=", c.seed, " --test_filter='*/", c.seed, "'\n",
      c.ranks, " ranks, layers [", absl::StrJoin(layers, ", "), "], buffer ", c.buffer, ", branches ",
      static_cast<int>(c.branches), ", cap ", o.bucket_cap_mb ? absl::StrCat(*o.bucket_cap_mb) : "default", ", caps [",
      absl::StrJoin(o.bucket_cap_mb_list, ", "), "], view ", o.gradient_as_bucket_view, ", static ", o.static_graph,
      ", find_unused ", o.find_unused_parameters, ", skip ", o.skip_all_reduce_unused_params, ", init_sync ",
      o.init_sync, ", non_finite ", static_cast<int>(o.non_finite), ", delayed [",
      absl::StrJoin(o.delay_all_reduce_named_params, ", "), "] until ", o.param_to_hook_all_reduce, ", hook ", c.hook,
      ", set_to_none ", c.set_to_none, ", keep ", c.keep_old_gradients, ", unsynced ", c.unsynced, ", averaged ",
      c.averaged, ", twice ", c.twice, ", join ", c.join, ", divide_by_initial ", c.divide_by_initial_world_size,
      ", steps [", absl::StrJoin(c.steps_of_rank, ", "), "], ", dtype(c.dtype), ", mixed ",
      o.mixed_precision.has_value(), " [", dtype(mixed.param_dtype), ", ", dtype(mixed.reduce_dtype), ", ",
      dtype(mixed.buffer_dtype), "], norm ", c.norm, ", dropout ", c.dropout, ", zero_grad every ",
      c.steps_between_zero_grad, ", virtual_ranks ", o.virtual_ranks, " on [", absl::StrJoin(runs, ", "), "]");
}

}  // namespace lockstep::ddp::testing
