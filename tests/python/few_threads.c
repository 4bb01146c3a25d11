// For LD_PRELOAD: at most MOST_THREADS threads at a time, and PROCESSORS processors, if set.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

typedef void* (*Function)(void*);
struct Start {
  Function function;
  void* argument;
};

static atomic_int running;

static void* run(void* start) {
  struct Start mine = *(struct Start*)start;
  free(start);
  void* result = mine.function(mine.argument);
  atomic_fetch_sub(&running, 1);
  return result;
}

int pthread_create(pthread_t* id, const pthread_attr_t* attributes, Function f, void* argument) {
  static int (*real)(pthread_t*, const pthread_attr_t*, Function, void*);
  if (!real) real = dlsym(RTLD_NEXT, "pthread_create");
  const char* most = getenv("MOST_THREADS");
  if (atomic_fetch_add(&running, 1) >= (most ? atoi(most) : 1 << 20)) {
    atomic_fetch_sub(&running, 1);
    return EAGAIN;
  }
  struct Start* start = malloc(sizeof(struct Start));
  start->function = f;
  start->argument = argument;
  return real(id, attributes, run, start);
}

int omp_get_num_procs(void) { return atoi(getenv("PROCESSORS")); }
