// Damaged copies of a file: each is refused, and the reason names the file, or is the same module. There are 250;
// --test_env=LOCKSTEP_DAMAGES=8 takes 8 times as many.

#include <ATen/ATen.h>
#include <stdlib.h>

#include <cstddef>
#include <exception>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "gtest/gtest.h"
#include "lockstep/checkpoint/file/byte_stream.h"
#include "lockstep/checkpoint/state_dict.h"
#include "lockstep/checkpoint/testing/folder.h"
#include "lockstep/checkpoint/value.h"
#include "lockstep/checkpoint/zip/reader.h"
#include "lockstep/checkpoint/zip/writer.h"
#include "lockstep/models/exported/exported_module.h"
#include "lockstep/models/exported/file.h"
#include "lockstep/models/exported/fuzz/damages.h"

namespace lockstep::models::exported {
namespace {

using checkpoint::Value;

// The number of damages of a kind, of which a run has `count` at least.
int Times(int count) {
  int times = 1;
  const char* const text = getenv("LOCKSTEP_DAMAGES");
  return count * (text && absl::SimpleAtoi(text, &times) ? times : 1);
}

constexpr char kModel[] = "models/model.json";
constexpr char kWeights[] = "data/weights/model_weights_config.json";
constexpr char kConstants[] = "data/constants/model_constants_config.json";

using Records = std::vector<std::pair<std::string, std::string>>;  // names without the archive's, and contents

Records ReadRecords(const std::string& path) {
  const auto source = checkpoint::file::OpenFile(path);
  EXPECT_TRUE(source.ok()) << source.status();
  const auto zip = checkpoint::zip::ZipReader::Open(*source);
  EXPECT_TRUE(zip.ok()) << zip.status();
  Records records;
  for (const checkpoint::zip::ZipRecord& record : zip->records()) {
    std::string contents(record.size, '\0');
    EXPECT_TRUE(zip->Read(record, &contents[0], true).ok());
    records.emplace_back(record.name.substr(record.name.find('/') + 1), std::move(contents));
  }
  return records;
}

// The archive with right checksums.
std::string Archive(const Records& records) {
  std::string bytes;
  checkpoint::zip::ZipWriter zip(
      [&](const void* from, size_t count) {
        bytes.append(static_cast<const char*>(from), count);
        return absl::OkStatus();
      },
      "small");
  for (const auto& [name, contents] : records) EXPECT_TRUE(zip.Add(name, contents).ok());
  EXPECT_TRUE(zip.Finish().ok());
  return bytes;
}

// Returns the outputs of a program for fixed inputs, and its state afterwards.
std::vector<at::Tensor> Results(ExportedModule module) {
  const at::Tensor x = at::arange(12, at::kFloat).view({4, 3}).div(10);
  c10::Dict<std::string, at::Tensor> parts;
  parts.insert("left", x.neg());
  const c10::IValue output = module->Call({x, parts}, {{"shift", at::ones({3})}});
  const auto dict = output.toGenericDict();
  std::vector<at::Tensor> results = {dict.at("out").toTensor(), dict.at("pair").toTupleRef().elements()[0].toTensor()};
  const Value state_dict = checkpoint::StateDict(*module);
  for (const auto& [name, tensor] : state_dict.entries()) results.push_back(tensor.tensor());
  return results;
}

bool Equal(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i)
    if (a[i].dtype() != b[i].dtype() || !at::equal(a[i], b[i])) return false;
  return true;
}

class DamagedFile : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto module = Load(kPath);
    ASSERT_TRUE(module.ok()) << module.status();
    expected_ = Results(*module);
  }

  // Checks what becomes of a file with these bytes.
  void Check(const std::string& name, const std::string& bytes) {
    folder_.Write("damaged.pt2", bytes);
    const std::string path = folder_.path() + "/damaged.pt2";
    const auto module = Load(path);
    if (!module.ok()) {
      ++refused_;
      EXPECT_TRUE(absl::StartsWith(module.status().message(), path)) << name << ": " << module.status();
      EXPECT_FALSE(absl::IsInternal(module.status())) << name << ": " << module.status();
      return;
    }
    try {
      EXPECT_TRUE(Equal(Results(*module), expected_)) << name << " gives another module";
      ++same_;
    } catch (const std::exception& error) {
      ++refused_later_;
      EXPECT_NE(std::string(error.what()), "") << name;
    }
  }

  void CheckJson(const char* record, int count, unsigned seed) {
    const Records original = ReadRecords(kPath);
    for (const auto& [name, contents] : original) {
      if (name != record) continue;
      for (const testing::Damage& damage : testing::DamagedJson(contents, count, seed)) {
        Records records = original;
        for (auto& [other, text] : records)
          if (other == name) text = damage.text;
        Check(damage.name, Archive(records));
      }
    }
  }

  static constexpr char kPath[] = "models/exported/fuzz/small.pt2";
  checkpoint::testing::Folder folder_;
  std::vector<at::Tensor> expected_;
  int refused_ = 0;        // by Load
  int refused_later_ = 0;  // by Call
  int same_ = 0;
};

TEST_F(DamagedFile, FlippedBits) {
  const std::string bytes = Archive(ReadRecords(kPath));
  std::mt19937 random(1);
  const int count = Times(88);
  for (int i = 0; i < count; ++i) {
    std::string flipped = bytes;
    const size_t at = random() % bytes.size();
    flipped[at] = static_cast<char>(flipped[at] ^ (1 << random() % 8));
    Check(absl::StrCat("a flipped bit of byte ", at), flipped);
  }
  EXPECT_EQ(refused_later_, 0);  // checksums are seen at once
  EXPECT_GT(refused_, count / 2);
}

TEST_F(DamagedFile, CutFiles) {
  const std::string bytes = Archive(ReadRecords(kPath));
  const int count = Times(38);
  for (int i = 0; i < count; ++i) {
    const size_t size = bytes.size() * i / count;
    Check(absl::StrCat("cut to ", size), bytes.substr(0, size));
  }
  EXPECT_EQ(refused_, count);
}

TEST_F(DamagedFile, EditedPrograms) {
  CheckJson(kModel, Times(88), 3);
  EXPECT_GT(refused_, Times(40)) << same_ << " are the same, " << refused_later_ << " are refused by Call";
}

TEST_F(DamagedFile, EditedTablesOfWeights) {
  CheckJson(kWeights, Times(25), 4);
  CheckJson(kConstants, Times(9), 5);
  EXPECT_GT(refused_, Times(16)) << same_ << " are the same, " << refused_later_ << " are refused by Call";
}

TEST_F(DamagedFile, MissingRecords) {
  const Records original = ReadRecords(kPath);
  for (size_t i = 0; i < original.size(); ++i) {
    Records records = original;
    records.erase(records.begin() + static_cast<std::ptrdiff_t>(i));
    Check("without " + original[i].first, Archive(records));
    records = original;
    records[i].second.pop_back();
    Check("one byte less of " + original[i].first, Archive(records));
  }
  EXPECT_GE(refused_, 18) << same_ << " are the same";
}

}  // namespace
}  // namespace lockstep::models::exported
