// Kernels as the compiler would emit them: freestanding, no undefined symbols.  Built for each architecture by
// runtime.cmake.
typedef long long int64_t_;
typedef void* const* Buffers;

// buffers: x, y, out; parameters: elements a task
void add(Buffers buffers, const int64_t_* parameters, int64_t_ first, int64_t_ last) {
  const float* x = buffers[0];
  const float* y = buffers[1];
  float* out = buffers[2];
  for (int64_t_ i = first * parameters[0]; i < last * parameters[0]; ++i) out[i] = x[i] + y[i];
}

// Like add, but late.  parameters: elements a task, rounds to waste
void slow_add(Buffers buffers, const int64_t_* parameters, int64_t_ first, int64_t_ last) {
  for (volatile int round = 0; round < (int)parameters[1]; ++round) {
  }
  add(buffers, parameters, first, last);
}

// buffers: x, out; parameters: elements a task, factor
void scale(Buffers buffers, const int64_t_* parameters, int64_t_ first, int64_t_ last) {
  const float* x = buffers[0];
  float* out = buffers[1];
  for (int64_t_ i = first * parameters[0]; i < last * parameters[0]; ++i) out[i] = x[i] * (float)(int)parameters[1];
}

// out[0] = the sum of x.  buffers: x, out; parameters: elements
void sum(Buffers buffers, const int64_t_* parameters, int64_t_ first, int64_t_ last) {
  const float* x = buffers[0];
  float total = 0;
  for (int64_t_ i = 0; i < parameters[0]; ++i) total += x[i];
  if (first < last) *(float*)buffers[1] = total;
}

// out[row] = the sum of a row, by way of the workspace.  buffers: x, out, workspace; parameters: row length
void row_sums(Buffers buffers, const int64_t_* parameters, int64_t_ first, int64_t_ last) {
  for (int64_t_ row = first; row < last; ++row) {
    const float* x = (const float*)buffers[0] + row * parameters[0];
    float* work = buffers[2];
    for (int64_t_ i = 0; i < parameters[0]; ++i) work[i] = 2 * x[i];
    float total = 0;
    for (int64_t_ i = 0; i < parameters[0]; ++i) total += work[i];
    ((float*)buffers[1])[row] = total / 2;
  }
}

// Tables of addresses need relocations.
static const float small_table[] = {1, 2, 3, 4};
static const float large_table[] = {100, 200, 300, 400};
const float* const tables[] = {small_table, large_table};
float counter[3] = {0, 0, 7};  // writable data
float zeros[1000];             // zero-initialised data

// out[i] = tables[parameter][i]
void look_up(Buffers buffers, const int64_t_* parameters, int64_t_ first, int64_t_ last) {
  const float* const volatile* all = tables;
  for (int64_t_ i = first; i < last; ++i) ((float*)buffers[0])[i] = all[parameters[0]][i] + zeros[i];
}

// Says how it was called: out[2·task] = 1 + first task of the call, out[2·task + 1] = its last task.  Each is an int64.
void record_call(Buffers buffers, const int64_t_* parameters, int64_t_ first, int64_t_ last) {
  (void)parameters;
  for (int64_t_ task = first; task < last; ++task) {
    ((int64_t_*)buffers[0])[2 * task] = 1 + first;
    ((int64_t_*)buffers[0])[2 * task + 1] = last;
  }
}

// out[task] = 1.  The call with task 0 is held up until all tasks after it are done, or for so many rounds: then
// out[0] = 2.  buffers: out (i32, zero before); parameters: tasks, rounds
void hold_up_the_first(Buffers buffers, const int64_t_* parameters, int64_t_ first, int64_t_ last) {
  int* out = buffers[0];
  int missing = first == 0;
  for (int64_t_ round = 0; missing && round < parameters[1]; ++round) {
    missing = 0;
    for (int64_t_ task = last; task < parameters[0]; ++task) missing |= !__atomic_load_n(out + task, __ATOMIC_RELAXED);
  }
  for (int64_t_ task = first; task < last; ++task) __atomic_store_n(out + task, 1 + missing, __ATOMIC_RELAXED);
}
