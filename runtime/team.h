// A team of workers: one mechanism for hosts and boards.  Its threads are our own, or those of the process's OpenMP
// runtime (openmp.h) where somebody asks for that, because other libraries compute on them, too.
//
// A team is entered once a run; worker 0 is the calling thread.  Within the run the workers wait for work, not for one
// another: what is done is counted, and who waits, waits for a count.  So a worker that another program keeps from its
// core holds up the others only where it has begun something; it passes by what was done without it when it comes back,
// and where it sleeps when the run is over, the run ends without it.
//
// Who waits spins for a bounded time and then sleeps on a futex, so a run stays fast when every worker has a core, and
// does not collapse when they have to share, with each other or with other programs: who spun in vain spins less the
// next time.  Between runs the workers sleep.
//
// Where there are CPUs enough, workers keep off the caller's: the system may think of CPUs that slept as taken (a guest
// of KVM does, vcpu_is_preempted()) and wake all workers on the one that woke them, where they share it for tens of
// milliseconds.  And where a worker stands still in the middle of its work, because another program has its CPU, the
// waiting caller lends it its own instead of waiting for the end of the other's time slice.
//
// Of OpenMP's threads only their coming and going differs: a run is a parallel region, which all of them leave together.
//
// Every word that is waited for has 128 bytes to itself (two lines: the neighbour is prefetched with it).
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>
#include <thread>
#include <type_traits>
#include <vector>

namespace tw {

// Cores that this process may use: distinct cores of its affinity mask, at most its cgroups' CPU quota (rounded up).
int default_team_size();

// What wakes threads that sleep until something holds.
class alignas(128) Bell {
 public:
  // To be called after something was made to hold, by a sequentially consistent write.
  void ring();
  // Sleeps until `holds()`, which reads sequentially consistent words, or for so long.  Whether it holds.
  template <class Holds>
  bool sleep_until(Holds&& holds, int64_t nanoseconds = INT64_MAX) {
    sleepers_.fetch_add(1);
    bool does_hold = false, has_time = true;
    for (uint32_t rings = rings_.load(); !(does_hold = holds()) && has_time; rings = rings_.load())
      has_time = sleep(rings, nanoseconds);
    sleepers_.fetch_sub(1);
    return does_hold;
  }

 private:
  bool sleep(uint32_t rings, int64_t nanoseconds);  // unless it rang since there were so many; false: for all the time

  std::atomic<uint32_t> rings_{0};
  std::atomic<int> sleepers_{0};
};

enum class Waited { not_at_all, spinning, sleeping };

// Workers of all teams that are in a run, on so many CPUs: how long one of them may spin, in nanoseconds.
int64_t spin_limit(int running_workers, int cpus);

// How long one worker spins before it sleeps: what was worth it lately, by how its waits ended.
class Patience {
 public:
  int64_t nanoseconds() const { return nanoseconds_; }
  // What the next wait may spin, of at most `limit`.
  int64_t begin_wait(int64_t limit);
  void end_wait(Waited how);

 private:
  int64_t nanoseconds_ = spin_limit(1, 1);
  uint32_t waits_ = 0;
  bool is_trial_ = false;
};

enum class TeamKind { own, openmp };
// "own", "openmp"; Error(input) for others.
TeamKind parse_team_kind(std::string_view name);
const char* to_string(TeamKind kind);
// What the environment variable TW_TEAM says; without it `own`.
TeamKind default_team_kind();

// Who is to run: so many threads of a kind.
struct TeamRequest {
  int threads;
  TeamKind kind = TeamKind::own;
};

class Team {
 public:
  // Starts size - 1 threads, unless they are OpenMP's.  1 ≤ size ≤ max_size; Error(limit) when they cannot be had.
  explicit Team(int size, TeamKind kind = TeamKind::own);
  ~Team();
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  static constexpr int max_size = 1024;
  int size() const { return size_; }
  TeamKind kind() const { return kind_; }

  // Calls body(worker) on every worker and returns when all have returned.  The body must not throw.  One run at a
  // time.  Where OpenMP gives fewer threads, some of them are several workers, one after the other, which then cannot
  // wait for each other.
  template <class Body>
  void run(Body&& body) {
    enter(body, false);
  }
  // Calls body(0), which sees to it that all work is done, and body(worker) on the workers that come in time to help.
  template <class Body>
  void lead(Body&& body) {
    enter(body, true);
  }

  // Inside a run.  All workers count the same work, in the same order, as due; each counts as done what it did itself,
  // at most what is due.  add() says what came to be due and done since this worker last said it.
  void add(int worker, int64_t due, int64_t done);
  // The same, and returns when all that is due has been done by somebody; what was written for it is visible then.
  // False: the run is over, ended without this worker, whose body must return and touch nothing that is not its own.
  [[nodiscard]] bool wait(int worker, int64_t due, int64_t done);
  // Inside run(): returns when all workers have called it.
  void barrier(int worker) { (void)wait(worker, size_, 1); }

 private:
  using Function = void (*)(void* context, int worker);
  // Of a worker in a run.  Those who have not come yet and those who rest are not waited for in a run that is led.
  enum Presence : uint64_t { outside, invited, inside, resting };
  struct alignas(128) Member {
    std::atomic<uint64_t> presence{outside};  // and above the lowest two bits the number of the run
    std::thread thread;                       // none for worker 0
    std::mutex moving;                        // from one CPU to another, in a run
    std::atomic<bool> is_guest{false};        // on the CPU of worker 0, which sleeps meanwhile
    std::vector<int> allowed, used;           // CPUs of its affinity mask: as others set it, and as it is now
    std::optional<int64_t> seen_running;      // so many nanoseconds, when worker 0 last looked
    // Only this worker touches these.
    uint64_t run = 0;
    bool is_inside = false;
    int64_t due = 0;         // in this run
    int64_t spin_limit = 0;  // in this run
    Patience patience;
  };

  template <class Body>
  void enter(Body& body, bool is_led) {
    using Plain = std::remove_reference_t<Body>;
    enter_erased([](void* context, int worker) { (*static_cast<Plain*>(context))(worker); },
                 const_cast<void*>(static_cast<const void*>(&body)), is_led);
  }
  void enter_erased(Function function, void* context, bool is_led);
  void enter_region(bool is_led);
  void take_part(uint64_t run, bool is_led);
  void start();
  void keep_off_callers_cpu();
  void keep_off(Member& member, int cpu) const;
  template <class Holds>
  bool lend_cpu(Holds&& holds);
  template <class Holds>
  void sleep_until(Bell& bell, Holds&& holds);
  void work(int worker);
  static bool moves(Member& member, Presence from, Presence to);
  void part_from(Member& member, bool is_led);

  int size_, cpus_;
  TeamKind kind_;
  std::unique_ptr<Member[]> members_;
  Bell bell_, parting_;  // for the workers; for worker 0 when a run ends
  alignas(128) std::atomic<int64_t> done_{0};
  alignas(128) std::atomic<uint64_t> run_{0};
  // Written by worker 0 before it invites.
  bool ends_ = false;
  int callers_cpu_ = -1;
  int64_t spin_limit_ = 0;
  Function function_ = nullptr;
  void* context_ = nullptr;
};

// An idle team of so many workers from the process's pool, given back at the end.  Executables that run one after the
// other thus use the same threads, and those that run at once do not wait for each other.
class TeamLease {
 public:
  explicit TeamLease(int threads) : TeamLease(TeamRequest{threads}) {}
  explicit TeamLease(TeamRequest request);
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
  explicit FlushSubnormals(bool flushes = true);  // false: they are as usual, within a scope of flushing
  ~FlushSubnormals();
  FlushSubnormals(const FlushSubnormals&) = delete;
  FlushSubnormals& operator=(const FlushSubnormals&) = delete;

 private:
  uint64_t saved_;
};

}  // namespace tw
