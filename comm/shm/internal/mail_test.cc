#include "lockstep/comm/shm/internal/mail.h"

#include <malloc.h>
#include <sys/mman.h>
#include <unistd.h>

#include <memory>
#include <vector>

#include "gtest/gtest.h"

namespace lockstep::comm::shm::internal {
namespace {

// Memory of the layout of `size` ranks, which takes pages only when they are touched.
class Memory {
 public:
  explicit Memory(int size) : bytes_(Layout::FixedBytes(size)) {
    data_ = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (data_ == MAP_FAILED) abort();
  }
  ~Memory() { munmap(data_, bytes_); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  char* data() const { return static_cast<char*>(data_); }
  size_t bytes() const { return bytes_; }

  size_t TouchedPages() const {
    std::vector<unsigned char> touched(bytes_ / getpagesize());
    if (mincore(data_, bytes_, touched.data()) != 0) abort();
    size_t count = 0;
    for (const unsigned char page : touched) count += page & 1;
    return count;
  }

 private:
  const size_t bytes_;
  void* data_;
};

std::shared_ptr<Message> ReceiveOneByteFrom(int peer, char* byte) {
  return std::make_shared<Message>(Kind::kReceive, peer, /*tag=*/0, Buffer{byte, 1}, nullptr, /*number=*/0);
}

TEST(Mail, TakesLittleMemoryForRanksWithoutMessages) {
  const Memory memory(kMostRanks);
  Port port(Layout(memory.data(), kMostRanks), 0, kMostRanks, memory.bytes());
  const size_t before = mallinfo2().uordblks;
  const Mail mail(port);
  EXPECT_LE(mallinfo2().uordblks - before, size_t{20} * kMostRanks);
}

TEST(Mail, ReadsTheMailboxesOnlyOfRanksThatAReceiveNames) {
  constexpr int kRanks = 32;
  const Memory memory(kRanks);
  Port port(Layout(memory.data(), kRanks), 0, kRanks, memory.bytes());
  Mail mail(port);
  char byte = 0;
  mail.Receive(ReceiveOneByteFrom(7, &byte));
  ASSERT_TRUE(mail.Step().ok());
  EXPECT_EQ(memory.TouchedPages(), 1u);
  mail.Receive(ReceiveOneByteFrom(kAnySource, &byte));
  ASSERT_TRUE(mail.Step().ok());
  EXPECT_GE(memory.TouchedPages(), size_t{kRanks});
}

}  // namespace
}  // namespace lockstep::comm::shm::internal
