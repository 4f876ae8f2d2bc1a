// MPI_Allreduce, measured as bench/allreduce measures ringpipe: float32 sum,
// private buffers, a barrier before each call, the slowest rank's time of each
// call, every element of a checked call verified. bench/compare_peers runs it.
//
//   mpicc -O3 -I. -o mpi_allreduce bench/peers/mpi_allreduce.c
//   mpirun -n 8 mpi_allreduce BYTES WARMUPS ITERATIONS [WORD]...
//
// The words: "ring": in place of MPI_Allreduce the textbook's ring of
// MPI_Send and MPI_Recv, whose messages are whole chunks; "touch": a call's
// time includes writing its input and reading its output; "pinned": rank r runs
// on core r modulo the number of cores; "huge": huge pages for the buffers;
// "align=BYTES": the buffers begin so many bytes past a page [16, as malloc's].
//
// Rank 0 prints two lines, out of place and then in place:
//   out_of_place wrong 0 first 12.3 samples 4.5 4.6 ...     (microseconds)
// Exit status: 0; 1 where an argument, a call or a value is wrong.
#define _GNU_SOURCE
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/peers/placing.h"
#include "bench/peers/test_data.h"
#include "bench/peers/touch.h"

static int rank, size;
static int ring, touch, pinned, huge;
static int align = -1;  // -1: not given
// For the ring: what comes in.
static float* arrived;

static float* Allocate(size_t bytes) {
  float* data = MapBuffer(bytes, huge, align);
  if (data == NULL) {
    perror("mpi_allreduce: mmap");
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  return data;
}

// Where chunk `c` begins; chunks 0 to size - 1 are as equal as they can be.
static size_t ChunkBegin(size_t count, int c) {
  return count / size * c + (count % size * c) / size;
}

// The ring of baidu-allreduce (github.com/baidu-research/baidu-allreduce, in
// collectives.cu): size - 1 steps in which each rank passes a chunk on and adds
// the one that arrives, then as many in which the sums go round. Nothing
// overlaps within a step.
static void RingAllreduce(const float* input, float* output, size_t count) {
  const int next = (rank + 1) % size;
  const int previous = (rank + size - 1) % size;
  if (input != output) memcpy(output, input, count * sizeof(float));
  for (int step = 0; step < 2 * (size - 1); ++step) {
    const int adds = step < size - 1;
    // After size - 1 steps it is the chunk that this rank has summed up.
    const int out = (rank + 2 * size - step) % size;
    const int in = (out + size - 1) % size;
    float* const mine = output + ChunkBegin(count, in);
    const size_t in_count = ChunkBegin(count, in + 1) - ChunkBegin(count, in);
    const size_t out_count =
        ChunkBegin(count, out + 1) - ChunkBegin(count, out);
    MPI_Request request;
    MPI_Irecv(adds ? arrived : mine, (int)in_count, MPI_FLOAT, previous, 0,
              MPI_COMM_WORLD, &request);
    MPI_Send(output + ChunkBegin(count, out), (int)out_count, MPI_FLOAT, next,
             0, MPI_COMM_WORLD);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    if (adds) {
      for (size_t i = 0; i < in_count; ++i) mine[i] += arrived[i];
    }
  }
}

// Returns this rank's time, in microseconds.
static double Call(float* input, float* output, size_t count) {
  MPI_Barrier(MPI_COMM_WORLD);
  const double start = MPI_Wtime();
  if (touch) RewriteInput(input, count * sizeof(float));
  if (ring) {
    RingAllreduce(input, output, count);
  } else {
    MPI_Allreduce(input == output ? MPI_IN_PLACE : input, output, (int)count,
                  MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  }
  if (touch) ReadOutput(output, count * sizeof(float));
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

// Returns whether the arguments after the first three are known words.
static int ParseWords(int argc, char** argv) {
  for (int i = 4; i < argc; ++i) {
    ring |= !strcmp(argv[i], "ring");
    touch |= !strcmp(argv[i], "touch");
    pinned |= !strcmp(argv[i], "pinned");
    huge |= !strcmp(argv[i], "huge");
    if (ParseAlign(argv[i]) >= 0) align = ParseAlign(argv[i]);
  }
  const int words = ring + touch + pinned + huge + (align >= 0);
  if (align < 0) align = kMallocAlign;
  return argc == 4 + words;
}

// Before MPI_Init, whose threads and memory are to follow: what the launchers
// of Open MPI and of MPICH tell a rank.
static int PinByEnvironment(void) {
  const char* text = getenv("OMPI_COMM_WORLD_RANK");
  if (text == NULL) text = getenv("PMI_RANK");
  return text == NULL ? -1 : PinToCore(atoi(text));
}

int main(int argc, char** argv) {
  const int known = ParseWords(argc, argv);
  if (known && pinned && PinByEnvironment() != 0) {
    fprintf(stderr, "mpi_allreduce: a rank cannot be pinned to its core\n");
    return 1;
  }
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  const long long bytes = known ? atoll(argv[1]) : 0;
  const int warmups = known ? atoi(argv[2]) : -1;
  const int iterations = known ? atoi(argv[3]) : 0;
  if (bytes < 4 || bytes / 4 > INT32_MAX || warmups < 0 || iterations < 1) {
    fprintf(stderr,
            "usage: mpi_allreduce BYTES WARMUPS ITERATIONS "
            "[ring|touch|pinned|huge|align=BYTES]...\n");
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  const size_t count = bytes / sizeof(float);
  float* input = Allocate(bytes);
  float* output = Allocate(bytes);
  arrived = ring ? Allocate((count / size + 1) * sizeof(float)) : NULL;
  uint64_t wrong = Measure(input, output, count, warmups, iterations);
  wrong += Measure(output, output, count, warmups, iterations);
  MPI_Finalize();
  return wrong != 0;
}
