/* ringpipe's C interface, for C and for languages that can call C. The calls
 * are those of the C++ interface: communicator.h says what they do, what holds
 * for their buffers, and what is thread-safe. */
#ifndef RINGPIPE_ENGINE_RINGPIPE_H_
#define RINGPIPE_ENGINE_RINGPIPE_H_

#include <stddef.h>
#include <stdint.h>

#define RINGPIPE_VERSION_MAJOR 0
#define RINGPIPE_VERSION_MINOR 1
#define RINGPIPE_VERSION_PATCH 0

#define RINGPIPE_API __attribute__((visibility("default")))

#ifdef __cplusplus
extern "C" {
#endif

/* What every call that can fail returns: RINGPIPE_OK, or the kind of error,
 * which status.h explains. ringpipe_error_message() has the message. */
typedef enum {
  RINGPIPE_OK = 0,
  RINGPIPE_INVALID_ARGUMENT = 1,
  RINGPIPE_MISMATCH = 2,
  RINGPIPE_TIMEOUT = 3,
  RINGPIPE_PEER_LOST = 4,
  RINGPIPE_ABORTED = 5,
  RINGPIPE_UNAVAILABLE = 6,
  RINGPIPE_RESOURCE_EXHAUSTED = 7,
  RINGPIPE_PERMISSION_DENIED = 8,
  RINGPIPE_DEVICE_ERROR = 9,
  RINGPIPE_INTERNAL = 10,
  /* The call's buffers must be neither used again nor freed. */
  RINGPIPE_MEMORY_HELD = 11,
  /* The time of this wait is over; the call runs on. Of waits alone: a call
   * that its own deadline has ended has RINGPIPE_TIMEOUT. */
  RINGPIPE_WAIT_OVER = 12,
  /* ringpipe_options::while_waiting has ended this wait; the call runs on. Of
   * waits alone. */
  RINGPIPE_INTERRUPTED = 13
} ringpipe_status;

/* 0 is no type. */
typedef enum {
  RINGPIPE_FLOAT32 = 1,
  RINGPIPE_FLOAT64 = 2,
  RINGPIPE_INT32 = 3,
  RINGPIPE_INT64 = 4,
  RINGPIPE_INT8 = 5,
  RINGPIPE_UINT8 = 6,
  RINGPIPE_UINT32 = 7,
  RINGPIPE_UINT64 = 8,
  RINGPIPE_FLOAT16 = 9,
  RINGPIPE_BFLOAT16 = 10
} ringpipe_data_type;

typedef enum {
  RINGPIPE_SUM = 0,
  RINGPIPE_MIN = 1,
  RINGPIPE_MAX = 2,
  RINGPIPE_PROD = 3,
  RINGPIPE_AVERAGE = 4
} ringpipe_reduce_op;

/* 0 is none. */
typedef enum {
  RINGPIPE_ALL_REDUCE = 1,
  RINGPIPE_REDUCE_SCATTER = 2,
  RINGPIPE_ALL_GATHER = 3,
  RINGPIPE_BROADCAST = 4,
  RINGPIPE_BARRIER = 5,
  RINGPIPE_REDUCE = 6,
  RINGPIPE_GATHER = 7,
  RINGPIPE_SCATTER = 8,
  RINGPIPE_ALL_TO_ALL = 9
} ringpipe_collective;

typedef enum {
  RINGPIPE_LOG_ERROR = 0,
  RINGPIPE_LOG_WARNING = 1,
  RINGPIPE_LOG_INFO = 2,
  RINGPIPE_LOG_DEBUG = 3
} ringpipe_log_level;

typedef struct ringpipe_communicator ringpipe_communicator;
typedef struct ringpipe_request ringpipe_request;

/* Receives one line of the log, without its newline. A communicator makes one
 * call of it at a time, on any of ringpipe's threads or of those that are in a
 * call of ringpipe. Must not call ringpipe. */
typedef void (*ringpipe_log_callback)(ringpipe_log_level level,
                                      const char* line, void* context);

/* Structures begin with their size, by which a program that was compiled with
 * another version of this header is understood: what a smaller one lacks is 0,
 * and of a larger one the rest has to be 0. Initialise all else with zeros:
 *
 *   ringpipe_options options = {.struct_size = sizeof options}; */

/* A place where the ranks of a job find each other: the launcher's or the
 * framework's own, that has keys and values. It carries where rank 0 listens
 * and, unless one is given, a new secret: docs/security.md says what that
 * means. All else goes over ringpipe's own connections.
 *
 * Both are called on the thread that is in ringpipe_create, and never after
 * that has returned: `put` on rank 0, once; `get` on the others, again and
 * again. They must not call ringpipe. Keys begin with "ringpipe/" and have the
 * job id: what is in the store under that key must be of this job alone. */
typedef struct {
  uint32_t struct_size;
  uint32_t reserved; /* 0 */
  /* Sets `key` to `value`, of at most RINGPIPE_STORE_BYTES. 0: done; otherwise
   * it has failed. */
  int (*put)(void* context, const char* key, const void* value, size_t bytes);
  /* Waits for `key`, for at most `timeout_ms`, and sets `value` and *bytes. 0:
   * done; RINGPIPE_STORE_NOT_YET: nobody has put it so far; otherwise it has
   * failed. `capacity` is RINGPIPE_STORE_BYTES. */
  int (*get)(void* context, const char* key, int64_t timeout_ms, void* value,
             size_t capacity, size_t* bytes);
  void* context;
} ringpipe_store;

#define RINGPIPE_STORE_BYTES 4096
#define RINGPIPE_STORE_NOT_YET 1

/* If explicit_rank is 0, `rank` and `size` below are ignored, and the
 * environment says them; otherwise both are used, and ringpipe_create fails if
 * they are wrong. Strings may be NULL: then the environment says them. */
typedef struct {
  uint32_t struct_size;
  int32_t explicit_rank; /* non-zero: use the rank and the size below */
  int32_t rank;
  int32_t size;
  const char* root;
  const char* job_id;
  ringpipe_log_callback log; /* NULL: to stderr */
  void* log_context;
  /* Called while a call that blocks waits, on the thread that made the call, so
   * that a binding can look for signals there: once each `interval_us` (0: 20
   * ms), and at once after a signal handler has run on that thread, where that
   * can be seen. A call that ends sooner does not call it. No lock of
   * ringpipe's is held.
   *
   * 0: wait on. Otherwise ringpipe_wait, _wait_all and _wait_any return
   * RINGPIPE_INTERRUPTED, and the calls run on; ringpipe_run, the calls by name
   * that block, and ringpipe_exchange fail with RINGPIPE_ABORTED, and so does
   * the communicator on all ranks; ringpipe_create fails likewise; and
   * ringpipe_destroy waits for the others no longer.
   *
   * It may start, test and free requests and abort. Calls that block are
   * refused there (RINGPIPE_INVALID_ARGUMENT). It must return: neither longjmp
   * nor an exception may leave it. */
  int (*while_waiting)(void* context);
  void* while_waiting_context;
  int64_t interval_us;
  const ringpipe_store* store; /* instead of a root; NULL: none */
  const char* secret;
  const char* host_id;
  /* Instead of RINGPIPE_TIMEOUT_MS and RINGPIPE_JOIN_TIMEOUT_MS: milliseconds,
   * or RINGPIPE_DEFAULT_TIMEOUT, which leaves it to the variable. The first may
   * be RINGPIPE_NO_TIMEOUT. */
  int64_t timeout_ms;
  int64_t join_timeout_ms;
} ringpipe_options;

/* A piece of a list of buffers: so many elements. */
typedef struct {
  void* data;
  size_t count;
} ringpipe_buffer;

/* One collective call. docs/interface.md has a table of what each collective
 * reads and writes on which rank. */
typedef struct {
  uint32_t struct_size;
  uint32_t collective; /* ringpipe_collective */
  const void* send;
  void* receive;
  uint64_t count;     /* elements; where parts belong to ranks, of one part */
  uint32_t data_type; /* ringpipe_data_type */
  uint32_t reduce_op; /* ringpipe_reduce_op */
  int32_t root;
  uint32_t reserved;  /* 0 */
  int64_t timeout_ms; /* as below */
  /* Instead of `send`, or of `receive`: as many elements, in pieces that need
   * not lie together, nor be the same on all ranks. The lists are copied when
   * the call starts; the pieces are the caller's until it ends. */
  const ringpipe_buffer* send_list;
  uint64_t send_list_length;
  const ringpipe_buffer* receive_list;
  uint64_t receive_list_length;
  /* Instead of `count`, where parts are not equally long: elements by rank, the
   * same on all ranks (but those of an all-to-all). Copied as well. */
  const uint64_t* counts;
  uint64_t counts_length;
  /* Of an all-to-all with counts, where those above are what this rank has for
   * each: what it gets from each. */
  const uint64_t* receive_counts;
  uint64_t receive_counts_length;
  /* What this rank's input is multiplied by before it is reduced (each rank's
   * own), and the result after that (the same on all); of floating-point types.
   * 0 is 1. */
  double prescale;
  double postscale;
  /* For ringpipe_start alone; NULL: none. Called when the call has ended,
   * however it has, exactly once for each call that was started, also where its
   * request has been freed: on a thread of ringpipe's, with no lock held. Waits
   * for the call may have returned by then; ringpipe_destroy has not.
   *
   * It may start, test and free requests and abort. Calls that block are
   * refused there (RINGPIPE_INVALID_ARGUMENT). Later calls wait for it: a
   * binding should only signal in it. */
  void (*ended)(ringpipe_status status, void* context);
  void* ended_context;
  /* If `has_stream` is 1: a CUDA stream (cudaStream_t or CUstream). The call
   * begins when the device has done what the stream was given before the call,
   * and reads and writes no buffer earlier; ringpipe_start does not wait for
   * that. Nothing is put into the stream: whoever reads the result waits for
   * the call. NULL or cudaStreamLegacy: the legacy default one of the device
   * whose memory the buffers are, whichever is current on this thread; if all
   * are in host memory, and for cudaStreamPerThread, of the current device,
   * which has to be the communicator's. RINGPIPE_INVALID_ARGUMENT otherwise,
   * and where a graph is being captured from the stream. */
  void* stream;
  uint32_t has_stream; /* 0 or 1 */
  uint32_t reserved_2; /* 0 */
} ringpipe_call;

/* One stage of the pipeline, since the communicator was created. */
typedef struct {
  uint32_t struct_size; /* set before the call */
  uint32_t reserved;
  const char* stage; /* "copy in", "send", "receive", ...; for ever */
  uint64_t operations;
  uint64_t bytes;
  uint64_t busy_ns; /* time spent in the stage */
  uint64_t waits;   /* times that the pipeline stood still for it */
  uint64_t wait_ns; /* and how long */
} ringpipe_stage_counters;

/* The pool of registered slots. */
typedef struct {
  uint32_t struct_size; /* set before the call */
  uint32_t reserved;
  uint64_t slots; /* in the pool */
  uint64_t in_use;
  uint64_t high_water; /* most in use at once */
  uint64_t waits;      /* times that somebody found none free */
} ringpipe_slot_counters;

/* How long a call may take, in milliseconds, or one of these: the value of the
 * variable RINGPIPE_TIMEOUT_MS; no limit; no time at all. A wait takes the
 * same, where the first is no limit: the call has a deadline of its own. */
#define RINGPIPE_DEFAULT_TIMEOUT INT64_C(0)
#define RINGPIPE_NO_TIMEOUT INT64_C(-1)
#define RINGPIPE_AT_ONCE INT64_MIN

/* The version of the library at run time: as text, "0.1.0", and as a number,
 * major * 10000 + minor * 100 + patch. */
RINGPIPE_API const char* ringpipe_version(void);
RINGPIPE_API int ringpipe_version_number(void);

/* The message of the calling thread's last failed call; "" if none has failed.
 * Valid until that thread's next failed call. */
RINGPIPE_API const char* ringpipe_error_message(void);
RINGPIPE_API const char* ringpipe_status_name(ringpipe_status status);

/* Joins the other ranks. If `options` is NULL, everything comes from the
 * environment. */
RINGPIPE_API ringpipe_status ringpipe_create(
    const ringpipe_options* options, ringpipe_communicator** communicator);
/* Waits for the other ranks to do the same, for 2 s. NULL is allowed. Does
 * nothing, with a message in ringpipe_error_message(), where calls that block
 * are refused. */
RINGPIPE_API void ringpipe_destroy(ringpipe_communicator* communicator);

/* Leaves the other ranks, as ringpipe_destroy does, and releases everything but
 * the memory of ringpipe_allocate: that stays until it is freed, or until
 * ringpipe_destroy, which waits for nobody then. Of this communicator only
 * ringpipe_free and ringpipe_destroy may be called afterwards, and
 * ringpipe_free alone meanwhile. RINGPIPE_INVALID_ARGUMENT, and nothing is
 * done, where calls that block are refused. */
RINGPIPE_API ringpipe_status
ringpipe_leave(ringpipe_communicator* communicator);

/* -1 for NULL. */
RINGPIPE_API int ringpipe_rank(const ringpipe_communicator* communicator);
RINGPIPE_API int ringpipe_size(const ringpipe_communicator* communicator);

/* Memory for buffers, which peers on this host read and write where it lies. */
RINGPIPE_API ringpipe_status ringpipe_allocate(
    ringpipe_communicator* communicator, size_t bytes, void** memory);
RINGPIPE_API ringpipe_status ringpipe_free(ringpipe_communicator* communicator,
                                           void* memory);

/* Registers the caller's own memory with the devices, until
 * ringpipe_deregister. */
RINGPIPE_API ringpipe_status ringpipe_register(
    ringpipe_communicator* communicator, void* memory, size_t bytes);
RINGPIPE_API ringpipe_status
ringpipe_deregister(ringpipe_communicator* communicator, void* memory);

/* Makes a call: ringpipe_run returns when it has ended. ringpipe_start returns
 * at once and sets *request (NULL if it fails): wait for the call's end, then
 * give *request to ringpipe_request_free. */
RINGPIPE_API ringpipe_status ringpipe_run(ringpipe_communicator* communicator,
                                          const ringpipe_call* call);
RINGPIPE_API ringpipe_status ringpipe_start(ringpipe_communicator* communicator,
                                            const ringpipe_call* call,
                                            ringpipe_request** request);

/* The calls by name. If `request` is NULL, as ringpipe_run, otherwise as
 * ringpipe_start. */
RINGPIPE_API ringpipe_status ringpipe_all_reduce(
    ringpipe_communicator* communicator, const void* send, void* receive,
    size_t count, ringpipe_data_type type, ringpipe_reduce_op op,
    int64_t timeout_ms, ringpipe_request** request);
RINGPIPE_API ringpipe_status ringpipe_reduce_scatter(
    ringpipe_communicator* communicator, const void* send, void* receive,
    size_t count, ringpipe_data_type type, ringpipe_reduce_op op,
    int64_t timeout_ms, ringpipe_request** request);
RINGPIPE_API ringpipe_status
ringpipe_all_gather(ringpipe_communicator* communicator, const void* send,
                    void* receive, size_t count, ringpipe_data_type type,
                    int64_t timeout_ms, ringpipe_request** request);
RINGPIPE_API ringpipe_status
ringpipe_broadcast(ringpipe_communicator* communicator, const void* send,
                   void* receive, size_t count, ringpipe_data_type type,
                   int root, int64_t timeout_ms, ringpipe_request** request);
RINGPIPE_API ringpipe_status
ringpipe_barrier(ringpipe_communicator* communicator, int64_t timeout_ms,
                 ringpipe_request** request);
RINGPIPE_API ringpipe_status ringpipe_reduce(
    ringpipe_communicator* communicator, const void* send, void* receive,
    size_t count, ringpipe_data_type type, ringpipe_reduce_op op, int root,
    int64_t timeout_ms, ringpipe_request** request);
RINGPIPE_API ringpipe_status
ringpipe_gather(ringpipe_communicator* communicator, const void* send,
                void* receive, size_t count, ringpipe_data_type type, int root,
                int64_t timeout_ms, ringpipe_request** request);
RINGPIPE_API ringpipe_status
ringpipe_scatter(ringpipe_communicator* communicator, const void* send,
                 void* receive, size_t count, ringpipe_data_type type, int root,
                 int64_t timeout_ms, ringpipe_request** request);
RINGPIPE_API ringpipe_status
ringpipe_all_to_all(ringpipe_communicator* communicator, const void* send,
                    void* receive, size_t count, ringpipe_data_type type,
                    int64_t timeout_ms, ringpipe_request** request);

/* Waits for the call and returns its status. RINGPIPE_WAIT_OVER if it has not
 * ended in that time, RINGPIPE_INTERRUPTED if while_waiting has ended the wait;
 * the call then runs on. */
RINGPIPE_API ringpipe_status ringpipe_wait(ringpipe_request* request,
                                           int64_t timeout_ms);
/* Sets *ended to 1 and returns the call's status if it has ended, else to 0 and
 * returns RINGPIPE_OK. */
RINGPIPE_API ringpipe_status ringpipe_test(ringpipe_request* request,
                                           int* ended);
/* Waits for all of `count` requests; NULLs among them are passed over. Returns
 * the first error among them, in their order; RINGPIPE_WAIT_OVER if one has not
 * ended in that time, RINGPIPE_INTERRUPTED as above. Of communicators that
 * differ, the first request's has its while_waiting called. */
RINGPIPE_API ringpipe_status ringpipe_wait_all(
    ringpipe_request* const* requests, size_t count, int64_t timeout_ms);
/* Waits for one of them to end, sets *index to which, the first in their order,
 * and returns its status. Sets *index to `count` where none has ended in that
 * time (RINGPIPE_WAIT_OVER), or while_waiting has ended the wait
 * (RINGPIPE_INTERRUPTED), or all are NULL (RINGPIPE_INVALID_ARGUMENT), or there
 * is no memory to wait with. */
RINGPIPE_API ringpipe_status
ringpipe_wait_any(ringpipe_request* const* requests, size_t count,
                  int64_t timeout_ms, size_t* index);
/* Frees the request; the call itself runs on. NULL is allowed. */
RINGPIPE_API void ringpipe_request_free(ringpipe_request* request);

/* Fails the communicator on every rank. This works even if memory has run out,
 * but the others may then be told that this rank was lost, instead of
 * `reason`. */
RINGPIPE_API void ringpipe_abort(ringpipe_communicator* communicator,
                                 const char* reason);

/* Gives every rank the blobs of all ranks, for small control data: at most 1
 * MiB from each. Rank r's is written to receive + r * capacity, and its length
 * to sizes[r] (`sizes` may be NULL). RINGPIPE_INVALID_ARGUMENT where a rank's
 * is longer than `capacity`; the exchange has then taken place, and all `sizes`
 * are set. All ranks make these calls in the same order; those of several
 * threads run one after another. */
RINGPIPE_API ringpipe_status
ringpipe_exchange(ringpipe_communicator* communicator, const void* send,
                  size_t bytes, void* receive, size_t capacity, size_t* sizes);

/* RINGPIPE_OK, or the reason for which the communicator has failed, with which
 * every call fails; ringpipe_error_message() has its message. */
RINGPIPE_API ringpipe_status
ringpipe_failure(const ringpipe_communicator* communicator);
/* The other ranks that are gone, as far as this rank knows, in ascending order:
 * the one that a failure by RINGPIPE_PEER_LOST is about, and those that have
 * destroyed their communicators or exited. Writes the first `capacity` of them,
 * and *count, how many there are. */
RINGPIPE_API ringpipe_status
ringpipe_lost_ranks(const ringpipe_communicator* communicator, int32_t* ranks,
                    size_t capacity, size_t* count);
/* How this rank reaches the others, and why so, and from its first call with
 * device memory on whose that is and how it moves, as a text: as much of it as
 * `capacity` holds, with a 0 at its end, and the length of the whole, without
 * that 0, in *length (which may be NULL). */
RINGPIPE_API ringpipe_status
ringpipe_device(const ringpipe_communicator* communicator, char* text,
                size_t capacity, size_t* length);
/* What stage number `index` of the pipeline has done.
 * RINGPIPE_INVALID_ARGUMENT past the last. */
RINGPIPE_API ringpipe_status
ringpipe_read_stage(const ringpipe_communicator* communicator, size_t index,
                    ringpipe_stage_counters* counters);
RINGPIPE_API ringpipe_status
ringpipe_read_slots(const ringpipe_communicator* communicator,
                    ringpipe_slot_counters* counters);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* RINGPIPE_ENGINE_RINGPIPE_H_ */
