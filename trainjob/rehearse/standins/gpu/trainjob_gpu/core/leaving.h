// An interpreter that ends takes a thread that asks for its lock away, by pthread_exit. Threads of autograd may ask for
// it in a destructor, as they let go of the last graph; unwinding that would abort a process whose work is done.
// From CPython 3.14 on such a thread waits for the end of the process, and so it does here.
#pragma once
#include <dlfcn.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdlib>
#include <exception>

namespace standin {

inline bool interpreter_ends() {
  for (const char* name : {"Py_IsFinalizing", "_Py_IsFinalizing"}) {
    if (auto* ends = reinterpret_cast<int (*)()>(dlsym(RTLD_DEFAULT, name))) return ends() != 0;
  }
  return false;
}

inline std::terminate_handler terminate_otherwise = nullptr;

[[noreturn]] inline void wait_or_terminate() {
  const bool is_first_thread = syscall(SYS_gettid) == getpid();
  while (!is_first_thread && !std::current_exception() && interpreter_ends()) pause();
  if (terminate_otherwise) terminate_otherwise();
  std::abort();
}

inline const bool waits_at_the_end = (terminate_otherwise = std::set_terminate(wait_or_terminate), true);

}  // namespace standin
