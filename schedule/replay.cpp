// Traces applied: each instruction is decoded and called as primitives.def says.
#include <functional>
#include <map>

#include "schedule/edit.h"
#include "schedule/schedule.h"
#include "tensor_ir/text/syntax.h"

namespace tw {
namespace {

using Bound = std::variant<LoopRef, BlockRef>;

struct Environment {
  std::map<std::string, Bound> names;

  [[noreturn]] static void fail(const std::string& message, const std::string& help) {
    throw Error(ErrorCode::schedule, "error[replay]: " + message + "\n  help: " + help);
  }

  const std::string& word(const TraceValue& v, const char* what, const char* help = "write it without quotes") const {
    const auto* name = std::get_if<TraceName>(&v.value);
    if (!name) fail(std::string(what) + " is expected", help);
    return name->name;
  }

  const Bound& find(const TraceValue& v, const char* what) const {
    const std::string& name = word(v, what, "give a name that an earlier line has bound");
    const auto found = names.find(name);
    if (found == names.end()) fail("`" + name + "` is not bound", "bind it first, as in: i, j = loops(\"C\")");
    return found->second;
  }
};

template <class T>
struct Decode;

template <>
struct Decode<LoopRef> {
  static LoopRef from(const TraceValue& v, const Environment& env) {
    const Bound& bound = env.find(v, "a loop");
    if (const auto* loop = std::get_if<LoopRef>(&bound)) return *loop;
    Environment::fail("a loop is expected, `" + std::get<TraceName>(v.value).name + "` is a block",
                      "take one of loops(block)");
  }
};
template <>
struct Decode<BlockRef> {
  static BlockRef from(const TraceValue& v, const Environment& env) {
    if (const auto* name = std::get_if<std::string>(&v.value)) return {*name};
    const Bound& bound = env.find(v, "a block");
    if (const auto* block = std::get_if<BlockRef>(&bound)) return *block;
    Environment::fail("a block is expected, `" + std::get<TraceName>(v.value).name + "` is a loop",
                      "write a block's name in quotes");
  }
};
template <>
struct Decode<std::string> {
  static std::string from(const TraceValue& v, const Environment&) {
    if (const auto* text = std::get_if<std::string>(&v.value)) return *text;
    Environment::fail("a text is expected", "write it in quotes");
  }
};
template <>
struct Decode<int64_t> {
  static int64_t from(const TraceValue& v, const Environment&) {
    if (const auto* value = std::get_if<int64_t>(&v.value)) return *value;
    Environment::fail("an integer is expected", "write it in digits");
  }
};
template <>
struct Decode<int> {
  static int from(const TraceValue& v, const Environment& env) {
    const int64_t value = Decode<int64_t>::from(v, env);
    if (value < -1000000 || value > 1000000) Environment::fail("the integer is too large", "give a small one");
    return static_cast<int>(value);
  }
};
template <>
struct Decode<AttributeValue> {
  static AttributeValue from(const TraceValue& v, const Environment& env) {
    if (const auto* integer = std::get_if<int64_t>(&v.value)) return *integer;
    if (const auto* real = std::get_if<double>(&v.value)) return *real;
    if (const auto* text = std::get_if<std::string>(&v.value)) return *text;
    const auto* pairs = std::get_if<TraceList>(&v.value);
    if (!pairs)
      Environment::fail("a number or a text is expected", "annotations are numbers, texts or bytes of buffers");
    BufferBytes bytes;
    for (const TraceValue& pair : *pairs) {
      const auto* parts = std::get_if<TraceList>(&pair.value);
      if (!parts || parts->size() != 2) Environment::fail("a buffer and its bytes are expected", "as [\"A\", 64]");
      bytes[Decode<std::string>::from((*parts)[0], env)] = Decode<int64_t>::from((*parts)[1], env);
    }
    return bytes;
  }
};
template <>
struct Decode<IndexMap> {
  static IndexMap from(const TraceValue& v, const Environment& env) {
    return parse_index_map(Decode<std::string>::from(v, env));
  }
};
template <>
struct Decode<Scope> {
  static Scope from(const TraceValue& v, const Environment& env) { return parse_scope(env.word(v, "a scope")); }
};
template <>
struct Decode<ThreadAxis> {
  static ThreadAxis from(const TraceValue& v, const Environment& env) {
    return parse_thread_axis(env.word(v, "a thread axis"));
  }
};
template <class T>
struct Decode<std::optional<T>> {
  static std::optional<T> from(const TraceValue& v, const Environment& env) {
    if (std::holds_alternative<std::monostate>(v.value)) return std::nullopt;
    return Decode<T>::from(v, env);
  }
};
template <class T>
struct Decode<std::vector<T>> {
  static std::vector<T> from(const TraceValue& v, const Environment& env) {
    const auto* list = std::get_if<TraceList>(&v.value);
    if (!list) Environment::fail("a list is expected", "write it in brackets, as in [None, 8]");
    std::vector<T> result;
    for (const TraceValue& item : *list) result.push_back(Decode<T>::from(item, env));
    return result;
  }
};

using Results = std::vector<Bound>;
Results as_results(const std::vector<LoopRef>& loops) {
  return {loops.begin(), loops.end()};
}
Results as_results(const LoopRef& loop) {
  return {loop};
}
Results as_results(const BlockRef& block) {
  return {block};
}

template <class Result, class... Arguments, size_t... I>
Results apply(Schedule& schedule, Result (Schedule::*method)(Arguments...), const TraceList& arguments,
              const Environment& env, std::index_sequence<I...>) {
  if constexpr (std::is_void_v<Result>) {
    (schedule.*method)(Decode<std::remove_cvref_t<Arguments>>::from(arguments[I], env)...);
    return {};
  } else {
    return as_results((schedule.*method)(Decode<std::remove_cvref_t<Arguments>>::from(arguments[I], env)...));
  }
}

template <class Result, class... Arguments>
Results call(Schedule& schedule, Result (Schedule::*method)(Arguments...), const TraceList& arguments,
             const Environment& env) {
  constexpr size_t count = sizeof...(Arguments);
  using Only = std::tuple<std::remove_cvref_t<Arguments>...>;
  if constexpr (count == 1 && requires(std::tuple_element_t<0, Only> t) {
                  t.at(0);
                  t.push_back(t.at(0));
                } && !std::is_same_v<std::tuple_element_t<0, Only>, std::string>) {
    // reorder(i, j, k) reads better than reorder([i, j, k]); both are taken.
    if (arguments.size() != 1 || !std::holds_alternative<TraceList>(arguments[0].value)) {
      return apply(schedule, method, {TraceValue{arguments}}, env, std::index_sequence_for<Arguments...>{});
    }
  }
  if (arguments.size() != count) {
    Environment::fail(std::to_string(count) + " arguments are expected, not " + std::to_string(arguments.size()),
                      "primitives.def lists them");
  }
  return apply(schedule, method, arguments, env, std::index_sequence_for<Arguments...>{});
}

using Row = std::function<Results(Schedule&, const TraceList&, const Environment&)>;

const std::map<std::string, Row>& rows() {
  static const std::map<std::string, Row> table = {
      {"loops",
       [](Schedule& s, const TraceList& arguments, const Environment& env) {
         if (arguments.size() != 1) Environment::fail("loops takes one block", "as in: i, j = loops(\"C\")");
         return as_results(s.loops(Decode<BlockRef>::from(arguments[0], env)));
       }},
#define PRIMITIVE(name, method, names, what, Result, ...)                                               \
  {#name, [](Schedule& s, const TraceList& arguments, const Environment& env) {                         \
     return call(s, static_cast<Result (Schedule::*)(__VA_ARGS__)>(&Schedule::method), arguments, env); \
   }},
#include "schedule/primitives.def"
  };
  return table;
}

}  // namespace

Scope parse_scope(std::string_view word) {
  if (const auto scope = syntax::find_word<Scope>(syntax::scope_words, word)) return *scope;
  throw Error(ErrorCode::schedule, "there is no scope `" + std::string(word) +
                                       "`\n  help: the scopes are global, stack, local, register, shared, fragment");
}

ThreadAxis parse_thread_axis(std::string_view word) {
  if (const auto axis = syntax::find_word<ThreadAxis>(syntax::thread_axis_words, word)) return *axis;
  throw Error(ErrorCode::schedule, "there is no thread axis `" + std::string(word) +
                                       "`\n  help: use block.x … block.z, thread.x … thread.z");
}

Schedule replay(const Trace& trace, const Func& func) {
  Schedule schedule(func);
  Environment env;
  for (size_t i = 0; i < trace.instructions.size(); ++i) {
    const Instruction& instruction = trace.instructions[i];
    try {
      const auto row = rows().find(instruction.primitive);
      if (row == rows().end()) {
        std::string known;
        for (const auto& entry : rows()) known += (known.empty() ? "" : ", ") + entry.first;
        Environment::fail("there is no primitive `" + instruction.primitive + "`", "the primitives are: " + known);
      }
      const Results results = row->second(schedule, instruction.arguments, env);
      if (!instruction.results.empty() && instruction.results.size() != results.size()) {
        Environment::fail(instruction.primitive + " gives " + std::to_string(results.size()) + " results, " +
                              std::to_string(instruction.results.size()) + " names are given",
                          "give a name for each");
      }
      for (size_t r = 0; r < instruction.results.size(); ++r)
        env.names.insert_or_assign(instruction.results[r], results[r]);
    } catch (const Error& error) {
      if (error.code() == ErrorCode::internal) throw;
      std::string line = to_text(Trace{{instruction}});
      line.pop_back();
      const std::string message = std::string(error.what()).substr(error.code_text().size() + 1);
      throw Error(error.code(), message + "\n  in instruction " + std::to_string(i + 1) + " of the trace: " + line);
    }
  }
  return schedule;
}

}  // namespace tw
