// Our short list of LLVM's passes, before its code generator.
#pragma once

#include <llvm/IR/OptBisect.h>

#include <memory>

namespace llvm {
class Module;
class TargetMachine;
}  // namespace llvm

namespace tw {

// Unrolling and vectorizing are done: what is left is to share common addresses, to take invariants out of loops, and
// to step through addresses.  Ours are a pointer for each loop and constants.  LLVM's strength reduction mostly makes
// better ones of them; but in some loops over many accumulators it finds nothing that they share, and makes a pointer
// for each row and step: more than there are registers, reloaded in every iteration.  There they stay as they are.
void optimize(std::unique_ptr<llvm::Module>& module, llvm::TargetMachine& machine);

// Set in a context, this leaves passes of LLVM's code generator out.
class PassesLeftOut final : public llvm::OptPassGate {
 public:
  bool isEnabled() const override { return true; }
  bool shouldRunPass(llvm::StringRef pass, llvm::StringRef where) const override;
};

}  // namespace tw
