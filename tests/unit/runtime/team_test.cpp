// The team of workers: barriers, work that is shared, sleeping and waking, crowds, forks, floating-point modes.
#include "runtime/team.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/device/pieces.h"
#include "runtime/error.h"

namespace tw {
namespace {

class Teams : public testing::TestWithParam<TeamKind> {};
INSTANTIATE_TEST_SUITE_P(Kinds, Teams, testing::Values(TeamKind::own, TeamKind::openmp),
                         [](const auto& info) { return to_string(info.param); });

// Each phase every worker writes its slot and then, after the barrier, reads all others': a missing wait or a missing
// publication shows as a stale value (and as a race under ThreadSanitizer; the slots are plain memory).
void exchange(Team& team, int phases) {
  const int n = team.size();
  std::vector<int> slots(n * 64, -1);
  std::vector<int> errors(n * 64, 0);
  team.run([&](int w) {
    for (int phase = 0; phase < phases; ++phase) {
      slots[w * 64] = phase;
      team.barrier(w);
      for (int other = 0; other < n; ++other) errors[w * 64] += slots[other * 64] != phase;
      team.barrier(w);
    }
  });
  for (int w = 0; w < n; ++w) EXPECT_EQ(errors[w * 64], 0) << "worker " << w << " of " << n;
}

TEST_P(Teams, BarrierSeparatesPhases) {
  for (int size : {1, 2, 3, 4, 9, 10, 17}) {
    Team team(size, GetParam());
    exchange(team, 50);
  }
}

TEST(Team, BarrierOfMany) {
  Team team(80);
  exchange(team, 5);
}

TEST_P(Teams, RunsOnEveryWorkerOnceARun) {
  Team team(4, GetParam());
  int runs = 0;
  std::vector<int> calls(4 * 64);
  std::set<std::thread::id> threads;
  for (; runs < 2000; ++runs) {
    team.run([&](int w) { ++calls[w * 64]; });
  }
  for (int w = 0; w < 4; ++w) EXPECT_EQ(calls[w * 64], runs);
}

TEST_P(Teams, WakesSleepers) {
  Team team(3, GetParam());
  for (int run = 0; run < 10; ++run) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));  // beyond any spinning
    int seen[3 * 64] = {};
    team.run([&](int w) {
      if (w == 1) std::this_thread::sleep_for(std::chrono::milliseconds(1));  // the others fall asleep in the barrier
      team.barrier(w);
      seen[w * 64] = 1;
    });
    EXPECT_EQ(seen[0] + seen[64] + seen[128], 3);
  }
}

// Steps that each read what the one before wrote.  Some workers are now and then away for longer than the others take
// to a step, or to the run: every task is done once all the same, and not before the step before it.
TEST_P(Teams, LeadsThroughStepsWhoeverComes) {
  constexpr int size = 4, steps = 40, tasks = 24;
  Team team(size, GetParam());
  std::vector<std::atomic<uint64_t>> claimed(size);
  for (int run = 0; run < 60; ++run) {
    std::vector<int> done((steps + 1) * tasks, 0);
    std::fill(done.begin(), done.begin() + tasks, 1);
    std::atomic<int> errors{0};
    team.lead([&](int w) {
      int64_t own = 0;
      for (int step = 0; step < steps; ++step) {
        if (w == 1 + run % 3 && step % 16 == 5) std::this_thread::sleep_for(std::chrono::microseconds(500));
        for (int k = 0; k < size; ++k) {
          const int owner = (w + k) % size;
          const Piece share = share_of(tasks, owner, size);
          for (Piece piece; (piece = claim(claimed[owner], run * steps + step + 1, share)).begin < piece.end;) {
            for (int64_t task = piece.begin; task < piece.end; ++task) {
              errors += done[step * tasks + (task + 7) % tasks] != 1;
              ++done[(step + 1) * tasks + task];
            }
            own += piece.end - piece.begin;
          }
        }
        if (!team.wait(w, tasks, std::exchange(own, 0))) return;
      }
    });
    EXPECT_EQ(errors, 0);
    for (int count : done) ASSERT_EQ(count, 1) << "run " << run;
  }
}

// A worker that comes late to an execution finds nothing left of it, whatever the next one has taken; numbers come
// round.
TEST(Pieces, AreTakenOnce) {
  for (const uint32_t first : {uint32_t{1}, uint32_t{0xffffffff}}) {
    std::atomic<uint64_t> claimed{uint64_t{first - 1} << 32 | 7};
    int64_t taken = 0;
    for (Piece piece; (piece = claim(claimed, first, {3, 20})).begin < piece.end;) taken += piece.end - piece.begin;
    EXPECT_EQ(taken, 17);
    const Piece next = claim(claimed, first + 1, {3, 20});
    EXPECT_EQ(next.begin, 3);
    const Piece late = claim(claimed, first, {3, 20});
    EXPECT_EQ(late.begin, late.end);
    EXPECT_EQ(claim(claimed, first + 1, {3, 20}).begin, next.end);
    const Piece none = claim(claimed, first + 2, {5, 5});
    EXPECT_EQ(none.begin, none.end);
    EXPECT_EQ(claimed >> 32, uint32_t(first + 2));
  }
}

TEST_P(Teams, LeadsWithoutThoseWhoSleep) {
  Team team(3, GetParam());
  for (int run = 0; run < 20; ++run) {
    std::atomic<int> asleep{0};
    // Nobody ever does what the others wait for.
    team.lead([&](int w) {
      if (w == 0) {
        while (asleep < 2) std::this_thread::yield();
      } else {
        ++asleep;
        if (team.wait(w, 1, 0)) std::abort();
      }
    });
    int calls[3 * 64] = {};
    team.run([&](int w) { ++calls[w * 64]; });  // all of them are back
    EXPECT_EQ(calls[0] + calls[64] + calls[128], 3);
  }
}

// Eight workers a CPU, which all wait for each other again and again.
TEST(Team, MeetsWhenCrowded) {
  const int size = 8 * static_cast<int>(std::thread::hardware_concurrency());
  Team team(std::min(size, Team::max_size));
  exchange(team, 300);
}

TEST(Team, IsChosenByName) {
  EXPECT_EQ(parse_team_kind("own"), TeamKind::own);
  EXPECT_EQ(parse_team_kind("openmp"), TeamKind::openmp);
  EXPECT_THROW(parse_team_kind("tbb"), Error);
}

constexpr int64_t time_slice = 1'000'000;  // nanoseconds: the least that systems give

// What a worker spins in a number of waits that all end the same way.
int64_t spun(Patience& patience, int waits, int64_t limit, Waited how) {
  int64_t sum = 0;
  for (int wait = 0; wait < waits; ++wait) {
    sum += patience.begin_wait(limit);
    patience.end_wait(how);
  }
  return sum;
}

// Who spins where workers outnumber CPUs keeps the awaited one from running.
TEST(Patience, IsShortWhereOurOwnWorkersCrowd) {
  Patience patience;
  EXPECT_LT(spun(patience, 100, spin_limit(9, 8), Waited::sleeping), time_slice);
  EXPECT_GT(spin_limit(8, 8), 10 * spin_limit(9, 8));
}

// Other programs' crowds are known by spins that end in vain.
TEST(Patience, IsLostInVainAndFoundAgain) {
  const int64_t limit = spin_limit(8, 8);
  Patience patience;
  EXPECT_EQ(patience.nanoseconds(), limit);
  EXPECT_LT(spun(patience, 32, limit, Waited::sleeping), time_slice);
  const int64_t least = patience.nanoseconds();
  EXPECT_LT(32 * least, time_slice);
  EXPECT_GT(least, 0);
  // Within one round of trials a wait that spins with success restores all of it.
  spun(patience, 31, limit, Waited::not_at_all);
  EXPECT_EQ(patience.nanoseconds(), least);
  EXPECT_EQ(patience.begin_wait(limit), limit);
  patience.end_wait(Waited::spinning);
  EXPECT_EQ(patience.nanoseconds(), limit);
}

TEST(Team, SeveralTeamsAtOnce) {
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 4; ++caller) {
    callers.emplace_back([] {
      for (int run = 0; run < 20; ++run) {
        TeamLease team(3);
        exchange(*team, 5);
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
}

TEST(Team, PoolReusesThreads) {
  std::thread::id first[2], second[2];
  {
    TeamLease team(2);
    team->run([&](int w) { first[w] = std::this_thread::get_id(); });
  }
  {
    TeamLease team(2);
    team->run([&](int w) { second[w] = std::this_thread::get_id(); });
  }
  EXPECT_EQ(first[1], second[1]);
  EXPECT_EQ(first[0], std::this_thread::get_id());
}

#if !__has_feature(thread_sanitizer)  // which does not follow threads of a forked child
TEST(Team, ForkedChildStartsItsOwn) {
  {
    TeamLease team(2);
    exchange(*team, 3);
  }
  pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    alarm(20);
    TeamLease team(2);
    int sum[2 * 64] = {};
    team->run([&](int w) { sum[w * 64] = w + 1; });
    _exit(sum[0] + sum[64] == 3 ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  TeamLease team(2);
  exchange(*team, 3);
}

TEST(Team, DefaultSizeFollowsTheAffinityMask) {
  const int all = default_team_size();
  EXPECT_GE(all, 1);
  EXPECT_LE(all, static_cast<int>(std::thread::hardware_concurrency()));
  std::thread([&] {
    cpu_set_t mask;
    ASSERT_EQ(sched_getaffinity(0, sizeof mask, &mask), 0);
    int first = 0;
    while (!CPU_ISSET(first, &mask)) ++first;
    CPU_ZERO(&mask);
    CPU_SET(first, &mask);
    ASSERT_EQ(sched_setaffinity(0, sizeof mask, &mask), 0);
    EXPECT_EQ(default_team_size(), 1);
  }).join();
}
#endif

std::vector<int> cpus_of_this_thread() {
  cpu_set_t mask;
  std::vector<int> cpus;
  if (sched_getaffinity(0, sizeof mask, &mask) != 0) return cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(cpu, &mask)) cpus.push_back(cpu);
  return cpus;
}

void use_cpus(const std::vector<int>& cpus, pthread_t thread = pthread_self()) {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  for (int cpu : cpus) CPU_SET(cpu, &mask);
  ASSERT_EQ(pthread_setaffinity_np(thread, sizeof mask, &mask), 0);
}

// Calls body(a, b, team) in a thread that may use two CPUs, as the team's worker may.
template <class Body>
void with_two_cpus(Body&& body) {
  const std::vector<int> cpus = cpus_of_this_thread();
  if (cpus.size() < 2) GTEST_SKIP() << "takes two CPUs";
  std::thread([&] {
    use_cpus({cpus[0], cpus[1]});
    Team team(2);
    body(cpus[0], cpus[1], team);
  }).join();
}

TEST(Team, KeepsOffTheCallersCpu) {
  with_two_cpus([](int a, int b, Team& team) {
    pthread_t thread{};
    const auto cpus_of_worker = [&] {
      std::vector<int> cpus;
      team.run([&](int w) {
        if (w == 1) thread = pthread_self(), cpus = cpus_of_this_thread();
      });
      return cpus;
    };
    use_cpus({a});
    EXPECT_EQ(cpus_of_worker(), std::vector{b});
    use_cpus({b});
    EXPECT_EQ(cpus_of_worker(), std::vector{a});
    // Who sets another mask means it.
    use_cpus({b}, thread);
    use_cpus({a});
    EXPECT_EQ(cpus_of_worker(), std::vector{b});
    use_cpus({b});
    EXPECT_EQ(cpus_of_worker(), std::vector{b});
  });
}

// Another program takes the worker's CPU in the middle of its work.
TEST(Team, LendsTheCallersCpuToWhoStandsStill) {
  with_two_cpus([](int a, int b, Team& team) {
    use_cpus({a});
    std::atomic<bool> is_over{false};
    std::thread rival([&] {
      use_cpus({b});
      while (!is_over) continue;
    });
    bool is_guest = false;
    std::vector<int> cpus_afterwards;
    team.run([&](int w) {
      const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
      while (w == 1 && !is_guest && std::chrono::steady_clock::now() < deadline) is_guest = sched_getcpu() == a;
      team.barrier(w);
      if (w == 1) cpus_afterwards = cpus_of_this_thread();
    });
    is_over = true;
    rival.join();
    EXPECT_TRUE(is_guest);
    EXPECT_EQ(cpus_afterwards, std::vector{b});
  });
}

TEST(FlushSubnormals, FlushesAndRestores) {
  volatile float tiny = 1e-39f, one = 1.0f;
  EXPECT_NE(tiny * one, 0.0f);
  {
    FlushSubnormals flush;
    EXPECT_EQ(tiny * one, 0.0f);  // a subnormal operand counts as zero
    volatile float small = 2e-38f, half = 0.25f;
    EXPECT_EQ(small * half, 0.0f);  // and a subnormal result becomes zero
  }
  EXPECT_NE(tiny * one, 0.0f);
}

}  // namespace
}  // namespace tw
