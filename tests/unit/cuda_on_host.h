// Runs emitted CUDA C++ on the host: what CUDA adds to C++ is defined away, and the threads of a block take turns from
// barrier to barrier.  So the text itself is tested where there is no GPU.
#pragma once

#include <dlfcn.h>
#include <stdlib.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "runtime/error.h"
#include "targets/cuda/emit.h"

namespace tw::test {

inline constexpr const char host_prelude[] = R"cpp(
#include <ucontext.h>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <utility>
#include <vector>
#define __global__
#define __device__
#define __forceinline__ inline
#define __shared__ static
#define __align__(n) __attribute__((aligned(n)))
#define __launch_bounds__(n)
#pragma clang diagnostic ignored "-Wunused-function"
  struct Index {
    unsigned x, y, z;
  };
  static Index threadIdx, blockIdx;
  struct alignas(8) uint2 {
    unsigned x, y;
  };
  struct alignas(16) uint4 {
    unsigned x, y, z, w;
  };
  inline float __uint_as_float(unsigned x) {
    return std::bit_cast<float>(x);
  }
  inline unsigned __float_as_uint(float x) {
    return std::bit_cast<unsigned>(x);
  }
  inline double __longlong_as_double(long long x) {
    return std::bit_cast<double>(x);
  }
  inline long long __double_as_longlong(double x) {
    return std::bit_cast<long long>(x);
  }
  inline int __popcll(unsigned long long x) {
    return __builtin_popcountll(x);
  }
  inline float rsqrtf(float x) {
    return 1 / std::sqrt(x);
  }
  inline double rsqrt(double x) {
    return 1 / std::sqrt(x);
  }

  struct Thread {
    ucontext_t context;
    std::vector<char> stack;
    bool is_done = false;
    Index index;
  };
  static ucontext_t scheduler;
  static Thread* running;
  static void (*body)(void**);
  static void** body_arguments;
  static void __syncthreads() {
    swapcontext(&running->context, &scheduler);
  }
  static void begin_thread() {
    body(body_arguments);
    running->is_done = true;
  }

  template <class... A, size_t... i>
  void call(void (*kernel)(A...), void** arguments, std::index_sequence<i...>) {
    kernel(*static_cast<A*>(arguments[i])...);
  }
  template <class... A>
  void call(void (*kernel)(A...), void** arguments) {
    call(kernel, arguments, std::index_sequence_for<A...>());
  }

  static void run_block(Index block) {
    std::vector<Thread> threads(block.x * block.y * block.z);
    for (unsigned t = 0; t < threads.size(); ++t) {
      Thread& thread = threads[t];
      thread.index = {t % block.x, t / block.x % block.y, t / (block.x * block.y)};
      thread.stack.resize(64 << 10);
      getcontext(&thread.context);
      thread.context.uc_stack.ss_sp = thread.stack.data();
      thread.context.uc_stack.ss_size = thread.stack.size();
      thread.context.uc_link = &scheduler;
      makecontext(&thread.context, begin_thread, 0);
    }
    for (size_t done = 0; done < threads.size();) {
      size_t before = done;
      for (size_t i = threads.size(); i-- > 0;) {  // against the order of the hardware
        if (threads[i].is_done) std::abort();      // ended before a barrier that others wait at
        running = &threads[i];
        threadIdx = running->index;
        swapcontext(&scheduler, &running->context);
        done += running->is_done;
      }
      if (done != before && done != threads.size()) std::abort();
    }
  }
  static void launch(void (*kernel)(void**), void** arguments, const unsigned* shape, bool has_barrier) {
    body = kernel;
    body_arguments = arguments;
    for (unsigned z = 0; z < shape[2]; ++z)
      for (unsigned y = 0; y < shape[1]; ++y)
        for (unsigned x = 0; x < shape[0]; ++x) {
          blockIdx = {x, y, z};
          if (has_barrier) {
            run_block({shape[3], shape[4], shape[5]});
            continue;
          }
          for (unsigned k = 0; k < shape[5]; ++k)
            for (unsigned j = 0; j < shape[4]; ++j)
              for (unsigned i = 0; i < shape[3]; ++i) threadIdx = {i, j, k}, kernel(arguments);
        }
  }
)cpp";

// A folder that ends with the test.
struct TemporaryFolder {
  std::string path = (std::filesystem::temp_directory_path() / "tilewright-XXXXXX").string();
  TemporaryFolder() { check(mkdtemp(path.data()) != nullptr, "a folder for temporary files"); }
  ~TemporaryFolder() { std::filesystem::remove_all(path); }
};

// The library of the kernels; `compiler`: a C++ compiler of this machine.
class CudaOnHost {
 public:
  CudaOnHost(const std::vector<Kernel>& kernels, const std::string& folder) {
    std::string text = cuda::emit_cuda(kernels);
    const auto replace = [&](const std::string& begin, const std::string& by) {
      const size_t at = text.find(begin);
      check(at != std::string::npos, "CudaOnHost: the prelude converts f16");
      text.replace(at, text.find('\n', at) - at, by);
    };
    replace("TW_FUNCTION float tw_from_f16",
            "TW_FUNCTION float tw_from_f16(u16 bits) { return (float)std::bit_cast<_Float16>(bits); }");
    replace("TW_FUNCTION u16 tw_to_f16",
            "TW_FUNCTION u16 tw_to_f16(float x) { return std::bit_cast<u16>((_Float16)x); }");
    for (const Kernel& kernel : kernels) {
      const size_t begin = text.find(" " + kernel.symbol + "(");
      const size_t end = std::min(text.find("extern \"C\"", begin), text.size());
      const bool has_barrier = text.substr(begin, end - begin).find("__syncthreads") != std::string::npos;
      text += "extern \"C\" void launch_" + kernel.symbol +
              "(void** arguments, const unsigned* shape) { launch([](void** a) { call(" + kernel.symbol +
              ", a); }, arguments, shape, " + (has_barrier ? "true" : "false") + "); }\n";
    }
    const std::string source = folder + "/kernels.cpp", library = folder + "/kernels.so";
    std::ofstream(source) << host_prelude << text;
    const std::string command = std::string(TW_CXX_COMPILER) +
                                " -std=c++20 -w -O1 -ffp-contract=off -fwrapv -shared -fPIC -o " + library + " " +
                                source;
    check(std::system(command.c_str()) == 0, "CudaOnHost: the host's compiler takes the text");
    handle_ = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
    check(handle_ != nullptr, "CudaOnHost: the library opens");
  }
  CudaOnHost(const CudaOnHost&) = delete;
  CudaOnHost& operator=(const CudaOnHost&) = delete;
  ~CudaOnHost() { dlclose(handle_); }

  void run(const Kernel& kernel, std::vector<void*> buffers) const {
    const cuda::Launch launch = cuda::launch_of(kernel);
    unsigned shape[6];
    for (size_t axis = 0; axis < 3; ++axis) {
      shape[axis] = static_cast<unsigned>(as_int(launch.grid[axis]).value());
      shape[axis + 3] = static_cast<unsigned>(as_int(launch.block[axis]).value());
    }
    std::vector<void*> arguments;
    for (void*& buffer : buffers) arguments.push_back(&buffer);
    const auto function =
        reinterpret_cast<void (*)(void**, const unsigned*)>(dlsym(handle_, ("launch_" + kernel.symbol).c_str()));
    check(function != nullptr, "CudaOnHost: the kernel is in the library");
    function(arguments.data(), shape);
  }

 private:
  void* handle_ = nullptr;
};

}  // namespace tw::test
