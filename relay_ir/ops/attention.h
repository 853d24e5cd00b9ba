// Between the files of the attention family.
#pragma once

#include "relay_ir/op.h"

namespace tw::relay {

OpDef attention_op();

}  // namespace tw::relay
