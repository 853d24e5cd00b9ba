#include "targets/llvm/optimize.h"

#include <llvm/Analysis/LoopInfo.h>
#include <llvm/Analysis/TargetLibraryInfo.h>
#include <llvm/Analysis/TargetTransformInfo.h>
#include <llvm/IR/Module.h>
#include <llvm/Passes/PassBuilder.h>
#include <llvm/Target/TargetMachine.h>
#include <llvm/Transforms/InstCombine/InstCombine.h>
#include <llvm/Transforms/Scalar/ADCE.h>
#include <llvm/Transforms/Scalar/DeadStoreElimination.h>
#include <llvm/Transforms/Scalar/EarlyCSE.h>
#include <llvm/Transforms/Scalar/LICM.h>
#include <llvm/Transforms/Scalar/LoopPassManager.h>
#include <llvm/Transforms/Scalar/LoopStrengthReduce.h>
#include <llvm/Transforms/Scalar/SimplifyCFG.h>
#include <llvm/Transforms/Utils/Cloning.h>

#include <set>

namespace tw {
namespace {

// LLVM's managers, which know each other and the target.
struct Analyses {
  llvm::LoopAnalysisManager loops;
  llvm::FunctionAnalysisManager functions;
  llvm::CGSCCAnalysisManager components;
  llvm::ModuleAnalysisManager modules;
  llvm::PassBuilder builder;
  llvm::TargetLibraryInfoImpl library;

  explicit Analyses(llvm::TargetMachine& machine) : builder(&machine), library(machine.getTargetTriple()) {
    // No function of the C library may be assumed: none will be there.
    library.disableAllFunctions();
    functions.registerPass([&] { return llvm::TargetLibraryAnalysis(library); });
    builder.registerModuleAnalyses(modules);
    builder.registerCGSCCAnalyses(components);
    builder.registerFunctionAnalyses(functions);
    builder.registerLoopAnalyses(loops);
    builder.crossRegisterProxies(loops, functions, components, modules);
  }

  void run(llvm::Module& module, llvm::FunctionPassManager passes) {
    llvm::ModulePassManager all;
    all.addPass(llvm::createModuleToFunctionPassAdaptor(std::move(passes)));
    all.run(module, modules);
  }
};

bool is_scalar(const llvm::Value& value) {
  return value.getType()->isPointerTy() || value.getType()->isIntegerTy();
}

// Pointers and integers that live through the loop.
size_t count_scalars(const llvm::Loop& loop) {
  std::set<const llvm::Value*> scalars;
  for (const llvm::BasicBlock* block : loop.blocks()) {
    for (const llvm::Instruction& instruction : *block) {
      if (llvm::isa<llvm::PHINode>(instruction) && is_scalar(instruction)) scalars.insert(&instruction);
      for (const llvm::Value* operand : instruction.operands()) {
        const bool is_value = llvm::isa<llvm::Instruction>(operand) || llvm::isa<llvm::Argument>(operand);
        if (is_value && is_scalar(*operand) && loop.isLoopInvariant(operand)) scalars.insert(operand);
      }
    }
  }
  return scalars.size();
}

// Innermost loops with more of them than the target has registers.
int count_crowded_loops(llvm::Module& module, llvm::FunctionAnalysisManager& functions) {
  int crowded = 0;
  for (llvm::Function& function : module) {
    if (function.isDeclaration()) continue;
    const auto& target = functions.getResult<llvm::TargetIRAnalysis>(function);
    const size_t registers = target.getNumberOfRegisters(target.getRegisterClassForType(false));
    for (const llvm::Loop* loop : functions.getResult<llvm::LoopAnalysis>(function).getLoopsInPreorder())
      crowded += loop->isInnermost() && count_scalars(*loop) > registers;
  }
  return crowded;
}

}  // namespace

void optimize(std::unique_ptr<llvm::Module>& module, llvm::TargetMachine& machine) {
  llvm::FunctionPassManager passes;
  passes.addPass(llvm::EarlyCSEPass(/*UseMemorySSA=*/true));
  passes.addPass(llvm::InstCombinePass());
  passes.addPass(llvm::createFunctionToLoopPassAdaptor(llvm::LICMPass(llvm::LICMOptions()), /*UseMemorySSA=*/true));
  passes.addPass(llvm::EarlyCSEPass(/*UseMemorySSA=*/true));
  passes.addPass(llvm::DSEPass());
  passes.addPass(llvm::ADCEPass());
  passes.addPass(llvm::SimplifyCFGPass());
  std::unique_ptr<llvm::Module> reduced;  // lives longer than what is known of it
  Analyses analyses(machine);
  analyses.run(*module, std::move(passes));

  reduced = llvm::CloneModule(*module);
  llvm::FunctionPassManager reduction;
  reduction.addPass(llvm::createFunctionToLoopPassAdaptor(llvm::LoopStrengthReducePass()));
  analyses.run(*reduced, std::move(reduction));
  const bool is_worse =
      count_crowded_loops(*reduced, analyses.functions) > count_crowded_loops(*module, analyses.functions);
  if (!is_worse) std::swap(module, reduced);
}

bool PassesLeftOut::shouldRunPass(llvm::StringRef pass, llvm::StringRef /*where*/) const {
  if (pass == "Loop Strength Reduction") return false;  // `optimize` has seen to it
  // Of 32-bit ARM, what merges loads.  Of three words into lanes of one register it makes an instruction that steps the
  // address by 12 bytes, where it is to go on by 16 (`vldmia r0!, {s0, s1, s2}`), for it counts the whole register as a
  // fourth word; elsewhere it writes over an address that is still needed (llvm/llvm-project#223630).  Its part before
  // registers are assigned leaves pairs for it to correct.
  return pass != "arm-ldst-opt" && pass != "arm-prera-ldst-opt";
}

}  // namespace tw
