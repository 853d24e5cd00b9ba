// The LLVM module of a kernel and machine code.
#include "targets/llvm/emit.h"

#include <llvm/Analysis/TargetLibraryInfo.h>
#include <llvm/AsmParser/Parser.h>
#include <llvm/IR/LegacyPassManager.h>
#include <llvm/IR/Verifier.h>
#include <llvm/MC/TargetRegistry.h>
#include <llvm/Support/SourceMgr.h>
#include <llvm/Support/TargetSelect.h>
#include <llvm/Support/raw_ostream.h>
#include <llvm/Target/TargetMachine.h>
#include <llvm/Target/TargetOptions.h>
#include <llvm/Transforms/Utils/Cloning.h>

#include <mutex>

#include "targets/llvm/codegen.h"
#include "targets/llvm/optimize.h"

namespace tw {
namespace {

void initialize_llvm() {
  static std::once_flag once;
  std::call_once(once, [] {
    // Those that are linked; compile_image.cpp stands in for the others.
    llvm::InitializeAllTargets();
    llvm::InitializeAllTargetMCs();
    llvm::InitializeAllAsmPrinters();
    llvm::InitializeAllAsmParsers();
  });
}

struct Context : llvm::LLVMContext {
  Context() { setOptPassGate(left_out); }
  PassesLeftOut left_out;
};

// The machine that `module` is for from now on.
std::unique_ptr<llvm::TargetMachine> make_machine(const Target& target, llvm::Module& module) {
  std::string error;
  const llvm::Triple triple(target.triple);
  const llvm::Target* found = llvm::TargetRegistry::lookupTarget(triple, error);
  check(found != nullptr, "codegen: LLVM has the target's triple");
  llvm::TargetOptions options;
  options.AllowFPOpFusion = llvm::FPOpFusion::Strict;  // what is fused says so
  options.NoTrappingFPMath = true;
  options.MCOptions.AsmVerbose = true;  // comments name the spills
  if (target.architecture == "arm") options.FloatABIType = llvm::FloatABI::Hard;
  std::unique_ptr<llvm::TargetMachine> machine(
      found->createTargetMachine(triple, target.cpu, feature_string(target), options, llvm::Reloc::PIC_,
                                 llvm::CodeModel::Small, llvm::CodeGenOptLevel::Default));
  module.setTargetTriple(triple);
  module.setDataLayout(machine->createDataLayout());
  return machine;
}

std::string generate(llvm::Module& module, llvm::TargetMachine& machine, llvm::CodeGenFileType type) {
  llvm::SmallVector<char, 0> buffer;
  llvm::raw_svector_ostream stream(buffer);
  llvm::legacy::PassManager passes;
  llvm::TargetLibraryInfoImpl library(machine.getTargetTriple());
  library.disableAllFunctions();
  passes.add(new llvm::TargetLibraryInfoWrapperPass(library));
  check(!machine.addPassesToEmitFile(passes, stream, nullptr, type), "codegen: LLVM can emit this kind of file");
  passes.run(module);
  return {buffer.begin(), buffer.end()};
}

}  // namespace

EmittedKernel emit_kernel(const Kernel& kernel, const Target& target, EmitForm form, bool wants_assembly_besides) {
  initialize_llvm();
  Context context;
  auto module = std::make_unique<llvm::Module>(kernel.symbol, context);
  const auto machine = make_machine(target, *module);
  KernelCodegen(*module, kernel, target).run();
  // Cheap beside code generation; a broken module would crash far from its cause.
  std::string errors;
  llvm::raw_string_ostream error_stream(errors);
  if (llvm::verifyModule(*module, &error_stream)) internal_error("codegen of " + kernel.symbol + ": " + errors);
  optimize(module, *machine);
  EmittedKernel result;
  if (form == EmitForm::llvm_ir) {
    llvm::raw_string_ostream stream(result.object);
    module->print(stream, nullptr);
    return result;
  }
  if (wants_assembly_besides) {
    const auto copy = llvm::CloneModule(*module);
    result.assembly = generate(*copy, *machine, llvm::CodeGenFileType::AssemblyFile);
  }
  result.object =
      generate(*module, *machine,
               form == EmitForm::assembly ? llvm::CodeGenFileType::AssemblyFile : llvm::CodeGenFileType::ObjectFile);
  return result;
}

std::string emit_ir_text(const char* text, const Target& target) {
  initialize_llvm();
  Context context;
  llvm::SMDiagnostic diagnostic;
  const auto module = llvm::parseAssemblyString(text, diagnostic, context);
  check(module != nullptr, "codegen: built-in functions parse");
  const auto machine = make_machine(target, *module);
  return generate(*module, *machine, llvm::CodeGenFileType::ObjectFile);
}

}  // namespace tw
