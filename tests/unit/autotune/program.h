// tw-measure --job, here, on emulated boards and beside an emulated GPU, through pipes.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "autotune/fleet/fleet.h"
#include "tests/unit/runtime/test_model.h"

namespace tw::autotune::test {

using namespace tw::test;  // NOLINT

class Program : public Device {
 public:
  explicit Program(std::string command) : command_(std::move(command)) {}
  std::string name() const override { return command_; }
  MachineFacts reach() override { return parse_machine_facts(finish(command_ + " --facts").output); }
  std::vector<std::byte> call(const std::vector<std::vector<std::byte>>& parts, int64_t, double) override {
    std::vector<std::byte> bytes;
    for (const auto& part : parts) {
      const uint64_t size = part.size();
      const auto raw = std::as_bytes(std::span(&size, 1));
      bytes.insert(bytes.end(), raw.begin(), raw.end());
    }
    for (const auto& part : parts) bytes.insert(bytes.end(), part.begin(), part.end());
    if (is_cut_) bytes.pop_back();
    write_bytes(folder_ / "in", bytes);
    finish(command_ + " --job < " + (folder_ / "in").string() + " > " + (folder_ / "out").string());
    return read_bytes(folder_ / "out");
  }
  void interrupt() override {}
  bool is_cut_ = false;

 private:
  std::string command_;
  Folder folder_;
};

}  // namespace tw::autotune::test
