// tw-measure: the process in which candidates run.  It holds the runtime and no compiler.
//
//   tw-measure CANDIDATE.twa INCUMBENT.twa   a tuning job's child: the exchange as descriptor 3, a report as 4
//   tw-measure --job                         a request as standard input, the answer as standard output (message.h)
//   tw-measure --facts                       what this machine is, as JSON
//
// The last two are what a device runs: `tw device serve`, or ssh to a board, carries the bytes.
#include <unistd.h>

#include <cstdio>
#include <string_view>

#include "autotune/measure/program/contest.h"
#include "autotune/measure/program/job.h"

int main(int count, char** arguments) {
  using namespace tw::autotune;
  const std::string_view first = count > 1 ? arguments[1] : "";
  int status = 2;
  if (count == 3) status = run_contest(arguments[1], arguments[2]);
  if (count == 2 && first == "--job") status = serve_job();
  if (count == 2 && first == "--facts") status = print_facts();
  if (status == 2) std::fputs("tw-measure is started by tw tune and tw device serve\n", stderr);
  _exit(status);  // nothing that a candidate has left behind runs
}
