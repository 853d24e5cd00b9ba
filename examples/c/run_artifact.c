/* Loads a compiled model and runs it on inputs of ones.  From the project's folder, once it is built:
 *
 *   cc examples/c/run_artifact.c -Iruntime -Lbuild/runtime -Wl,-rpath,$PWD/build/runtime -ltilewright_runtime -o run_artifact
 *   ./dev run tw compile model.onnx -o model.twa
 *   ./run_artifact model.twa
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tilewright.h"

static int fail(void) {
  fprintf(stderr, "%s\n", tw_last_error());
  return 2;
}

/* At a multiple of 64, so that the model uses it as it is. */
static void* allocate(size_t bytes) {
  return aligned_alloc(64, (bytes + 63) / 64 * 64 + 64);
}

static void print_tensor(const char* kind, const tw_tensor* tensor) {
  printf("%s %s %s[", kind, tensor->name, tensor->dtype);
  for (int32_t i = 0; i < tensor->rank; ++i) printf("%s%lld", i ? "," : "", (long long)tensor->shape[i]);
  printf("]");
}

static void fill_with_ones(const tw_tensor* tensor, void* data) {
  memset(data, 0, tensor->bytes);
  if (strcmp(tensor->dtype, "f32") == 0) {
    for (size_t i = 0; i < tensor->bytes / 4; ++i) ((float*)data)[i] = 1;
  } else if (strcmp(tensor->dtype, "i64") == 0) {
    for (size_t i = 0; i < tensor->bytes / 8; ++i) ((int64_t*)data)[i] = 1;
  } /* the others stay zero */
}

int main(int count, char** arguments) {
  if (count != 2) {
    fprintf(stderr, "usage: run_artifact MODEL.twa\n");
    return 2;
  }
  tw_executable* executable;
  if (tw_load(arguments[1], &executable) || tw_verify(executable)) return fail();

  int32_t input_count = tw_input_count(executable), output_count = tw_output_count(executable);
  void** inputs = calloc((size_t)input_count + 1, sizeof *inputs);
  void** outputs = calloc((size_t)output_count + 1, sizeof *outputs);
  size_t* input_bytes = calloc((size_t)input_count + 1, sizeof *input_bytes);
  size_t* output_bytes = calloc((size_t)output_count + 1, sizeof *output_bytes);
  tw_tensor tensor;
  for (int32_t i = 0; i < input_count; ++i) {
    if (tw_input(executable, i, &tensor)) return fail();
    inputs[i] = allocate(input_bytes[i] = tensor.bytes);
    fill_with_ones(&tensor, inputs[i]);
    print_tensor("input ", &tensor);
    printf("\n");
  }
  for (int32_t i = 0; i < output_count; ++i) {
    if (tw_output(executable, i, &tensor)) return fail();
    output_bytes[i] = tensor.bytes;
    int32_t input = tw_in_place(executable, i); /* perhaps it is written over an input */
    outputs[i] = input >= 0 ? inputs[input] : allocate(tensor.bytes);
  }

  if (tw_run(executable, (const void* const*)inputs, input_bytes, outputs, output_bytes)) return fail();

  for (int32_t i = 0; i < output_count; ++i) {
    tw_output(executable, i, &tensor);
    print_tensor("output", &tensor);
    if (strcmp(tensor.dtype, "f32") == 0) {
      for (size_t j = 0; j < tensor.bytes / 4 && j < 4; ++j) printf(" %g", ((float*)outputs[i])[j]);
    }
    printf("\n");
    if (tw_in_place(executable, i) < 0) free(outputs[i]);
  }
  for (int32_t i = 0; i < input_count; ++i) free(inputs[i]);
  free(inputs);
  free(outputs);
  free(input_bytes);
  free(output_bytes);
  tw_free(executable);
  return 0;
}
