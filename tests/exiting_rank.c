#include "tests/exiting_rank.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "engine/ringpipe.h"

// Still reachable at the end, so that they are no leaks.
static ringpipe_communicator* communicator = NULL;
static float* send = NULL;
static float* receive = NULL;

// A variable that the test has set.
static size_t NumberIn(const char* variable) {
  const char* const text = getenv(variable);
  return text == NULL ? 0 : strtoul(text, NULL, 10);
}

int MakeFourCalls(void) {
  const size_t count = NumberIn("TEST_COUNT");
  send = malloc(count * sizeof(float));
  receive = malloc(count * sizeof(float));
  if (ringpipe_create(NULL, &communicator) != RINGPIPE_OK) {
    printf("create: %s\n", ringpipe_error_message());
    return 2;
  }
  for (size_t i = 0; i < count; ++i) {
    send[i] = 1;
  }
  for (int call = 0; call < 4; ++call) {
    if (call == 3 && ringpipe_rank(communicator) == 0) {
      usleep(1000 * (useconds_t)NumberIn("TEST_DELAY_MS"));
    }
    if (ringpipe_all_reduce(communicator, send, receive, count,
                            RINGPIPE_FLOAT32, RINGPIPE_SUM,
                            RINGPIPE_DEFAULT_TIMEOUT, NULL) != RINGPIPE_OK) {
      printf("call %d: %s\n", call, ringpipe_error_message());
      return 3;
    }
    if (receive[count - 1] != (float)ringpipe_size(communicator)) {
      printf("call %d: a wrong sum\n", call);
      return 4;
    }
  }
  free(send);
  free(receive);
  return 0;
}
