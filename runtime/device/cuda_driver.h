// The functions of libcuda that the runtime uses, as cuda.h of CUDA 11.4 and later declares them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "runtime/shared_library.h"

namespace tw {

struct CudaDriver {
  using Result = int;  // 0: success
  using Device = int;
  using Address = uint64_t;
  using Context = struct CudaContext*;
  using Module = struct CudaModule*;
  using Function = struct CudaFunction*;
  using Stream = struct CudaStream*;
  using Event = struct CudaEvent*;
  using Graph = struct CudaGraph*;
  using ExecutableGraph = struct CudaExecutableGraph*;

  SharedLibrary library{"libcuda.so.1"};
  Result (*cuda_version)(int* version) = library.symbol("cuDriverGetVersion");  // 12020: of CUDA 12.2
  Result (*init)(unsigned flags) = library.symbol("cuInit");
  Result (*error_string)(Result, const char** text) = library.symbol("cuGetErrorString");
  Result (*device_count)(int* count) = library.symbol("cuDeviceGetCount");
  Result (*device_get)(Device*, int ordinal) = library.symbol("cuDeviceGet");
  Result (*device_name)(char* name, int length, Device) = library.symbol("cuDeviceGetName");
  Result (*device_attribute)(int* value, int attribute, Device) = library.symbol("cuDeviceGetAttribute");
  Result (*device_memory)(size_t* bytes, Device) = library.symbol("cuDeviceTotalMem_v2");
  Result (*context_retain)(Context*, Device) = library.symbol("cuDevicePrimaryCtxRetain");
  Result (*context_release)(Device) = library.symbol("cuDevicePrimaryCtxRelease_v2");
  Result (*context_push)(Context) = library.symbol("cuCtxPushCurrent_v2");
  Result (*context_pop)(Context*) = library.symbol("cuCtxPopCurrent_v2");
  Result (*allocate)(Address*, size_t bytes) = library.symbol("cuMemAlloc_v2");
  Result (*free)(Address) = library.symbol("cuMemFree_v2");
  Result (*copy_in)(Address, const void* host, size_t bytes, Stream) = library.symbol("cuMemcpyHtoDAsync_v2");
  Result (*copy_out)(void* host, Address, size_t bytes, Stream) = library.symbol("cuMemcpyDtoHAsync_v2");
  Result (*copy)(Address to, Address from, size_t bytes, Stream) = library.symbol("cuMemcpyDtoDAsync_v2");
  Result (*fill)(Address, unsigned char value, size_t bytes, Stream) = library.symbol("cuMemsetD8Async");
  // Attributes that an unknown address does not have are zero.
  Result (*pointer_attributes)(unsigned count, int* attributes, void** values,
                               Address) = library.symbol("cuPointerGetAttributes");
  Result (*module_load)(Module*, const void* image) = library.symbol("cuModuleLoadData");
  Result (*module_compile)(Module*, const void* ptx, unsigned count, int* options,
                           void** values) = library.symbol("cuModuleLoadDataEx");
  Result (*module_unload)(Module) = library.symbol("cuModuleUnload");
  Result (*module_function)(Function*, Module, const char* name) = library.symbol("cuModuleGetFunction");
  Result (*function_attribute)(Function, int attribute, int value) = library.symbol("cuFuncSetAttribute");
  Result (*launch)(Function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y,
                   unsigned block_z, unsigned shared_bytes, Stream, void** arguments,
                   void** extra) = library.symbol("cuLaunchKernel");
  Result (*stream_create)(Stream*, unsigned flags) = library.symbol("cuStreamCreate");
  Result (*stream_destroy)(Stream) = library.symbol("cuStreamDestroy_v2");
  Result (*stream_synchronize)(Stream) = library.symbol("cuStreamSynchronize");
  Result (*stream_wait)(Stream, Event, unsigned flags) = library.symbol("cuStreamWaitEvent");
  Result (*stream_is_capturing)(Stream, int* status) = library.symbol("cuStreamIsCapturing");
  Result (*capture_begin)(Stream, int mode) = library.symbol("cuStreamBeginCapture_v2");
  Result (*capture_end)(Stream, Graph*) = library.symbol("cuStreamEndCapture");
  Result (*graph_instantiate)(ExecutableGraph*, Graph, uint64_t flags) = library.symbol("cuGraphInstantiateWithFlags");
  Result (*graph_destroy)(Graph) = library.symbol("cuGraphDestroy");
  Result (*graph_launch)(ExecutableGraph, Stream) = library.symbol("cuGraphLaunch");
  Result (*graph_free)(ExecutableGraph) = library.symbol("cuGraphExecDestroy");
  // Null before CUDA 12.  128 bytes, aligned to 64, that say how boxes of a tensor are copied.
  Result (*tensor_map)(void* map, int type, unsigned rank, Address, const uint64_t* extents, const uint64_t* strides,
                       const unsigned* box, const unsigned* steps, int interleave, int swizzle, int promotion,
                       int fill) = library.find("cuTensorMapEncodeTiled");
  Result (*event_create)(Event*, unsigned flags) = library.symbol("cuEventCreate");
  Result (*event_destroy)(Event) = library.symbol("cuEventDestroy_v2");
  Result (*event_record)(Event, Stream) = library.symbol("cuEventRecord");
  Result (*event_synchronize)(Event) = library.symbol("cuEventSynchronize");
  Result (*event_elapsed)(float* milliseconds, Event start, Event end) = library.symbol("cuEventElapsedTime");

  // Opened and initialised once; null with the reason in `problem`.
  static const CudaDriver* find(std::string& problem);
  std::string describe(Result) const;
  std::string name() const;  // "the NVIDIA driver 580.65.06 (CUDA up to 13.0)"
};

}  // namespace tw
