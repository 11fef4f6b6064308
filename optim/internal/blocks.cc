#include "lockstep/optim/internal/blocks.h"

#include <ATen/ops/empty_like.h>

#include <algorithm>
#include <cstddef>

#include "lockstep/optim/internal/parallel.h"
#include "lockstep/optim/internal/root.h"

namespace lockstep::optim::internal {
namespace {

// Elements that are worth a thread, as in ATen.
constexpr int64_t kGrain = 32768;

// Returns true if an instruction reads or writes the register.
bool IsOperand(const Program& program, int64_t index) {
  return std::any_of(program.instructions().begin(), program.instructions().end(), [&](const Instruction& i) {
    return i.to == index || i.a == index || i.b == index || i.c == index;
  });
}

// Runs programs on a thread, with memory for their temporary tensors.
template <typename T>
class BlockRunner {
 public:
  explicit BlockRunner(Instructions instructions) : instructions_(instructions) {}

  // Runs the program on elements from `begin` to `end`, block by block.
  void Run(const Task& task, int64_t begin, int64_t end) {
    Prepare(task, begin);
    for (; begin < end; begin += kBlock) RunBlock(task.program, std::min(kBlock, end - begin));
  }

 private:
  void Prepare(const Task& task, int64_t begin) {
    const size_t tensors = task.registers.size(), temporaries = task.program.registers() - tensors;
    if (temporaries_.size() < temporaries * kBlock) temporaries_.resize(temporaries * kBlock);
    data_.assign(task.program.registers(), nullptr);
    operands_.clear();
    for (size_t i = 0; i < tensors; ++i) {
      if (!IsOperand(task.program, static_cast<int64_t>(i))) continue;
      operands_.push_back(i);
      data_[i] = static_cast<T*>(task.registers[i].data_ptr()) + begin;
    }
    for (size_t i = 0; i < temporaries; ++i) data_[tensors + i] = temporaries_.data() + i * kBlock;
  }

  void RunBlock(const Program& program, int64_t n) {
    const size_t count = program.instructions().size();
    for (size_t k = 0; k < count; ++k) {
      const Instruction& i = program.instructions()[k];
      for (size_t o = k; o < operands_.size(); o += count) Prefetch(data_[operands_[o]] + n);
      if (i.op == Op::kSqrt) {
        Root(data_[i.a], data_[i.to], n);
      } else {
        KernelFor<T>(i.op, instructions_)(data_[i.to], data_[i.a], data_[i.b], data_[i.c], static_cast<T>(i.scalar), n);
      }
    }
    for (const size_t operand : operands_) data_[operand] += n;
  }

  // Fetches the next block of a tensor, while the processor computes.
  static void Prefetch(const T* block) {
    for (int64_t i = 0; i < kBlock; i += 64 / sizeof(T)) __builtin_prefetch(block + i, 1, 2);
  }

  const Instructions instructions_;
  std::vector<T> temporaries_;
  std::vector<T*> data_;          // by register
  std::vector<size_t> operands_;  // registers of the task's tensors that the program reads or writes
};

// A cloned tensor of the state is the only one that may be undefined.
void DefineClones(Task& task) {
  for (const Instruction& i : task.program.instructions()) {
    if (i.op == Op::kClone && i.to < task.registers.size() && !task.registers[i.to].defined())
      task.registers[i.to] = at::empty_like(task.registers[kGradient]);
  }
}

// As ATen's operators do, so that autograd sees that a tensor has changed.
void BumpVersions(const Task& task) {
  for (const Instruction& i : task.program.instructions()) {
    if (i.to < task.registers.size()) task.registers[i.to].unsafeGetTensorImpl()->bump_version();
  }
}

// Runs what lies between `begin` and `end` when all tensors stand one after another. `ends` has their ends.
void RunBetween(const std::vector<Task*>& tasks, const std::vector<int64_t>& ends, Instructions instructions,
                int64_t begin, int64_t end) {
  BlockRunner<float> floats(instructions);
  BlockRunner<double> doubles(instructions);
  for (size_t i = std::upper_bound(ends.begin(), ends.end(), begin) - ends.begin(); begin < end; ++i) {
    const int64_t first = i == 0 ? 0 : ends[i - 1], last = std::min(end, ends[i]);
    if (tasks[i]->registers[kParameter].scalar_type() == at::kFloat) {
      floats.Run(*tasks[i], begin - first, last - first);
    } else {
      doubles.Run(*tasks[i], begin - first, last - first);
    }
    begin = last;
  }
}

}  // namespace

bool FitsBlocks(const Task& task) {
  const at::Tensor& parameter = task.registers[kParameter];
  if (!parameter.is_cpu() || parameter.layout() != at::kStrided || !parameter.is_non_overlapping_and_dense() ||
      (parameter.scalar_type() != at::kFloat && parameter.scalar_type() != at::kDouble)) {
    return false;
  }
  // A scalar of the state, such as the count of steps, is no operand.
  return std::all_of(task.registers.begin(), task.registers.end(), [&](const at::Tensor& tensor) {
    const bool scalar = tensor.defined() && tensor.dim() == 0;
    return !tensor.defined() || (scalar && !IsOperand(task.program, &tensor - task.registers.data())) ||
           (tensor.is_cpu() && tensor.layout() == at::kStrided && !tensor.is_neg() &&
            tensor.scalar_type() == parameter.scalar_type() && tensor.sizes() == parameter.sizes() &&
            tensor.strides() == parameter.strides());
  });
}

void RunBlocks(const std::vector<Task*>& tasks, Instructions instructions) {
  std::vector<int64_t> ends;
  int64_t total = 0;
  for (Task* task : tasks) {
    DefineClones(*task);
    ends.push_back(total += task->registers[kParameter].numel());
  }
  InParallel((total + kGrain - 1) / kGrain, [&](int64_t begin, int64_t end) {
    RunBetween(tasks, ends, instructions, begin * kGrain, std::min(total, end * kGrain));
  });
  for (const Task* task : tasks) BumpVersions(*task);
}

void Run(std::vector<Task>& tasks, bool foreach) {
  std::vector<Task*> blocks, together;
  for (Task& task : tasks) {
    if (FitsBlocks(task)) {
      blocks.push_back(&task);
    } else if (foreach && task.registers[kGradient].layout() == at::kStrided) {
      together.push_back(&task);
    } else {
      RunAten(task);
    }
  }
  RunBlocks(blocks);
  RunForeach(together);
}

}  // namespace lockstep::optim::internal
