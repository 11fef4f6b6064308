#include "lockstep/examples/fashion_mnist/comparison/config.h"

#include "lockstep/base/flag_error.h"
#include "lockstep/base/status.h"
#include "lockstep/examples/fashion_mnist/net.h"

namespace lockstep::examples {

FlagTable FlagsOf(TrainConfig& config) {
  FlagTable flags;
  flags.Group("How it runs");
  flags.AddChoice(
      "parallel", &config.parallel,
      {{"ddp", Parallel::kDdp}, {"dp", Parallel::kDp}, {"none", Parallel::kNone}, {"compare", Parallel::kCompare}},
      "ddp: one process for each rank, and averaged gradients. dp: one process on several devices. none: "
      "one process. compare: none, dp and ddp, one after the other, and a table of the results.");
  flags.Add("nproc_per_node", &config.nproc_per_node,
            "Ranks to start for ddp. If a launcher has started this program, the launcher decides.", {1});
  flags.Add("cpu_slots", &config.cpu_slots, "The number of devices that the CPU counts as for dp, without a GPU.",
            {1, 4096});
  flags.Add("dry_run", &config.dry_run, "Check flags, data and ranks, run one batch, and write nothing.");

  flags.Group("Training");
  flags.AddChoice("recipe", &config.recipe,
                  {{"", RecipeName::kDefault}, {"tuned", RecipeName::kTuned}, {"tutorial", RecipeName::kTutorial}},
                  "tuned: momentum, a schedule, shuffled and normalized images. tutorial: plain SGD at a low rate, "
                  "images in their order. Empty: tutorial for dp and compare, otherwise tuned.");
  flags.Add("epochs", &config.epochs, "The number of passes over the training images.", {1});
  flags.Add("batch_size", &config.batch_size, "Images per step, over all ranks.", {1});
  flags.Add("lr", &config.lr,
            "SGD's learning rate. 0: the recipe's, 0.15 or 0.002. In the tuned recipe it is the maximum.", {0});
  flags.Add("momentum", &config.momentum, "SGD's momentum. -1: the recipe's, 0.9 or 0.");
  flags.Add("seed", &config.seed, "Seed for the initial parameters and the image order.");
  flags.Add("pretrained", &config.pretrained, "A .pt file with a state dict to start from.");
  flags.Add("terminate_on_nan", &config.terminate_on_nan,
            "End the run when a rank's loss is NaN or infinite. Otherwise it is reported once.");

  flags.Group("Files");
  flags.Add("data_dir", &config.data_dir, "The folder of the four IDX files, plain or in gzip.");
  flags.Add("metrics_file", &config.metrics_file, "A file for one JSON object a step, an epoch, and a run.");

  flags.Group("Ranks");
  flags.Add("backend", &config.backend, "The ranks' backend: auto, shm, gloo or hierarchical.");
  flags.Add("init_method", &config.init_method, "Where ranks meet: env://, tcp://host:port or file:///path.");
  flags.Add("timeout", &config.timeout, "Seconds that meeting, or one collective, may take.");
  return flags;
}

absl::Status CheckConfig(const TrainConfig& config) {
  if (config.momentum != -1) LOCKSTEP_RETURN_IF_ERROR(CheckRanges({{"momentum", config.momentum, 0}}));
  LOCKSTEP_RETURN_IF_ERROR(CheckSeconds("timeout", config.timeout));
  if (config.parallel == Parallel::kCompare && !config.metrics_file.empty()) {
    return FlagError("metrics_file", config.metrics_file, "--parallel=none, dp or ddp with it");
  }
  return absl::OkStatus();
}

Recipe RecipeOf(const TrainConfig& config) {
  const bool by_default = config.parallel == Parallel::kDp || config.parallel == Parallel::kCompare;
  const bool is_tutorial = config.recipe == RecipeName::kDefault ? by_default : config.recipe == RecipeName::kTutorial;
  // The second one is from PyTorch's tutorial on DataParallel, and learns slowly.
  Recipe recipe = {kLearningRate, kMomentum, /*schedule=*/true, /*shuffle=*/true, /*normalize=*/true};
  if (is_tutorial) recipe = {2e-3, 0, /*schedule=*/false, /*shuffle=*/false, /*normalize=*/false};
  if (config.lr > 0) recipe.lr = config.lr;
  if (config.momentum >= 0) recipe.momentum = config.momentum;
  return recipe;
}

}  // namespace lockstep::examples
