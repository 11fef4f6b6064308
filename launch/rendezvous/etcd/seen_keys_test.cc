#include "lockstep/launch/rendezvous/etcd/seen_keys.h"

#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/launch/rendezvous/etcd/signed_text.h"

namespace lockstep::launch::etcd {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class SeenKeysTest : public ::testing::Test {
 protected:
  KeyValue Key(const std::string& key, const std::string& text, int64_t revision) const {
    KeyValue kv;
    kv.key = key;
    kv.value = SignedText("secret", "job", key, text);
    kv.create_revision = kv.mod_revision = revision;
    return kv;
  }

  const JobKeys keys_ = JobKeys("job", "secret");
  const std::unique_ptr<SharedView> view_ = *SharedView::Create();
  std::vector<std::string> notices_;
  SeenKeys seen_ = SeenKeys(&keys_, view_.get(), [this](const std::string& notice) { notices_.push_back(notice); });
};

TEST_F(SeenKeysTest, AnOlderChangeOfTheLeaderChangesNothing) {
  ASSERT_TRUE(seen_.Apply({false, Key(keys_.leader(), "b", 7)}).ok());
  ASSERT_TRUE(seen_.Apply({true, Key(keys_.leader(), "", 6)}).ok());
  ASSERT_TRUE(seen_.Apply({false, Key(keys_.leader(), "a", 5)}).ok());
  ASSERT_TRUE(seen_.leader());
  EXPECT_EQ(seen_.leader()->create_revision, 7);
  ASSERT_TRUE(seen_.Apply({true, Key(keys_.leader(), "", 8)}).ok());
  EXPECT_FALSE(seen_.leader());
}

TEST_F(SeenKeysTest, ARangeReplacesAllThatWasKnown) {
  view_->SetLeads(true);  // only a leader sees the agents
  ASSERT_TRUE(seen_.Apply({false, Key(keys_.agent("a"), "old", 2)}).ok());
  ASSERT_TRUE(seen_.Apply({false, Key(keys_.leader(), "a", 3)}).ok());
  ASSERT_TRUE(seen_.Apply({false, Key(keys_.decision(), "plan", 4)}).ok());
  EXPECT_EQ(view_->Look().decision, "plan");
  ASSERT_TRUE(seen_.Replace({9, {Key(keys_.agent("b"), "new", 8)}}).ok());
  EXPECT_FALSE(seen_.leader());
  EXPECT_EQ(seen_.decision().revision, 0);
  const Rendezvous::View view = view_->Look();
  EXPECT_EQ(view.decision, "");
  ASSERT_EQ(view.agents.size(), 1u);
  EXPECT_EQ(view.agents.begin()->first, "b");
  EXPECT_EQ(view.agents.at("b").text, "new");
}

TEST_F(SeenKeysTest, AWrongSignatureIsAnErrorOfTheLeaderAndElseToldOnce) {
  KeyValue agent = Key(keys_.agent("a"), "text", 2), leader = Key(keys_.leader(), "a", 3);
  agent.value += "x";
  leader.value += "x";
  for (int i = 0; i < 2; ++i) {
    ++agent.mod_revision;
    EXPECT_TRUE(seen_.Apply({false, agent}).ok());
  }
  EXPECT_THAT(notices_, ElementsAre(HasSubstr(agent.key)));
  const absl::Status status = seen_.Apply({false, leader});
  EXPECT_TRUE(absl::IsPermissionDenied(status)) << status;
  EXPECT_FALSE(seen_.leader());
}

}  // namespace
}  // namespace lockstep::launch::etcd
