#include <ringpipe/ringpipe.h>
#include <stdio.h>

int main(void) {
  ringpipe_communicator* communicator = NULL;
  ringpipe_request* request = NULL;
  double value = 2;
  ringpipe_status status = ringpipe_create(NULL, &communicator);
  if (status == RINGPIPE_OK) {
    status =
        ringpipe_all_reduce(communicator, &value, &value, 1, RINGPIPE_FLOAT64,
                            RINGPIPE_PROD, RINGPIPE_DEFAULT_TIMEOUT, &request);
  }
  if (status == RINGPIPE_OK) {
    status = ringpipe_wait(request, -1);
  }
  printf("%s %g\n", status == RINGPIPE_OK ? "ok" : ringpipe_error_message(),
         value);
  ringpipe_request_free(request);
  ringpipe_destroy(communicator);
  return status != RINGPIPE_OK;
}
