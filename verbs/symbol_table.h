// Functions of a library that is loaded at run time.
#ifndef RINGPIPE_VERBS_SYMBOL_TABLE_H_
#define RINGPIPE_VERBS_SYMBOL_TABLE_H_

#include <dlfcn.h>

#include <string>

namespace ringpipe::verbs {

// Looks functions up in one shared object and remembers the first it lacks.
class SymbolTable {
 public:
  explicit SymbolTable(void* handle) : handle_(handle) {}

  // dlsym gives a symbol's default version, which is what a program that is
  // linked today would get.
  template <typename Function>
  void Find(const char* name, Function** function) {
    FindOptional(name, function);
    if (*function == nullptr && missing_.empty()) {
      missing_ = name;
    }
  }

  // nullptr where there is none: the caller can do without.
  template <typename Function>
  void FindOptional(const char* name, Function** function) {
    *function = reinterpret_cast<Function*>(dlsym(handle_, name));
  }

  const std::string& missing() const { return missing_; }

 private:
  void* handle_;
  std::string missing_;
};

}  // namespace ringpipe::verbs

#endif  // RINGPIPE_VERBS_SYMBOL_TABLE_H_
