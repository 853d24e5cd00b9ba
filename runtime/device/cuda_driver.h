// The functions of libcuda that the runtime uses, as cuda.h of CUDA 11 and later declares them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

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

  Result (*init)(unsigned flags);
  Result (*error_string)(Result, const char** text);
  Result (*device_count)(int* count);
  Result (*device_get)(Device*, int ordinal);
  Result (*device_name)(char* name, int length, Device);
  Result (*device_attribute)(int* value, int attribute, Device);
  Result (*device_memory)(size_t* bytes, Device);
  Result (*context_retain)(Context*, Device);
  Result (*context_release)(Device);
  Result (*context_push)(Context);
  Result (*context_pop)(Context*);
  Result (*allocate)(Address*, size_t bytes);
  Result (*free)(Address);
  Result (*copy_in)(Address, const void* host, size_t bytes, Stream);
  Result (*copy_out)(void* host, Address, size_t bytes, Stream);
  Result (*module_load)(Module*, const void* image);
  Result (*module_unload)(Module);
  Result (*module_function)(Function*, Module, const char* name);
  Result (*launch)(Function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y,
                   unsigned block_z, unsigned shared_bytes, Stream, void** arguments, void** extra);
  Result (*stream_create)(Stream*, unsigned flags);
  Result (*stream_destroy)(Stream);
  Result (*stream_synchronize)(Stream);
  Result (*event_create)(Event*, unsigned flags);
  Result (*event_destroy)(Event);
  Result (*event_record)(Event, Stream);
  Result (*event_synchronize)(Event);
  Result (*event_elapsed)(float* milliseconds, Event start, Event end);

  // Opened and initialised once; null with the reason in `problem`.
  static const CudaDriver* find(std::string& problem);
  std::string describe(Result) const;
};

}  // namespace tw
