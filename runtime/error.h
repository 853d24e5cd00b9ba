// Errors.  A user's mistake is an Error: it has a stable code (TW1003), says where, why and what to do, and
// becomes tw.Error in Python and exit status 2 from `tw`.  check() is for our own bugs only.
#pragma once

#include <source_location>
#include <stdexcept>
#include <string>

namespace tw {

// Codes are stable: scripts match on them.  docs/errors.md has a row for each.
enum class ErrorCode : int {
  file = 1001,             // a file cannot be read or written
  malformed_model = 1002,  // truncated, corrupt, cyclic, or breaking a rule of its format
  unsupported = 1003,      // operators, modes or types we do not have (all of a model at once)
  shape = 1004,            // shapes, ranks or types that do not fit an operator
  limit = 1005,            // sizes beyond the stated limits
  external_data = 1006,    // external data missing, too short, or outside the model's folder
  input = 1101,            // a missing, unknown, wrongly shaped or wrongly typed input of a run
  host_function = 1102,    // a function of the host that a run calls is not there, or failed
  artifact = 1201,         // a damaged or foreign .twa
  wrong_machine = 1202,    // an artifact for another machine
  target = 1301,           // an unknown target, or one this machine cannot serve
  schedule = 1401,         // an illegal schedule primitive
  text = 1402,             // text IR or a trace that does not parse
  verify = 1403,           // IR that breaks an invariant
  lower = 1404,            // a Func that cannot be lowered for its target
  device = 1501,           // no GPU, or a failing one
  internal = 1999,         // a bug of ours
};

class Error : public std::runtime_error {
 public:
  // `message` is the whole text after the code; multi-line, with a final "help:" line where there is one.
  Error(ErrorCode code, const std::string& message);
  ErrorCode code() const { return code_; }
  std::string code_text() const;                                           // "TW1003"
  const char* message() const { return what() + code_text().size() + 1; }  // what() without the code

 private:
  ErrorCode code_;
};

[[noreturn]] void internal_error(const std::string& message,
                                 std::source_location where = std::source_location::current());

// An invariant of ours: throws Error(internal) naming the place when it does not hold.
inline void check(bool holds, const char* what, std::source_location where = std::source_location::current()) {
  if (!holds) [[unlikely]]
    internal_error(what, where);
}

}  // namespace tw
