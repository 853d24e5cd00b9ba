// Every pass runs in a scope, over a Func as over a graph: timed, dumpable, verified and, if optional, skippable.
//
//   TW_DUMP=dir     writes dir/NAME.00_input.tw, dir/NAME.03_flatten_buffers.tw … for each Func and graph, by its name
//                   and what kernels are compiled from, dir/KERNEL.cu, where that is text, too
//   TW_SKIP=a,b     leaves out optional passes (passes.def of either says which)
//   TW_VERIFY=1     verifies after each pass (always on in tests)
//   TW_TIMES=1      prints at the end of the process what each pass took
//
// An Error that leaves a pass says which pass and program it was.  A pass that breaks an invariant is a bug of ours:
// Error(internal) with the violations and the text before the pass.
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace tw {

// A program as a scope sees it: a Func or a graph.
struct PassSubject {
  std::string kind, name;
  std::function<std::string()> text;
  std::function<void()> verify;  // throws Error
};

// Whether TW_SKIP leaves it out.
bool is_skipped(std::string_view optional_pass);
// Error(text) where TW_SKIP names what was never asked for in this process.
void check_skipped();

// Where TW_DUMP names a folder, it gets the text that a backend has made of kernels.
void dump_source(const std::string& name, std::string_view extension, const std::string& text);

// `run` gives the program after the pass.
void run_in_scope(std::string_view pass, const PassSubject& before, const std::function<PassSubject()>& run);

}  // namespace tw
