#include "lockstep/base/torch_status.h"

#include <new>
#include <stdexcept>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

TEST(TorchStatus, IsOkWhenNothingIsThrown) {
  EXPECT_TRUE(TorchStatus("context", [] {}).ok());
}

TEST(TorchStatus, PutsATorchErrorInOneLineWithoutItsStack) {
  const absl::Status status = TorchStatus("rank 1", [] { TORCH_CHECK(false, "first line\n  second line"); });
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_EQ(status.message(), "rank 1: first line second line");
}

TEST(TorchStatus, MapsLibTorchsErrorTypes) {
  EXPECT_EQ(TorchStatus("", [] { TORCH_CHECK_VALUE(false, "v"); }), absl::InvalidArgumentError("v"));
  EXPECT_EQ(TorchStatus("", [] { TORCH_CHECK_INDEX(false, "i"); }), absl::OutOfRangeError("i"));
  EXPECT_EQ(TorchStatus("", [] { TORCH_CHECK_NOT_IMPLEMENTED(false, "n"); }), absl::UnimplementedError("n"));
  EXPECT_EQ(TorchStatus("", [] { TORCH_CHECK_WITH(DistNetworkError, false, "d"); }), absl::UnavailableError("d"));
  EXPECT_EQ(TorchStatus("", [] { TORCH_CHECK_WITH(DistStoreError, false, "Timed out after 3 s"); }),
            absl::DeadlineExceededError("Timed out after 3 s"));
  EXPECT_EQ(TorchStatus("", [] { throw std::bad_alloc(); }), absl::ResourceExhaustedError("out of memory"));
  EXPECT_EQ(TorchStatus("", [] { throw std::runtime_error("plain"); }), absl::InternalError("plain"));
  EXPECT_EQ(TorchStatus("", [] { throw 3; }).code(), absl::StatusCode::kInternal);
}

TEST(TorchStatusOr, GivesTheValueOrTheError) {
  EXPECT_EQ(*TorchStatusOr("", [] { return 3; }), 3);
  EXPECT_EQ(TorchStatusOr("sum", []() -> int { TORCH_CHECK_VALUE(false, "no"); }).status(),
            absl::InvalidArgumentError("sum: no"));
}

TEST(StatusError, CarriesItsStatusThroughLibTorch) {
  const absl::Status sent = absl::DeadlineExceededError("rank 2 did not arrive");
  EXPECT_EQ(TorchStatus("", [&] { ThrowIfError(sent); }), sent);
  try {
    ThrowIfError(sent);
    FAIL() << "nothing was thrown";
  } catch (const c10::DistBackendError& error) {
    EXPECT_THAT(error.what_without_backtrace(), HasSubstr("rank 2 did not arrive"));
  }
  ThrowIfError(absl::OkStatus());
}

}  // namespace
}  // namespace lockstep
