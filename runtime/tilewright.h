/* Tilewright's C interface: load a compiled model (.twa) and run it.  Link with -ltilewright_runtime.
 *
 * Functions that can fail return 0 or the number of an error code (1201 is TW1201; docs/errors.md); then
 * tw_last_error() has the text, for the calling thread, until its next failure.  Every function may be called from any
 * thread; runs of one executable take turns. */
#ifndef TILEWRIGHT_C_API_H
#define TILEWRIGHT_C_API_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TW_API __attribute__((visibility("default")))

typedef struct tw_executable tw_executable;

/* An input or output.  Dense, row-major; belongs to the executable and lives as long.  A dimension of -1 is open: its
 * size comes with each run, or of an output is computed by it, and `bytes` is 0. */
typedef struct tw_tensor {
  const char* name;
  const char* dtype; /* "f32" "f64" "f16" "bf16" "i8" "i16" "i32" "i64" "u8" "u16" "u32" "u64" "bool";
                        a byte an element: "i4" "u4" "i2" "u2" "f8e4m3fn" "f8e4m3fnuz" "f8e5m2" "f8e5m2fnuz" "f8e8m0"
                        "f4e2m1" */
  int32_t rank;
  const int64_t* shape; /* rank extents */
  size_t bytes;
} tw_tensor;

/* Loads and checks; the model's constants stay in the file, mapped. */
TW_API int tw_load(const char* path, tw_executable** result);
/* The same of the bytes of such a file, which are copied. */
TW_API int tw_load_memory(const void* data, size_t bytes, tw_executable** result);
/* tw_load of a model that was compiled for CUDA, on the GPU of that ordinal (else 0): CUDA_VISIBLE_DEVICES says which
 * there are. */
TW_API int tw_load_on_gpu(const char* path, int32_t gpu, tw_executable** result);
TW_API void tw_free(tw_executable* executable); /* NULL is allowed */

/* Compares the constants with their checksum, which loading leaves out. */
TW_API int tw_verify(const tw_executable* executable);

TW_API int32_t tw_input_count(const tw_executable* executable);
TW_API int32_t tw_output_count(const tw_executable* executable);
TW_API int tw_input(const tw_executable* executable, int32_t index, tw_tensor* result);
TW_API int tw_output(const tw_executable* executable, int32_t index, tw_tensor* result);

/* A sequence, an optional value, strings or maps that inputs or outputs first, first + 1 … make up, `count` of them:
 *   "sequence"  these tensors: of `y`, y.0, y.1 …
 *   "packed"    y, and y.sizes, i64[n]: the sizes of its n parts, which follow one another along the axis
 *   "stacked"   y: its parts along the axis, without that axis
 *   "ragged"    y, the elements of all parts one after the other, and y.shapes, i64[n, rank]: the sizes of each part,
 *               -1 where it has no such axis
 *   "optional"  y.present, a bool[]: whether there is something; then that, `y` or, in the list of this name that
 *               comes next, the tensors of a sequence.  With no tensor at all there is nothing.
 *   "text"      y, i64: strings by their place among `words` words; of an input's, -1 is none of them
 *   "map"       y, [rows, keys]: a map a row, whose keys are the words or, where there are none, the numbers */
typedef struct tw_list {
  const char* name;
  const char* kind;
  int32_t first, count, axis;
  int64_t words;          /* how many */
  const int64_t* numbers; /* as many as the matrix has columns, or NULL */
} tw_list;
TW_API int32_t tw_input_list_count(const tw_executable* executable);
TW_API int32_t tw_output_list_count(const tw_executable* executable);
TW_API int tw_input_list(const tw_executable* executable, int32_t index, tw_list* result);
TW_API int tw_output_list(const tw_executable* executable, int32_t index, tw_list* result);
/* NULL: the list has no such word. */
TW_API const char* tw_input_word(const tw_executable* executable, int32_t list, int64_t index);
TW_API const char* tw_output_word(const tw_executable* executable, int32_t list, int64_t index);

/* The input whose array the output is, too: the run changes elements of it, so it must be writable.  -1: none; the
 * output has an array of its own. */
TW_API int32_t tw_in_place(const tw_executable* executable, int32_t output);

/* 0: one thread a core that this process may use, which is how it starts. */
TW_API int tw_set_threads(tw_executable* executable, int32_t threads);

/* Whose threads run it: "own", ours, or "openmp", those of the process's OpenMP runtime, for programs that compute on
 * them, too.  Executables begin with what the environment variable TW_TEAM says, or ours. */
TW_API int tw_set_team(tw_executable* executable, const char* name);

/* Each run of a model that draws random numbers draws other ones, which the seed and the number of the run since this
 * call decide, whatever the machine.  Executables begin with seed 0. */
TW_API int tw_set_seed(tw_executable* executable, uint64_t seed);

/* Reads inputs[i] (input_bytes[i] bytes, which must be what tw_input says) and writes outputs[i].  The arrays do not
 * overlap; those that start at a multiple of 64 are used as they are, others are copied.  Of an output in place of an
 * input, outputs[i] is that input's array or NULL. */
TW_API int tw_run(tw_executable* executable, const void* const* inputs, const size_t* input_bytes, void* const* outputs,
                  const size_t* output_bytes);

/* For models with open dimensions: input_shapes[i] points to the extents of inputs[i], as many as its rank.  Dimensions
 * that are open under one name have one size in a run, within the bounds that the model was compiled for. */
TW_API int tw_run_shaped(tw_executable* executable, const void* const* inputs, const int64_t* const* input_shapes,
                         void* const* outputs, const size_t* output_bytes);

/* tw_run_shaped of a model that was compiled for CUDA, with all arrays in the memory of its GPU
 * (tw_load_on_gpu) and `stream` a CUstream or cudaStream_t of it; NULL is the legacy default stream.  The run is queued
 * there, behind what is there, and kernels read and write the arrays where they are: who needs the outputs waits for
 * the stream, and until then the arrays are neither changed nor freed.  Arrays that do not start at a multiple of 64
 * are copied within the GPU.  The call itself waits only where sizes or control flow depend on what kernels compute.
 * `input_shapes` may be NULL where no dimension is open.  The second run on the same arrays, and each after it,
 * launches one CUDA graph.  Runs of one executable follow one another, whatever their streams. */
TW_API int tw_run_on_gpu(tw_executable* executable, const void* const* inputs, const int64_t* const* input_shapes,
                         void* const* outputs, const size_t* output_bytes, void* stream);

/* The extents of an output for inputs of these shapes, to result[0 … rank - 1]; -1 where only the run computes it: then
 * output_bytes[i] of tw_run and tw_run_shaped is the room that there is, and tw_result_shape says how much is used. */
TW_API int tw_output_shape(const tw_executable* executable, const int64_t* const* input_shapes, int32_t index,
                           int64_t* result);

/* The extents of an output of the calling thread's last run that succeeded. */
TW_API int tw_result_shape(int32_t index, int64_t* result);

/* A step of a run.  Seconds are the median over repetitions, of a GPU by its own clock, of which each is of as many
 * launches as take 200 µs; seconds, arithmetic operations and bytes read and written are of all that one run does of
 * it. */
typedef struct tw_kernel_time {
  const char* name;   /* the nodes of the model that it computes */
  const char* kernel; /* its function in the code; of a function of the host its name; of control flow "" */
  double seconds, operations, bytes;
} tw_kernel_time;
/* Runs each step of a run alone, `repetitions` times; inputs as for tw_run_shaped.  *result are *count times, in the
 * order of the run, which are there until the calling thread calls this again. */
TW_API int tw_time_kernels(tw_executable* executable, const void* const* inputs, const int64_t* const* input_shapes,
                           int32_t repetitions, const tw_kernel_time** result, int32_t* count);

/* A function of the host that a model calls: an operator of one's own.  It reads inputs and writes all elements of
 * outputs, whose types and shapes are as the operator's `types` said; `type.name` is "".  The memory is the run's, and
 * gone after the call.  `attributes` is the node's, as JSON.  Returns NULL, or a message that ends the run, which has
 * to live until the thread's next call.  One of runs in several threads calls at a time. */
typedef struct tw_argument {
  tw_tensor type;
  void* data;
} tw_argument;
typedef const char* tw_function(const char* attributes, int32_t input_count, const tw_argument* inputs,
                                int32_t output_count, const tw_argument* outputs);
/* Gives a function that the model calls by this name and that is in no library: "domain.Operator". */
TW_API int tw_set_function(tw_executable* executable, const char* name, tw_function* function);

/* Of this thread's last failure: its text ("TW1201 …"; "" when there was none) and code (0). */
TW_API const char* tw_last_error(void);
TW_API int tw_last_error_code(void);

TW_API const char* tw_version(void);

#ifdef __cplusplus
}
#endif
#endif
