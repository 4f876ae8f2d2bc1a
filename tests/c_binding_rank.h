/* A rank that uses what the C interface has for bindings. */
#ifndef RINGPIPE_TESTS_C_BINDING_RANK_H_
#define RINGPIPE_TESTS_C_BINDING_RANK_H_

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Common to the ranks of a job. */
struct BindingJob;
struct BindingJob* NewBindingJob(int size, const char* name);
void FreeBindingJob(struct BindingJob* job);

/* Joins by a store in this process, uses everything, and looks at what it
 * gives. The last rank leaves before the others. Writes what is wrong to
 * `error`; "" if nothing is. */
void RunBindingRankInC(struct BindingJob* job, int rank, char* error,
                       size_t error_bytes);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* RINGPIPE_TESTS_C_BINDING_RANK_H_ */
