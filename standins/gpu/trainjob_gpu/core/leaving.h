// An interpreter that ends takes a thread that asks for its lock away, by pthread_exit. Threads of autograd may ask for
// it in a destructor, as they let go of the last graph; unwinding that would abort a process whose work is done.
// From CPython 3.14 on such a thread waits for the end of the process, and so it does here. So do the threads of gloo,
// which carry the collectives here and do not exist under NCCL. The end of a group may wait for such a thread, so it
// gives up after some seconds. A thread of the script's own that comes to this end aborts the process, as it would on
// a cluster.
#pragma once
#include <dlfcn.h>
#include <pthread.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <initializer_list>
#include <string>

namespace standin {

inline bool interpreter_ends() {
  for (const char* name : {"Py_IsFinalizing", "_Py_IsFinalizing"}) {
    if (auto* ends = reinterpret_cast<int (*)()>(dlsym(RTLD_DEFAULT, name))) return ends() != 0;
  }
  return false;
}

// From 2.4 on, torch names its threads of the backward pass, one for each device (pt_autograd_0, pt_autograd_1, …),
// and those of gloo (pt_gloo_runloop).
inline std::string thread_name() {
  char name[16] = "";
  return pthread_getname_np(pthread_self(), name, sizeof name) == 0 ? name : "";
}

inline bool is_thread_of(const char* part) { return thread_name().rfind(std::string("pt_") + part, 0) == 0; }

inline bool is_taken_by_the_end() { return !std::current_exception() && interpreter_ends(); }

inline bool waits_for_the_end() { return is_taken_by_the_end() && (is_thread_of("autograd") || is_thread_of("gloo")); }

constexpr unsigned kGroupEndsWithin_s = 20;

inline std::terminate_handler terminate_otherwise = nullptr;

[[noreturn]] inline void wait_or_terminate() {
  while (waits_for_the_end() && is_thread_of("autograd")) pause();
  if (waits_for_the_end()) sleep(kGroupEndsWithin_s);
  if (is_taken_by_the_end())
    dprintf(STDERR_FILENO, "trainjob: Python ended while its thread %s was still at work\n", thread_name().c_str());
  if (terminate_otherwise) terminate_otherwise();
  std::abort();
}

inline const bool is_installed = (terminate_otherwise = std::set_terminate(wait_or_terminate), true);

}  // namespace standin
