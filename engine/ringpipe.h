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
  RINGPIPE_MEMORY_HELD = 11
} ringpipe_status;

typedef enum {
  RINGPIPE_FLOAT32 = 0,
  RINGPIPE_FLOAT64 = 1,
  RINGPIPE_INT32 = 2,
  RINGPIPE_INT64 = 3,
  RINGPIPE_INT8 = 4,
  RINGPIPE_UINT8 = 5
} ringpipe_data_type;

typedef enum {
  RINGPIPE_SUM = 0,
  RINGPIPE_MIN = 1,
  RINGPIPE_MAX = 2,
  RINGPIPE_PROD = 3,
  RINGPIPE_AVERAGE = 4
} ringpipe_reduce_op;

typedef enum {
  RINGPIPE_LOG_ERROR = 0,
  RINGPIPE_LOG_WARNING = 1,
  RINGPIPE_LOG_INFO = 2,
  RINGPIPE_LOG_DEBUG = 3
} ringpipe_log_level;

typedef struct ringpipe_communicator ringpipe_communicator;
typedef struct ringpipe_request ringpipe_request;

/* Receives one line of the log, without its newline. Is called on any of
 * ringpipe's threads, one call at a time. Must not call ringpipe. */
typedef void (*ringpipe_log_callback)(ringpipe_log_level level,
                                      const char* line, void* context);

/* Initialise it with zeros. If explicit_rank is 0, `rank` and `size` below are
 * ignored, and the environment says them; otherwise both are used, and
 * ringpipe_create fails if they are wrong. Strings may be NULL: then the
 * environment says them. */
typedef struct {
  int explicit_rank; /* non-zero: use the rank and the size below */
  int rank;
  int size;
  const char* root;
  const char* job_id;
  ringpipe_log_callback log; /* NULL: to stderr */
  void* log_context;
} ringpipe_options;

/* As a timeout_ms: the value of the variable RINGPIPE_TIMEOUT_MS. (In
 * ringpipe_wait: no limit.) */
#define RINGPIPE_DEFAULT_TIMEOUT INT64_MIN

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
/* Waits for the other ranks to do the same. NULL is allowed. */
RINGPIPE_API void ringpipe_destroy(ringpipe_communicator* communicator);

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

/* The collectives. If `request` is NULL, the call blocks until it has ended.
 * Otherwise it returns at once and sets *request: wait for the call's end by
 * ringpipe_wait, then give *request to ringpipe_request_free. timeout_ms is how
 * long the call may take; negative: no limit. */
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

/* Waits for the call and returns its status. RINGPIPE_TIMEOUT if it has not
 * ended after timeout_ms (negative: no limit); the call then runs on. */
RINGPIPE_API ringpipe_status ringpipe_wait(ringpipe_request* request,
                                           int64_t timeout_ms);
/* Frees the request; the call itself runs on. NULL is allowed. */
RINGPIPE_API void ringpipe_request_free(ringpipe_request* request);

/* Fails the communicator on every rank. This works even if memory has run out,
 * but the others may then be told that this rank was lost, instead of
 * `reason`. */
RINGPIPE_API void ringpipe_abort(ringpipe_communicator* communicator,
                                 const char* reason);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* RINGPIPE_ENGINE_RINGPIPE_H_ */
