#include "lockstep/optim/internal/blocks.h"

#include <ATen/Parallel.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <torch/types.h>

#include <cstring>
#include <functional>
#include <limits>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "lockstep/optim/internal/parallel.h"

namespace lockstep::optim::internal {
namespace {

constexpr Register kFirst = kState, kSecond = kState + 1;

// Random numbers of many magnitudes, among them denormal ones, infinities, NaNs and zeros of both signs.
at::Tensor Values(int64_t n, at::ScalarType dtype, int seed) {
  at::manual_seed(seed);
  at::Tensor values = at::randn({n}, dtype) * at::randn({n}, dtype).mul_(3).exp_();
  const double smallest = dtype == at::kFloat ? 1e-41 : 1e-310, infinity = std::numeric_limits<double>::infinity();
  const double special[] = {smallest, -smallest, infinity, -infinity, std::numeric_limits<double>::quiet_NaN(),
                            0,        -0.0};
  for (int i = 0; i < 7 && i * 13 + seed < n; ++i) values[i * 13 + seed] = special[i];
  return values;
}

// A NaN's sign and payload are not defined.
bool SameBits(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor x = at::nan_to_num(a, 1, INFINITY, -INFINITY), y = at::nan_to_num(b, 1, INFINITY, -INFINITY);
  return a.isnan().equal(b.isnan()) && std::memcmp(x.data_ptr(), y.data_ptr(), x.nbytes()) == 0;
}

// Tasks with tensors of many lengths. Two calls with the same arguments give the same numbers.
std::vector<Task> Tasks(const std::function<void(Program&)>& write, at::ScalarType dtype) {
  std::vector<Task> tasks;
  for (const int64_t n :
       {int64_t{0}, int64_t{1}, int64_t{3}, int64_t{17}, int64_t{31}, kBlock - 1, kBlock + 1, 20 * kBlock + 3}) {
    Task task{Program(2), {}};
    write(task.program);
    for (int i = 0; i < kState + 2; ++i) task.registers.push_back(Values(n, dtype, i));
    tasks.push_back(std::move(task));
  }
  return tasks;
}

std::vector<Task> RunBy(const std::function<void(const std::vector<Task*>&)>& run,
                        const std::function<void(Program&)>& write, at::ScalarType dtype) {
  std::vector<Task> tasks = Tasks(write, dtype);
  std::vector<Task*> pointers;
  for (Task& task : tasks) {
    EXPECT_TRUE(FitsBlocks(task));
    pointers.push_back(&task);
  }
  run(pointers);
  return tasks;
}

void ExpectSame(const std::vector<Task>& found, const std::vector<Task>& expected, const std::string& what) {
  for (size_t i = 0; i < expected.size(); ++i) {
    for (int j = 0; j < kState + 2; ++j) {
      EXPECT_TRUE(SameBits(found[i].registers[j], expected[i].registers[j]))
          << what << ", " << expected[i].registers[j].numel() << " elements, register " << j;
    }
  }
}

// Every operator with several scalars, in place and into another register.
std::vector<std::pair<std::string, std::function<void(Program&)>>> Programs() {
  std::vector<std::pair<std::string, std::function<void(Program&)>>> programs;
  for (const Register to : {kParameter, kFirst}) {
    for (const double s : {-0.7, -1e-3, 0.0123, 0.7, 1.0, 30.0}) {
      const auto add = [&](const char* name, std::function<void(Program&)> write) {
        programs.emplace_back(absl::StrCat(name, " ", s, to == kParameter ? " in place" : ""), std::move(write));
      };
      add("neg", [=](Program& p) { p.Neg(to, kParameter); });
      add("clone", [=](Program& p) { p.Clone(kFirst, kGradient); });
      add("mul", [=](Program& p) { p.Mul(to, kParameter, kGradient); });
      add("mul scalar", [=](Program& p) { p.Mul(to, kParameter, s); });
      add("add", [=](Program& p) { p.Add(to, kParameter, kGradient, s); });
      add("add scalar", [=](Program& p) { p.AddScalar(to, kParameter, s); });
      add("div", [=](Program& p) { p.Div(to, kParameter, kGradient); });
      add("div scalar", [=](Program& p) { p.Div(to, kParameter, s); });
      add("sqrt", [=](Program& p) {
        const Register root = p.Temporary();
        p.Sqrt(root, kParameter);
        p.Mul(to, root, s);
      });
      add("maximum", [=](Program& p) { p.Maximum(to, kParameter, kGradient); });
      add("lerp", [=](Program& p) { p.Lerp(to, kParameter, kGradient, s); });
      add("addcmul", [=](Program& p) { p.Addcmul(to, kParameter, kGradient, kSecond, s); });
      add("addcdiv", [=](Program& p) { p.Addcdiv(to, kParameter, kGradient, kSecond, s); });
      add("copy", [=](Program& p) { p.Copy(kFirst, kGradient); });
      add("reciprocal", [=](Program& p) { p.Reciprocal(to, kParameter); });
      add("abs", [=](Program& p) { p.Abs(to, kParameter); });
    }
  }
  return programs;
}

void Blockwise(const std::vector<Task*>& tasks) { RunBlocks(tasks); }

class Blocks : public ::testing::TestWithParam<at::ScalarType> {};

INSTANTIATE_TEST_SUITE_P(Dtypes, Blocks, ::testing::Values(at::kFloat, at::kDouble),
                         [](const auto& info) { return std::string(c10::toString(info.param)); });

TEST_P(Blocks, RoundAsATenWithEachOfTheProcessorsInstructions) {
  const Instructions widest = WidestInstructions();
  for (const auto& [name, write] : Programs()) {
    std::vector<Task> expected = Tasks(write, GetParam());
    for (Task& task : expected) RunAten(task);
    for (int level = 0; level <= static_cast<int>(widest); ++level) {
      const auto run = [&](const std::vector<Task*>& tasks) { RunBlocks(tasks, static_cast<Instructions>(level)); };
      ExpectSame(RunBy(run, write, GetParam()), expected, absl::StrCat(name, ", level ", level));
    }
  }
}

TEST_P(Blocks, HaveTheSameBitsWithAnyNumberOfThreads) {
  const int threads = at::get_num_threads();
  const absl::Cleanup reset = [=] { at::set_num_threads(threads); };
  const auto write = [](Program& p) {
    const Register scratch = p.Temporary();
    p.Lerp(kFirst, kFirst, kGradient, 0.1);
    p.Sqrt(scratch, kSecond);
    p.AddScalar(scratch, scratch, 1e-8);
    p.Addcdiv(kParameter, kParameter, kFirst, scratch, -0.02);
  };
  at::set_num_threads(1);
  const std::vector<Task> one = RunBy(Blockwise, write, GetParam());
  at::set_num_threads(3);
  ExpectSame(RunBy(Blockwise, write, GetParam()), one, "three threads");
  std::vector<Task> aten = Tasks(write, GetParam());
  for (Task& task : aten) RunAten(task);
  ExpectSame(one, aten, "ATen");
}

TEST_P(Blocks, AForeachProgramHasTheLoopsBitsOnCpus) {
  for (const auto& [name, write] : Programs()) {
    std::vector<Task> expected = Tasks(write, GetParam());
    for (Task& task : expected) RunAten(task);
    ExpectSame(RunBy(RunForeach, write, GetParam()), expected, name);
  }
}

TEST(RunBlocks, TellsAutogradWhatHasChanged) {
  const at::Tensor parameter = at::ones({5}).set_requires_grad(true), gradient = at::ones({5});
  Task task{Program(0), {parameter, gradient}};
  task.program.Add(kParameter, kParameter, kGradient);
  const int64_t of_parameter = parameter._version(), of_gradient = gradient._version();
  RunBlocks({&task});
  EXPECT_GT(parameter._version(), of_parameter);
  EXPECT_EQ(gradient._version(), of_gradient);
}

TEST(FitsBlocks, RefusesWhatIsNoDenseTensorOfTheParametersForm) {
  const at::Tensor plain = at::ones({4, 6});
  const auto fits = [&](const at::Tensor& parameter, const at::Tensor& gradient, const at::Tensor& state = {}) {
    return FitsBlocks({Program(1), {parameter, gradient, state}});
  };
  EXPECT_TRUE(fits(plain, plain));
  EXPECT_TRUE(fits(plain.t(), plain.t(), plain.t()));
  EXPECT_TRUE(fits(plain, plain, at::ones({}))) << "a count of steps";
  EXPECT_FALSE(fits(plain, at::ones({6, 4}).t()));
  EXPECT_FALSE(fits(plain, plain, at::ones({6, 4})));
  EXPECT_FALSE(fits(plain, plain.to(at::kDouble)));
  EXPECT_FALSE(fits(plain.to(at::kBFloat16), plain.to(at::kBFloat16)));
  EXPECT_FALSE(fits(at::ones({4, 12}).slice(1, 0, 12, 2), plain));
  EXPECT_FALSE(fits(plain, plain.to_sparse()));
}

TEST(InParallel, CallsEachPartOnceOnAsManyThreadsAsLibTorchHas) {
  const int threads = at::get_num_threads();
  const absl::Cleanup reset = [=] { at::set_num_threads(threads); };
  at::set_num_threads(3);
  std::mutex mutex;
  std::set<std::thread::id> callers;
  std::vector<int> calls(1000, 0);
  InParallel(1000, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) ++calls[i];
    const std::lock_guard<std::mutex> lock(mutex);
    callers.insert(std::this_thread::get_id());
  });
  EXPECT_EQ(callers.size(), 3u);
  EXPECT_EQ(calls, std::vector<int>(1000, 1));
  InParallel(0, [](int64_t, int64_t) { ADD_FAILURE() << "there is no part"; });
}

}  // namespace
}  // namespace lockstep::optim::internal
