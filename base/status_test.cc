#include "lockstep/base/status.h"

#include <memory>

#include "gtest/gtest.h"

namespace lockstep {
namespace {

absl::StatusOr<std::unique_ptr<int>> Make(int value) {
  if (value < 0) return absl::InvalidArgumentError("negative");
  return std::make_unique<int>(value);
}

absl::StatusOr<int> Sum(int a, int b) {
  LOCKSTEP_ASSIGN_OR_RETURN(std::unique_ptr<int> first, Make(a));
  LOCKSTEP_ASSIGN_OR_RETURN(const auto second, Make(b));
  return *first + *second;
}

absl::Status Check(int value) {
  LOCKSTEP_RETURN_IF_ERROR(Make(value).status());
  return absl::OkStatus();
}

TEST(AssignOrReturn, GivesTheValueOrPassesTheErrorOn) {
  EXPECT_EQ(*Sum(1, 2), 3);
  EXPECT_EQ(Sum(1, -2).status(), absl::InvalidArgumentError("negative"));
}

TEST(ReturnIfError, PassesTheErrorOn) {
  EXPECT_TRUE(Check(1).ok());
  EXPECT_EQ(Check(-1), absl::InvalidArgumentError("negative"));
}

TEST(Annotate, KeepsCodeAndPayload) {
  absl::Status status = absl::NotFoundError("no such key");
  status.SetPayload("rank", absl::Cord("3"));
  const absl::Status annotated = Annotate(status, "rank 3");
  EXPECT_EQ(annotated.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(annotated.message(), "rank 3: no such key");
  EXPECT_EQ(annotated.GetPayload("rank"), absl::Cord("3"));
  EXPECT_TRUE(Annotate(absl::OkStatus(), "rank 3").ok());
}

}  // namespace
}  // namespace lockstep
