// The C++ side of data_peer_test.py.
//
//   data_program image_folder TREE...   for each TREE, which is ROOT or "allow_empty:" and ROOT, either "ok", the
//   number
//                                       of classes, the classes, the number of samples, and a path and a class's index
//                                       each, or "error" and the message; after each of these a NUL
//   data_program fake_data TO           saves [image, target, ...] of small FakeData to TO

#include <array>
#include <cstdint>
#include <cstdio>
#include <iostream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "lockstep/base/status.h"
#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/checkpoint/value.h"
#include "lockstep/data/fake_data.h"
#include "lockstep/data/image_folder.h"

namespace lockstep::data {
namespace {

void Print(absl::string_view text) { std::cout << text << '\0'; }
void Print(int64_t number) { Print(std::to_string(number)); }

void PrintTree(absl::string_view tree) {
  ImageFolderOptions options;
  options.allow_empty = absl::ConsumePrefix(&tree, "allow_empty:");
  const absl::StatusOr<ImageFolder> folder = ImageFolder::Create(tree, options);
  if (!folder.ok()) {
    Print("error");
    return Print(folder.status().message());
  }
  Print("ok");
  Print(folder->classes().size());
  for (const std::string& name : folder->classes()) Print(name);
  Print(folder->samples().size());
  for (const ImageFolder::Sample& sample : folder->samples()) {
    Print(sample.path);
    Print(sample.target);
  }
}

absl::Status SaveFakeData(const std::string& to) {
  std::vector<checkpoint::Value> values;
  at::Generator unused;
  for (const std::array<int64_t, 3> image_size : {std::array<int64_t, 3>{3, 20, 17}, {1, 8, 8}}) {
    LOCKSTEP_ASSIGN_OR_RETURN(const FakeData fake, FakeData::Create({30, image_size, 1000, 12345}));
    for (int64_t i = 0; i < fake.size(); ++i) {
      LOCKSTEP_ASSIGN_OR_RETURN(const lockstep::data::Example example, fake.Get(i, unused));
      values.emplace_back(example.data);
      values.emplace_back(example.target);
    }
  }
  return checkpoint::Save(to, checkpoint::Value::List(values));
}

absl::Status Run(const std::vector<std::string>& arguments) {
  if (arguments.size() == 2 && arguments[0] == "fake_data") return SaveFakeData(arguments[1]);
  if (arguments.empty() || arguments[0] != "image_folder") {
    return absl::InvalidArgumentError("usage: data_program image_folder TREE... | fake_data TO");
  }
  for (size_t i = 1; i < arguments.size(); ++i) PrintTree(arguments[i]);
  return absl::OkStatus();
}

}  // namespace
}  // namespace lockstep::data

int main(int argc, char** argv) {
  const absl::Status status = lockstep::data::Run(std::vector<std::string>(argv + 1, argv + argc));
  if (status.ok()) return 0;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return 1;
}
