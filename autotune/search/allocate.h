// Which task the next trials go to: the one that promises the network most.
#pragma once

namespace tw::autotune {

struct TaskState {
  double seconds = 0;         // of the network's run, with default schedules
  double ratio = 1;           // of the fastest so far to the default
  double bound = 0;           // what a schedule takes at least, in seconds of the network's run; 0: not known
  double predicted_gain = 0;  // by the model, of what it would try next: ln of time
  int fruitless = 0;          // trials since the fastest was found
};

// Seconds that a run of the network is expected to take less after some more trials of the task.
double expected_gain(const TaskState& task);

}  // namespace tw::autotune
