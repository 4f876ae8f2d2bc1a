// MPI_Allreduce, measured as bench/allreduce measures ringpipe: float32 sum,
// private buffers, a barrier before each call, the slowest rank's time of each
// call, every element of a checked call verified. bench/compare_peers runs it.
//
//   mpicc -O2 -I. -o mpi_allreduce bench/peers/mpi_allreduce.c
//   mpirun -n 8 mpi_allreduce BYTES WARMUPS ITERATIONS
//
// Rank 0 prints two lines, out of place and then in place:
//   out_of_place wrong 0 first 12.3 samples 4.5 4.6 ...     (microseconds)
// Exit status: 0; 1 where an argument, a call or a value is wrong.
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "bench/peers/test_data.h"

static int rank, size;

static float* Allocate(size_t bytes) {
  void* data = mmap(NULL, bytes + 1, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) {
    perror("mmap");
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  return data;
}

// Returns this rank's time, in microseconds.
static double Call(const float* input, float* output, size_t count) {
  MPI_Barrier(MPI_COMM_WORLD);
  const double start = MPI_Wtime();
  MPI_Allreduce(input == output ? MPI_IN_PLACE : input, output, (int)count,
                MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  return 1e6 * (MPI_Wtime() - start);
}

// The order is bench/allreduce's: first call, warm-ups, timed calls, a checked
// call. Returns how many values were wrong, over all ranks.
static uint64_t Measure(float* input, float* output, size_t count, int warmups,
                        int iterations) {
  const int in_place = input == output;
  const int calls = 1 + warmups + iterations;
  double* mine = malloc(calls * sizeof *mine);
  double* slowest = malloc(calls * sizeof *slowest);
  for (int i = 0; i < calls; ++i) {
    if (i == 0 || (in_place && i % CallsUntilRefill(size) == 0)) {
      FillInput(input, count, rank);
    }
    mine[i] = Call(input, output, count);
  }
  MPI_Reduce(mine, slowest, calls, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);

  if (in_place) {
    FillInput(input, count, rank);
  } else {
    memset(output, 0xff, count * sizeof(float));  // NaN
  }
  Call(input, output, count);
  uint64_t wrong = CountWrong(output, count, size);
  MPI_Allreduce(MPI_IN_PLACE, &wrong, 1, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
  if (rank == 0) {
    printf("%s wrong %llu first %.3f samples",
           in_place ? "in_place" : "out_of_place", (unsigned long long)wrong,
           slowest[0]);
    for (int i = 1 + warmups; i < calls; ++i) printf(" %.3f", slowest[i]);
    printf("\n");
  }
  free(mine);
  free(slowest);
  return wrong;
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  const long long bytes = argc == 4 ? atoll(argv[1]) : 0;
  const int warmups = argc == 4 ? atoi(argv[2]) : -1;
  const int iterations = argc == 4 ? atoi(argv[3]) : 0;
  if (bytes < 4 || bytes / 4 > INT32_MAX || warmups < 0 || iterations < 1) {
    fprintf(stderr, "usage: mpi_allreduce BYTES WARMUPS ITERATIONS\n");
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  const size_t count = bytes / sizeof(float);
  float* input = Allocate(bytes);
  float* output = Allocate(bytes);
  uint64_t wrong = Measure(input, output, count, warmups, iterations);
  wrong += Measure(output, output, count, warmups, iterations);
  MPI_Finalize();
  return wrong != 0;
}
