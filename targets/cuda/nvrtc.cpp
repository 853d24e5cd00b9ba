#include "targets/cuda/nvrtc.h"

#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <optional>
#include <span>

#include "runtime/device/cuda_image.h"
#include "runtime/shared_library.h"
#include "targets/cuda/emit.h"
#include "tensor_ir/pass_scope.h"

namespace tw::cuda {
namespace {

// The part of nvrtc.h that is used; the interface has been stable since CUDA 11.
using Program = struct NvrtcProgram*;
using Result = int;
constexpr Result success = 0, invalid_option = 5;

struct Library {
  std::string path;
  SharedLibrary library{path};
  Result (*version)(int* major, int* minor) = library.symbol("nvrtcVersion");
  const char* (*error_string)(Result) = library.symbol("nvrtcGetErrorString");
  Result (*create)(Program*, const char* source, const char* name, int headers, const char* const* texts,
                   const char* const* names) = library.symbol("nvrtcCreateProgram");
  Result (*destroy)(Program*) = library.symbol("nvrtcDestroyProgram");
  Result (*compile)(Program, int count, const char* const* options) = library.symbol("nvrtcCompileProgram");
  Result (*log_size)(Program, size_t*) = library.symbol("nvrtcGetProgramLogSize");
  Result (*log)(Program, char*) = library.symbol("nvrtcGetProgramLog");
  Result (*cubin_size)(Program, size_t*) = library.symbol("nvrtcGetCUBINSize");
  Result (*cubin)(Program, char*) = library.symbol("nvrtcGetCUBIN");
  Result (*ptx_size)(Program, size_t*) = library.symbol("nvrtcGetPTXSize");
  Result (*ptx)(Program, char*) = library.symbol("nvrtcGetPTX");
};

std::mutex& mutex() {
  static std::mutex instance;
  return instance;
}

std::vector<std::string>& hints() {
  static std::vector<std::string> instance;
  return instance;
}

constexpr const char* file_names[] = {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so.11.2", "libnvrtc.so"};

std::vector<std::string> candidates() {
  std::vector<std::string> paths;
  auto add_folder = [&](const std::filesystem::path& folder) {
    for (const char* inner : {"", "lib64", "lib"}) {
      for (const char* name : file_names) {
        std::error_code ignored;  // what cannot be looked at is not there
        std::filesystem::path path = (*inner ? folder / inner : folder) / name;
        if (std::filesystem::exists(path, ignored)) paths.push_back(path.string());
      }
    }
  };
  for (const char* variable : {"CUDA_HOME", "CUDA_PATH"}) {  // what somebody has said comes first
    if (const char* value = std::getenv(variable); value && *value) add_folder(value);
  }
  for (const std::string& hint : hints()) {
    std::error_code ignored;
    if (std::filesystem::is_directory(hint, ignored))
      add_folder(hint);
    else
      paths.push_back(hint);
  }
  paths.insert(paths.end(), std::begin(file_names), std::end(file_names));  // where the loader looks
  add_folder("/usr/local/cuda");
  return paths;
}

// The first library that opens and has all functions.
std::optional<Library> open_library() {
  for (const std::string& path : candidates()) {
    Library found{path};
    if (!found.library.is_open()) continue;
    if (found.library.missing()) {
      found.library.close();
      continue;
    }
    if (Dl_info info; dladdr(reinterpret_cast<void*>(found.version), &info)) found.path = info.dli_fname;
    return found;
  }
  return std::nullopt;
}

// Stays open once found; looked for again until then, for a hint may come later.
const Library* find_library() {
  static std::optional<Library> library;
  std::lock_guard lock(mutex());
  if (!library) library = open_library();
  return library ? &*library : nullptr;
}

// Of a line "Registers are spilled to local memory in function 'matmul', 8 bytes spill stores, …": matmul.
std::vector<std::string> spilled_kernels(const std::string& log) {
  constexpr std::string_view before = "Registers are spilled to local memory in function '";
  std::vector<std::string> kernels;
  for (size_t at = log.find(before); at != std::string::npos; at = log.find(before, at)) {
    at += before.size();
    kernels.push_back(log.substr(at, log.find('\'', at) - at));
  }
  return kernels;
}

const Library& need_library() {
  const Library* library = find_library();
  if (!library) throw Error(ErrorCode::target, nvrtc_problem());
  return *library;
}

}  // namespace

void add_nvrtc_hint(const std::string& path) {
  std::lock_guard lock(mutex());
  hints().insert(hints().begin(), path);
}

std::string nvrtc_problem() {
  if (find_library()) return "";
  return "libnvrtc, which compiles CUDA kernels, was not found\n  help: pip install nvidia-cuda-nvrtc, or set "
         "CUDA_HOME to a CUDA toolkit";
}

std::string nvrtc_description() {
  const Library& library = need_library();
  int major = 0, minor = 0;
  library.version(&major, &minor);
  return std::to_string(major) + "." + std::to_string(minor) + " from " + library.path;
}

std::vector<std::byte> compile_cubin(const std::string& text, int compute_capability, const std::string& name,
                                     std::vector<std::string>* spilled, std::string* ptx) {
  const Library& library = need_library();
  Program program = nullptr;
  if (Result result = library.create(&program, text.c_str(), (name + ".cu").c_str(), 0, nullptr, nullptr);
      result != success) {
    throw Error(ErrorCode::target, std::string("NVRTC: ") + library.error_string(result));
  }
  struct Destroyer {
    const Library& library;
    Program& program;
    ~Destroyer() { library.destroy(&program); }
  } destroyer{library, program};
  // Sums and products that may contract are fma in tensor_ir already; any others keep their rounding.
  // Compute capability 9.0 has instructions that are no later one's, and so no part of PTX for those.
  const std::string architecture =
      "--gpu-architecture=sm_" + std::to_string(compute_capability) + (compute_capability == 90 && !ptx ? "a" : "");
  const char* options[] = {architecture.c_str(), "--std=c++17", "--fmad=false", "--ptxas-options=--warn-on-spills"};
  Result result = library.compile(program, std::size(options), options);
  size_t log_size = 0;
  std::string log;
  if (library.log_size(program, &log_size) == success && log_size > 1) {
    log.resize(log_size);
    library.log(program, log.data());
    log.resize(log_size - 1);
  }
  if (spilled) *spilled = spilled_kernels(log);
  if (result != success) {
    if (result == invalid_option) {
      throw Error(ErrorCode::target, "NVRTC " + nvrtc_description() + " does not know sm_" +
                                         std::to_string(compute_capability) +
                                         "\n  help: install a newer nvidia-cuda-nvrtc");
    }
    internal_error("NVRTC does not accept the text of " + name + ": " + library.error_string(result) + "\n" +
                   log.substr(0, 4000));
  }
  size_t size = 0;
  result = library.cubin_size(program, &size);
  std::vector<std::byte> cubin(size);
  if (result == success) result = library.cubin(program, reinterpret_cast<char*>(cubin.data()));
  if (result != success || size == 0)
    throw Error(ErrorCode::target, std::string("NVRTC gives no cubin: ") + library.error_string(result));
  if (!ptx) return cubin;
  result = library.ptx_size(program, &size);
  ptx->resize(size);
  if (result == success) result = library.ptx(program, ptx->data());
  if (result != success || size <= 1)
    throw Error(ErrorCode::target, std::string("NVRTC gives no PTX: ") + library.error_string(result));
  ptx->resize(size - 1);
  return cubin;
}

std::vector<std::byte> compile_cuda_image(const std::vector<Kernel>& kernels, const Target& target,
                                          const CodegenOptions& options, CodegenReport* report) {
  check(target.compute_capability > 0, "compile_cuda_image: a CUDA target");
  const std::string text = emit_cuda(kernels, target.shared_bytes);
  if (!kernels.empty()) dump_source(kernels[0].symbol, "cu", text);
  const auto compile = [&] {
    const std::string name = kernels.empty() ? "empty" : kernels[0].symbol;
    std::vector<std::string> spilled;
    std::string text_for_later;
    std::string* const ptx = target.has(ptx_feature) ? &text_for_later : nullptr;
    std::vector<std::byte> cubin = compile_cubin(text, target.compute_capability, name, &spilled, ptx);
    HeldThreads held;
    for (const int64_t threads : {1024, 1}) {
      if (spilled.empty()) break;
      for (const std::string& kernel : spilled) held[kernel] = threads;
      const std::string roomy = emit_cuda(kernels, target.shared_bytes, held);
      cubin = compile_cubin(roomy, target.compute_capability, name, &spilled, ptx);
    }
    return ptx ? join_ptx(std::move(cubin), *ptx) : cubin;
  };
  if (report) report->cached_kernels = 0;
  if (!options.cache || compiler_build_id().empty()) return compile();
  // NVRTC is no part of this build.
  const std::string key = cache_key(nvrtc_description() + '\n' + text, target, compiler_build_id());
  if (const auto found = options.cache->find(key)) {
    const auto bytes = std::as_bytes(std::span(*found));
    if (report) report->cached_kernels = static_cast<int>(kernels.size());
    return {bytes.begin(), bytes.end()};
  }
  std::vector<std::byte> cubin = compile();
  options.cache->store(key, {reinterpret_cast<const char*>(cubin.data()), cubin.size()});
  options.cache->evict();
  return cubin;
}

}  // namespace tw::cuda
