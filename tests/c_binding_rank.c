#include "tests/c_binding_rank.h"

#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "engine/ringpipe.h"

enum { kCapacity = 16 };

struct BindingJob {
  int size;
  char name[64];
  int waited;  /* rank 0 has ended its waits; atomic */
  int failed;  /* ranks; atomic */
  int arrived; /* ranks that are done but for the end; atomic */
  /* The store. */
  pthread_mutex_t mutex;
  pthread_cond_t changed;
  int puts;
  char key[128];
  char value[RINGPIPE_STORE_BYTES];
  size_t bytes;
};

struct Rank {
  struct BindingJob* job;
  ringpipe_communicator* communicator;
  int rank;
  pthread_t thread;
  int calls;   /* of while_waiting */
  int wrong;   /* of them, on another thread */
  int ends;    /* what it returns */
  int ended;   /* calls that have; atomic */
  int refused; /* calls that block, in functions; atomic */
  char* error;
  size_t error_bytes;
};

#define CHECK(condition)                                                    \
  do {                                                                      \
    if (!(condition)) {                                                     \
      snprintf(self->error, self->error_bytes, "line %d: %s; %s", __LINE__, \
               #condition, ringpipe_error_message());                       \
      return 1;                                                             \
    }                                                                       \
  } while (0)
#define CHECK_OK(call) CHECK((call) == RINGPIPE_OK)
#define CHECK_INVALID(call, text)                          \
  do {                                                     \
    CHECK((call) == RINGPIPE_INVALID_ARGUMENT);            \
    CHECK(strstr(ringpipe_error_message(), text) != NULL); \
  } while (0)

struct BindingJob* NewBindingJob(int size, const char* name) {
  struct BindingJob* const job = calloc(1, sizeof *job);
  if (job != NULL) {
    job->size = size;
    snprintf(job->name, sizeof job->name, "%s", name);
    pthread_mutex_init(&job->mutex, NULL);
    pthread_cond_init(&job->changed, NULL);
  }
  return job;
}

void FreeBindingJob(struct BindingJob* job) {
  pthread_mutex_destroy(&job->mutex);
  pthread_cond_destroy(&job->changed);
  free(job);
}

/* --- Functions for ringpipe --- */

static int Put(void* context, const char* key, const void* value,
               size_t bytes) {
  struct BindingJob* const job = context;
  if (bytes > sizeof job->value) {
    return -1;
  }
  pthread_mutex_lock(&job->mutex);
  ++job->puts;
  snprintf(job->key, sizeof job->key, "%s", key);
  memcpy(job->value, value, bytes);
  job->bytes = bytes;
  pthread_cond_broadcast(&job->changed);
  pthread_mutex_unlock(&job->mutex);
  return 0;
}

static int Get(void* context, const char* key, int64_t timeout_ms, void* value,
               size_t capacity, size_t* bytes) {
  struct BindingJob* const job = context;
  struct timespec until;
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_nsec += (timeout_ms % 1000) * 1000000;
  until.tv_sec += timeout_ms / 1000 + until.tv_nsec / 1000000000;
  until.tv_nsec %= 1000000000;
  int timed_out = 0;
  int result = RINGPIPE_STORE_NOT_YET;
  pthread_mutex_lock(&job->mutex);
  while (job->puts == 0 && timed_out == 0) {
    timed_out = pthread_cond_timedwait(&job->changed, &job->mutex, &until);
  }
  if (job->puts > 0 && strcmp(job->key, key) == 0 && job->bytes <= capacity) {
    memcpy(value, job->value, job->bytes);
    *bytes = job->bytes;
    result = 0;
  }
  pthread_mutex_unlock(&job->mutex);
  return result;
}

static int Full(void* context, const char* key, const void* value,
                size_t bytes) {
  (void)context, (void)key, (void)value, (void)bytes;
  return 28;
}

static int WhileWaiting(void* context) {
  struct Rank* const self = context;
  ++self->calls;
  self->wrong += !pthread_equal(self->thread, pthread_self());
  return self->ends;
}

static void TryToBlock(struct Rank* self, const char* function) {
  if (ringpipe_barrier(self->communicator, RINGPIPE_DEFAULT_TIMEOUT, NULL) ==
          RINGPIPE_INVALID_ARGUMENT &&
      strstr(ringpipe_error_message(), function) != NULL) {
    __atomic_fetch_add(&self->refused, 1, __ATOMIC_RELEASE);
  }
  ringpipe_destroy(self->communicator);
  if (strstr(ringpipe_error_message(), "ringpipe_destroy") != NULL) {
    __atomic_fetch_add(&self->refused, 1, __ATOMIC_RELEASE);
  }
}

static void Ended(ringpipe_status status, void* context) {
  struct Rank* const self = context;
  TryToBlock(self, "function ended");
  if (status == RINGPIPE_OK) {
    __atomic_fetch_add(&self->ended, 1, __ATOMIC_RELEASE);
  }
}

/* --- What a rank does --- */

static ringpipe_options Options(struct Rank* self,
                                const ringpipe_store* store) {
  const ringpipe_options options = {.struct_size = sizeof options,
                                    .explicit_rank = 1,
                                    .rank = self->rank,
                                    .size = self->job->size,
                                    .job_id = self->job->name,
                                    .while_waiting = WhileWaiting,
                                    .while_waiting_context = self,
                                    .interval_us = 1000,
                                    .store = store,
                                    .host_id = "a host of this test's",
                                    .timeout_ms = 600000,
                                    .join_timeout_ms = 600000};
  return options;
}

static ringpipe_store StoreOf(struct Rank* self) {
  const ringpipe_store store = {.struct_size = sizeof store,
                                .put = Put,
                                .get = Get,
                                .context = self->job};
  return store;
}

static int RefusedOptions(struct Rank* self) {
  ringpipe_communicator* none = NULL;
  ringpipe_store store = StoreOf(self);
  ringpipe_options options = Options(self, &store);
  options.interval_us = -1;
  CHECK_INVALID(ringpipe_create(&options, &none), "interval_us is -1");
  options = Options(self, &store);
  options.timeout_ms = -7;
  CHECK_INVALID(ringpipe_create(&options, &none), "::timeout_ms is -7");
  options = Options(self, &store);
  options.join_timeout_ms = RINGPIPE_NO_TIMEOUT;
  CHECK_INVALID(ringpipe_create(&options, &none), "join_timeout_ms is -1");
  options = Options(self, &store);
  store.put = NULL;
  CHECK_INVALID(ringpipe_create(&options, &none), "ringpipe_store has no put");
  store = StoreOf(self);
  store.struct_size = 0;
  CHECK_INVALID(ringpipe_create(&options, &none),
                "ringpipe_store::struct_size");
  store = StoreOf(self);
  store.put = Full;
  if (self->rank == 0) {
    CHECK(ringpipe_create(&options, &none) == RINGPIPE_UNAVAILABLE);
    CHECK(strstr(ringpipe_error_message(), "put returned 28") != NULL);
  }
  CHECK(none == NULL);
  return 0;
}

static int Device(struct Rank* self) {
  char text[1000];
  char few[5];
  size_t length = 0, same = 0;
  CHECK_OK(ringpipe_device(self->communicator, text, sizeof text, &length));
  CHECK(length > 0 && strlen(text) == length);
  CHECK_OK(ringpipe_device(self->communicator, few, sizeof few, &same));
  CHECK(same == length && strlen(few) == 4 && memcmp(few, text, 4) == 0);
  CHECK_OK(ringpipe_device(self->communicator, NULL, 0, NULL));
  CHECK_INVALID(ringpipe_device(self->communicator, NULL, 1, NULL), "text");
  CHECK_INVALID(ringpipe_device(NULL, text, 1, NULL), "communicator is NULL");
  return 0;
}

/* Rank r gives r + 1 times its digit. */
static int Exchange(struct Rank* self) {
  const int size = self->job->size;
  char own[kCapacity];
  char all[9 * kCapacity];
  size_t sizes[9] = {0};
  CHECK(size <= 9);
  memset(own, '0' + self->rank, sizeof own);
  const size_t bytes = (size_t)self->rank + 1;
  const ringpipe_status status =
      ringpipe_exchange(self->communicator, own, bytes, all, kCapacity, sizes);
  int wrong = 0;
  for (int rank = 0; rank < size; ++rank) {
    const char* const blob = all + rank * kCapacity;
    wrong += status != RINGPIPE_OK || sizes[rank] != (size_t)rank + 1 ||
             blob[0] != '0' + rank || blob[rank] != '0' + rank;
  }
  CHECK_OK(status);
  CHECK(wrong == 0);
  CHECK_INVALID(
      ringpipe_exchange(self->communicator, own, bytes, NULL, 0, sizes),
      "more than the capacity");
  CHECK(sizes[size - 1] == (size_t)size);
  CHECK_OK(ringpipe_exchange(self->communicator, NULL, 0, NULL, 0, NULL));
  CHECK_INVALID(ringpipe_exchange(self->communicator, NULL, 1, own, 1, NULL),
                "send is NULL");
  CHECK_INVALID(ringpipe_exchange(self->communicator, own, 1, NULL, 1, NULL),
                "receive is NULL");
  CHECK_INVALID(ringpipe_exchange(NULL, own, 1, own, 1, NULL),
                "communicator is NULL");
  return 0;
}

static int Counters(struct Rank* self) {
  ringpipe_stage_counters stage = {.struct_size = sizeof stage};
  uint64_t sent = 0;
  size_t stages = 0;
  while (ringpipe_read_stage(self->communicator, stages, &stage) ==
         RINGPIPE_OK) {
    CHECK(stage.stage[0] != '\0' && stage.struct_size == sizeof stage);
    sent += strcmp(stage.stage, "send") == 0 ? stage.operations : 0;
    ++stages;
  }
  CHECK(strstr(ringpipe_error_message(), "there is no stage number") != NULL);
  CHECK(stages > 3 && sent > 0);
  ringpipe_slot_counters slots = {.struct_size = sizeof slots};
  CHECK_OK(ringpipe_read_slots(self->communicator, &slots));
  CHECK(slots.slots > 0);
  /* An older one's, which ends behind `slots`. */
  ringpipe_slot_counters older = {.struct_size = 16, .high_water = 99};
  CHECK_OK(ringpipe_read_slots(self->communicator, &older));
  CHECK(older.slots == slots.slots && older.high_water == 99);
  CHECK(older.struct_size == 16);
  older.struct_size = 0;
  CHECK_INVALID(ringpipe_read_slots(self->communicator, &older),
                "set it to sizeof");
  CHECK_INVALID(ringpipe_read_slots(self->communicator, NULL), "counters");
  CHECK_INVALID(ringpipe_read_stage(NULL, 0, &stage), "communicator");
  return 0;
}

static int EndedCalls(struct Rank* self) {
  enum { kCalls = 3 };
  ringpipe_call call = {.struct_size = sizeof call,
                        .collective = RINGPIPE_BARRIER,
                        .ended = Ended,
                        .ended_context = self};
  CHECK_INVALID(ringpipe_run(self->communicator, &call), "::ended");
  for (int i = 0; i < kCalls; ++i) {
    ringpipe_request* request = NULL;
    CHECK_OK(ringpipe_start(self->communicator, &call, &request));
    ringpipe_request_free(request);
  }
  while (__atomic_load_n(&self->ended, __ATOMIC_ACQUIRE) < kCalls) {
    sched_yield();
  }
  CHECK(__atomic_load_n(&self->refused, __ATOMIC_ACQUIRE) == 2 * kCalls);
  return 0;
}

/* Rank 0's waits end, and its call does not; the others make it later. */
static int InterruptedWaits(struct Rank* self) {
  if (self->rank != 0) {
    while (__atomic_load_n(&self->job->waited, __ATOMIC_ACQUIRE) == 0 &&
           __atomic_load_n(&self->job->failed, __ATOMIC_ACQUIRE) == 0) {
      sched_yield();
    }
    CHECK_OK(ringpipe_barrier(self->communicator, RINGPIPE_NO_TIMEOUT, NULL));
    return 0;
  }
  ringpipe_request* request = NULL;
  size_t index = 99;
  CHECK_OK(ringpipe_barrier(self->communicator, RINGPIPE_NO_TIMEOUT, &request));
  self->ends = 1;
  CHECK(ringpipe_wait(request, RINGPIPE_NO_TIMEOUT) == RINGPIPE_INTERRUPTED);
  CHECK(ringpipe_wait_all(&request, 1, RINGPIPE_NO_TIMEOUT) ==
        RINGPIPE_INTERRUPTED);
  CHECK(ringpipe_wait_any(&request, 1, RINGPIPE_NO_TIMEOUT, &index) ==
        RINGPIPE_INTERRUPTED);
  CHECK(index == 1);
  self->ends = 0;
  CHECK(ringpipe_wait(request, 5) == RINGPIPE_WAIT_OVER);
  __atomic_store_n(&self->job->waited, 1, __ATOMIC_RELEASE);
  CHECK_OK(ringpipe_wait(request, RINGPIPE_NO_TIMEOUT));
  ringpipe_request_free(request);
  CHECK(self->calls > 3 && self->wrong == 0);
  return 0;
}

static int NothingLost(struct Rank* self) {
  int32_t ranks[4];
  size_t count = 99;
  CHECK_OK(ringpipe_failure(self->communicator));
  CHECK_OK(ringpipe_lost_ranks(self->communicator, ranks, 4, &count));
  CHECK(count == 0);
  CHECK_INVALID(ringpipe_failure(NULL), "communicator is NULL");
  CHECK_INVALID(ringpipe_lost_ranks(self->communicator, ranks, 4, NULL),
                "count is NULL");
  CHECK_INVALID(ringpipe_lost_ranks(self->communicator, NULL, 4, &count),
                "ranks is NULL");
  CHECK_INVALID(ringpipe_lost_ranks(NULL, ranks, 4, &count),
                "communicator is NULL");
  return 0;
}

/* The last rank leaves without waiting, when nobody is in a call with it. */
static int LastRankLeaves(struct Rank* self) {
  const int last = self->job->size - 1;
  __atomic_fetch_add(&self->job->arrived, 1, __ATOMIC_RELEASE);
  if (self->rank == last) {
    while (__atomic_load_n(&self->job->arrived, __ATOMIC_ACQUIRE) <
           self->job->size) {
      sched_yield();
    }
    self->ends = 1;
    return 0;
  }
  int32_t ranks[4] = {-1, -1, -1, -1};
  size_t count = 99;
  CHECK(ringpipe_barrier(self->communicator, RINGPIPE_NO_TIMEOUT, NULL) ==
        RINGPIPE_PEER_LOST);
  CHECK(ringpipe_failure(self->communicator) == RINGPIPE_PEER_LOST);
  CHECK(strstr(ringpipe_error_message(), "has destroyed") != NULL);
  CHECK_OK(ringpipe_lost_ranks(self->communicator, ranks, 4, &count));
  CHECK(count >= 1);
  int found = 0;
  for (size_t i = 0; i < count; ++i) {
    found += ranks[i] == last;
  }
  CHECK(found == 1);
  CHECK_OK(ringpipe_lost_ranks(self->communicator, NULL, 0, &count));
  return 0;
}

static int UseAll(struct Rank* self) {
  if (Device(self) || Exchange(self) || EndedCalls(self) || Counters(self) ||
      InterruptedWaits(self) || NothingLost(self)) {
    __atomic_fetch_add(&self->job->failed, 1, __ATOMIC_RELEASE);
    __atomic_fetch_add(&self->job->arrived, self->job->size, __ATOMIC_RELEASE);
    ringpipe_abort(self->communicator, self->error);
    return 1;
  }
  return LastRankLeaves(self);
}

static int Run(struct Rank* self) {
  if (RefusedOptions(self)) {
    return 1;
  }
  const ringpipe_store store = StoreOf(self);
  const ringpipe_options options = Options(self, &store);
  CHECK_OK(ringpipe_create(&options, &self->communicator));
  const int failed = UseAll(self);
  ringpipe_destroy(self->communicator);
  if (failed) {
    return 1;
  }
  CHECK(self->wrong == 0 && self->job->puts == 1);
  return 0;
}

void RunBindingRankInC(struct BindingJob* job, int rank, char* error,
                       size_t error_bytes) {
  struct Rank self = {.job = job,
                      .rank = rank,
                      .thread = pthread_self(),
                      .error = error,
                      .error_bytes = error_bytes};
  error[0] = '\0';
  (void)Run(&self);
}
