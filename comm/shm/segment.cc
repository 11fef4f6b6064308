#include "lockstep/comm/shm/segment.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lockstep/base/posix/descriptors.h"
#include "lockstep/base/posix/unique_fd.h"
#include "lockstep/base/status.h"
#include "lockstep/comm/shm/internal/fd_passing.h"

namespace lockstep::comm::shm {
namespace {

using internal::FdServer;

constexpr char kAddressKey[] = "address";

}  // namespace

absl::StatusOr<std::unique_ptr<Segment>> Segment::Map(int fd, size_t bytes) {
  void* const data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
  if (data == MAP_FAILED) {
    return absl::FailedPreconditionError(absl::StrCat("mapping ", bytes, " bytes of shared memory: ", strerror(errno)));
  }
  // Both are advice. A kernel without them works too, more slowly.
  madvise(data, bytes, MADV_HUGEPAGE);
  madvise(data, bytes, MADV_DONTDUMP);
  return std::unique_ptr<Segment>(new Segment(static_cast<char*>(data), bytes));
}

Segment::~Segment() { munmap(data_, bytes_); }

absl::StatusOr<std::unique_ptr<Segment>> Segment::Share(
    int rank, int size, size_t bytes, size_t least, const Exchange& exchange, absl::Time deadline,
    const std::function<void(char* data, size_t bytes)>& initialise) {
  if (rank != 0) {
    LOCKSTEP_ASSIGN_OR_RETURN(const std::string address, exchange.get(kAddressKey, deadline));
    LOCKSTEP_ASSIGN_OR_RETURN(const UniqueFd fd, internal::ReceiveFd(address, rank, deadline, exchange.check));
    struct stat file;
    if (fstat(fd.get(), &file) != 0) return absl::FailedPreconditionError(strerror(errno));
    return Map(fd.get(), file.st_size);
  }
  const UniqueFd fd(memfd_create("lockstep", MFD_CLOEXEC));
  if (!fd.valid()) return DescriptorError("memfd_create", errno, absl::StatusCode::kFailedPrecondition);
  LOCKSTEP_ASSIGN_OR_RETURN(std::unique_ptr<Segment> segment, MapAsMuchAsPossible(fd.get(), bytes, least));
  initialise(segment->data(), segment->bytes());
  LOCKSTEP_ASSIGN_OR_RETURN(const std::unique_ptr<FdServer> server, FdServer::Listen());
  LOCKSTEP_RETURN_IF_ERROR(exchange.set(kAddressKey, server->address()));
  LOCKSTEP_RETURN_IF_ERROR(server->Serve(fd.get(), size, deadline, exchange.check));
  return segment;
}

absl::StatusOr<std::unique_ptr<Segment>> Segment::MapAsMuchAsPossible(int fd, size_t bytes, size_t least) {
  while (true) {
    absl::StatusOr<std::unique_ptr<Segment>> segment =
        ftruncate(fd, static_cast<off_t>(bytes)) == 0
            ? Map(fd, bytes)
            : absl::FailedPreconditionError(absl::StrCat("a shared file of ", bytes, " bytes: ", strerror(errno)));
    if (segment.ok() || bytes == least) return segment;
    bytes = std::max(least, bytes / 2);
  }
}

}  // namespace lockstep::comm::shm
