// Code as the emulator's NVRTC (nvrtc.cpp) leaves it, loaded.
#pragma once

#include "tests/cuda_emulator/device.h"
#include "tests/cuda_emulator/devices.h"
#undef threadIdx
#undef blockIdx

namespace tw::cuda_emulator {

struct LoadedModule {
  int file;  // open as long as the library, for a library is known by its file's name
  void* library;
  Module* module;
  int gpu;
};

// A shared object that stands for a cubin, or PTX, for the GPU whose context is current.
Result load(const void* image, LoadedModule& loaded);
void unload(const LoadedModule& loaded);

}  // namespace tw::cuda_emulator
