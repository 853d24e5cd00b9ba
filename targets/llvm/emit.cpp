// The LLVM module of a kernel and machine code.
#include "targets/llvm/emit.h"

#include <llvm/Analysis/TargetLibraryInfo.h>
#include <llvm/AsmParser/Parser.h>
#include <llvm/IR/LegacyPassManager.h>
#include <llvm/IR/Verifier.h>
#include <llvm/MC/TargetRegistry.h>
#include <llvm/Support/SourceMgr.h>
#include <llvm/Support/raw_ostream.h>
#include <llvm/Target/TargetMachine.h>
#include <llvm/Target/TargetOptions.h>
#include <llvm/Transforms/Utils/Cloning.h>

#include <mutex>

#include "targets/llvm/codegen.h"
#include "targets/llvm/optimize.h"

extern "C" {
void LLVMInitializeX86TargetInfo();
void LLVMInitializeX86Target();
void LLVMInitializeX86TargetMC();
void LLVMInitializeX86AsmPrinter();
void LLVMInitializeX86AsmParser();
void LLVMInitializeAArch64TargetInfo();
void LLVMInitializeAArch64Target();
void LLVMInitializeAArch64TargetMC();
void LLVMInitializeAArch64AsmPrinter();
void LLVMInitializeAArch64AsmParser();
void LLVMInitializeARMTargetInfo();
void LLVMInitializeARMTarget();
void LLVMInitializeARMTargetMC();
void LLVMInitializeARMAsmPrinter();
void LLVMInitializeARMAsmParser();
}

namespace tw {
namespace {

void initialize_llvm() {
  static std::once_flag once;
  std::call_once(once, [] {
    LLVMInitializeX86TargetInfo(), LLVMInitializeX86Target(), LLVMInitializeX86TargetMC();
    LLVMInitializeX86AsmPrinter(), LLVMInitializeX86AsmParser();
    LLVMInitializeAArch64TargetInfo(), LLVMInitializeAArch64Target(), LLVMInitializeAArch64TargetMC();
    LLVMInitializeAArch64AsmPrinter(), LLVMInitializeAArch64AsmParser();
    LLVMInitializeARMTargetInfo(), LLVMInitializeARMTarget(), LLVMInitializeARMTargetMC();
    LLVMInitializeARMAsmPrinter(), LLVMInitializeARMAsmParser();
  });
}

struct Context : llvm::LLVMContext {
  Context() { setOptPassGate(left_out); }
  PassesLeftOut left_out;
};

std::unique_ptr<llvm::TargetMachine> make_machine(const Target& target) {
  std::string error, features;
  const llvm::Triple triple(target.triple);
  const llvm::Target* found = llvm::TargetRegistry::lookupTarget(triple, error);
  check(found != nullptr, "codegen: LLVM has the target's triple");
  for (const std::string& feature : target.features)
    features += (features.empty() ? "" : ",") + std::string(feature[0] == '-' ? "" : "+") + feature;
  llvm::TargetOptions options;
  options.AllowFPOpFusion = llvm::FPOpFusion::Strict;  // what is fused says so
  options.NoTrappingFPMath = true;
  options.MCOptions.AsmVerbose = true;  // comments name the spills
  if (target.architecture == "arm") options.FloatABIType = llvm::FloatABI::Hard;
  return std::unique_ptr<llvm::TargetMachine>(found->createTargetMachine(triple, target.cpu, features, options,
                                                                         llvm::Reloc::PIC_, llvm::CodeModel::Small,
                                                                         llvm::CodeGenOptLevel::Default));
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
  const auto machine = make_machine(target);
  module->setTargetTriple(llvm::Triple(target.triple));
  module->setDataLayout(machine->createDataLayout());
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
  const auto machine = make_machine(target);
  module->setTargetTriple(llvm::Triple(target.triple));
  module->setDataLayout(machine->createDataLayout());
  return generate(*module, *machine, llvm::CodeGenFileType::ObjectFile);
}

}  // namespace tw
