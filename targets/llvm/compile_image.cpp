#include "targets/llvm/compile_image.h"

#include <lld/Common/Driver.h>
#include <llvm/Plugins/PassPlugin.h>
#include <llvm/Support/FileUtilities.h>
#include <llvm/Support/Signals.h>
#include <llvm/Support/raw_ostream.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <set>

#include "runtime/artifact/file_map.h"
#include "targets/arm/builtins.h"
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

// A file of our own in the temporary directory; lld replaces it.
std::string make_temporary_file() {
  std::string path = (std::filesystem::temp_directory_path() / "tilewright-XXXXXX").string();
  const int descriptor = mkstemp(path.data());
  if (descriptor < 0) {
    throw Error(ErrorCode::file, path + " cannot be made: " + std::strerror(errno) +
                                     "\n  help: TMPDIR names a directory that can be written");
  }
  close(descriptor);
  return path;
}

std::vector<std::byte> link_image(const std::vector<std::string>& objects) {
  std::vector<MemoryFile> files;
  for (const std::string& object : objects) files.emplace_back(object);
  const std::string output = make_temporary_file();
  const llvm::FileRemover remover(output);
  std::vector<std::string> arguments = {"ld.lld", "-o", output};
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
    // It has taken the process's signals, to remove its file should one end it: they are the caller's again.
    llvm::sys::unregisterHandlers();
    if (result.retCode != 0) internal_error("the linker refuses the kernels: " + errors);
  }
  const auto file = FileMap::open(output);
  check(!file->bytes().empty(), "the linker has written the image");
  return {file->bytes().begin(), file->bytes().end()};
}

// An object from the cache, or compiled and kept there.
EmittedKernel emit_or_find(const Kernel& kernel, const Target& target, KernelCache& cache, std::atomic<int>& found) {
  const std::string key = cache_key(kernel, target, compiler_build_id());
  if (auto object = cache.find(key)) {
    ++found;
    return {std::move(*object), ""};
  }
  EmittedKernel emitted = emit_kernel(kernel, target, EmitForm::object);
  cache.store(key, emitted.object);
  return emitted;
}

}  // namespace

std::vector<std::byte> compile_llvm_image(const std::vector<Kernel>& kernels, const Target& target,
                                          const CodegenOptions& options, CodegenReport* report) {
  // A report reads the assembly, which no cache holds.
  const bool is_cached = options.cache && !options.wants_report && !compiler_build_id().empty();
  std::atomic<int> found = 0;
  std::set<std::string> symbols;
  for (const Kernel& kernel : kernels)
    check(symbols.insert(kernel.symbol).second, "compile_image: symbols of kernels are unique");
  std::vector<EmittedKernel> emitted(kernels.size());
  for_each_in_parallel(kernels.size(), options.jobs, [&](size_t i) {
    emitted[i] = is_cached ? emit_or_find(kernels[i], target, *options.cache, found)
                           : emit_kernel(kernels[i], target, EmitForm::object, options.wants_report);
  });
  if (is_cached && found < static_cast<int>(kernels.size())) options.cache->evict();
  if (report && options.wants_report) {
    for (size_t i = 0; i < kernels.size(); ++i)
      for (InnerLoopReport& loop : report_inner_loops(emitted[i].assembly, kernels[i].symbol))
        report->inner_loops.push_back(std::move(loop));
  }
  std::vector<std::string> objects;
  for (EmittedKernel& kernel : emitted) objects.push_back(std::move(kernel.object));
  if (target.architecture == "arm") objects.push_back(emit_ir_text(arm::builtins_ir, target));
  // A model whose tensors have no elements computes nothing; an image still has a function.
  if (objects.empty()) objects.push_back(emit_ir_text("define void @tw_nothing() { ret void }", target));
  if (report) report->cached_kernels = found;
  return link_image(objects);
}

std::string emit_text(const std::vector<Kernel>& kernels, const Target& target, EmitForm form) {
  std::string text;
  for (const Kernel& kernel : kernels) text += emit_kernel(kernel, target, form).object;
  return text;
}

}  // namespace tw
