#include "runtime/team.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <fstream>
#include <mutex>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <system_error>
#include <vector>

#include "runtime/error.h"
#include "runtime/openmp.h"
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace tw {
namespace {

// Waking a sleeper takes tens of microseconds, about the length of a step: spin a few times that.
constexpr int64_t spin_in_run = 200'000, spin_between_runs = 100'000;
// Where workers outnumber CPUs the awaited one may need this very CPU.
constexpr int64_t spin_when_crowded = 2'000;
// Who comes after the run had to wait for a CPU, and would for the next one, too, if it gave this one back at once.
constexpr int64_t spin_when_late = 4'000'000;
// Other programs may crowd us as well; then spins end in vain, and get shorter down to this.
constexpr int64_t least_patience = 5'000;
constexpr uint32_t waits_between_trials = 32;

// Workers of all teams that are in a run now.
std::atomic<int> running_workers{0};

int64_t nanoseconds_of(const timespec& time) {
  return static_cast<int64_t>(time.tv_sec) * 1'000'000'000 + time.tv_nsec;
}

int64_t now_nanoseconds() {
  timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return nanoseconds_of(time);
}

void pause_cpu() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("isb" ::: "memory");
#else
  asm volatile("yield" ::: "memory");
#endif
}

static_assert(sizeof(std::atomic<uint32_t>) == 4 && std::atomic<uint32_t>::is_always_lock_free);

// False: for all the time.
bool futex_wait(std::atomic<uint32_t>* word, uint32_t expected, int64_t nanoseconds) {
  const timespec time{static_cast<time_t>(nanoseconds / 1'000'000'000), static_cast<long>(nanoseconds % 1'000'000'000)};
  const timespec* timeout = nanoseconds == INT64_MAX ? nullptr : &time;
  return syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, expected, timeout, nullptr, 0) == 0 || errno != ETIMEDOUT;
}

void futex_wake_all(std::atomic<uint32_t>* word) {
  syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}

// Spins until it holds, for a time; `sleeping`: it did not.
template <class Holds>
Waited spin_until(int64_t nanoseconds, Holds&& holds) {
  if (holds()) return Waited::not_at_all;
  const int64_t end = now_nanoseconds() + nanoseconds;
  // `pause` takes 40 to 140 cycles, so time, not a count, bounds the spin; the clock is read every 16th round.
  for (int round = 1; round % 16 != 0 || now_nanoseconds() < end; ++round) {
    pause_cpu();
    if (holds()) return Waited::spinning;
  }
  return Waited::sleeping;
}

// The CPUs of the thread's affinity mask, as numbers; empty when it cannot be read.
std::vector<int> allowed_cpus(pthread_t thread = pthread_self()) {
  for (int capacity = 1024; capacity <= 1 << 20; capacity *= 4) {
    cpu_set_t* mask = CPU_ALLOC(capacity);
    size_t bytes = CPU_ALLOC_SIZE(capacity);
    CPU_ZERO_S(bytes, mask);
    bool known = pthread_getaffinity_np(thread, bytes, mask) == 0;
    std::vector<int> cpus;
    for (int cpu = 0; known && cpu < capacity; ++cpu) {
      if (CPU_ISSET_S(cpu, bytes, mask)) cpus.push_back(cpu);
    }
    CPU_FREE(mask);
    if (known) return cpus;
  }
  return {};
}

// Whether the thread may use these CPUs only from now on.
bool allow_cpus(pthread_t thread, const std::vector<int>& cpus) {
  const int capacity = cpus.back() + 1;
  cpu_set_t* mask = CPU_ALLOC(capacity);
  const size_t bytes = CPU_ALLOC_SIZE(capacity);
  CPU_ZERO_S(bytes, mask);
  for (int cpu : cpus) CPU_SET_S(cpu, bytes, mask);
  const bool is_set = pthread_setaffinity_np(thread, bytes, mask) == 0;
  CPU_FREE(mask);
  return is_set;
}

// How long the thread has run, in all; none where nobody says so.
std::optional<int64_t> running_nanoseconds(std::thread& thread) {
  clockid_t clock;
  timespec time;
  const bool is_known = pthread_getcpuclockid(thread.native_handle(), &clock) == 0 && clock_gettime(clock, &time) == 0;
  return is_known ? std::optional(nanoseconds_of(time)) : std::nullopt;
}

std::string read_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// CPUs' worth of time that the cgroups grant, rounded up; INT_MAX without a quota.
int cgroup_cpus() {
  double least = INT_MAX;
  auto grant = [&](double quota, double period) {
    if (quota > 0 && period > 0) least = std::min(least, quota / period);
  };
  std::ifstream groups("/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",", path = line.substr(second + 1);
    bool is_v2 = controllers == ",,";
    if (!is_v2 && controllers.find(",cpu,") == std::string::npos) continue;
    // A container sees its own group as the root of the mount: every prefix of the path is worth a look.
    while (true) {
      std::string folder = (is_v2 ? "/sys/fs/cgroup" : "/sys/fs/cgroup/cpu") + (path == "/" ? "" : path);
      if (is_v2) {
        std::istringstream limit(read_line(folder + "/cpu.max"));  // "200000 100000" or "max 100000"
        double quota = 0, period = 0;
        if (limit >> quota >> period) grant(quota, period);
      } else {
        std::istringstream quota_text(read_line(folder + "/cpu.cfs_quota_us"));
        std::istringstream period_text(read_line(folder + "/cpu.cfs_period_us"));
        double quota = 0, period = 0;
        if (quota_text >> quota && period_text >> period) grant(quota, period);
      }
      if (path.empty() || path == "/") break;
      path = path.substr(0, path.rfind('/'));
    }
  }
  return least >= INT_MAX ? INT_MAX : std::max(1, static_cast<int>(least + 0.999));
}

}  // namespace

int default_team_size() {
  std::vector<int> cpus = allowed_cpus();
  // Two hyper-threads of a core share its vector units: a second worker there only gets in the way.
  std::set<std::string> cores;
  for (int cpu : cpus) {
    std::string siblings =
        read_line("/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/thread_siblings_list");
    cores.insert(siblings.empty() ? std::to_string(cpu) : siblings);
  }
  int count = cores.empty() ? static_cast<int>(std::thread::hardware_concurrency()) : static_cast<int>(cores.size());
  return std::clamp(std::min(count, cgroup_cpus()), 1, Team::max_size);
}

void Bell::ring() {
  if (sleepers_.load() == 0) return;
  rings_.fetch_add(1);
  futex_wake_all(&rings_);
}

bool Bell::sleep(uint32_t rings, int64_t nanoseconds) {
  return futex_wait(&rings_, rings, nanoseconds);
}

int64_t spin_limit(int running_workers, int cpus) {
  return running_workers > cpus ? spin_when_crowded : spin_in_run;
}

// Spinning in vain is the sign of a crowd: the awaited worker does not run, perhaps because this one has its CPU.  Then
// sleeping soon is many times faster.  But a sleeper wakes late, lets others wait in turn and so keeps them impatient:
// a full spin now and then finds out that the crowd has gone.
int64_t Patience::begin_wait(int64_t limit) {
  is_trial_ = ++waits_ % waits_between_trials == 0;
  return is_trial_ ? limit : std::min(limit, nanoseconds_);
}

void Patience::end_wait(Waited how) {
  switch (how) {
    case Waited::not_at_all:
      break;
    case Waited::spinning:
      nanoseconds_ = is_trial_ ? spin_in_run : std::min(nanoseconds_ * 2, spin_in_run);
      break;
    case Waited::sleeping:
      nanoseconds_ = std::max(nanoseconds_ / 4, least_patience);
      break;
  }
}

TeamKind parse_team_kind(std::string_view name) {
  for (const TeamKind kind : {TeamKind::own, TeamKind::openmp})
    if (name == to_string(kind)) return kind;
  throw Error(ErrorCode::input, "there is no team '" + std::string(name) + "'\n  help: use own or openmp");
}

const char* to_string(TeamKind kind) {
  return kind == TeamKind::own ? "own" : "openmp";
}

TeamKind default_team_kind() {
  const char* name = std::getenv("TW_TEAM");
  return name && *name ? parse_team_kind(name) : TeamKind::own;
}

Team::Team(int size, TeamKind kind) : size_(size), kind_(kind) {
  check(size >= 1 && size <= max_size, "Team: 1 ≤ size ≤ 1024");
  const size_t cpus = allowed_cpus().size();
  cpus_ = cpus ? static_cast<int>(cpus) : std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  members_ = std::make_unique<Member[]>(size);
  if (kind == TeamKind::openmp) {
    (void)openmp();  // which throws where there is none
    return;
  }
  int started = 1;
  try {
    for (; started < size; ++started) {
      members_[started].thread = std::thread([this, worker = started] { work(worker); });
    }
  } catch (const std::system_error& error) {
    ends_ = true;
    start();
    for (int worker = 1; worker < started; ++worker) members_[worker].thread.join();
    throw Error(ErrorCode::limit, "cannot start " + std::to_string(size) + " threads: " + error.what() +
                                      "\n  help: ask for fewer threads, or raise the process limit (ulimit -u)");
  }
}

Team::~Team() {
  if (kind_ == TeamKind::openmp) return;
  ends_ = true;
  start();
  for (int worker = 1; worker < size_; ++worker) members_[worker].thread.join();
}

void Team::start() {
  const uint64_t run = run_.load() + 1;
  for (int worker = 1; worker < size_; ++worker) members_[worker].presence.store(run << 2 | invited);
  run_.store(run);
  bell_.ring();
}

void Team::enter_erased(Function function, void* context, bool is_led) {
  if (size_ == 1) return function(context, 0);
  int running = running_workers.fetch_add(size_, std::memory_order_relaxed) + size_;
  spin_limit_ = spin_limit(running, cpus_);
  function_ = function;
  context_ = context;
  done_.store(0);
  members_[0].due = 0;
  members_[0].spin_limit = spin_limit_;
  if (kind_ == TeamKind::openmp) {
    enter_region(is_led);
  } else {
    keep_off_callers_cpu();
    start();
    function(context, 0);
    for (int worker = 1; worker < size_; ++worker) part_from(members_[worker], is_led);
  }
  running_workers.fetch_sub(size_, std::memory_order_relaxed);
}

void Team::enter_region(bool is_led) {
  struct Region {
    Team* team;
    uint64_t run;
    bool is_led;
  } region{this, run_.load(), is_led};
  const auto take_part = [](void* data) {
    const auto& [team, run, is_led] = *static_cast<Region*>(data);
    team->take_part(run, is_led);
  };
  openmp().parallel(take_part, &region, static_cast<unsigned>(size_), 0);
}

// By each thread of the region.  When worker 0 has ended a run that it leads, those who still wait for something are
// told so, and who comes later has nothing to do.
void Team::take_part(uint64_t run, bool is_led) {
  const int number = openmp().thread_number(), step = is_led ? size_ : openmp().thread_count();
  for (int worker = number; worker < size_; worker += step) {
    if (is_led && run_.load() != run) return;
    Member& me = members_[worker];
    me.run = run;
    me.is_inside = true;
    me.due = 0;
    me.spin_limit = spin_limit_;
    function_(context_, worker);
    if (worker != 0) continue;
    run_.store(run + 1);
    bell_.ring();
  }
}

// By worker 0, before it wakes the others.
void Team::keep_off_callers_cpu() {
  const int cpu = sched_getcpu();
  if (cpu == callers_cpu_) return;
  callers_cpu_ = cpu;
  for (int worker = 1; worker < size_; ++worker) {
    Member& member = members_[worker];
    member.is_guest.store(false);
    std::vector<int> found = allowed_cpus(member.thread.native_handle());
    if (found != member.used) member.allowed = member.used = std::move(found);
    keep_off(member, cpu);
  }
}

// The member may use every other CPU that it is allowed, if each member then has one.
void Team::keep_off(Member& member, int cpu) const {
  std::vector<int> cpus = member.allowed;
  std::erase(cpus, cpu);
  if (static_cast<int>(cpus.size()) < size_ - 1) cpus = member.allowed;
  if (cpus != member.used && allow_cpus(member.thread.native_handle(), cpus)) member.used = std::move(cpus);
}

// By worker 0, which is about to sleep: members that stand still come to its CPU until they have done what they are at.
// Whether what it waits for has come to hold meanwhile.
template <class Holds>
bool Team::lend_cpu(Holds&& holds) {
  constexpr int64_t a_moment = 10'000;
  if (cpus_ < size_ || kind_ == TeamKind::openmp) return false;
  const uint64_t inside_run = run_.load() << 2 | inside;
  for (int worker = 1; worker < size_; ++worker) {
    Member& member = members_[worker];
    member.seen_running = member.presence.load() == inside_run ? running_nanoseconds(member.thread) : std::nullopt;
  }
  if (spin_until(a_moment, holds) != Waited::sleeping) return true;
  const int cpu = sched_getcpu();
  for (int worker = 1; worker < size_; ++worker) {
    Member& member = members_[worker];
    const bool stands_still = member.seen_running && member.presence.load() == inside_run &&
                              running_nanoseconds(member.thread) == member.seen_running;
    if (!stands_still || member.is_guest.load()) continue;
    std::lock_guard lock(member.moving);  // it may run before this thread goes on
    member.is_guest.store(true);
    if (allow_cpus(member.thread.native_handle(), {cpu})) member.used = {cpu};
    callers_cpu_ = -1;
  }
  return false;
}

// By worker 0, which has waited in vain.
template <class Holds>
void Team::sleep_until(Bell& bell, Holds&& holds) {
  constexpr int64_t until_next_look = 500'000;
  while (!lend_cpu(holds) && !bell.sleep_until(holds, until_next_look)) {
  }
}

// Whether the member was in the one state, of the run that it knows of, and is in the other now.
bool Team::moves(Member& member, Presence from, Presence to) {
  uint64_t was = member.run << 2 | from;
  return member.presence.compare_exchange_strong(was, member.run << 2 | to);
}

// By worker 0: returns when the member is outside.
void Team::part_from(Member& member, bool is_led) {
  const auto is_outside = [&] {
    uint64_t seen = member.presence.load();
    const uint64_t kind = seen & 3, left = (seen & ~uint64_t{3}) | outside;
    return kind == outside || (is_led && kind != inside && member.presence.compare_exchange_strong(seen, left));
  };
  Patience& patience = members_[0].patience;
  const Waited how = spin_until(patience.begin_wait(members_[0].spin_limit), is_outside);
  patience.end_wait(how);
  if (how == Waited::sleeping) sleep_until(parting_, is_outside);
}

void Team::work(int worker) {
  pthread_setname_np(pthread_self(), "tilewright");
  Member& me = members_[worker];
  int64_t idle_spin = 0;
  bool is_late = false;
  while (true) {
    const auto has_started = [&] { return run_.load() != me.run; };
    // That a program lets its model rest is no sign of a crowd, that the next run came soon one of having a CPU.
    const Waited how = spin_until(idle_spin, has_started);
    if (how == Waited::sleeping)
      bell_.sleep_until(has_started);
    else if (!is_late)
      me.patience.end_wait(how);
    me.run = run_.load();
    is_late = !moves(me, invited, inside);
    if (is_late) {
      idle_spin = spin_when_late;
      continue;
    }
    if (ends_) return;
    me.is_inside = true;
    me.due = 0;
    me.spin_limit = spin_limit_;
    function_(context_, worker);
    idle_spin = std::min(spin_between_runs, me.patience.begin_wait(me.spin_limit));
    if (!me.is_inside) continue;
    me.presence.store(me.run << 2 | outside);
    parting_.ring();
  }
}

void Team::add(int worker, int64_t due, int64_t done) {
  Member& me = members_[worker];
  me.due += due;
  if (done > 0 && size_ > 1 && done_.fetch_add(done) + done >= me.due) bell_.ring();
  if (me.is_guest.load()) {
    std::lock_guard lock(me.moving);
    keep_off(me, sched_getcpu());
    me.is_guest.store(false);
  }
}

bool Team::wait(int worker, int64_t due, int64_t done) {
  if (size_ == 1) return true;
  add(worker, due, done);
  Member& me = members_[worker];
  const auto is_done = [&] { return done_.load() >= me.due; };
  const Waited how = spin_until(me.patience.begin_wait(me.spin_limit), is_done);
  me.patience.end_wait(how);
  if (how != Waited::sleeping) return true;
  if (worker == 0) {
    sleep_until(bell_, is_done);
    return true;
  }
  if (kind_ == TeamKind::openmp) {
    bell_.sleep_until([&] { return is_done() || run_.load() != me.run; });
    return me.is_inside = is_done();
  }
  me.presence.store(me.run << 2 | resting);
  parting_.ring();
  bell_.sleep_until([&] { return is_done() || run_.load() != me.run; });
  return me.is_inside = moves(me, resting, inside);
}

namespace {

// Teams that nobody uses now.  Never destroyed: its threads end with the process.  A forked child has none of the
// threads, so it forgets the teams (their memory stays) and starts its own.
struct Pool {
  std::mutex mutex;
  std::vector<std::unique_ptr<Team>> idle;
  uint32_t generation = 0;
};

Pool& pool() {
  static Pool* instance = [] {
    auto* made = new Pool;
    pthread_atfork([] { pool().mutex.lock(); }, [] { pool().mutex.unlock(); },
                   [] {
                     for (auto& team : pool().idle) (void)team.release();
                     pool().idle.clear();
                     ++pool().generation;
                     running_workers.store(0);
                     pool().mutex.unlock();
                   });
    return made;
  }();
  return *instance;
}

constexpr size_t most_idle_teams = 16;

}  // namespace

TeamLease::TeamLease(TeamRequest request) {
  {
    std::lock_guard lock(pool().mutex);
    generation_ = pool().generation;
    // The one used last has its threads awake and its caches warm.
    auto& idle = pool().idle;
    auto found = std::find_if(idle.rbegin(), idle.rend(), [&](const auto& team) {
      return team->size() == request.threads && team->kind() == request.kind;
    });
    if (found != idle.rend()) {
      team_ = std::move(*found);
      idle.erase(std::next(found).base());
    }
  }
  if (!team_) team_ = std::make_unique<Team>(request.threads, request.kind);
}

TeamLease::~TeamLease() {
  std::unique_ptr<Team> oldest;  // ends after the lock is released
  std::lock_guard lock(pool().mutex);
  if (generation_ != pool().generation) {
    (void)team_.release();
    return;
  }
  auto& idle = pool().idle;
  idle.push_back(std::move(team_));
  if (idle.size() > most_idle_teams) {
    oldest = std::move(idle.front());
    idle.erase(idle.begin());
  }
}

#if defined(__x86_64__)
FlushSubnormals::FlushSubnormals(bool flushes) : saved_(_mm_getcsr()) {
  _mm_setcsr(0x1f80 | (flushes ? 0x8040 : 0));  // exceptions masked, round to nearest; FTZ | DAZ
}
FlushSubnormals::~FlushSubnormals() {
  _mm_setcsr(static_cast<unsigned>(saved_));
}
#elif defined(__aarch64__)
FlushSubnormals::FlushSubnormals(bool flushes) {
  asm volatile("mrs %0, fpcr" : "=r"(saved_));
  asm volatile("msr fpcr, %0" ::"r"(uint64_t{flushes} << 24));
}
FlushSubnormals::~FlushSubnormals() {
  asm volatile("msr fpcr, %0" ::"r"(saved_));
}
#elif defined(__arm__)
FlushSubnormals::FlushSubnormals(bool flushes) {
  uint32_t word;
  asm volatile("vmrs %0, fpscr" : "=r"(word));
  saved_ = word;
  asm volatile("vmsr fpscr, %0" ::"r"(uint32_t{flushes} << 24));
}
FlushSubnormals::~FlushSubnormals() {
  asm volatile("vmsr fpscr, %0" ::"r"(static_cast<uint32_t>(saved_)));
}
#else
#error "Tilewright runs on x86_64, aarch64 and arm"
#endif

}  // namespace tw
