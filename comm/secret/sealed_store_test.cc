// Over an in-process store, of which the test also is the stranger.

#include "lockstep/comm/secret/sealed_store.h"

#include <thread>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/libtorch_version.h"
#include "lockstep/base/torch_status.h"

namespace lockstep::comm {
namespace {

using C10dStore = c10::intrusive_ptr<c10d::Store>;

class SealedStoreTest : public ::testing::Test {
 protected:
  C10dStore Own(const std::string& secret = "0123456789abcdef") {
    return Sealed(open_, JobSecret::FromText(secret).value());
  }
  static absl::StatusCode GetCode(const C10dStore& store, const std::string& key) {
    return TorchStatus("", [&] { store->get(key); }).code();
  }

  const C10dStore open_ = c10::make_intrusive<c10d::HashStore>();  // as a stranger sees it
};

TEST_F(SealedStoreTest, IsTheStoreItselfWithoutASecret) { EXPECT_EQ(Sealed(open_, std::nullopt), open_); }

TEST_F(SealedStoreTest, WhatOneRankSetsTheOthersGetAndAStrangerCannotRead) {
  Own()->set("key", "the value");
  EXPECT_EQ(Own()->get_to_str("key"), "the value");
  EXPECT_THAT(open_->get_to_str("key"), ::testing::Not(::testing::HasSubstr("value")));
}

TEST_F(SealedStoreTest, WhatAStrangerSetsIsRefusedNamingTheKeyInFull) {
  open_->set("lockstep/group/key", "forged");
  const C10dStore prefixed = c10::make_intrusive<c10d::PrefixStore>("lockstep/group", Own());
  EXPECT_EQ(
      TorchStatus("", [&] { prefixed->get("key"); }),
      absl::PermissionDeniedError("\"lockstep/group/key\" was not written by a rank of this job: it is not sealed "
                                  "with a job secret"));
}

TEST_F(SealedStoreTest, AValueOfAnotherKeyOrAnotherJobIsRefused) {
  Own()->set("a", "x");
  open_->set("b", open_->get("a"));
  EXPECT_EQ(GetCode(Own(), "b"), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(GetCode(Own("another secret of 16"), "a"), absl::StatusCode::kPermissionDenied);
}

TEST_F(SealedStoreTest, ComparesTheValuesThemselves) {
  EXPECT_EQ(Own()->compareSet("key", "", "first"), "first");
  EXPECT_EQ(Own()->compareSet("key", "", "second"), "first");
  EXPECT_EQ(Own()->compareSet("key", "other", "second"), "first");
  EXPECT_EQ(Own()->compareSet("key", "first", "second"), "second");
  EXPECT_EQ(Own()->get_to_str("key"), "second");
  EXPECT_EQ(Own()->compareSet("none", "expected", "desired"), open_->compareSet("none", "expected", "desired"));
}

TEST_F(SealedStoreTest, GetsSeveralValuesAtOnceUnlessAStrangerSetOne) {
  Own()->set("a", "first");
  Own()->set("b", "second");
  const auto values = Own()->multiGet({"b", "a"});
  ASSERT_EQ(values.size(), 2);
  EXPECT_EQ(std::string(values[0].begin(), values[0].end()), "second");
  EXPECT_EQ(std::string(values[1].begin(), values[1].end()), "first");
  open_->set("b", "forged");
  EXPECT_EQ(TorchStatus("",
                        [&] {
                          Own()->multiGet({"a", "b"});
                        }),
            absl::PermissionDeniedError("\"b\" was not written by a rank of this job: it is not sealed with a job "
                                        "secret"));
}

TEST_F(SealedStoreTest, CountsInValuesThatAreSealedToo) {
  Own()->set("n", "40");
  EXPECT_EQ(Own()->add("n", 1), 41);
  EXPECT_EQ(Own()->add("n", 0), 41);
  EXPECT_EQ(Own()->get_to_str("n"), "41");
  EXPECT_EQ(Own()->add("new", 0), 0);
  EXPECT_EQ(Own()->add("new", -2), -2);
  open_->set("n", "1000");
  EXPECT_EQ(TorchStatus("", [&] { Own()->add("n", 1); }).code(), absl::StatusCode::kPermissionDenied);
  Own()->set("n", "many");
  EXPECT_EQ(TorchStatus("", [&] { Own()->add("n", 1); }),
            absl::InvalidArgumentError("add: \"n\" does not hold a number"));
}

TEST_F(SealedStoreTest, NoCountOfManyThreadsIsLost) {
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      const C10dStore own = Own();
      for (int j = 0; j < 100; ++j) own->add("n", 1);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(Own()->add("n", 0), 800);
}

TEST_F(SealedStoreTest, KeysAreAsTheyAre) {
  const C10dStore own = Own();
  own->set("key", "x");
  EXPECT_TRUE(own->check({"key"}));
  own->wait({"key"}, std::chrono::milliseconds(1));
  EXPECT_TRUE(open_->check({"key"}));
#if LOCKSTEP_LIBTORCH_AT_LEAST(2, 8)
  EXPECT_EQ(own->clone()->get_to_str("key"), "x");
#endif
  EXPECT_TRUE(own->deleteKey("key"));
  EXPECT_FALSE(open_->check({"key"}));
  own->setTimeout(std::chrono::milliseconds(7));
  EXPECT_EQ(open_->getTimeout(), std::chrono::milliseconds(7));
}

}  // namespace
}  // namespace lockstep::comm
