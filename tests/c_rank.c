#include "tests/c_rank.h"

#include <sched.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/ringpipe.h"

/* More than one sub-chunk of each chunk. */
#define COUNT ((size_t)100003)
#define TIMEOUT RINGPIPE_DEFAULT_TIMEOUT
#define REASON "the test ends here"

/* Counts in plain integers: ringpipe makes one call at a time. */
struct Log {
  int lines;
  int empty_lines;
};

struct Rank {
  ringpipe_communicator* communicator;
  int rank;
  int size;
  int asynchronous; /* how it makes its calls */
  int in_place;
  ringpipe_request* request;
  int64_t* allocated; /* size * COUNT elements each */
  int64_t* registered;
  int* ended;
  int* looked;
  struct Log log;
  char* error;
  size_t error_bytes;
};

/* In a function whose result is 0 if all went well. */
#define CHECK(condition)                                                    \
  do {                                                                      \
    if (!(condition)) {                                                     \
      snprintf(self->error, self->error_bytes, "line %d: %s; %s", __LINE__, \
               #condition, ringpipe_error_message());                       \
      return 1;                                                             \
    }                                                                       \
  } while (0)
#define CHECK_OK(call) CHECK((call) == RINGPIPE_OK)

static void CountLine(ringpipe_log_level level, const char* line,
                      void* context) {
  struct Log* const log = context;
  log->lines += level <= RINGPIPE_LOG_INFO;
  log->empty_lines += line[0] == '\0';
}

/* Of a rank's input; the sum of all ranks'. */
static int64_t Value(int rank, size_t i) {
  return 1000000 * (int64_t)(rank + 1) + (int64_t)i;
}

static int64_t Sum(int size, size_t i) {
  return 1000000 * (int64_t)size * (size + 1) / 2 + size * (int64_t)i;
}

static void Fill(int64_t* values, int rank, size_t begin, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    values[i] = Value(rank, begin + i);
  }
}

/* What a call is given: no request where it is to block. */
static ringpipe_request** NewRequest(struct Rank* self) {
  self->request = NULL;
  return self->asynchronous ? &self->request : NULL;
}

/* Waits for what a call has started, in several waits. */
static ringpipe_status End(struct Rank* self, ringpipe_status started) {
  ringpipe_status status = started;
  if (started == RINGPIPE_OK && self->request != NULL) {
    do {
      status = ringpipe_wait(self->request, 1);
    } while (status == RINGPIPE_WAIT_OVER);
    if (status == RINGPIPE_OK) {
      status = ringpipe_wait(self->request, RINGPIPE_DEFAULT_TIMEOUT);
    }
  }
  ringpipe_request_free(self->request);
  return status;
}

static int AllReduce(struct Rank* self) {
  int64_t* const send = self->allocated;
  int64_t* const receive = self->in_place ? send : self->registered;
  Fill(send, self->rank, 0, COUNT);
  CHECK_OK(End(self, ringpipe_all_reduce(self->communicator, send, receive,
                                         COUNT, RINGPIPE_INT64, RINGPIPE_SUM,
                                         TIMEOUT, NewRequest(self))));
  for (size_t i = 0; i < COUNT; ++i) {
    CHECK(receive[i] == Sum(self->size, i));
  }
  return 0;
}

static int ReduceScatter(struct Rank* self) {
  const size_t begin = (size_t)self->rank * COUNT;
  int64_t* const send = self->registered;
  int64_t* const receive = self->in_place ? send + begin : self->allocated;
  Fill(send, self->rank, 0, self->size * COUNT);
  CHECK_OK(
      End(self, ringpipe_reduce_scatter(self->communicator, send, receive,
                                        COUNT, RINGPIPE_INT64, RINGPIPE_SUM,
                                        TIMEOUT, NewRequest(self))));
  for (size_t i = 0; i < COUNT; ++i) {
    CHECK(receive[i] == Sum(self->size, begin + i));
  }
  return 0;
}

static int AllGather(struct Rank* self) {
  int64_t* const receive = self->allocated;
  int64_t* const send =
      self->in_place ? receive + (size_t)self->rank * COUNT : self->registered;
  Fill(send, self->rank, 0, COUNT);
  CHECK_OK(End(self,
               ringpipe_all_gather(self->communicator, send, receive, COUNT,
                                   RINGPIPE_INT64, TIMEOUT, NewRequest(self))));
  for (int rank = 0; rank < self->size; ++rank) {
    for (size_t i = 0; i < COUNT; ++i) {
      CHECK(receive[(size_t)rank * COUNT + i] == Value(rank, i));
    }
  }
  return 0;
}

static int Broadcast(struct Rank* self) {
  for (int root = 0; root < self->size; ++root) {
    int64_t* const receive = self->registered;
    int64_t* const send = self->in_place ? receive : self->allocated;
    memset(receive, 0, COUNT * sizeof *receive);
    if (self->rank == root) {
      Fill(send, root, 0, COUNT);
    }
    CHECK_OK(End(self, ringpipe_broadcast(self->communicator,
                                          self->rank == root ? send : NULL,
                                          receive, COUNT, RINGPIPE_INT64, root,
                                          TIMEOUT, NewRequest(self))));
    for (size_t i = 0; i < COUNT; ++i) {
      CHECK(receive[i] == Value(root, i));
    }
  }
  return 0;
}

static int Barrier(struct Rank* self) {
  CHECK_OK(End(self,
               ringpipe_barrier(self->communicator, 600000, NewRequest(self))));
  return 0;
}

static int Reduce(struct Rank* self) {
  const int root = 1;
  const int is_root = self->rank == root;
  int64_t* const send = self->allocated;
  int64_t* const receive = self->in_place ? send : self->registered;
  Fill(send, self->rank, 0, COUNT);
  CHECK_OK(End(
      self, ringpipe_reduce(self->communicator, send, is_root ? receive : NULL,
                            COUNT, RINGPIPE_INT64, RINGPIPE_SUM, root, TIMEOUT,
                            NewRequest(self))));
  for (size_t i = 0; is_root && i < COUNT; ++i) {
    CHECK(receive[i] == Sum(self->size, i));
  }
  return 0;
}

static int Gather(struct Rank* self) {
  const int root = 2;
  const int is_root = self->rank == root;
  int64_t* const receive = self->allocated;
  int64_t* const send = is_root && self->in_place
                            ? receive + (size_t)self->rank * COUNT
                            : self->registered;
  Fill(send, self->rank, 0, COUNT);
  CHECK_OK(End(
      self,
      ringpipe_gather(self->communicator, send, is_root ? receive : NULL, COUNT,
                      RINGPIPE_INT64, root, TIMEOUT, NewRequest(self))));
  for (int rank = 0; is_root && rank < self->size; ++rank) {
    for (size_t i = 0; i < COUNT; ++i) {
      CHECK(receive[(size_t)rank * COUNT + i] == Value(rank, i));
    }
  }
  return 0;
}

static int Scatter(struct Rank* self) {
  const int root = self->size - 1;
  const int is_root = self->rank == root;
  const size_t begin = (size_t)self->rank * COUNT;
  int64_t* const send = self->registered;
  int64_t* const receive =
      is_root && self->in_place ? send + begin : self->allocated;
  Fill(send, self->rank, 0, self->size * COUNT);
  CHECK_OK(End(self, ringpipe_scatter(self->communicator, is_root ? send : NULL,
                                      receive, COUNT, RINGPIPE_INT64, root,
                                      TIMEOUT, NewRequest(self))));
  for (size_t i = 0; i < COUNT; ++i) {
    CHECK(receive[i] == Value(root, begin + i));
  }
  return 0;
}

static int AllToAll(struct Rank* self) {
  const size_t begin = (size_t)self->rank * COUNT;
  Fill(self->registered, self->rank, 0, self->size * COUNT);
  CHECK_OK(End(self, ringpipe_all_to_all(self->communicator, self->registered,
                                         self->allocated, COUNT, RINGPIPE_INT64,
                                         TIMEOUT, NewRequest(self))));
  for (int rank = 0; rank < self->size; ++rank) {
    for (size_t i = 0; i < COUNT; ++i) {
      CHECK(self->allocated[(size_t)rank * COUNT + i] ==
            Value(rank, begin + i));
    }
  }
  return 0;
}

static ringpipe_call SumOf(int64_t* value) {
  ringpipe_call call = {.struct_size = sizeof call};
  call.collective = RINGPIPE_ALL_REDUCE;
  call.send = value;
  call.receive = value;
  call.count = 1;
  call.data_type = RINGPIPE_INT64;
  return call; /* zeros: a sum, with the default timeout */
}

/* Several calls at once, as structures. */
static int Requests(struct Rank* self) {
  enum { kCalls = 5 };
  int64_t values[kCalls];
  ringpipe_request* requests[kCalls + 1] = {NULL};
  for (int i = 0; i < kCalls; ++i) {
    values[i] = Value(self->rank, (size_t)i);
    const ringpipe_call call = SumOf(&values[i]);
    CHECK_OK(ringpipe_start(self->communicator, &call, &requests[i + 1]));
  }
  size_t index = 99;
  CHECK_OK(ringpipe_wait_any(requests, kCalls + 1, TIMEOUT, &index));
  CHECK(index == 1); /* they end in their order, and 0 is NULL */
  CHECK_OK(ringpipe_wait_all(requests, kCalls + 1, RINGPIPE_NO_TIMEOUT));
  CHECK_OK(ringpipe_wait_any(requests, kCalls + 1, RINGPIPE_AT_ONCE, &index));
  CHECK(index == 1);
  for (int i = 0; i < kCalls; ++i) {
    int ended = 0;
    CHECK_OK(ringpipe_test(requests[i + 1], &ended));
    CHECK(ended == 1 && values[i] == Sum(self->size, (size_t)i));
    ringpipe_request_free(requests[i + 1]);
  }
  requests[1] = NULL;
  CHECK(ringpipe_wait_any(requests, 2, TIMEOUT, &index) ==
        RINGPIPE_INVALID_ARGUMENT);
  CHECK(index == 2);
  CHECK_OK(ringpipe_wait_all(requests, 2, TIMEOUT));
  return 0;
}

/* Each rank's list is cut in another place; the second half comes first. */
static int Lists(struct Rank* self) {
  const size_t cut = 1 + (size_t)self->rank * 1000;
  int64_t* const send = self->registered;
  int64_t* const receive = self->allocated;
  Fill(send + cut, self->rank, 0, COUNT - cut);
  Fill(send, self->rank, COUNT - cut, cut);
  ringpipe_buffer sends[] = {{send + cut, COUNT - cut}, {NULL, 0}, {send, cut}};
  ringpipe_buffer receives[] = {{receive + cut, COUNT - cut}, {receive, cut}};
  ringpipe_call call = SumOf(NULL);
  call.count = COUNT;
  call.send_list = sends;
  call.send_list_length = 3;
  call.receive_list = receives;
  call.receive_list_length = 2;
  ringpipe_request* request = NULL;
  CHECK_OK(ringpipe_start(self->communicator, &call, &request));
  memset(sends, 0, sizeof sends);
  memset(receives, 0, sizeof receives);
  CHECK_OK(ringpipe_wait(request, TIMEOUT));
  ringpipe_request_free(request);
  for (size_t i = 0; i < COUNT; ++i) {
    CHECK(receive[i] == Sum(self->size, i < cut ? COUNT - cut + i : i - cut));
  }
  call.send_list = NULL;
  CHECK(ringpipe_run(self->communicator, &call) == RINGPIPE_INVALID_ARGUMENT);
  CHECK(strstr(ringpipe_error_message(), "send_list_length is 3") != NULL);
  call.send_list_length = 0;
  call.send = send;
  call.receive_list_length = 0; /* and no receive buffer */
  CHECK(ringpipe_run(self->communicator, &call) == RINGPIPE_INVALID_ARGUMENT);
  CHECK(strstr(ringpipe_error_message(), "receive buffer is null") != NULL);
  return 0;
}

/* Rank r's part has r * 1000 elements. */
static int CountsThatDiffer(struct Rank* self) {
  uint64_t counts[64];
  uint64_t first = 0;
  CHECK(self->size <= 64);
  for (int rank = 0; rank < self->size; ++rank) {
    counts[rank] = (uint64_t)rank * 1000;
    first += rank < self->rank ? counts[rank] : 0;
  }
  Fill(self->registered, self->rank, (size_t)first, (size_t)counts[self->rank]);
  ringpipe_call call = {.struct_size = sizeof call,
                        .collective = RINGPIPE_ALL_GATHER,
                        .send = self->registered,
                        .receive = self->allocated,
                        .data_type = RINGPIPE_INT64,
                        .counts = counts,
                        .counts_length = (uint64_t)self->size};
  CHECK_OK(ringpipe_run(self->communicator, &call));
  size_t at = 0;
  for (int rank = 0; rank < self->size; ++rank) {
    for (uint64_t i = 0; i < counts[rank]; ++i, ++at) {
      CHECK(self->allocated[at] == Value(rank, at));
    }
  }
  call.counts_length = 1;
  call.count = 1;
  CHECK(ringpipe_run(self->communicator, &call) == RINGPIPE_INVALID_ARGUMENT);
  CHECK(strstr(ringpipe_error_message(), "a count and counts") != NULL);
  call.counts = NULL;
  CHECK(ringpipe_run(self->communicator, &call) == RINGPIPE_INVALID_ARGUMENT);
  CHECK(strstr(ringpipe_error_message(), "counts is NULL") != NULL);
  return 0;
}

/* What rank r has for rank q are r + 2 * q elements. */
static int CountsOfPairs(struct Rank* self) {
  uint64_t counts[64];
  uint64_t receive_counts[64];
  size_t sent = 0;
  CHECK(self->size <= 64);
  for (int rank = 0; rank < self->size; ++rank) {
    counts[rank] = (uint64_t)(self->rank + 2 * rank);
    receive_counts[rank] = (uint64_t)(rank + 2 * self->rank);
    sent += (size_t)counts[rank];
  }
  Fill(self->registered, self->rank, 0, sent);
  ringpipe_call call = {.struct_size = sizeof call,
                        .collective = RINGPIPE_ALL_TO_ALL,
                        .send = self->registered,
                        .receive = self->allocated,
                        .data_type = RINGPIPE_INT64,
                        .counts = counts,
                        .counts_length = (uint64_t)self->size,
                        .receive_counts = receive_counts,
                        .receive_counts_length = (uint64_t)self->size};
  CHECK_OK(ringpipe_run(self->communicator, &call));
  size_t at = 0;
  for (int rank = 0; rank < self->size; ++rank) {
    size_t from = 0;
    for (int before = 0; before < self->rank; ++before) {
      from += (size_t)(rank + 2 * before);
    }
    for (uint64_t i = 0; i < receive_counts[rank]; ++i, ++at) {
      CHECK(self->allocated[at] == Value(rank, from + i));
    }
  }
  call.receive_counts = NULL;
  CHECK(ringpipe_run(self->communicator, &call) == RINGPIPE_INVALID_ARGUMENT);
  CHECK(strstr(ringpipe_error_message(), "receive_counts is NULL") != NULL);
  return 0;
}

/* Scales of 0 are none. */
static int Scales(struct Rank* self) {
  double value = self->rank + 1;
  ringpipe_call call = {.struct_size = sizeof call,
                        .collective = RINGPIPE_ALL_REDUCE,
                        .send = &value,
                        .receive = &value,
                        .count = 1,
                        .data_type = RINGPIPE_FLOAT64,
                        .prescale = 2,
                        .postscale = 0.5};
  CHECK_OK(ringpipe_run(self->communicator, &call));
  const double sum = self->size * (self->size + 1) / 2.0;
  CHECK(value == sum);
  call.prescale = call.postscale = 0;
  CHECK_OK(ringpipe_run(self->communicator, &call));
  CHECK(value == sum * self->size);
  call.data_type = RINGPIPE_INT64;
  call.prescale = 2;
  CHECK(ringpipe_run(self->communicator, &call) == RINGPIPE_INVALID_ARGUMENT);
  CHECK(strstr(ringpipe_error_message(), "cannot be scaled") != NULL);
  return 0;
}

/* Rank 0 makes its call when the others have seen that theirs has not ended. */
static int Unended(struct Rank* self) {
  int64_t value = Value(self->rank, 0);
  const ringpipe_call call = SumOf(&value);
  if (self->rank != 0) {
    ringpipe_request* request = NULL;
    size_t index = 99;
    int ended = 1;
    CHECK_OK(ringpipe_start(self->communicator, &call, &request));
    CHECK_OK(ringpipe_test(request, &ended));
    CHECK(ended == 0);
    CHECK(ringpipe_wait(request, RINGPIPE_AT_ONCE) == RINGPIPE_WAIT_OVER);
    CHECK(ringpipe_wait_all(&request, 1, 1) == RINGPIPE_WAIT_OVER);
    CHECK(ringpipe_wait_any(&request, 1, 1, &index) == RINGPIPE_WAIT_OVER);
    CHECK(index == 1);
    __atomic_fetch_add(self->looked, 1, __ATOMIC_RELEASE);
    CHECK_OK(ringpipe_wait(request, TIMEOUT));
    ringpipe_request_free(request);
  } else {
    /* Where a rank has ended, it has failed. */
    while (__atomic_load_n(self->looked, __ATOMIC_ACQUIRE) < self->size - 1 &&
           __atomic_load_n(self->ended, __ATOMIC_ACQUIRE) == 0) {
      sched_yield();
    }
    CHECK_OK(ringpipe_run(self->communicator, &call));
  }
  CHECK(value == Sum(self->size, 0));
  return 0;
}

static int Collectives(struct Rank* self) {
  for (int way = 0; way < 4; ++way) {
    self->asynchronous = way & 1;
    self->in_place = way >> 1;
    if (AllReduce(self) || ReduceScatter(self) || AllGather(self) ||
        Broadcast(self) || Barrier(self) || Reduce(self) || Gather(self) ||
        Scatter(self) || AllToAll(self)) {
      return 1;
    }
  }
  return 0;
}

static int Memory(struct Rank* self) {
  const size_t bytes = (size_t)self->size * COUNT * sizeof(int64_t);
  void* memory = NULL;
  CHECK(ringpipe_allocate(self->communicator, 0, &memory) ==
        RINGPIPE_INVALID_ARGUMENT);
  CHECK_OK(ringpipe_allocate(self->communicator, bytes, &memory));
  self->allocated = memory;
  for (size_t i = 0; i < bytes / sizeof(int64_t); ++i) {
    CHECK(self->allocated[i] == 0);
  }
  self->registered = malloc(bytes);
  CHECK(self->registered != NULL);
  CHECK_OK(ringpipe_register(self->communicator, self->registered, bytes));
  CHECK(ringpipe_register(self->communicator, self->registered + 1, 8) ==
        RINGPIPE_INVALID_ARGUMENT);
  return 0;
}

static int MemoryBack(struct Rank* self) {
  CHECK_OK(ringpipe_deregister(self->communicator, self->registered));
  CHECK(ringpipe_deregister(self->communicator, self->registered) ==
        RINGPIPE_INVALID_ARGUMENT);
  CHECK_OK(ringpipe_free(self->communicator, self->allocated));
  CHECK(ringpipe_free(self->communicator, self->allocated) ==
        RINGPIPE_INVALID_ARGUMENT);
  return 0;
}

/* Structures of other versions of the header, and forgotten members. */
static int RefusedStructures(struct Rank* self) {
  int64_t value = 1;
  struct {
    ringpipe_call call;
    int64_t later;
  } newer = {.call = SumOf(&value), .later = 1};
  newer.call.struct_size = sizeof newer;
  ringpipe_communicator* const c = self->communicator;
  CHECK(ringpipe_run(c, &newer.call) == RINGPIPE_INVALID_ARGUMENT);
  CHECK(strstr(ringpipe_error_message(), "does not know") != NULL);
  newer.later = 0;
  CHECK_OK(ringpipe_run(c, &newer.call));
  CHECK(value == self->size);
  /* An older one, without a timeout. */
  newer.call.timeout_ms = -7;
  newer.call.struct_size = offsetof(ringpipe_call, timeout_ms);
  CHECK_OK(ringpipe_run(c, &newer.call));
  ringpipe_call call = SumOf(&value);
  call.timeout_ms = -7;
  CHECK(ringpipe_run(c, &call) == RINGPIPE_INVALID_ARGUMENT);
  CHECK(strstr(ringpipe_error_message(), "timeout_ms is -7") != NULL);
  call = SumOf(&value);
  call.struct_size = 0;
  CHECK(ringpipe_run(c, &call) == RINGPIPE_INVALID_ARGUMENT);
  CHECK(strstr(ringpipe_error_message(), "set it to sizeof") != NULL);
  call = SumOf(&value);
  call.collective = 0;
  CHECK(ringpipe_run(c, &call) == RINGPIPE_INVALID_ARGUMENT);
  call.collective = RINGPIPE_ALL_TO_ALL + 1;
  CHECK(ringpipe_run(c, &call) == RINGPIPE_INVALID_ARGUMENT);
  call = SumOf(&value);
  call.data_type = 0;
  CHECK(ringpipe_run(c, &call) == RINGPIPE_INVALID_ARGUMENT);
  CHECK(strstr(ringpipe_error_message(), "data type 0 does not exist") != NULL);
  call = SumOf(&value);
  call.reserved = 1;
  CHECK(ringpipe_run(c, &call) == RINGPIPE_INVALID_ARGUMENT);
  call = SumOf(&value);
  call.has_stream = 2;
  CHECK(ringpipe_run(c, &call) == RINGPIPE_INVALID_ARGUMENT);
  CHECK(strstr(ringpipe_error_message(), "has_stream is 2") != NULL);
  const ringpipe_options options = {.explicit_rank = 1};
  ringpipe_communicator* none = c;
  CHECK(ringpipe_create(&options, &none) == RINGPIPE_INVALID_ARGUMENT);
  CHECK(strstr(ringpipe_error_message(), "struct_size is 0") != NULL);
  CHECK(none == NULL);
  return 0;
}

/* Arguments that are refused, and leave the communicator as it is. */
static int RefusedCalls(struct Rank* self) {
  int64_t value = 1;
  const ringpipe_call call = SumOf(&value);
  ringpipe_request* request = (ringpipe_request*)&value;
  size_t index = 0;
  int ended = 0;
  ringpipe_communicator* const c = self->communicator;
  CHECK(ringpipe_all_reduce(c, NULL, &value, 1, RINGPIPE_INT64, RINGPIPE_SUM,
                            TIMEOUT, NULL) == RINGPIPE_INVALID_ARGUMENT);
  CHECK(strstr(ringpipe_error_message(), "send buffer is null") != NULL);
  CHECK(ringpipe_broadcast(c, &value, &value, 1, RINGPIPE_INT64, self->size,
                           TIMEOUT, &request) == RINGPIPE_INVALID_ARGUMENT);
  CHECK(request == NULL);
  CHECK(ringpipe_reduce_scatter(c, &value, NULL, 1, RINGPIPE_INT64,
                                RINGPIPE_SUM, TIMEOUT,
                                &request) == RINGPIPE_INVALID_ARGUMENT);
  CHECK(ringpipe_all_gather(c, &value, &value, 1, (ringpipe_data_type)99,
                            TIMEOUT, NULL) == RINGPIPE_INVALID_ARGUMENT);
  CHECK(ringpipe_barrier(NULL, TIMEOUT, NULL) == RINGPIPE_INVALID_ARGUMENT);
  CHECK(strstr(ringpipe_error_message(), "communicator is NULL") != NULL);
  CHECK(ringpipe_register(NULL, &value, 1) == RINGPIPE_INVALID_ARGUMENT);
  CHECK(ringpipe_deregister(NULL, &value) == RINGPIPE_INVALID_ARGUMENT);
  CHECK(ringpipe_free(NULL, &value) == RINGPIPE_INVALID_ARGUMENT);
  CHECK(ringpipe_allocate(c, 1, NULL) == RINGPIPE_INVALID_ARGUMENT);
  CHECK(ringpipe_wait(NULL, TIMEOUT) == RINGPIPE_INVALID_ARGUMENT);
  CHECK(ringpipe_create(NULL, NULL) == RINGPIPE_INVALID_ARGUMENT);
  CHECK(ringpipe_run(c, NULL) == RINGPIPE_INVALID_ARGUMENT);
  CHECK(ringpipe_run(NULL, &call) == RINGPIPE_INVALID_ARGUMENT);
  CHECK(ringpipe_start(c, &call, NULL) == RINGPIPE_INVALID_ARGUMENT);
  CHECK(ringpipe_start(c, NULL, &request) == RINGPIPE_INVALID_ARGUMENT);
  CHECK(ringpipe_test(NULL, &ended) == RINGPIPE_INVALID_ARGUMENT);
  CHECK(ringpipe_wait_all(NULL, 1, TIMEOUT) == RINGPIPE_INVALID_ARGUMENT);
  CHECK(ringpipe_wait_all(NULL, 0, TIMEOUT) == RINGPIPE_OK);
  CHECK(ringpipe_wait_all(NULL, 0, -7) == RINGPIPE_INVALID_ARGUMENT);
  CHECK(ringpipe_wait_any(NULL, 1, TIMEOUT, &index) ==
        RINGPIPE_INVALID_ARGUMENT);
  CHECK(ringpipe_wait_any(NULL, 0, TIMEOUT, NULL) == RINGPIPE_INVALID_ARGUMENT);
  CHECK(ringpipe_rank(NULL) == -1);
  CHECK(ringpipe_size(NULL) == -1);
  CHECK(strstr(ringpipe_error_message(), "communicator is NULL") != NULL);
  return RefusedStructures(self);
}

static int Names(struct Rank* self) {
  const char* before = "unknown status";
  for (int status = RINGPIPE_OK; status <= RINGPIPE_INTERRUPTED; ++status) {
    const char* const name = ringpipe_status_name((ringpipe_status)status);
    CHECK(name[0] != '\0' && strcmp(name, before) != 0);
    CHECK(strcmp(name, "unknown status") != 0);
    before = name;
  }
  CHECK(strcmp(ringpipe_status_name(RINGPIPE_OK), "ok") == 0);
  CHECK(strcmp(ringpipe_status_name(RINGPIPE_PEER_LOST), "peer lost") == 0);
  CHECK(strcmp(ringpipe_status_name((ringpipe_status)99), "unknown status") ==
        0);
  char version[32];
  snprintf(version, sizeof version, "%d.%d.%d", RINGPIPE_VERSION_MAJOR,
           RINGPIPE_VERSION_MINOR, RINGPIPE_VERSION_PATCH);
  CHECK(strcmp(ringpipe_version(), version) == 0);
  CHECK(ringpipe_version_number() == RINGPIPE_VERSION_MAJOR * 10000 +
                                         RINGPIPE_VERSION_MINOR * 100 +
                                         RINGPIPE_VERSION_PATCH);
  return 0;
}

/* The others are in this barrier, or come into it; none is in the last one any
 * more, which the end would be of, too. */
static int Aborted(struct Rank* self) {
  if (self->rank == 1) {
    while (__atomic_load_n(self->ended, __ATOMIC_ACQUIRE) < self->size) {
      sched_yield();
    }
    ringpipe_abort(self->communicator, REASON);
  }
  CHECK(ringpipe_barrier(self->communicator, TIMEOUT, NULL) ==
        RINGPIPE_ABORTED);
  CHECK(strstr(ringpipe_error_message(), "rank 1") != NULL);
  CHECK(strstr(ringpipe_error_message(), REASON) != NULL);
  return 0;
}

static int MakeAllCalls(struct Rank* self) {
  const int failed = Names(self) || Memory(self) || Collectives(self) ||
                     Lists(self) || CountsThatDiffer(self) ||
                     CountsOfPairs(self) || Scales(self) || Requests(self) ||
                     Unended(self) || RefusedCalls(self) || Barrier(self) ||
                     MemoryBack(self);
  __atomic_fetch_add(self->ended, 1, __ATOMIC_RELEASE);
  if (failed) {
    ringpipe_abort(self->communicator, self->error);
    return 1;
  }
  return Aborted(self);
}

static int Run(struct Rank* self, const ringpipe_options* options) {
  CHECK_OK(ringpipe_create(options, &self->communicator)); /* on all, or none */
  CHECK(ringpipe_rank(self->communicator) == self->rank);
  CHECK(ringpipe_size(self->communicator) == self->size);
  const int failed = MakeAllCalls(self);
  if (ringpipe_leave(self->communicator) != RINGPIPE_OK &&
      self->error[0] == '\0') {
    snprintf(self->error, self->error_bytes, "ringpipe_leave: %s",
             ringpipe_error_message());
  }
  ringpipe_destroy(self->communicator);
  ringpipe_destroy(NULL);
  free(self->registered);
  if (failed) {
    return 1;
  }
  CHECK(self->log.lines > 0 && self->log.empty_lines == 0);
  return 0;
}

void RunRankInC(int rank, int size, const char* root, const char* job,
                int* ended, int* looked, char* error, size_t error_bytes) {
  struct Rank self = {.rank = rank,
                      .size = size,
                      .ended = ended,
                      .looked = looked,
                      .error = error,
                      .error_bytes = error_bytes};
  const ringpipe_options options = {.struct_size = sizeof options,
                                    .explicit_rank = 1,
                                    .rank = rank,
                                    .size = size,
                                    .root = root,
                                    .job_id = job,
                                    .log = CountLine,
                                    .log_context = &self.log};
  error[0] = '\0';
  (void)Run(&self, &options);
}
