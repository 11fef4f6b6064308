#include "lockstep/checkpoint/file/in_threads.h"

#include <pthread.h>

#include <atomic>
#include <future>
#include <vector>

#include "gtest/gtest.h"

namespace lockstep::checkpoint::file {
namespace {

TEST(InThreads, RunsAsManyAtATimeAsItIsTold) {
  constexpr int kThreads = 4;
  std::atomic<int> here{0};
  std::promise<void> all_here;
  std::shared_future<void> all = all_here.get_future().share();
  InThreads(kThreads, [&] {
    if (++here == kThreads) all_here.set_value();
    all.wait();
  });
  EXPECT_EQ(here, kThreads);
}

TEST(InThreads, DoesAllOfItWhereTheSystemGivesNoThreads) {
  pthread_attr_t before, attributes;
  ASSERT_EQ(pthread_getattr_default_np(&before), 0);
  ASSERT_EQ(pthread_attr_init(&attributes), 0);
  // More than the address space has room for.
  ASSERT_EQ(pthread_attr_setstacksize(&attributes, size_t{1} << 60), 0);
  ASSERT_EQ(pthread_setattr_default_np(&attributes), 0);
  std::vector<int> done(100);
  std::atomic<size_t> next{0};
  InThreads(4, [&] {
    for (size_t i = next++; i < done.size(); i = next++) ++done[i];
  });
  ASSERT_EQ(pthread_setattr_default_np(&before), 0);
  EXPECT_EQ(done, std::vector<int>(100, 1));
}

}  // namespace
}  // namespace lockstep::checkpoint::file
