// A libcuda.so.1 for tests on machines without a GPU: memory is the host's, and the kernels are those of small_plan(),
// run block after block.  It refuses what a driver would refuse: calls without a context, unknown addresses, odd
// launches.
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { success = 0, invalid_value = 1, no_binary = 209, invalid_context = 201, not_found = 500, launch_failed = 719 };

static int contexts, depth, objects;
static char* fails;  // what is to fail next

int fake_cuda_live_objects(void) {
  return objects;
}
int fake_cuda_contexts(void) {
  return contexts + depth;
}
void fake_cuda_fail(const char* what) {
  free(fails);
  fails = what ? strdup(what) : 0;
}
static int is_failing(const char* what) {
  return fails && strcmp(fails, what) == 0;
}

typedef struct {
  char* start;
  size_t bytes;
} Memory;
static Memory memory[64];

static int is_memory(uint64_t address, size_t bytes) {
  for (int i = 0; i < 64; ++i) {
    char* start = memory[i].start;
    if (start && (char*)address >= start && (char*)address + bytes <= start + memory[i].bytes) return 1;
  }
  return 0;
}

int cuInit(unsigned flags) {
  return flags == 0 ? success : invalid_value;
}
int cuGetErrorString(int error, const char** text) {
  *text = error == launch_failed ? "unspecified launch failure" : "some error";
  return success;
}
int cuDeviceGetCount(int* count) {
  return *count = 1, success;
}
int cuDeviceGet(int* device, int ordinal) {
  return *device = ordinal, ordinal == 0 ? success : invalid_value;
}
int cuDeviceGetName(char* name, int length, int device) {
  (void)device;
  strncpy(name, "Fake GPU", length);
  return success;
}
int cuDeviceGetAttribute(int* value, int attribute, int device) {
  (void)device;
  *value = attribute == 75 ? 9 : 0;
  return success;
}
int cuDeviceTotalMem_v2(size_t* bytes, int device) {
  return (void)device, *bytes = 1 << 30, success;
}
int cuDevicePrimaryCtxRetain(void** context, int device) {
  return (void)device, ++contexts, *context = &contexts, success;
}
int cuDevicePrimaryCtxRelease_v2(int device) {
  return (void)device, --contexts, success;
}
int cuCtxPushCurrent_v2(void* context) {
  return context == &contexts ? (++depth, success) : invalid_context;
}
int cuCtxPopCurrent_v2(void** context) {
  return *context = &contexts, --depth, success;
}

int cuMemAlloc_v2(uint64_t* address, size_t bytes) {
  if (depth == 0 || bytes == 0) return invalid_value;
  for (int i = 0; i < 64; ++i) {
    if (memory[i].start) continue;
    memory[i] = (Memory){malloc(bytes), bytes};
    ++objects;
    return *address = (uint64_t)memory[i].start, success;
  }
  return 2;
}
int cuMemFree_v2(uint64_t address) {
  for (int i = 0; i < 64; ++i) {
    if (!memory[i].start || (uint64_t)memory[i].start != address) continue;
    free(memory[i].start);
    memory[i].start = 0;
    return --objects, success;
  }
  return invalid_value;
}
int cuMemcpyHtoDAsync_v2(uint64_t to, const void* from, size_t bytes, void* stream) {
  if (!stream || depth == 0 || !is_memory(to, bytes)) return invalid_value;
  return memcpy((void*)to, from, bytes), success;
}
int cuMemcpyDtoHAsync_v2(void* to, uint64_t from, size_t bytes, void* stream) {
  if (!stream || depth == 0 || !is_memory(from, bytes)) return invalid_value;
  return memcpy(to, (void*)from, bytes), success;
}

int cuModuleLoadData(void** module, const void* image) {
  if (depth == 0) return invalid_context;
  if (memcmp(image, "old", 3) == 0) return no_binary;
  return ++objects, *module = &objects, success;
}
int cuModuleUnload(void* module) {
  return (void)module, --objects, success;
}

static float* pointer(void** arguments, int i) {
  return *(float**)arguments[i];
}
static int64_t number(void** arguments, int i) {
  return *(int64_t*)arguments[i];
}
static void add(void** a, int64_t row) {
  for (int64_t i = 0, n = number(a, 3); i < n; ++i)
    pointer(a, 2)[row * n + i] = pointer(a, 0)[row * n + i] + pointer(a, 1)[row * n + i];
}
static void scale(void** a, int64_t row) {
  for (int64_t i = 0, n = number(a, 2); i < n; ++i)
    pointer(a, 1)[row * n + i] = pointer(a, 0)[row * n + i] * (float)number(a, 3);
}
static void sum(void** a, int64_t row) {
  (void)row;
  pointer(a, 1)[0] = 0;
  for (int64_t i = 0, n = number(a, 2); i < n; ++i) pointer(a, 1)[0] += pointer(a, 0)[i];
}
static void row_sums(void** a, int64_t row) {  // a[2]: the workspace, which is none
  pointer(a, 1)[row] = pointer(a, 2) ? -1 : 0;
  for (int64_t i = 0, n = number(a, 3); i < n; ++i) pointer(a, 1)[row] += pointer(a, 0)[row * n + i];
}

typedef void (*Kernel)(void**, int64_t);
int cuModuleGetFunction(Kernel* function, void* module, const char* name) {
  static const struct {
    const char* name;
    Kernel kernel;
  } kernels[] = {{"add", add}, {"scale", scale}, {"sum", sum}, {"row_sums", row_sums}};
  (void)module;
  for (int i = 0; i < 4; ++i) {
    if (strcmp(kernels[i].name, name) == 0) return *function = kernels[i].kernel, success;
  }
  return not_found;
}
int cuLaunchKernel(Kernel function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                   unsigned shared, void* stream, void** arguments, void** extra) {
  if (!stream || depth == 0 || shared || extra || gx == 0 || gy != 1 || gz != 1 || bx != 1 || by != 1 || bz != 1)
    return invalid_value;
  if (is_failing("launch")) return launch_failed;
  for (unsigned i = 0; i < gx; ++i) function(arguments, i);
  return success;
}
int cuStreamCreate(void** stream, unsigned flags) {
  return (void)flags, ++objects, *stream = &objects, success;
}
int cuStreamDestroy_v2(void* stream) {
  return (void)stream, --objects, success;
}
int cuStreamSynchronize(void* stream) {
  return (void)stream, is_failing("synchronize") ? launch_failed : success;
}
int cuEventCreate(void** event, unsigned flags) {
  return (void)flags, ++objects, *event = &objects, success;
}
int cuEventDestroy_v2(void* event) {
  return (void)event, --objects, success;
}
int cuEventRecord(void* event, void* stream) {
  return event && stream ? success : invalid_value;
}
int cuEventSynchronize(void* event) {
  return event ? success : invalid_value;
}
int cuEventElapsedTime(float* milliseconds, void* start, void* end) {
  return *milliseconds = 0.5f, start && end ? success : invalid_value;
}
