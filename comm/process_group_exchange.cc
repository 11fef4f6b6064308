// ProcessGroup's collectives in which ranks send or receive different tensors.

#include <utility>

#include "absl/strings/str_cat.h"
#include "lockstep/comm/internal/dispatch.h"
#include "lockstep/comm/process_group.h"

namespace lockstep::comm {

using internal::Call;
using internal::CheckList;
using internal::CheckTensor;
using internal::Layouts;

namespace {

Call OfAnyShape(Call call) {
  call.shapes_differ = true;
  return call;
}

// Checks a list that only root passes: one tensor of `like`'s shape for each rank.
absl::Status CheckRootsList(const std::vector<at::Tensor>& list, absl::string_view name, const at::Tensor& like,
                            int root, int rank, int size, bool by_index) {
  LOCKSTEP_RETURN_IF_ERROR(internal::CheckDense(like));
  LOCKSTEP_RETURN_IF_ERROR(internal::CheckRank(root, "root", size));
  if (!by_index) LOCKSTEP_RETURN_IF_ERROR(internal::CheckContiguous(like, list, name));
  if (rank != root) return internal::CheckEmptyUnlessRoot(list, name, rank, root);
  return CheckList(list, name, like, size, /*same_shape=*/true);
}

absl::Status CheckLists(const std::vector<at::Tensor>& outputs, const std::vector<at::Tensor>& inputs, int rank,
                        int size) {
  if (inputs.empty())
    return absl::InvalidArgumentError(absl::StrCat("expected ", size, " inputs, one a rank, found 0"));
  LOCKSTEP_RETURN_IF_ERROR(CheckTensor(inputs[0]));
  LOCKSTEP_RETURN_IF_ERROR(CheckList(inputs, "input", inputs[0], size, /*same_shape=*/false));
  LOCKSTEP_RETURN_IF_ERROR(CheckList(outputs, "output", inputs[0], size, /*same_shape=*/false));
  if (outputs[rank].numel() == inputs[rank].numel()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("output ", rank, " is ", internal::Describe(outputs[rank]),
                                                 ", expected the size of this rank's own input, ",
                                                 internal::Describe(inputs[rank])));
}

// The number of elements under one index of the first dimension.
int64_t RowSize(const at::Tensor& tensor) { return tensor.size(0) == 0 ? 0 : tensor.numel() / tensor.size(0); }

absl::Status CheckSingles(const at::Tensor& output, const at::Tensor& input, const std::vector<int64_t>& output_splits,
                          const std::vector<int64_t>& input_splits, int size) {
  LOCKSTEP_RETURN_IF_ERROR(CheckTensor(input));
  LOCKSTEP_RETURN_IF_ERROR(internal::CheckAlike(output, "output", input));
  LOCKSTEP_RETURN_IF_ERROR(internal::CheckSplits(input, "input", input_splits, size));
  LOCKSTEP_RETURN_IF_ERROR(internal::CheckSplits(output, "output", output_splits, size));
  const bool rows_differ = output.numel() > 0 && input.numel() > 0 && RowSize(output) != RowSize(input);
  const bool sizes_differ = input_splits.empty() && output_splits.empty() && output.numel() != input.numel();
  if (!rows_differ && !sizes_differ) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("output is ", internal::Describe(output),
                                                 ", which cannot take parts of ", internal::Describe(input)));
}

}  // namespace

Work ProcessGroup::AllToAllAsync(const std::vector<at::Tensor>& outputs, const std::vector<at::Tensor>& inputs) {
  return Dispatch(
      OfAnyShape(Call::Of("all_to_all", inputs.empty() ? at::Tensor() : inputs[0])),
      [&] { return CheckLists(outputs, inputs, rank_, size_); }, [] { return ""; },
      [&](c10d::Backend& backend) {
        std::vector<at::Tensor> to = outputs, from = inputs;
        return backend.alltoall(to, from);
      });
}

Work ProcessGroup::AllToAllSingleAsync(const at::Tensor& output, const at::Tensor& input,
                                       const std::vector<int64_t>& output_splits,
                                       const std::vector<int64_t>& input_splits) {
  return Dispatch(
      OfAnyShape(Call::Of("all_to_all_single", input)),
      [&] { return CheckSingles(output, input, output_splits, input_splits, size_); }, [] { return ""; },
      [&](c10d::Backend& backend) {
        at::Tensor to = output, from = input;
        std::vector<int64_t> to_splits = output_splits, from_splits = input_splits;
        return backend.alltoall_base(to, from, to_splits, from_splits);
      });
}

Work ProcessGroup::GatherAsync(const std::vector<at::Tensor>& outputs, const at::Tensor& input, int root) {
  Layouts layouts(MatchesByIndex());
  Work work = Dispatch(
      Call::Of("gather", input),
      [&] { return CheckRootsList(outputs, "output", input, root, rank_, size_, MatchesByIndex()); },
      [&] { return absl::StrCat("root ", root); },
      [&](c10d::Backend& backend) {
        std::vector<at::Tensor> from = {layouts.Read(input)};
        std::vector<std::vector<at::Tensor>> to;
        if (rank_ == root) to.push_back(layouts.Write(outputs));
        c10d::GatherOptions options;
        options.rootRank = root;
        return backend.gather(to, from, options);
      });
  return std::move(work).With(layouts.TakeResults());
}

Work ProcessGroup::ScatterAsync(const at::Tensor& output, const std::vector<at::Tensor>& inputs, int root) {
  Layouts layouts(MatchesByIndex());
  Work work = Dispatch(
      Call::Of("scatter", output),
      [&] { return CheckRootsList(inputs, "input", output, root, rank_, size_, MatchesByIndex()); },
      [&] { return absl::StrCat("root ", root); },
      [&](c10d::Backend& backend) {
        std::vector<at::Tensor> to = {layouts.Write(output)};
        std::vector<std::vector<at::Tensor>> from;
        if (rank_ == root) from.push_back(layouts.Read(inputs));
        c10d::ScatterOptions options;
        options.rootRank = root;
        return backend.scatter(to, from, options);
      });
  return std::move(work).With(layouts.TakeResults());
}

absl::Status ProcessGroup::AllToAll(const std::vector<at::Tensor>& outputs, const std::vector<at::Tensor>& inputs) {
  return AllToAllAsync(outputs, inputs).Wait();
}

absl::Status ProcessGroup::AllToAllSingle(const at::Tensor& output, const at::Tensor& input,
                                          const std::vector<int64_t>& output_splits,
                                          const std::vector<int64_t>& input_splits) {
  return AllToAllSingleAsync(output, input, output_splits, input_splits).Wait();
}

absl::Status ProcessGroup::Gather(const std::vector<at::Tensor>& outputs, const at::Tensor& input, int root) {
  return GatherAsync(outputs, input, root).Wait();
}

absl::Status ProcessGroup::Scatter(const at::Tensor& output, const std::vector<at::Tensor>& inputs, int root) {
  return ScatterAsync(output, inputs, root).Wait();
}

}  // namespace lockstep::comm
