#include "targets/llvm/compile_image.h"

#include <lld/Common/Driver.h>
#include <llvm/Plugins/PassPlugin.h>
#include <llvm/Support/raw_ostream.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <mutex>
#include <set>

#include "targets/arm/builtins.h"
#include "targets/llvm/emit.h"
#include "targets/llvm/spill_report.h"
#include "tensor_ir/parallel.h"

LLD_HAS_DRIVER(elf)

#define ABSENT_TARGET(Name)                             \
  extern "C" void LLVMInitialize##Name##TargetInfo() {} \
  extern "C" void LLVMInitialize##Name##Target() {}     \
  extern "C" void LLVMInitialize##Name##TargetMC() {}   \
  extern "C" void LLVMInitialize##Name##AsmPrinter() {} \
  extern "C" void LLVMInitialize##Name##AsmParser() {}
#include "targets/absent_llvm_targets.def"

// lld refers to link-time optimization, and that to Polly; objects of ours are machine code, so neither ever runs.
llvm::PassPluginLibraryInfo getPollyPluginInfo() {
  return {};
}

namespace tw {
namespace {

// An object in memory under a name that lld can open.
class MemoryFile {
 public:
  explicit MemoryFile(const std::string& content) : descriptor_(memfd_create("kernel.o", MFD_CLOEXEC)) {
    if (descriptor_ < 0) throw Error(ErrorCode::file, "no memory file for an object: " + std::string(strerror(errno)));
    for (size_t written = 0; written < content.size();) {
      const ssize_t n = write(descriptor_, content.data() + written, content.size() - written);
      if (n < 0) throw Error(ErrorCode::file, "an object cannot be written: " + std::string(strerror(errno)));
      written += static_cast<size_t>(n);
    }
  }
  MemoryFile(MemoryFile&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  ~MemoryFile() {
    if (descriptor_ >= 0) close(descriptor_);
  }
  std::string path() const { return "/proc/self/fd/" + std::to_string(descriptor_); }

 private:
  int descriptor_;
};

// A file name of our own in the temporary directory; lld replaces the file.
class TemporaryFile {
 public:
  TemporaryFile() : path_((std::filesystem::temp_directory_path() / "tilewright-XXXXXX").string()) {
    const int descriptor = mkstemp(path_.data());
    if (descriptor < 0) {
      throw Error(ErrorCode::file, path_ + " cannot be made: " + std::strerror(errno) +
                                       "\n  help: TMPDIR names a directory that can be written");
    }
    close(descriptor);
  }
  ~TemporaryFile() { unlink(path_.c_str()); }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

std::vector<std::byte> link_image(const std::vector<std::string>& objects) {
  std::vector<MemoryFile> files;
  for (const std::string& object : objects) files.emplace_back(object);
  const TemporaryFile output;
  std::vector<std::string> arguments = {"ld.lld", "-o", output.path()};
  for (const char* argument :
       {"--threads=1", "--build-id=none", "-shared", "-z", "defs", "-Bsymbolic", "--hash-style=gnu", "-z", "norelro",
        "-z", "separate-code", "--no-eh-frame-hdr", "--no-rosegment"})
    arguments.push_back(argument);
  for (const MemoryFile& file : files) arguments.push_back(file.path());
  std::vector<const char*> argv;
  for (const std::string& argument : arguments) argv.push_back(argument.c_str());

  std::string out, errors;
  llvm::raw_string_ostream out_stream(out), error_stream(errors);
  {
    static std::mutex one_at_a_time;  // lld keeps its state in globals
    const std::lock_guard lock(one_at_a_time);
    const lld::Result result = lld::lldMain(argv, out_stream, error_stream, {{lld::Gnu, &lld::elf::link}});
    if (result.retCode != 0) internal_error("the linker refuses the kernels: " + errors);
  }
  std::ifstream file(output.path(), std::ios::binary | std::ios::ate);
  const auto size = file.tellg();
  check(file.good() && size > 0, "the linker has written the image");
  std::vector<std::byte> image(static_cast<size_t>(size));
  file.seekg(0);
  file.read(reinterpret_cast<char*>(image.data()), size);
  return image;
}

// An object from the cache, or compiled and kept there.
EmittedKernel emit_or_find(const Kernel& kernel, const Target& target, KernelCache& cache, std::atomic<int>& found) {
  const std::string key = cache_key(kernel, target, compiler_build_id());
  if (auto object = cache.find(key)) {
    ++found;
    return {std::move(*object), ""};
  }
  EmittedKernel emitted = emit_kernel(kernel, target, EmitForm::object, false);
  cache.store(key, emitted.object);
  return emitted;
}

// Every kernel by `emit`, on `jobs` threads.
std::vector<EmittedKernel> emit_all(const std::vector<Kernel>& kernels, int jobs,
                                    const std::function<EmittedKernel(const Kernel&)>& emit) {
  std::set<std::string> symbols;
  for (const Kernel& kernel : kernels)
    check(symbols.insert(kernel.symbol).second, "compile_image: symbols of kernels are unique");
  std::vector<EmittedKernel> results(kernels.size());
  for_each_in_parallel(kernels.size(), jobs, [&](size_t i) { results[i] = emit(kernels[i]); });
  return results;
}

std::vector<EmittedKernel> emit_all(const std::vector<Kernel>& kernels, const Target& target, EmitForm form, int jobs,
                                    bool wants_assembly = false) {
  return emit_all(kernels, jobs, [&](const Kernel& k) { return emit_kernel(k, target, form, wants_assembly); });
}

std::string concatenated(const std::vector<EmittedKernel>& emitted) {
  std::string text;
  for (const EmittedKernel& kernel : emitted) text += kernel.object;
  return text;
}

std::vector<std::string> objects_of(std::vector<EmittedKernel>& emitted) {
  std::vector<std::string> objects;
  for (EmittedKernel& kernel : emitted) objects.push_back(std::move(kernel.object));
  return objects;
}

}  // namespace

std::vector<std::byte> compile_llvm_image(const std::vector<Kernel>& kernels, const Target& target,
                                          const CodegenOptions& options, CodegenReport* report) {
  // A report reads the assembly, which no cache holds.
  const bool is_cached = options.cache && !options.wants_report && !compiler_build_id().empty();
  std::atomic<int> found = 0;
  auto emitted = is_cached ? emit_all(kernels, options.jobs,
                                      [&](const Kernel& k) { return emit_or_find(k, target, *options.cache, found); })
                           : emit_all(kernels, target, EmitForm::object, options.jobs, options.wants_report);
  if (is_cached && found < static_cast<int>(kernels.size())) options.cache->evict();
  if (report && options.wants_report) {
    for (size_t i = 0; i < kernels.size(); ++i)
      for (InnerLoopReport& loop : report_inner_loops(emitted[i].assembly, kernels[i].symbol))
        report->inner_loops.push_back(std::move(loop));
  }
  std::vector<std::string> objects = objects_of(emitted);
  if (target.architecture == "arm") objects.push_back(emit_ir_text(arm::builtins_ir, target));
  // A model whose tensors have no elements computes nothing; an image still has a function.
  if (objects.empty()) objects.push_back(emit_ir_text("define void @tw_nothing() { ret void }", target));
  if (report) report->cached_kernels = found;
  return link_image(objects);
}

std::string emit_llvm_ir(const std::vector<Kernel>& kernels, const Target& target) {
  return concatenated(emit_all(kernels, target, EmitForm::llvm_ir, 1));
}

std::string emit_assembly(const std::vector<Kernel>& kernels, const Target& target) {
  return concatenated(emit_all(kernels, target, EmitForm::assembly, 1));
}

}  // namespace tw
