// What the process group has to do with Python's interpreter: its lock, and its
// signal handlers.
#ifndef RINGPIPE_PYTHON_PROCESS_GROUP_INTERPRETER_H_
#define RINGPIPE_PYTHON_PROCESS_GROUP_INTERPRETER_H_

namespace ringpipe::process_group {

// ringpipe_options::while_waiting: runs Python's signal handlers where one may
// raise an exception, that is, on the main thread while a MayRaise is there.
int RunSignalHandlers(void* unused);

// While it lives, a handler's exception ends what this thread waits for.
class MayRaise {
 public:
  MayRaise();
  ~MayRaise();
  MayRaise(const MayRaise&) = delete;
  MayRaise& operator=(const MayRaise&) = delete;

  // Throws the exception that a handler has raised since, if one has: also
  // where what was waited for has come.
  void Throw() const;

 private:
  const bool outer_;
};

// Whether this thread has the interpreter's lock.
bool HasGil();

// Lets the interpreter's lock go while it lives, if this thread has it: threads
// that are waited for may need it.
class WithoutGil {
 public:
  WithoutGil();
  ~WithoutGil();
  WithoutGil(const WithoutGil&) = delete;
  WithoutGil& operator=(const WithoutGil&) = delete;

 private:
  void* const state_;  // PyThreadState*; nullptr: this thread had it not
};

}  // namespace ringpipe::process_group

#endif  // RINGPIPE_PYTHON_PROCESS_GROUP_INTERPRETER_H_
