#include "lockstep/data/tokens/king_james_bible.h"

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep::data {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(KingJamesBible, HasAllBooks) {
  const std::vector<std::string> books = KingJamesBible().value();
  ASSERT_EQ(books.size(), 66);
  EXPECT_THAT(books.front(), StartsWith("In the beginning God created the heaven and the earth.\nAnd the earth"));
  EXPECT_THAT(books.front(), HasSubstr("were the sixth day.\n\nThus the heavens"));  // Genesis 1:31 and 2:1
  EXPECT_THAT(books.front(), EndsWith("he was put in a coffin in Egypt.\n"));
  EXPECT_THAT(books.back(), EndsWith("The grace of our Lord Jesus Christ be with you all. Amen.\n"));
  size_t size = 0;
  for (const std::string& book : books) {
    size += book.size();
    EXPECT_EQ(book.find_first_not_of("\n !'(),-.:;?ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"),
              std::string::npos);
  }
  EXPECT_EQ(size, 4138973);
}

TEST(KingJamesBible, SaysWhatToInstall) {
  for (const std::string& program : std::vector<std::string>{"/no/such/program", "/bin/echo"}) {
    const absl::Status status = KingJamesBible(program).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
    EXPECT_EQ(status.message(), "the King James Bible: expected 31102 verses from " + program +
                                    ", found 0. Install it: apt-get install bible-kjv bible-kjv-text");
  }
}

}  // namespace
}  // namespace lockstep::data
