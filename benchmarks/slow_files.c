/* A shared file system that answers slowly: every call that opens or looks at a path below SLOW_FILES waits SLOW_FILES_US. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void wait_for(const char *path) {
  const char *below = getenv("SLOW_FILES"), *us = getenv("SLOW_FILES_US");
  if (path && below && us && strncmp(path, below, strlen(below)) == 0) usleep((useconds_t)atoi(us));
}

#define REAL(name) __typeof__(&name) real = (__typeof__(&name))dlsym(RTLD_NEXT, #name)

#define OPENS(name) \
  int name(const char *path, int flags, ...) { \
    va_list more; \
    va_start(more, flags); \
    mode_t mode = va_arg(more, mode_t); \
    va_end(more); \
    wait_for(path); \
    REAL(name); \
    return real(path, flags, mode); \
  }
OPENS(open)
OPENS(open64)

#define OPENS_AT(name) \
  int name(int at, const char *path, int flags, ...) { \
    va_list more; \
    va_start(more, flags); \
    mode_t mode = va_arg(more, mode_t); \
    va_end(more); \
    wait_for(path); \
    REAL(name); \
    return real(at, path, flags, mode); \
  }
OPENS_AT(openat)
OPENS_AT(openat64)

#define LOOKS(name, type) \
  int name(const char *path, struct type *facts) { \
    wait_for(path); \
    REAL(name); \
    return real(path, facts); \
  }
LOOKS(stat, stat)
LOOKS(lstat, stat)
LOOKS(stat64, stat64)
LOOKS(lstat64, stat64)

int fstatat(int at, const char *path, struct stat *facts, int flags) {
  wait_for(path);
  REAL(fstatat);
  return real(at, path, facts, flags);
}

int fstatat64(int at, const char *path, struct stat64 *facts, int flags) {
  wait_for(path);
  REAL(fstatat64);
  return real(at, path, facts, flags);
}

FILE *fopen(const char *path, const char *mode) {
  wait_for(path);
  REAL(fopen);
  return real(path, mode);
}

FILE *fopen64(const char *path, const char *mode) {
  wait_for(path);
  REAL(fopen64);
  return real(path, mode);
}

DIR *opendir(const char *path) {
  wait_for(path);
  REAL(opendir);
  return real(path);
}
