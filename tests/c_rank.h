/* A rank that calls every function of the C interface. */
#ifndef RINGPIPE_TESTS_C_RANK_H_
#define RINGPIPE_TESTS_C_RANK_H_

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Joins a job of `size` ranks, makes every call, blocking and asynchronous, and
 * looks at what it gives. Rank 1 aborts the communicator in the end. Writes
 * what is wrong to `error`; "" if nothing is. `ended` and `looked`, 0 before
 * and common to the ranks, count those whose calls have ended, and those that
 * have seen a call that had not. */
void RunRankInC(int rank, int size, const char* root, const char* job,
                int* ended, int* looked, char* error, size_t error_bytes);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* RINGPIPE_TESTS_C_RANK_H_ */
