// Machines that measure for a job: each a device behind bytes (measure/message.h), all of one kind.
//
// A device that is lost, hangs or answers nonsense costs the candidate that it runs, which another one measures anew.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "autotune/measure/measure.h"
#include "runtime/machine/facts.h"

namespace tw::autotune {

// How to get to one of them.  A call is made by one thread at a time.
class Device {
 public:
  virtual ~Device() = default;
  virtual std::string name() const = 0;  // for people
  // Reaches it, anew if need be, and asks what it is.  Error(device).
  virtual MachineFacts reach() = 0;
  // A request there and its answer back.  Error(device) when that is not to be had within about so many seconds, or is
  // longer; Error(artifact) when what comes back is no answer at all.
  virtual std::vector<std::byte> call(const std::vector<std::vector<std::byte>>& parts, int64_t most_bytes,
                                      double seconds) = 0;
  virtual void interrupt() = 0;  // from any thread: ends a call
};

class Fleet {
 public:
  // Of those that can be reached.  Error(device) when none can, or they are not all of one kind.  `on_lost`: told of
  // each device that is given up, and why, by the thread that calls.
  using OnLost = std::function<void(const std::string& name, const std::string& reason)>;
  Fleet(std::vector<std::unique_ptr<Device>> devices, OnLost on_lost = {});
  ~Fleet();

  const MachineFacts& facts() const { return facts_; }
  int size() const;  // how many are there still: requests that are measured at the same time

  // On all devices at once; `on_result` is called with each result as it comes, by this thread.  What had no result
  // when the last device is given up, has none: Error(device).  Error(input) when a request's is_cancelled says so.
  using OnResult = std::function<void(size_t index, Measurement measured)>;
  void measure(const std::vector<MeasureRequest>& requests, const OnResult& on_result);
  Measurement measure(const MeasureRequest& request);

 private:
  struct Member;
  struct Batch;
  void serve(Member& member, Batch& batch);
  void report_losses();

  std::vector<std::unique_ptr<Member>> members_;
  OnLost on_lost_;
  MachineFacts facts_;
  mutable std::mutex mutex_;
};

// A request as a device takes it, and what an answer says.  Error(artifact) for an answer that cannot be the request's,
// Error(file) for what a device says to be unable to do.
std::vector<std::vector<std::byte>> parts_of(const MeasureRequest& request);
Measurement read_measurement(const MeasureRequest& request, std::span<const std::byte> answer);

}  // namespace tw::autotune
