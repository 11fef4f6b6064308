#include "lockstep/checkpoint/archive/snapshot.h"

#include <ATen/ops/empty.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lockstep/base/status.h"
#include "lockstep/base/torch_status.h"
#include "lockstep/checkpoint/file/in_threads.h"

namespace lockstep::checkpoint::archive {
namespace {

constexpr size_t kAlignment = 64;
// One core does not use the memory's whole bandwidth: 1 GiB takes one thread 160 ms and two 80 ms (a 2-core Xeon).
constexpr int kMostThreads = 4;
constexpr size_t kWorthAThread = size_t{32} << 20;
constexpr size_t kPiece = size_t{8} << 20;

struct Piece {
  char* to;
  const char* from;
  size_t count;
};

// The storages that are copied to one of the two memories.
size_t& SizeOf(const c10::Storage& storage, size_t& host, size_t& pinned) {
  return storage.device().is_cpu() ? host : pinned;
}

size_t Aligned(size_t size) { return (size + kAlignment - 1) / kAlignment * kAlignment; }

void CopyPieces(const std::vector<Piece>& pieces, size_t total) {
  std::atomic<size_t> next{0};
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  const int threads = std::min(
      {kMostThreads, std::max(cores, 1), 1 + static_cast<int>(std::min<size_t>(total / kWorthAThread, kMostThreads))});
  file::InThreads(threads, [&] {
    for (size_t i = next++; i < pieces.size(); i = next++) std::memcpy(pieces[i].to, pieces[i].from, pieces[i].count);
  });
}

void AddPieces(std::vector<Piece>& pieces, char* to, const c10::Storage& storage) {
  const char* from = static_cast<const char*>(storage.data());
  for (size_t done = 0; done < storage.nbytes(); done += kPiece) {
    pieces.push_back({to + done, from + done, std::min(kPiece, storage.nbytes() - done)});
  }
}

absl::Status CopyFromDevice(const at::Tensor& to, const c10::Storage& storage) {
  return TorchStatus("copy from the device", [&] {
    at::Tensor bytes = at::empty({0}, at::TensorOptions(storage.device()).dtype(at::kByte));
    bytes.set_(storage, 0, {to.numel()}, {1});
    to.copy_(bytes);
  });
}

// Storages that lie in `memory`, which outlives them.
c10::Storage Borrowed(char* memory, size_t size) {
  return c10::Storage(c10::Storage::use_byte_size_t(), size, c10::DataPtr(memory, c10::kCPU), nullptr, false);
}

}  // namespace

Snapshot::~Snapshot() {
  if (host_) munmap(host_, host_size_);
}

absl::Status Snapshot::ReserveHost(size_t size) {
  if (size <= host_size_) return absl::OkStatus();
  if (host_) munmap(host_, host_size_);
  host_size_ = 0;
  void* const memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  host_ = memory == MAP_FAILED ? nullptr : static_cast<char*>(memory);
  if (!host_) {
    return absl::ResourceExhaustedError(absl::StrCat("no memory for a copy of ", size, " bytes of tensors"));
  }
  host_size_ = size;
  madvise(host_, host_size_, MADV_HUGEPAGE);
  return absl::OkStatus();
}

absl::Status Snapshot::ReservePinned(size_t size) {
  if (size == 0 || (pinned_.defined() && pinned_.numel() >= static_cast<int64_t>(size))) return absl::OkStatus();
  pinned_.reset();
  return TorchStatus(absl::StrCat("pinned memory for a copy of ", size, " bytes of tensors"), [&] {
    pinned_ = at::empty({static_cast<int64_t>(size)}, at::TensorOptions(at::kByte).pinned_memory(true));
  });
}

absl::Status Snapshot::Reserve(const EncodedValue& encoded) {
  size_t host = 0, pinned = 0;
  for (const c10::Storage& storage : encoded.storages) SizeOf(storage, host, pinned) += Aligned(storage.nbytes());
  LOCKSTEP_RETURN_IF_ERROR(ReserveHost(host));
  return ReservePinned(pinned);
}

void Snapshot::Touch() {
  // Linux before 5.14 lacks this; the first copy is then slower.
  if (host_) madvise(host_, host_size_, MADV_POPULATE_WRITE);
}

absl::Status Snapshot::Take(EncodedValue& encoded) {
  LOCKSTEP_RETURN_IF_ERROR(Reserve(encoded));
  char* const pinned_memory = pinned_.defined() ? static_cast<char*>(pinned_.data_ptr()) : nullptr;
  std::vector<c10::Storage> copies;
  std::vector<Piece> pieces;
  size_t host = 0, pinned = 0;
  for (const c10::Storage& storage : encoded.storages) {
    const bool here = storage.device().is_cpu();
    size_t& used = SizeOf(storage, host, pinned);
    copies.push_back(Borrowed((here ? host_ : pinned_memory) + used, storage.nbytes()));
    if (here) {
      AddPieces(pieces, host_ + used, storage);
    } else if (storage.nbytes() > 0) {
      LOCKSTEP_RETURN_IF_ERROR(CopyFromDevice(pinned_.narrow(0, used, storage.nbytes()), storage));
    }
    used += Aligned(storage.nbytes());
  }
  CopyPieces(pieces, host);
  encoded.storages = std::move(copies);
  return absl::OkStatus();
}

}  // namespace lockstep::checkpoint::archive
