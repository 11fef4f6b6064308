// The parser alone, without LibTorch: the address sanitizer sees all of it.

#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "gtest/gtest.h"
#include "lockstep/checkpoint/file/byte_stream.h"
#include "lockstep/checkpoint/pt2/payload.h"
#include "lockstep/checkpoint/zip/reader.h"
#include "lockstep/models/exported/fuzz/damages.h"
#include "lockstep/models/exported/graph_parser.h"

namespace lockstep::models::exported {
namespace {

using checkpoint::pt2::ParsePayloads;

std::string Record(absl::string_view name) {
  const auto source = checkpoint::file::OpenFile("models/exported/fuzz/small.pt2");
  EXPECT_TRUE(source.ok()) << source.status();
  const auto zip = checkpoint::zip::ZipReader::Open(*source);
  EXPECT_TRUE(zip.ok()) << zip.status();
  const checkpoint::zip::ZipRecord* record = zip->Find(absl::StrCat("small/", name));
  EXPECT_NE(record, nullptr) << name;
  std::string contents(record->size, '\0');
  EXPECT_TRUE(zip->Read(*record, &contents[0], true).ok());
  return contents;
}

// A damage is refused with a reason of one line. The rest must be in what a reader passes over.
void CheckRefusal(const testing::Damage& damage, const absl::Status& status, int& refused) {
  if (status.ok()) return;
  ++refused;
  EXPECT_TRUE(absl::IsDataLoss(status) || absl::IsUnimplemented(status)) << damage.name << ": " << status;
  EXPECT_FALSE(status.message().empty()) << damage.name;
  EXPECT_EQ(status.message().find('\n'), absl::string_view::npos) << damage.name << ": " << status;
}

TEST(GraphParser, RefusesDamagedProgramsWithAReason) {
  const std::string text = Record("models/model.json");
  ASSERT_TRUE(ParseProgram(text).ok()) << ParseProgram(text).status();
  int refused = 0;
  for (const testing::Damage& damage : testing::DamagedJson(text, 500, 1))
    CheckRefusal(damage, ParseProgram(damage.text).status(), refused);
  EXPECT_GT(refused, 250);
}

TEST(GraphParser, RefusesDamagedTablesOfWeightsWithAReason) {
  for (const char* name : {"data/weights/model_weights_config.json", "data/constants/model_constants_config.json"}) {
    const std::string text = Record(name);
    ASSERT_TRUE(ParsePayloads(text).ok()) << ParsePayloads(text).status();
    int refused = 0;
    for (const testing::Damage& damage : testing::DamagedJson(text, 250, 2))
      CheckRefusal(damage, ParsePayloads(damage.text).status(), refused);
    EXPECT_GT(refused, 125) << name;
  }
}

TEST(GraphParser, NamesAValueThatIsUsedBeforeItIsComputed) {
  std::string text = Record("models/model.json");
  const std::string use = "{\"as_tensor\": {\"name\": \"linear\"}}, \"kind\"";
  ASSERT_NE(text.find(use), text.npos);
  text.replace(text.find(use), use.size(), "{\"as_tensor\": {\"name\": \"mul_2\"}}, \"kind\"");
  const absl::Status status = ParseProgram(text).status();
  EXPECT_TRUE(absl::IsDataLoss(status)) << status;
  EXPECT_NE(status.message().find("value \"mul_2\" is used before anything computes it"), absl::string_view::npos)
      << status;
}

}  // namespace
}  // namespace lockstep::models::exported
