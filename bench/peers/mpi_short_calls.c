// MPI's collectives with few bytes, measured as bench/short_calls measures
// ringpipe's, and printed alike. bench/compare_short_calls runs it.
//
//   mpicc -O3 -I. -o mpi_short_calls bench/peers/mpi_short_calls.c
//   mpirun -n 2 mpi_short_calls [BYTES]
#define _GNU_SOURCE
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "bench/peers/placing.h"

enum { kRounds = 15, kCollectives = 5 };
static const char* const kNames[kCollectives] = {
    "allreduce", "broadcast", "all-gather", "reduce-scatter", "barrier"};

static char *input, *output;
static MPI_Datatype type;
static int bytes, count;

static void Call(int which) {
  switch (which) {
    case 0:
      MPI_Allreduce(input, output, count, type, MPI_SUM, MPI_COMM_WORLD);
      break;
    case 1:
      MPI_Bcast(output, count, type, 0, MPI_COMM_WORLD);
      break;
    case 2:
      MPI_Allgather(input, count, type, output, count, type, MPI_COMM_WORLD);
      break;
    case 3:
      MPI_Reduce_scatter_block(input, output, count, type, MPI_SUM,
                               MPI_COMM_WORLD);
      break;
    default:
      MPI_Barrier(MPI_COMM_WORLD);
  }
}

// Microseconds a call, of this rank.
static double Round(int which, int calls) {
  MPI_Barrier(MPI_COMM_WORLD);
  const double start = MPI_Wtime();
  for (int call = 0; call < calls; ++call) Call(which);
  return 1e6 * (MPI_Wtime() - start) / calls;
}

static int Ascending(const void* a, const void* b) {
  const double left = *(const double*)a, right = *(const double*)b;
  return (left > right) - (left < right);
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank, size;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  bytes = argc > 1 ? atoi(argv[1]) : 8;
  if (bytes < 1) {
    fprintf(stderr, "usage: mpi_short_calls [BYTES]\n");
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  type = bytes % 4 == 0 ? MPI_FLOAT : MPI_INT8_T;
  count = bytes % 4 == 0 ? bytes / 4 : bytes;
  input = calloc(size, bytes);
  output = calloc(size, bytes);
  const int cores = (int)sysconf(_SC_NPROCESSORS_ONLN);
  if (size <= cores && PinToCore(rank) != 0) {
    fprintf(stderr, "mpi_short_calls: a rank cannot be pinned to its core\n");
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  double us[kCollectives][kRounds];
  for (int round = 0; round < kRounds; ++round) {
    for (int which = 0; which < kCollectives; ++which) {
      us[which][round] = Round(which, size <= cores ? 20000 : 500);
    }
  }
  if (rank == 0) {
    printf("%d ranks, %d bytes, us: median (fastest to slowest of %d)\n", size,
           bytes, kRounds);
    for (int which = 0; which < kCollectives; ++which) {
      qsort(us[which], kRounds, sizeof us[which][0], Ascending);
      printf("%-15s %8.2f  (%.2f to %.2f)\n", kNames[which],
             us[which][kRounds / 2], us[which][0], us[which][kRounds - 1]);
    }
  }
  free(input);
  free(output);
  MPI_Finalize();
  return 0;
}
