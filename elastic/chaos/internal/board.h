// The file through which a training and the program that disturbs it write to each other. Both map it. It outlives any
// death.

#ifndef LOCKSTEP_ELASTIC_CHAOS_INTERNAL_BOARD_H_
#define LOCKSTEP_ELASTIC_CHAOS_INTERNAL_BOARD_H_

#include <stdint.h>
#include <sys/types.h>

#include <atomic>
#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace lockstep::elastic::chaos::internal {

inline constexpr char kBoardVariable[] = "LOCKSTEP_CHAOS_BOARD";  // the file's path, in each process of the job
inline constexpr int kMostSlots = 32;
inline constexpr int64_t kMostSteps = int64_t{1} << 23, kMostGenerations = int64_t{1} << 16;

// How long a rank sleeps: longer than the 30 s after which a line says so, and the 6 s that the line may wait.
inline constexpr int kSleepSeconds = 40;

// The fault that a rank causes itself at its next step.
enum class Order { kNone, kExit0, kExit1, kThrow, kAllocate, kSleep };

// How far a process has come.
enum class Stage { kNone, kStarted, kJoins, kTrains, kEnds };

// When a step was first committed in the last generation that completed it, or a rank first trained in a generation.
struct Moment {
  int64_t ns = 0;     // 0: not yet. Precise to 1 us
  int64_t value = 0;  // the step's generation, or the generation's number of ranks
};

// All calls are cheap, and safe in any number of processes.
class Board {
 public:
  // Errors name the file. NotFound: there is none.
  static absl::StatusOr<std::unique_ptr<Board>> Create(const std::string& path);
  static absl::StatusOr<std::unique_ptr<Board>> Open(const std::string& path);
  ~Board();
  Board(const Board&) = delete;
  Board& operator=(const Board&) = delete;

  // A place for each process that the launchers may run at a time: SLOT_BASE of its host, and its LOCAL_RANK when it
  // starts.
  struct Place {
    std::atomic<int32_t> pid, stage, rank;
    std::atomic<int64_t> generation;  // in which the process trains, or trained last; 0: none
    std::atomic<int64_t> order;
    std::atomic<int64_t> obeyed_ns;  // when the last order was carried out
  };
  Place& place(int slot) { return shared_->places[slot]; }

  // For the process of a slot.
  void Start(int slot, pid_t pid);
  void Enter(int slot, int64_t generation, int rank, int world_size);
  // The order to this process, which is then gone.
  Order TakeOrder(int slot, pid_t pid);
  // For rank 0, when it begins a step.
  void RecordBegin(int64_t step);
  // Call it when the step has been applied.
  void RecordCommit(int64_t step, int64_t generation);

  // For the program that hurts.
  void Give(int slot, pid_t pid, Order order);
  int64_t steps() const { return shared_->steps; }            // the highest that was committed
  int64_t generation() const { return shared_->generation; }  // the highest that trains
  int64_t undone() const { return shared_->undone; }          // commits of a step after a higher one
  Moment Commit(int64_t step) const;                          // from 1
  Moment Generation(int64_t number) const;                    // from 1
  int Begun(int64_t step) const;                              // how often; from 1

  // The step after which the training ends. All ranks are within a step of each other, so it must be some steps ahead.
  std::atomic<int64_t>& last_step() { return shared_->last_step; }

 private:
  struct Shared {
    std::atomic<int64_t> last_step, steps, generation, undone, start_ns;
    Place places[kMostSlots];
    std::atomic<uint64_t> generations[kMostGenerations];
    std::atomic<uint64_t> commits[kMostSteps];
    std::atomic<uint8_t> begun[kMostSteps];
  };

  explicit Board(Shared* shared) : shared_(shared) {}
  static absl::StatusOr<std::unique_ptr<Board>> Map(const std::string& path, int flags);
  void Record(std::atomic<uint64_t>* word, int64_t value);
  Moment Read(const std::atomic<uint64_t>& word) const;

  Shared* const shared_;
};

}  // namespace lockstep::elastic::chaos::internal

#endif  // LOCKSTEP_ELASTIC_CHAOS_INTERNAL_BOARD_H_
