// Devices that die, hang and lie: each costs the candidate that it runs, which another one measures.
#include "autotune/fleet/fleet.h"

#include <gtest/gtest.h>

#include <cmath>
#include <condition_variable>
#include <map>
#include <mutex>

#include "autotune/measure/message.h"
#include "tests/unit/autotune/hostile.h"
#include "tests/unit/autotune/program.h"

namespace tw::autotune {
namespace {

using test::caught;
using Parts = std::vector<std::vector<std::byte>>;

// As if by tw-measure, without a process.
std::vector<std::byte> good_answer(const MeasureRequest& request, double ratio = 0.5) {
  Answer answer;
  for (int i = 0; i < 7; ++i) answer.result.samples.push_back({1, ratio});
  const ExchangeLayout layout(*request.plan);
  answer.result.outputs.resize(static_cast<size_t>(input_sets * layout.output_bytes));
  for (int set = 0; set < input_sets; ++set) {
    const float value = 2 * static_cast<float>(set + 1);
    std::memcpy(answer.result.outputs.data() + set * layout.output_bytes, &value, sizeof value);
  }
  return write_answer(answer);
}

struct Behaviour {
  std::function<std::vector<std::byte>(int call)> answer;
  std::function<MachineFacts(int call)> reach = [](int) { return this_machine(); };
};

class Scripted : public Device {
 public:
  Scripted(std::string name, Behaviour behaviour, std::map<std::string, int>& calls)
      : name_(std::move(name)), behaviour_(std::move(behaviour)), calls_(calls) {}
  std::string name() const override { return name_; }
  MachineFacts reach() override { return behaviour_.reach(reached_++); }
  std::vector<std::byte> call(const Parts&, int64_t, double) override {
    const int number = count();
    return behaviour_.answer(number);
  }
  void interrupt() override {}

 private:
  int count() {
    static std::mutex mutex;
    const std::lock_guard lock(mutex);
    return calls_[name_]++;
  }
  std::string name_;
  Behaviour behaviour_;
  std::map<std::string, int>& calls_;
  int reached_ = 0;
};

[[noreturn]] void lose() {
  throw Error(ErrorCode::device, "the connection is lost");
}

class Fleets : public testing::Test {
 protected:
  Fleets() : request_(written_.of("right")) {
    NDArray out(f32, {1});
    for (int set = 0; set < input_sets; ++set) {
      out = out.clone();
      out.set_float(0, 2.0 * (set + 1));
      request_.expected.push_back({out});
    }
  }
  void add(const std::string& name, Behaviour behaviour) {
    devices_.push_back(std::make_unique<Scripted>(name, std::move(behaviour), calls_));
  }
  Behaviour good() {
    return {[this](int) { return good_answer(request_); }};
  }
  // How each of so many requests ended.
  std::vector<Measurement> measure(size_t count) {
    fleet_ = std::make_unique<Fleet>(std::move(devices_),
                                     [this](const std::string& name, const std::string&) { lost_.push_back(name); });
    std::vector<Measurement> results(count);
    done_ = 0;
    fleet_->measure(std::vector<MeasureRequest>(count, request_), [&](size_t i, Measurement measured) {
      results[i] = std::move(measured);
      ++done_;
    });
    return results;
  }

  test::HostileRequest written_;
  MeasureRequest request_;
  std::vector<std::unique_ptr<Device>> devices_;
  std::map<std::string, int> calls_;
  std::vector<std::string> lost_;
  std::unique_ptr<Fleet> fleet_;
  size_t done_ = 0;
};

TEST_F(Fleets, candidates_are_spread) {
  std::mutex mutex;
  std::condition_variable met;
  int inside = 0;
  // Nobody answers before all three are asked.
  const auto answer = [&](int) {
    std::unique_lock lock(mutex);
    ++inside;
    met.notify_all();
    met.wait(lock, [&] { return inside >= 3; });
    return good_answer(request_);
  };
  for (const char* name : {"a", "b", "c"}) add(name, {answer});
  for (const Measurement& measured : measure(30)) {
    EXPECT_EQ(measured.status, Status::ok) << measured.detail;
    EXPECT_EQ(measured.samples.size(), 7u);
    EXPECT_EQ(measured.machine, host_cpu().name);
  }
  EXPECT_EQ(calls_.size(), 3u);
  EXPECT_EQ(calls_["a"] + calls_["b"] + calls_["c"], 30);
}

TEST_F(Fleets, lies_are_found_and_cost_only_what_ran) {
  const auto lie = [&](const std::function<void(Answer&)>& change) {
    return [this, change](int) {
      Answer answer = read_answer(good_answer(request_));
      change(answer);
      return write_answer(answer);
    };
  };
  const auto spoil = [&](size_t at) {
    return [this, at](int) {
      auto bytes = good_answer(request_);
      bytes[std::min(at, bytes.size() - 1)] ^= std::byte{1};
      return bytes;
    };
  };
  const std::vector<std::function<std::vector<std::byte>(int)>> lies = {
      lie([](Answer& a) { a.result.samples[2].candidate = std::nan(""); }),
      lie([](Answer& a) { a.result.samples[2].incumbent = -1; }),
      lie([](Answer& a) { a.result.samples[0].candidate = 0; }),
      lie([](Answer& a) { a.result.samples.clear(); }),
      lie([](Answer& a) {
        a.result.samples.resize(5000, {1, 1});
      }),
      lie([](Answer& a) { a.result.outputs.pop_back(); }),
      lie([](Answer& a) { a.result.outputs.resize(1 << 20); }),
      lie([](Answer& a) {
        a.result.step_seconds = {1, 2, 3};
      }),
      lie([](Answer& a) { a.result.status = Status::refused; }),
      lie([](Answer& a) { a.problem = "I have no time"; }),
      spoil(0),
      spoil(30),
      spoil(1 << 20),
      [](int) { return std::vector<std::byte>(); },
      [](int) { return std::vector<std::byte>(100000); },
      [](int) -> std::vector<std::byte> { lose(); },
  };
  for (size_t i = 0; i < lies.size(); ++i) {
    calls_.clear(), lost_.clear();
    add("liar", {lies[i]});
    add("good", good());
    for (const Measurement& measured : measure(8)) EXPECT_EQ(measured.status, Status::ok) << i << measured.detail;
    EXPECT_EQ(calls_["good"], 8) << i;
    EXPECT_LE(calls_["liar"], 3) << i;
    if (calls_["liar"] == 3) EXPECT_EQ(lost_, std::vector<std::string>{"liar"}) << i;
  }
}

TEST_F(Fleets, wrong_outputs_are_the_candidates) {
  add("a", {[this](int) {
        Answer answer = read_answer(good_answer(request_));
        answer.result.outputs[1] = std::byte{0x7f};
        return write_answer(answer);
      }});
  EXPECT_EQ(measure(1)[0].status, Status::wrong);
}

TEST_F(Fleets, a_device_that_dies_is_given_up) {
  Behaviour dying = good();
  dying.answer = [this](int call) { return call < 2 ? good_answer(request_) : (lose(), std::vector<std::byte>()); };
  dying.reach = [](int call) { return call == 0 ? this_machine() : (lose(), MachineFacts()); };
  add("dying", dying);
  add("good", good());
  for (const Measurement& measured : measure(40)) EXPECT_EQ(measured.status, Status::ok);
  EXPECT_EQ(fleet_->size(), calls_["dying"] == 3 ? 1 : 2);
}

TEST_F(Fleets, when_all_are_lost_the_job_ends_and_results_are_kept) {
  for (const char* name : {"a", "b"}) {
    Behaviour dying = good();
    dying.answer = [this](int call) { return call < 3 ? good_answer(request_) : (lose(), std::vector<std::byte>()); };
    dying.reach = [](int call) { return call == 0 ? this_machine() : (lose(), MachineFacts()); };
    add(name, dying);
  }
  const auto error = caught([&] { measure(20); });
  EXPECT_EQ(error.code, ErrorCode::device);
  EXPECT_NE(error.text.find("a: the connection is lost"), std::string::npos) << error.text;
  EXPECT_NE(error.text.find("goes on from there"), std::string::npos);
  EXPECT_EQ(done_, 6u);
  EXPECT_EQ(lost_.size(), 2u);
}

TEST_F(Fleets, a_candidate_that_takes_devices_down_is_a_crash) {
  // The only device: every third request ends it, and it comes back.
  add("a", {[this](int call) { return call % 4 < 2 ? (lose(), std::vector<std::byte>()) : good_answer(request_); }});
  int crashes = 0;
  for (const Measurement& measured : measure(6)) crashes += measured.status == Status::crash;
  EXPECT_EQ(crashes, 2);
  EXPECT_EQ(fleet_->size(), 1);
}

TEST_F(Fleets, a_device_that_comes_back_as_another_is_given_up) {
  Behaviour changing = good();
  changing.answer = [](int) -> std::vector<std::byte> { lose(); };
  changing.reach = [](int call) {
    MachineFacts facts = this_machine();
    if (call > 0) facts.caches.l2 += 1;
    return facts;
  };
  add("a", changing);
  EXPECT_NE(caught([&] { measure(1); }).text.find("as another machine"), std::string::npos);
}

TEST_F(Fleets, all_are_of_one_kind) {
  add("a", good());
  Behaviour other = good();
  other.reach = [](int) {
    MachineFacts facts = this_machine();
    facts.cpu.features.push_back("zz");
    return facts;
  };
  add("b", other);
  EXPECT_EQ(caught([&] { measure(1); }).code, ErrorCode::target);
}

TEST_F(Fleets, none_that_can_be_reached_is_an_error_with_every_reason) {
  for (const char* name : {"a", "b"}) add(name, {{}, [](int) -> MachineFacts { lose(); }});
  const auto error = caught([&] { measure(1); });
  EXPECT_EQ(error.code, ErrorCode::device);
  EXPECT_NE(error.text.find("b: the connection is lost"), std::string::npos) << error.text;
}

TEST_F(Fleets, a_job_can_be_ended_while_devices_measure) {
  request_.is_cancelled = [] { return true; };
  add("a", good());
  EXPECT_EQ(caught([&] { measure(1000); }).code, ErrorCode::input);
}

struct Board {
  const char *name, *architecture, *emulator, *image;
};

class Boards : public testing::TestWithParam<Board> {};

TEST_P(Boards, measure_what_jobs_send) {
  const Board& board = GetParam();
  std::string command = std::string(TW_BUILD) + "/boards/" + board.name + "/tw-measure";
  command = std::string(board.emulator) + " " + command;
  test::Program device(command);
  EXPECT_EQ(device.reach().cpu.architecture, board.architecture);
  EXPECT_EQ(device.reach().is_emulated, *board.emulator != 0);
  test::HostileRequest written(board.image, board.architecture);
  const auto measure = [&](const std::string& kernel) {
    MeasureRequest request = written.of(kernel);
    request.limit_seconds = 5;
    return read_measurement(request, device.call(parts_of(request), 0, 0));
  };
  const Measurement right = measure("right");
  EXPECT_EQ(right.status, Status::ok) << right.detail;
  EXPECT_GE(right.samples.size(), size_t{least_rounds});
  EXPECT_EQ(right.outputs[2][0].get_float(0), 6);
  EXPECT_EQ(measure("wrong").status, Status::wrong);
  EXPECT_EQ(measure("crash").status, Status::crash);
  EXPECT_EQ(measure("claim_measured").status, Status::wrong);
  EXPECT_EQ(measure("right").status, Status::ok);
  device.is_cut_ = true;
  EXPECT_NE(caught([&] { measure("right"); }).text.find("ends in its middle"), std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, Boards,
    testing::Values(Board{"x86_64", "x86_64", "", TW_TEST_IMAGES "/hostile.x86_64.so"},
                    Board{"x86_64", "x86_64", "qemu-x86_64", TW_TEST_IMAGES "/hostile.x86_64.so"},
                    Board{"aarch64", "aarch64", "qemu-aarch64", TW_TEST_IMAGES "/hostile.aarch64.so"},
                    Board{"arm", "arm", "qemu-arm", TW_TEST_IMAGES "/hostile.armv7.so"}),
    [](const auto& info) { return std::string(info.param.name) + (*info.param.emulator ? "_emulated" : ""); });

}  // namespace
}  // namespace tw::autotune
