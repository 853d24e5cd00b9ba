// A device's side: one request from the standard input, measured in a forked child, its answer to the standard output.
#pragma once

namespace tw::autotune {

int serve_job();
// What the job has to know of this machine to make code for it, as one line of JSON.
int print_facts();

}  // namespace tw::autotune
