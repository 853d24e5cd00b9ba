#include "autotune/fleet/fleet.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <set>
#include <thread>

#include "autotune/measure/message.h"
#include "runtime/artifact/file_map.h"

namespace tw::autotune {
namespace {

constexpr int most_strikes = 3;  // in a row, of a device
constexpr int most_losses = 2;   // of devices that came back, before it is the candidate's doing
constexpr double seconds_to_answer = 15, bytes_a_second = 1e6;  // beside the candidate's own time
constexpr auto pause = std::chrono::milliseconds(50);

std::vector<std::byte> read_file(const std::filesystem::path& path) {
  const auto file = FileMap::open(path);
  return {file->bytes().begin(), file->bytes().end()};
}

// Whether schedules and their times are the same.  GPUs of one capability are of several speeds, so their names count.
bool is_same_kind(MachineFacts a, MachineFacts b) {
  a.cpu.name = b.cpu.name = "";
  return to_text(a) == to_text(b);
}

int64_t most_answer_bytes(const MeasureRequest& request) {
  return ExchangeLayout(*request.plan).all_outputs() +
         static_cast<int64_t>(sizeof(double)) * (2 * most_rounds + static_cast<int64_t>(request.plan->steps.size())) +
         4096;
}

// The first line: an Error's help is for who asked.
std::string first_line(const std::string& text) {
  return text.substr(0, text.find('\n'));
}

}  // namespace

std::vector<std::vector<std::byte>> parts_of(const MeasureRequest& request) {
  RequestHeader header;
  header.threads = request.threads;
  header.seconds = request.seconds, header.worst_ratio = request.worst_ratio;
  header.limit_seconds = request.limit_seconds;
  header.memory_bytes = request.memory_bytes;
  header.wants_profile = request.wants_profile;
  header.wants_incumbent = request.expected.empty();
  std::vector<std::byte> inputs(static_cast<size_t>(ExchangeLayout(*request.plan).all_inputs()));
  write_inputs(request, inputs);
  return {write_header(header), read_file(request.candidate), read_file(request.incumbent), std::move(inputs)};
}

Measurement read_measurement(const MeasureRequest& request, std::span<const std::byte> bytes) {
  Answer answer = read_answer(bytes);
  if (!answer.problem.empty()) throw Error(ErrorCode::file, "it could not measure: " + answer.problem);
  const auto refuse = [](const char* what) {
    throw Error(ErrorCode::artifact, std::string("answer: ") + what + " that the request has no use for");
  };
  if (answer.result.status == Status::ok) {
    if (!restore_outputs(ExchangeLayout(*request.plan), request.expected.empty(), answer.result.outputs))
      refuse("outputs of a size");
    if (request.seconds > 0 && answer.result.samples.size() < least_rounds) refuse("a number of samples");
    if (answer.result.step_seconds.size() != (request.wants_profile ? request.plan->steps.size() : 0))
      refuse("a number of steps");
  }
  return judge(request, std::move(answer.result));
}

struct Fleet::Member {
  std::unique_ptr<Device> device;
  std::string machine;
  int strikes = 0;  // since its last good answer
  bool is_lost = false, is_reported = false;
  std::string reason;  // of its last failure
};

struct Fleet::Batch {
  const std::vector<MeasureRequest>& requests;
  struct Item {
    size_t index;
    int losses = 0;
    std::set<const Member*> failed_on;
  };
  std::deque<Item> open;
  size_t running = 0;
  std::deque<std::pair<size_t, Measurement>> results;
  bool is_ended = false;
  std::condition_variable changed;
};

Fleet::Fleet(std::vector<std::unique_ptr<Device>> devices, OnLost on_lost) : on_lost_(std::move(on_lost)) {
  const Member* first = nullptr;
  for (auto& device : devices) {
    auto member = std::make_unique<Member>();
    member->device = std::move(device);
    try {
      const MachineFacts facts = member->device->reach();
      member->machine = facts.cpu.name;
      if (!first) {
        first = member.get();
        facts_ = facts;
      } else if (!is_same_kind(facts, facts_)) {
        throw Error(ErrorCode::target, "devices of one job are of one kind, and " + first->device->name() + " is " +
                                           to_text(facts_) + ", " + member->device->name() + " is " + to_text(facts) +
                                           "\n  help: one job for each kind; `tw db merge` joins their records");
      }
    } catch (const Error& error) {
      if (error.code() != ErrorCode::device) throw;
      member->is_lost = true;
      member->reason = error.message();
    }
    members_.push_back(std::move(member));
  }
  if (first) {
    report_losses();
    return;
  }
  std::string reasons;
  for (const auto& member : members_) reasons += "\n  " + member->device->name() + ": " + member->reason;
  throw Error(ErrorCode::device, "none of the job's devices can be reached" + reasons);
}

Fleet::~Fleet() = default;

int Fleet::size() const {
  const std::lock_guard lock(mutex_);
  return static_cast<int>(std::count_if(members_.begin(), members_.end(), [](const auto& m) { return !m->is_lost; }));
}

void Fleet::report_losses() {
  for (const auto& member : members_) {
    std::unique_lock lock(mutex_);
    if (!member->is_lost || member->is_reported) continue;
    member->is_reported = true;
    lock.unlock();
    if (on_lost_) on_lost_(member->device->name(), member->reason);
  }
}

// Takes what is open until nothing is, or the device is given up.
void Fleet::serve(Member& member, Batch& batch) {
  std::unique_lock lock(mutex_);
  for (;;) {
    const auto others = [&](const Batch::Item& item) {  // who have not failed on it
      return std::any_of(members_.begin(), members_.end(),
                         [&](const auto& other) { return !other->is_lost && !item.failed_on.count(other.get()); });
    };
    const auto item = std::find_if(batch.open.begin(), batch.open.end(), [&](const Batch::Item& open) {
      return !open.failed_on.count(&member) || !others(open);
    });
    if (batch.is_ended || member.is_lost || (batch.open.empty() && batch.running == 0)) return;
    if (item == batch.open.end()) {
      batch.changed.wait(lock);
      continue;
    }
    Batch::Item mine = std::move(*item);
    batch.open.erase(item);
    ++batch.running;
    lock.unlock();

    const MeasureRequest& request = batch.requests[mine.index];
    std::optional<Measurement> measured;
    std::string reason;
    bool is_candidates = false, is_back = false;
    try {
      const auto parts = parts_of(request);
      const int64_t most_bytes = most_answer_bytes(request);
      double bytes = static_cast<double>(most_bytes);
      for (const auto& part : parts) bytes += static_cast<double>(part.size());
      const auto answer =
          member.device->call(parts, most_bytes, request.limit_seconds + seconds_to_answer + bytes / bytes_a_second);
      measured = read_measurement(request, answer);
      measured->machine = member.machine;
    } catch (const Error& error) {
      reason = first_line(error.message());
      is_candidates = error.code() == ErrorCode::device;
    } catch (const std::exception& error) {
      reason = first_line(error.what());
    }
    if (!measured) {
      try {
        is_back = is_same_kind(member.device->reach(), facts_);
        if (!is_back) reason += "; it came back as another machine";
      } catch (const Error& error) {
        reason += "; then " + first_line(error.message());
      }
    }

    lock.lock();
    --batch.running;
    if (measured) {
      member.strikes = 0;
      batch.results.emplace_back(mine.index, std::move(*measured));
    } else {
      member.reason = reason;
      if (++member.strikes >= most_strikes || !is_back) member.is_lost = true;
      mine.failed_on.insert(&member);
      if (is_candidates && is_back && ++mine.losses >= most_losses) {
        Measurement lost;
        lost.status = Status::crash;
        lost.detail = "devices were lost with it: " + reason;
        lost.machine = member.machine;
        batch.results.emplace_back(mine.index, std::move(lost));
      } else {
        batch.open.push_front(std::move(mine));
      }
    }
    batch.changed.notify_all();
  }
}

void Fleet::measure(const std::vector<MeasureRequest>& requests, const OnResult& on_result) {
  Batch batch{requests, {}, 0, {}, false, {}};
  for (size_t i = 0; i < requests.size(); ++i) batch.open.push_back({i, 0, {}});
  std::vector<std::thread> threads;
  // However this ends, so do the calls.
  const auto end = [&] {
    {
      const std::lock_guard lock(mutex_);
      batch.is_ended = true;
      batch.changed.notify_all();
    }
    for (auto& member : members_) member->device->interrupt();
    for (std::thread& thread : threads) thread.join();
  };
  size_t done = 0;
  try {
    for (auto& member : members_)
      if (!member->is_lost) threads.emplace_back([&] { serve(*member, batch); });
    while (done < requests.size()) {
      std::unique_lock lock(mutex_);
      if (batch.results.empty()) batch.changed.wait_for(lock, pause);
      const bool is_any_left = std::any_of(members_.begin(), members_.end(), [](const auto& m) { return !m->is_lost; });
      std::deque<std::pair<size_t, Measurement>> results;
      results.swap(batch.results);
      lock.unlock();
      for (auto& [index, measured] : results) {
        ++done;
        on_result(index, std::move(measured));
      }
      report_losses();
      if (done < requests.size() && !is_any_left && results.empty()) {
        std::string reasons;
        for (const auto& member : members_) reasons += "\n  " + member->device->name() + ": " + member->reason;
        throw Error(ErrorCode::device, "the last of the job's devices is lost" + reasons +
                                           "\n  help: what was measured is kept; the same command goes on from there");
      }
      if (requests[0].is_cancelled && requests[0].is_cancelled())
        throw Error(ErrorCode::input, "the job was ended\n  help: the same command goes on where it stopped");
    }
  } catch (...) {
    end();
    throw;
  }
  for (std::thread& thread : threads) thread.join();
}

Measurement Fleet::measure(const MeasureRequest& request) {
  Measurement result;
  measure({request}, [&](size_t, Measurement measured) { result = std::move(measured); });
  return result;
}

}  // namespace tw::autotune
