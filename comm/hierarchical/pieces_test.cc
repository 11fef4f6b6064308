#include "lockstep/comm/hierarchical/internal/pieces.h"

#include <gtest/gtest.h>

namespace lockstep::comm::hierarchical::internal {
namespace {

TEST(Pieces, CoverEveryElementOnceInOrder) {
  for (const int64_t parts : {1, 2, 3, 4, 7}) {
    for (const int64_t element_bytes : {1, 2, 4, 8, 16}) {
      for (const int64_t count : {1, 2, 3, 6, 7, 65535, 65536, 65537, 262143, 262144, 262145, 6553600, 6553607}) {
        int64_t next = 0;
        for (const Range& piece : CutIntoPieces(count, element_bytes, parts, 1)) {
          EXPECT_EQ(piece.begin, next);
          EXPECT_GT(piece.count, 0);
          next += piece.count;
        }
        EXPECT_EQ(next, count) << parts << " parts";
      }
    }
  }
}

TEST(Pieces, DivideIntoPartsExceptTheLast) {
  for (const int64_t parts : {2, 3, 4, 7}) {
    for (const int64_t count : {1, 5, 65537, 1000003}) {
      const std::vector<Range> pieces = CutIntoPieces(count, 4, parts, 1);
      for (size_t i = 0; i + 1 < pieces.size(); ++i) EXPECT_EQ(pieces[i].count % parts, 0);
      const int64_t last = pieces.back().count;
      EXPECT_TRUE(last % parts == 0 || last < parts) << count << " elements, " << parts << " parts: " << last;
    }
  }
}

TEST(Pieces, AreSeveralForALargeTensorAndNoneForAnEmptyOne) {
  EXPECT_TRUE(CutIntoPieces(0, 4, 2, 1).empty());
  EXPECT_EQ(CutIntoPieces(1, 4, 2, 1), (std::vector<Range>{{0, 1}}));
  EXPECT_EQ(CutIntoPieces(1 << 18, 4, 2, 1).size(), 4);    // 1 MiB
  EXPECT_EQ(CutIntoPieces(25 << 18, 4, 2, 1).size(), 25);  // 25 MiB
  EXPECT_EQ(CutIntoPieces((25 << 18) + 1, 4, 2, 1).size(), 26);
}

TEST(Pieces, AreFewerWithManyHosts) {
  EXPECT_EQ(CutIntoPieces(25 << 18, 4, 4, 4).size(), 25);
  EXPECT_EQ(CutIntoPieces(25 << 18, 4, 4, 64).size(), 4);
  EXPECT_EQ(CutIntoPieces(25 << 18, 4, 4, 4096).size(), 1);
}

TEST(Shares, AreEqualUpToOneElement) {
  EXPECT_EQ(ShareOf(10, 0, 3), (Range{0, 3}));
  EXPECT_EQ(ShareOf(10, 1, 3), (Range{3, 3}));
  EXPECT_EQ(ShareOf(10, 2, 3), (Range{6, 4}));
  EXPECT_EQ(ShareOf(1, 0, 3), (Range{0, 0}));
  EXPECT_EQ(ShareOf(1, 2, 3), (Range{0, 1}));
}

}  // namespace
}  // namespace lockstep::comm::hierarchical::internal
