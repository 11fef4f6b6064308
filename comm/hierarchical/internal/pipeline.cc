#include "lockstep/comm/hierarchical/internal/pipeline.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "absl/time/time.h"
#include "lockstep/base/mutex_lock.h"
#include "lockstep/base/status.h"
#include "lockstep/base/thread.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/comm/hierarchical/internal/piece.h"
#include "lockstep/comm/hierarchical/internal/pieces.h"
#include "lockstep/comm/shm/internal/tensors.h"
#include "lockstep/comm/shm/reduce.h"

namespace lockstep::comm::hierarchical::internal {
namespace {

// So many elements at a time are divided without LibTorch's threads, which would compete with the program's.
constexpr int64_t kDividedAtOnce = 32 << 10;

template <typename Options>
Options With(const c10d::ReduceOp& op) {
  Options options;
  options.reduceOp = op;
  return options;
}

void Divide(const at::Tensor& flat, int64_t divisor) {
  for (int64_t begin = 0; begin < flat.numel(); begin += kDividedAtOnce) {
    flat.narrow(0, begin, std::min(kDividedAtOnce, flat.numel() - begin)).div_(divisor);
  }
}

std::exception_ptr Aborted() {
  return std::make_exception_ptr(StatusError(absl::AbortedError("the group was aborted")));
}

}  // namespace

absl::StatusOr<std::shared_ptr<Pipeline>> Pipeline::Create(Levels levels, std::chrono::milliseconds timeout) {
  std::shared_ptr<Pipeline> pipeline(new Pipeline(std::move(levels), timeout));
  LOCKSTEP_RETURN_IF_ERROR(pipeline->StartThreads());
  return pipeline;
}

Pipeline::Pipeline(Levels levels, std::chrono::milliseconds timeout) : levels_(std::move(levels)), timeout_(timeout) {}

Pipeline::~Pipeline() { Stop(); }

absl::Status Pipeline::StartThreads() {
  const bool two_hosts = !levels_.links || levels_.links->lanes() == 1;
  const auto start = [this](const char* name, std::function<void()> run) -> absl::Status {
    LOCKSTEP_ASSIGN_OR_RETURN(threads_.emplace_back(), StartThread(name, std::move(run)));
    return absl::OkStatus();
  };
  LOCKSTEP_RETURN_IF_ERROR(start("the hierarchical backend's inward thread", [this] { RunInward(); }));
  LOCKSTEP_RETURN_IF_ERROR(start("the hierarchical backend's across thread", [this, two_hosts] {
    RunThread(kAcross, [this, two_hosts](Piece& piece) {
      Across(piece);
      if (two_hosts) {
        Outward(piece);
      } else {
        PassOn(kOutward, piece);
        SendResults(piece);
      }
    });
  }));
  if (two_hosts) return absl::OkStatus();
  return start("the hierarchical backend's outward thread",
               [this] { RunThread(kOutward, [this](Piece& piece) { Outward(piece); }); });
}

void Pipeline::Stop() {
  {
    MutexLock lock(mutex_);
    stopped_ = true;
  }
  Abort();
  for (std::thread& thread : threads_) {
    if (thread.joinable()) thread.join();
  }
}

void Pipeline::Abort() {
  Fail(Aborted());
  levels_.inward->abort();
  levels_.outward->abort();
  if (levels_.links) levels_.links->Abort();
}

void Pipeline::Fail(std::exception_ptr error) {
  MutexLock lock(mutex_);
  if (!failure_) failure_ = std::move(error);
  calls_.clear();
  for (auto& pieces : pieces_) pieces.clear();
}

std::shared_ptr<Call> Pipeline::Push(const std::vector<at::Tensor>& tensors, const c10d::ReduceOp& op) {
  auto call = std::make_shared<Call>();
  call->average = op == c10d::ReduceOp::AVG;
  call->op = call->average ? c10d::ReduceOp(c10d::ReduceOp::SUM) : op;
  for (const at::Tensor& tensor : tensors) {
    shm::internal::BufferOf("all_reduce", tensor);
    shm::internal::OpFor("all_reduce", op, tensor);
    TORCH_CHECK_NOT_IMPLEMENTED(op != c10d::ReduceOp::PREMUL_SUM, "hierarchical: all_reduce has no premul_sum");
    call->tensors.push_back(tensor.detach().view({-1}));
  }
  return Enqueue(std::move(call));
}

std::shared_ptr<Call> Pipeline::Push(std::unique_ptr<Exchange> exchange) {
  auto call = std::make_shared<Call>();
  call->exchange = std::move(exchange);
  return Enqueue(std::move(call));
}

std::shared_ptr<Call> Pipeline::Enqueue(std::shared_ptr<Call> call) {
  MutexLock lock(mutex_);
  call->number = next_number_++;
  if (failure_) return call;
  last_ = call;
  calls_.push_back(call);
  return call;
}

bool Pipeline::Test(const Call& call) {
  MutexLock lock(mutex_);
  return call.done || failure_;
}

void Pipeline::Finish(const Call& call, std::chrono::milliseconds timeout) {
  const auto limit = timeout.count() > 0 ? std::min(timeout, timeout_) : timeout_;
  const auto ended = [this, &call] {
    mutex_.AssertHeld();
    return call.done || failure_ != nullptr;
  };
  MutexLock lock(mutex_);
  const bool in_time = mutex_.AwaitWithTimeout(absl::Condition(&ended), absl::FromChrono(limit));
  TORCH_CHECK_WITH(DistBackendError, in_time, "timed out after ", limit.count(), " ms");
  if (!call.done) std::rethrow_exception(failure_);
}

void Pipeline::FinishAll() {
  std::shared_ptr<Call> last;
  {
    MutexLock lock(mutex_);
    last = last_;
  }
  if (last) Finish(*last, timeout_);
}

bool Pipeline::NextCall(std::shared_ptr<Call>& call) {
  const auto ready = [this] {
    mutex_.AssertHeld();
    return IsStoppedLocked() || !calls_.empty();
  };
  MutexLock lock(mutex_);
  mutex_.Await(absl::Condition(&ready));
  if (IsStoppedLocked()) return false;
  call = std::move(calls_.front());
  calls_.pop_front();
  return true;
}

bool Pipeline::NextPiece(Phase phase, Piece& piece) {
  const auto ready = [this, phase] {
    mutex_.AssertHeld();
    return IsStoppedLocked() || !pieces_[phase].empty();
  };
  MutexLock lock(mutex_);
  mutex_.Await(absl::Condition(&ready));
  if (IsStoppedLocked()) return false;
  piece = std::move(pieces_[phase].front());
  pieces_[phase].pop_front();
  return true;
}

void Pipeline::PassOn(Phase phase, Piece piece) {
  MutexLock lock(mutex_);
  if (!IsStoppedLocked()) pieces_[phase].push_back(std::move(piece));
}

void Pipeline::RunInward() {
  const at::NoGradGuard no_grad;
  try {
    std::shared_ptr<Call> call;
    while (NextCall(call)) {
      if (call->exchange) ExchangeInward(call);
      uint32_t number = 0;
      for (const at::Tensor& tensor : call->tensors) {
        const int64_t parts = levels_.even && !IsSmall(tensor) ? levels_.inward->getSize() : 1;
        // Two hosts exchange whole parts, and need no shares.
        const auto shares = static_cast<int64_t>(levels_.hosts.size() == 2 ? 1 : levels_.hosts.size());
        for (const Range& range : CutIntoPieces(tensor.numel(), tensor.element_size(), parts, shares)) {
          Piece piece = MakePiece(levels_, call, tensor, range);
          piece.header.piece = number++;
          piece.number = ++made_;
          Inward(piece);
          PassOn(kAcross, piece);
          SendShares(piece);
        }
      }
      Piece end;
      end.call = std::move(call);
      end.ends_call = true;
      PassOn(kAcross, std::move(end));
    }
  } catch (...) {
    Fail(std::current_exception());
  }
}

void Pipeline::ExchangeInward(const std::shared_ptr<Call>& call) {
  for (uint32_t number = 0; number < call->exchange->pieces(); ++number) {
    call->exchange->Inward(number, timeout_);
    Piece piece;
    piece.call = call;
    piece.header.piece = number;
    PassOn(kAcross, std::move(piece));
    call->exchange->Send(number, call->number, timeout_);
  }
}

void Pipeline::RunThread(Phase phase, const std::function<void(Piece&)>& take) {
  const at::NoGradGuard no_grad;
  try {
    while (true) {
      Piece piece;
      if (!NextPiece(phase, piece)) return;
      take(piece);
    }
  } catch (...) {
    Fail(std::current_exception());
  }
}

void Pipeline::Inward(Piece& piece) {
  const c10d::ReduceOp& op = piece.call->op;
  c10::intrusive_ptr<c10d::Work> work;
  std::vector<at::Tensor> tensors = {piece.data};
  switch (piece.way) {
    case Piece::Way::kWhole:
      work = levels_.inward->allreduce(tensors, With<c10d::AllreduceOptions>(op));
      break;
    case Piece::Way::kParts:
      // In place: a rank's own part is not staged for the others.
      work = levels_.inward->_reduce_scatter_base(piece.part, piece.data, With<c10d::ReduceScatterOptions>(op));
      break;
    case Piece::Way::kFirstRank:
      work = levels_.inward->reduce(tensors, With<c10d::ReduceOptions>(op));
      break;
  }
  work->wait(timeout_);
}

void Pipeline::SendShares(const Piece& piece) {
  if (!levels_.links) return;
  const int size = levels_.links->size(), rank = levels_.links->rank();
  for (int distance = 1; distance < size; ++distance) {
    const int peer = (rank + distance) % size;
    const Range share = piece.Share(peer, size);
    ThrowIfError(levels_.links->Send(peer, 0, piece.HeaderFor(share), piece.At(share.begin), timeout_));
  }
  MutexLock lock(mutex_);
  sent_ = piece.number;
}

void Pipeline::AwaitSent(const Piece& piece) {
  const auto sent = [this, &piece] {
    mutex_.AssertHeld();
    return IsStoppedLocked() || sent_ >= piece.number;
  };
  MutexLock lock(mutex_);
  mutex_.Await(absl::Condition(&sent));
  if (IsStoppedLocked()) std::rethrow_exception(Aborted());
}

// The ranks that send at a distance of 1 are heard first, as they send first, so no ranks wait for each other in a
// circle.
void Pipeline::Across(Piece& piece) {
  if (piece.ends_call || !levels_.links) return;
  if (const Exchange* const exchange = piece.call->exchange.get()) {
    return exchange->Receive(piece.header.piece, piece.call->number, timeout_);
  }
  Links& links = *levels_.links;
  const int size = links.size(), rank = links.rank();
  const Range share = piece.Share(rank, size);
  const PieceHeader header = piece.HeaderFor(share);
  if (scratch_.size() < header.bytes * (size - 1)) scratch_.resize(header.bytes * (size - 1));
  absl::InlinedVector<const char*, 8> inputs(size);
  for (int distance = 1; distance < size; ++distance) {
    const int peer = (rank - distance + size) % size;
    char* const to = scratch_.data() + header.bytes * (distance - 1);
    ThrowIfError(links.Receive(peer, 0, header, to, timeout_));
    inputs[peer] = to;
  }
  AwaitSent(piece);
  char* const own = piece.At(share.begin);
  inputs[rank] = own;
  piece.reduce(&own, 1, inputs.data(), size, share.count, nullptr);
  if (piece.call->average) Divide(piece.part.narrow(0, share.begin, share.count), levels_.size);
}

void Pipeline::SendResults(const Piece& piece) {
  if (piece.ends_call || piece.direct || !levels_.links) return;
  const int size = levels_.links->size(), rank = levels_.links->rank();
  const Range share = piece.Share(rank, size);
  for (int distance = 1; distance < size; ++distance) {
    const int peer = (rank + distance) % size;
    ThrowIfError(levels_.links->Send(peer, 1, piece.HeaderFor(share), piece.At(share.begin), timeout_));
  }
}

void Pipeline::Outward(Piece& piece) {
  if (piece.ends_call) {
    piece.call->tensors.clear();
    piece.call->exchange.reset();
    MutexLock lock(mutex_);
    piece.call->done = true;
    return;
  }
  if (const Exchange* const exchange = piece.call->exchange.get()) {
    return exchange->Outward(piece.header.piece, timeout_);
  }
  if (levels_.links && !piece.direct) {
    Links& links = *levels_.links;
    const int size = links.size(), rank = links.rank();
    for (int distance = 1; distance < size; ++distance) {
      const int peer = (rank - distance + size) % size;
      const Range share = piece.Share(peer, size);
      ThrowIfError(links.Receive(peer, 1, piece.HeaderFor(share), piece.At(share.begin), timeout_));
    }
  }
  std::vector<at::Tensor> tensors = {piece.data};
  if (piece.way == Piece::Way::kParts) {
    levels_.outward->_allgather_base(piece.data, piece.part)->wait(timeout_);
  } else if (piece.way == Piece::Way::kFirstRank) {
    levels_.outward->broadcast(tensors)->wait(timeout_);
  }
  if (piece.rest.defined()) piece.rest.copy_(piece.data.narrow(0, 0, piece.rest.numel()));
}

}  // namespace lockstep::comm::hierarchical::internal
