/* For tests: system calls that fail when they are told to. A program that links
   this calls these functions instead of libc's. Thread-safe. In C, because
   libc's headers let only C define what they declare in any other way. */
#ifndef RINGPIPE_TESTS_FAILING_CALLS_H_
#define RINGPIPE_TESTS_FAILING_CALLS_H_

#ifdef __cplusplus
extern "C" {
#endif

struct FailingCall {
  const char* name;
  int error; /* the errno that it fails with: one that it may have */
};

/* All that can be made to fail; the last one's name is NULL. close, munmap and
   their like are not among them: they may say that they failed, but not mean
   it. Nor is fstat, which of a descriptor that is open cannot fail. */
extern const struct FailingCall kFailingCalls[];

/* Counts a call, and says whether it is to fail: for functions that are not
   defined here. */
int CallFails(const char* name);

/* Until StopFailing, the call of this name that comes number `which`, counted
   from 0 over all threads, fails. */
void FailCall(const char* name, int which);
/* The same of all calls of that name, with EPERM, as a seccomp profile that
   forbids them does. Of fcntl only F_ADD_SEALS. */
void ForbidCall(const char* name);
/* How many calls of that name there were meanwhile. */
int StopFailing(void);

#ifdef __cplusplus
}
#endif

#endif /* RINGPIPE_TESTS_FAILING_CALLS_H_ */
