// Every operator, conversion and intrinsic of numbers, of every type, as one kernel of eight threads.
#pragma once

#include <string>

#include "tensor_ir/text/parser.h"

namespace tw::test {

// Inputs X_f16, Y_f16, X_bf16, …; an output for each expression.
inline Func every_intrinsic() {
  std::string body;
  int outputs = 0;
  std::string signature;
  auto add = [&](DType dtype, const std::string& value) {
    std::string name = "O" + std::to_string(outputs++);
    signature += (signature.empty() ? "" : ", ") + name + ": " + to_string(dtype) + "[8]";
    body += "  " + name + "[i] = " + value + "\n";
  };
  for (const char* type : {"f16", "bf16", "f32", "f64", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "bool"}) {
    const DType dtype = *parse_dtype(type);
    const std::string x = std::string("X_") + type + "[i]", y = std::string("Y_") + type + "[i]";
    for (const char* other : {"f16", "f64", "i8", "i64", "u32", "bool"})
      add(*parse_dtype(other), std::string(other) + "(" + x + ")");
    for (const char* op : {"==", "<="}) add(boolean, x + " " + op + " " + y);
    add(dtype, "select(" + x + " < " + y + ", " + x + ", " + y + ")");
    if (dtype.is_bool()) {
      add(dtype, "!" + x + " && " + y + " || (" + x + " & " + y + ")");
      continue;
    }
    for (const char* op : {" + ", " - ", " * ", " // ", " % "}) add(dtype, x + op + y);
    for (const char* op : {"div", "mod", "min", "max", "abs", "sign", "minimum", "maximum"}) {
      const std::string name = op;
      if (name == "div" && dtype.is_float())
        add(dtype, x + " / " + y);
      else
        add(dtype, name + "(" + x + (name == "abs" || name == "sign" ? ")" : ", " + y + ")"));
    }
    add(dtype, "-" + x);
    if (!dtype.is_float()) {
      for (const char* op : {" & ", " | ", " ^ ", " << ", " >> "}) add(dtype, x + op + y);
      add(dtype, "~" + x);
      add(dtype, "popcount(" + x + ")");
      if (dtype == u64) add(dtype, "philox(" + x + ", " + y + ", " + x + " ^ " + y + ")");
      continue;
    }
    for (const char* name : {"exp",   "exp2",  "log",   "log2", "sqrt",  "rsqrt",      "tanh",      "erf",  "sigmoid",
                             "sin",   "cos",   "tan",   "asin", "acos",  "atan",       "sinh",      "cosh", "asinh",
                             "acosh", "atanh", "floor", "ceil", "trunc", "round_even", "normal_cdf"})
      if (dtype.bits > 16 || std::string(name) == "exp")
        add(dtype, std::string(name) + "(" + x + ")");  // halves compute in f32
    for (const char* name : {"pow", "fmod", "copysign"}) add(dtype, std::string(name) + "(" + x + ", " + y + ")");
    add(dtype, "fma(" + x + ", " + y + ", " + x + ")");
    add(boolean, "is_nan(" + x + ") || is_inf(" + y + ")");
    const std::string bits = dtype.bits == 16 ? "i16" : dtype.bits == 32 ? "u32" : "i64";
    add(*parse_dtype(bits), "reinterpret:" + bits + "(" + x + ")");
    add(dtype, "reinterpret:" + std::string(type) + "(X_" + bits + "[i])");
    add(dtype, "reduce_mul(broadcast(" + x + ", 4) * broadcast(" + y + ", 4))");
  }
  std::string inputs;
  for (const char* type : {"f16", "bf16", "f32", "f64", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "bool"}) {
    for (const char* name : {"X_", "Y_"})
      inputs += (inputs.empty() ? "" : ", ") + std::string(name) + type + ": " + type + "[8]";
  }
  return parse_func("func all(" + inputs + ") -> (" + signature + ") {\n for i in 0..8 thread.x {\n" + body + "}\n}");
}

}  // namespace tw::test
