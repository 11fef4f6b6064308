// Averages leaves on several numbers of ranks, which are threads.
//
//   add_leaves FOLDER
//
// For 3 to 16 leaves, FOLDER/<leaves>_<dtype> has their bytes, one leaf after another. Writes the bytes that each rank
// got to FOLDER/<leaves>_<dtype>_on_<ranks>_<backend>. Exits with 1 if anything fails or the ranks differ.

#include <ATen/ATen.h>

#include <fstream>
#include <iostream>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lockstep/base/status.h"
#include "lockstep/comm/process_group.h"
#include "lockstep/comm/testing/init_ranks.h"
#include "lockstep/comm/testing/run_ranks.h"
#include "lockstep/comm/tree_sum/sum_tree.h"
#include "lockstep/comm/tree_sum/tree_sum.h"

namespace lockstep::comm {
namespace {

const std::map<std::string, at::ScalarType> kDtypes = {
    {"float32", at::kFloat}, {"bfloat16", at::kBFloat16}, {"float64", at::kDouble}};

absl::StatusOr<at::Tensor> ReadLeaves(const std::string& path, int leaves, at::ScalarType dtype) {
  std::ifstream file(path, std::ios::binary);
  std::string bytes{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  if (!file || bytes.empty()) return absl::NotFoundError(absl::StrCat(path, ": cannot be read"));
  return at::from_blob(bytes.data(), {static_cast<int64_t>(bytes.size())}, at::kByte)
      .clone()
      .view(dtype)
      .view({leaves, -1});
}

// Returns the sum of the leaves [begin, end), added one node of the tree after another.
at::Tensor NodeOf(const SumTree& tree, const at::Tensor& leaves, PartialSum node) {
  std::vector<PartialSum> stack;
  std::vector<at::Tensor> sums;
  for (int leaf = node.begin; leaf < node.end; ++leaf) {
    sums.push_back(leaves[leaf]);
    for (int adds = tree.Push(stack, {leaf, leaf + 1}); adds > 0; --adds) {
      const at::Tensor right = sums.back();
      sums.pop_back();
      sums.back() = sums.back() + right;
    }
  }
  return sums[0].clone();
}

absl::StatusOr<std::string> Average(ProcessGroup& group, const at::Tensor& leaves) {
  const int count = static_cast<int>(leaves.size(0));
  LOCKSTEP_ASSIGN_OR_RETURN(const TreeSum sum, TreeSum::Create(&group, EvenBounds(count, group.size())));
  std::vector<at::Tensor> sums;
  for (const PartialSum own : sum.own_sums()) sums.push_back(NodeOf(SumTree(count), leaves, own));
  const at::Tensor output = sums[0];
  LOCKSTEP_RETURN_IF_ERROR(sum.Start(output, sums, count).Wait());
  return std::string(static_cast<const char*>(output.const_data_ptr()), output.nbytes());
}

// By file name.
using Averages = std::map<std::string, std::string>;

absl::StatusOr<Averages> AverageAll(ProcessGroup& group, const std::string& folder) {
  Averages averages;
  for (int leaves = 3; leaves <= 16; ++leaves) {
    for (const auto& [name, dtype] : kDtypes) {
      const std::string path = absl::StrCat(folder, "/", leaves, "_", name);
      LOCKSTEP_ASSIGN_OR_RETURN(const at::Tensor read, ReadLeaves(path, leaves, dtype));
      LOCKSTEP_ASSIGN_OR_RETURN(averages[path], Average(group, read));
    }
  }
  return averages;
}

absl::Status RunOn(int ranks, const std::string& backend, const std::string& folder) {
  std::vector<Averages> averages(ranks);
  const auto body = [&](ProcessGroup& group) -> absl::Status {
    LOCKSTEP_ASSIGN_OR_RETURN(averages[group.rank()], AverageAll(group, folder));
    return absl::OkStatus();
  };
  InitOptions options;
  options.backend = backend;
  const auto results = backend == "threads" ? testing::RunRanks(ranks, body) : testing::InitRanks(options, ranks, body);
  for (const absl::Status& result : results) LOCKSTEP_RETURN_IF_ERROR(result);
  for (const auto& [path, bytes] : averages[0]) {
    for (const Averages& others : averages) {
      if (others.at(path) != bytes) return absl::DataLossError(absl::StrCat(path, ": the ranks' averages differ"));
    }
    std::ofstream(absl::StrCat(path, "_on_", ranks, "_", backend), std::ios::binary) << bytes;
  }
  return absl::OkStatus();
}

absl::Status Run(const std::string& folder) {
  LOCKSTEP_RETURN_IF_ERROR(RunOn(1, "threads", folder));
  for (const int ranks : {2, 3}) {
    for (const char* backend : {"threads", "shm", "gloo"}) LOCKSTEP_RETURN_IF_ERROR(RunOn(ranks, backend, folder));
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace lockstep::comm

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: add_leaves FOLDER" << std::endl;
    return 1;
  }
  const absl::Status status = lockstep::comm::Run(argv[1]);
  if (!status.ok()) std::cerr << "add_leaves: " << status << std::endl;
  return status.ok() ? 0 : 1;
}
