/* The C program of exit_test. */
#ifndef RINGPIPE_TESTS_EXITING_RANK_H_
#define RINGPIPE_TESTS_EXITING_RANK_H_

#ifdef __cplusplus
extern "C" {
#endif

/* Makes four allreduces of TEST_COUNT floats, the last TEST_DELAY_MS later on
   rank 0, and returns main()'s exit status: 0 where each gave the sum. Does not
   destroy the communicator. */
int MakeFourCalls(void);

#ifdef __cplusplus
}
#endif

#endif /* RINGPIPE_TESTS_EXITING_RANK_H_ */
