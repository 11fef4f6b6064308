// Names output streams of ranks, for LaunchOptions::redirects and LaunchOptions::tee (supervisor.h).
//
//   options.tee.every_rank = launch::Streams::kBoth;
//   options.tee.by_local_rank[1] = launch::Streams::kStderr;

#ifndef LOCKSTEP_LAUNCH_JOB_STREAMS_H_
#define LOCKSTEP_LAUNCH_JOB_STREAMS_H_

#include <map>

namespace lockstep::launch {

// The output streams of a rank. The numbers are torchrun's, of --redirects and --tee.
enum class Streams { kNone = 0, kStdout = 1, kStderr = 2, kBoth = 3 };

// The output streams of the ranks of a node.
struct RankStreams {
  Streams every_rank = Streams::kNone;
  std::map<int, Streams> by_local_rank;  // overrides every_rank

  // Returns whether `stream`, which is kStdout or kStderr, is among the streams of this local rank.
  bool Have(int local_rank, Streams stream) const {
    const auto found = by_local_rank.find(local_rank);
    const Streams streams = found == by_local_rank.end() ? every_rank : found->second;
    return (static_cast<int>(streams) & static_cast<int>(stream)) != 0;
  }
};

}  // namespace lockstep::launch

#endif  // LOCKSTEP_LAUNCH_JOB_STREAMS_H_
