// An interpreter that ends takes a thread that asks for its lock away, by pthread_exit. Threads of autograd may ask for
// it in a destructor, as they let go of the last graph; unwinding that would abort a process whose work is done.
// From CPython 3.14 on such a thread waits for the end of the process, and so it does here. A thread of the script's
// own that comes to this end aborts the process, as it would on a cluster.
#pragma once
#include <dlfcn.h>
#include <pthread.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <exception>
#include <initializer_list>

namespace standin {

inline bool interpreter_ends() {
  for (const char* name : {"Py_IsFinalizing", "_Py_IsFinalizing"}) {
    if (auto* ends = reinterpret_cast<int (*)()>(dlsym(RTLD_DEFAULT, name))) return ends() != 0;
  }
  return false;
}

// From 2.4 on, torch names its threads of the backward pass, one for each device: pt_autograd_0, pt_autograd_1, …
inline bool is_thread_of_autograd() {
  constexpr const char* prefix = "pt_autograd";
  char name[16] = "";
  return pthread_getname_np(pthread_self(), name, sizeof name) == 0 && !strncmp(name, prefix, strlen(prefix));
}

inline bool waits_for_the_end() {
  return is_thread_of_autograd() && !std::current_exception() && interpreter_ends();
}

inline std::terminate_handler terminate_otherwise = nullptr;

[[noreturn]] inline void wait_or_terminate() {
  while (waits_for_the_end()) pause();
  if (terminate_otherwise) terminate_otherwise();
  std::abort();
}

inline const bool is_installed = (terminate_otherwise = std::set_terminate(wait_or_terminate), true);

}  // namespace standin
