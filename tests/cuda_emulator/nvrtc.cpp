// A libnvrtc.so for machines without one: CUDA C++ text becomes a shared object of the host, which the emulator's
// libcuda.so.1 (driver.cpp) takes for a cubin.  Accesses that are not as aligned as their type trap, as on a GPU.
#include <stdlib.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace {

enum { success = 0, compilation_error = 6 };

struct Program {
  std::string source, log, image, ptx;
};

// The PTX that kernels may hold, in C++.
std::string without_ptx(std::string text) {
  const std::string end = "// End of PTX.\n";  // what lies between is in device.h
  if (const size_t at = text.find("// PTX: "); at != std::string::npos)
    text.erase(at, text.find(end, at) + end.size() - at);
  if (const size_t at = text.find("asm"); at != std::string::npos && text.compare(at, 4, "asm(") == 0)
    throw std::runtime_error("the emulator does not know this PTX: " + text.substr(at, text.find('\n', at) - at));
  return text;
}

// After each kernel, what the driver starts it by: its arguments are as many addresses or numbers of 8 bytes, then maps
// of tensors.
std::string entries(const std::string& text) {
  std::string result;
  const std::string begin = "extern \"C\" __global__ void ";
  for (size_t at = text.find(begin); at != std::string::npos;) {
    const size_t next = text.find(begin, at + begin.size());
    std::string head = text.substr(at + begin.size(), text.find(") {\n", at) - at - begin.size());
    if (const size_t bounds = head.find("__launch_bounds__"); bounds != std::string::npos)
      head.erase(bounds, head.find(") ", bounds) + 2 - bounds);
    const std::string name = head.substr(0, head.find('('));
    std::string parameters = head.substr(head.find('(') + 1) + ",", arguments;
    int i = 0, maps = 0;
    for (; parameters.size() > 1; ++i) {
      const size_t comma = parameters.find(',');
      const std::string type = parameters.substr(0, parameters.rfind(' ', comma));
      maps += type.find("__grid_constant__") != std::string::npos;
      arguments += (i ? ", *(" : "*(") + type + "*)a[" + std::to_string(i) + "]";
      parameters.erase(0, std::min(comma + 2, parameters.size()));
    }
    const std::string body = text.substr(at, next - at);
    const auto has = [&](const char* word) { return body.find(word) != std::string::npos; };
    // A thread may wait for its own copies alone, where no other reads what it has copied.
    const bool waits = has("__syncthreads") || has("tw_mma") || has("tw_tiles") || has("tw_copy") || has("_copies");
    result += "extern \"C\" tw::cuda_emulator::KernelEntry tw_kernel_" + name + " = {[](void** a) { " + name + "(" +
              arguments + "); }, " + (waits ? "true" : "false") + ", " + std::to_string(i - maps) + ", " +
              std::to_string(maps) + "};\n";
    at = next;
  }
  return result;
}

// What the emulator's libcuda makes the image of again: PTX has its digits in a comment.
std::string ptx_of(const std::string& image, const std::string& architecture) {
  std::string text = "// Cuda compilation tools, release 13.0, V13.0.0\n.version 9.0\n.target sm_" + architecture +
                     "\n.address_size 64\n// image ";
  for (const char byte : image)
    for (const int shift : {4, 0}) text += "0123456789abcdef"[static_cast<unsigned char>(byte) >> shift & 0xf];
  return text + "\n";
}

std::string read(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

extern "C" {

int nvrtcVersion(int* major, int* minor) {
  // Compiled kernels are kept by it: those of another emulator are others.
  static const size_t version = std::hash<std::string>()(read(TW_CUDA_EMULATOR "/device.h"));
  return *major = 13, *minor = static_cast<int>(version % 100000), success;
}
const char* nvrtcGetErrorString(int result) {
  return result == success ? "NVRTC_SUCCESS" : "NVRTC_ERROR_COMPILATION (emulated)";
}
int nvrtcCreateProgram(Program** program, const char* source, const char*, int, const char* const*,
                       const char* const*) {
  return *program = new Program{source, "", "", ""}, success;
}
int nvrtcDestroyProgram(Program** program) {
  delete *program;
  return *program = nullptr, success;
}
int nvrtcCompileProgram(Program* program, int count, const char* const* options) {
  std::string architecture = "0";  // of any GPU
  for (int i = 0; i < count; ++i)
    if (const std::string_view option = options[i]; option.starts_with("--gpu-architecture=sm_"))
      architecture = option.substr(option.rfind('_') + 1);
  std::string folder = (std::filesystem::temp_directory_path() / "tilewright-XXXXXX").string();
  if (!mkdtemp(folder.data())) return compilation_error;
  int result = compilation_error;
  try {
    std::ofstream(folder + "/kernels.cpp")
        << "#define TW_CUDA_MODULE\n#define TW_CUDA_CAPABILITY " << std::stoi(architecture)
        << "\n#include \"" TW_CUDA_EMULATOR "/device.h\"\n"
        << without_ptx(program->source) << entries(program->source);
    const std::string command =
        TW_CXX_COMPILER
        " -std=c++20 -w -O1 -ffp-contract=off -fwrapv -fno-strict-aliasing -fno-exceptions -fsanitize=alignment "
        "-fsanitize-trap=alignment -shared -fPIC -o " +
        folder + "/kernels.so " + folder + "/kernels.cpp 2> " + folder + "/log";
    if (std::system(command.c_str()) == 0) {
      program->image = read(folder + "/kernels.so");
      program->ptx = ptx_of(program->image, architecture);
      result = success;
    }
    program->log = read(folder + "/log");
  } catch (const std::exception& error) {
    program->log = error.what();
  }
  std::filesystem::remove_all(folder);
  return result;
}
int nvrtcGetProgramLogSize(Program* program, size_t* size) {
  return *size = program->log.size() + 1, success;
}
int nvrtcGetProgramLog(Program* program, char* log) {
  return std::memcpy(log, program->log.c_str(), program->log.size() + 1), success;
}
int nvrtcGetCUBINSize(Program* program, size_t* size) {
  return *size = program->image.size(), success;
}
int nvrtcGetCUBIN(Program* program, char* image) {
  return std::memcpy(image, program->image.data(), program->image.size()), success;
}
int nvrtcGetPTXSize(Program* program, size_t* size) {
  return *size = program->ptx.size() + 1, success;
}
int nvrtcGetPTX(Program* program, char* ptx) {
  return std::memcpy(ptx, program->ptx.c_str(), program->ptx.size() + 1), success;
}
}
