// A library that is opened at run time, for programs that have to start without it.
#pragma once

#include <dlfcn.h>

#include <string>

namespace tw {

// It stays open, for its threads may be running, until somebody closes it.
class SharedLibrary {
 public:
  // The loader's search, or a path.
  explicit SharedLibrary(const std::string& name) : handle_(dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL)) {}
  bool is_open() const { return handle_ != nullptr; }
  void close() { dlclose(handle_); }

  struct Symbol {
    void* address;
    template <class F>
    operator F*() const {
      return reinterpret_cast<F*>(address);
    }
  };
  // Null where the library lacks it or is not open.
  Symbol symbol(const char* name) {
    void* address = is_open() ? dlsym(handle_, name) : nullptr;
    if (!address && !missing_) missing_ = name;
    return {address};
  }
  // The same of one that older ones may lack.
  Symbol find(const char* name) const { return {is_open() ? dlsym(handle_, name) : nullptr}; }
  // The first symbol that was asked for in vain; null: there was none.
  const char* missing() const { return missing_; }

 private:
  void* handle_;
  const char* missing_ = nullptr;
};

}  // namespace tw
