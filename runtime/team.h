// Our own team of workers: one mechanism for hosts and boards, and no OpenMP runtime of ours beside another's.
//
// A team is entered once a run; worker 0 is the calling thread.  Within the run the workers meet at a barrier.  Who
// waits spins for a bounded time and then sleeps on a futex, so a run stays fast when every worker has a core, and
// does not collapse when they have to share, with each other or with other programs: who spun in vain spins less the
// next time.  Between runs the workers sleep.
//
// The barrier is a tree of fan-in 8: a worker waits for its children, tells its parent, and waits for one release word.
// Every word that is waited for has 128 bytes to itself (two lines: the neighbour is prefetched with it).
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <type_traits>

namespace tw {

// Cores that this process may use: distinct cores of its affinity mask, at most its cgroups' CPU quota (rounded up).
int default_team_size();

// A word set by one thread and awaited by others.  Bit 0 says that somebody sleeps on it; the rest is a phase.
class alignas(128) Signal {
 public:
  void set(uint32_t phase);
  enum class Waited { not_at_all, spinning, sleeping };
  // Returns when the phase is `phase`; the setter may be at most one phase ahead of any waiter.
  Waited wait(uint32_t phase, int64_t spin_nanoseconds);

 private:
  std::atomic<uint32_t> word_{0};
};

// Workers of all teams that are in a run, on so many CPUs: how long one of them may spin, in nanoseconds.
int64_t spin_limit(int running_workers, int cpus);

// How long one worker spins before it sleeps: what was worth it lately, by how its waits ended.
class Patience {
 public:
  int64_t nanoseconds() const { return nanoseconds_; }
  // What the next wait may spin, of at most `limit`.
  int64_t begin_wait(int64_t limit);
  void end_wait(Signal::Waited how);

 private:
  int64_t nanoseconds_ = spin_limit(1, 1);
  uint32_t waits_ = 0;
  bool is_trial_ = false;
};

class Team {
 public:
  // Starts size - 1 threads.  1 ≤ size ≤ max_size; Error(limit) when the threads cannot be had.
  explicit Team(int size);
  ~Team();
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  static constexpr int max_size = 1024;
  int size() const { return size_; }

  // Calls body(worker) on every worker and returns when all have returned.  The body must not throw, and each worker
  // must call barrier() equally often.  One run at a time.
  template <class Body>
  void run(Body&& body) {
    using Plain = std::remove_reference_t<Body>;
    run_erased([](void* context, int worker) { (*static_cast<Plain*>(context))(worker); },
               const_cast<void*>(static_cast<const void*>(&body)));
  }

  // Inside a run: returns when all workers have called it.  What was written before is visible after.
  void barrier(int worker);

 private:
  using Function = void (*)(void* context, int worker);
  struct alignas(128) Member {
    Signal arrived;
    std::thread thread;  // none for worker 0
    // Only this worker touches these.
    uint32_t phase = 0;      // of its last barrier
    int64_t spin_limit = 0;  // for the current run
    Patience patience;
  };

  void run_erased(Function function, void* context);
  void work(int worker);
  void arrive(int worker);
  static void wait(Member& me, Signal& signal, uint32_t phase);

  int size_, cpus_;
  std::unique_ptr<Member[]> members_;
  Signal start_, release_;
  // Written by worker 0 before start_ is set.
  uint32_t run_ = 0;
  int64_t spin_limit_ = 0;
  Function function_ = nullptr;  // null: the team ends
  void* context_ = nullptr;
};

// An idle team of `size` workers from the process's pool, given back at the end.  Executables that run one after the
// other thus use the same threads, and those that run at once do not wait for each other.
class TeamLease {
 public:
  explicit TeamLease(int size);
  ~TeamLease();
  TeamLease(const TeamLease&) = delete;
  TeamLease& operator=(const TeamLease&) = delete;
  Team& operator*() const { return *team_; }
  Team* operator->() const { return team_.get(); }

 private:
  std::unique_ptr<Team> team_;
  uint32_t generation_;
};

// While it lives, this thread rounds to nearest and treats subnormal numbers as zero (x86 FTZ and DAZ, ARM FZ); then
// the caller's modes return.
class FlushSubnormals {
 public:
  FlushSubnormals();
  ~FlushSubnormals();
  FlushSubnormals(const FlushSubnormals&) = delete;
  FlushSubnormals& operator=(const FlushSubnormals&) = delete;

 private:
  uint64_t saved_;
};

}  // namespace tw
