// MPI_Allreduce, or another of MPI's collectives, measured as bench/allreduce
// measures ringpipe's: float32 sum, private buffers, a barrier before each
// call, the slowest rank's time of each call, every element of a checked call
// verified. bench/compare_peers runs it.
//
//   mpicc -O3 -I. -o mpi_allreduce bench/peers/mpi_allreduce.c
//   mpirun -n 8 mpi_allreduce BYTES WARMUPS ITERATIONS [WORD]...
//
// BYTES are those of the whole message, of all ranks' parts.
//
// The words: "collective=NAME", as bench/allreduce has them [allreduce];
// "ring": in place of MPI_Allreduce the textbook's ring of MPI_Send and
// MPI_Recv, whose messages are whole chunks; "touch": a call's time includes
// writing its input and reading its output; "pinned": rank r runs on core r
// modulo the number of cores; "huge": huge pages for the buffers;
// "align=BYTES": the buffers begin so many bytes past a page [16, as malloc's].
//
// Rank 0 prints two lines, out of place and then in place (not of an
// all-to-all):
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

// The root of those that have one.
enum { kRoot = 0 };

enum Collective {
  kAllReduce,
  kReduceScatter,
  kAllGather,
  kBroadcast,
  kReduce,
  kGather,
  kScatter,
  kAllToAll,
  kCollectives
};
// In their order. Whether each rank has a part of the message, in its input or
// output, where it has not the whole.
static const struct {
  const char* name;
  int has_parts, input_is_part, output_is_part;
} kTable[kCollectives] = {
    {"allreduce", 0, 0, 0},  {"reduce-scatter", 1, 0, 1},
    {"all-gather", 1, 1, 0}, {"broadcast", 0, 0, 0},
    {"reduce", 0, 0, 0},     {"gather", 1, 1, 0},
    {"scatter", 1, 0, 1},    {"all-to-all", 1, 0, 0},
};
static enum Collective collective = kAllReduce;

// Of the whole message, and of a rank's part; in elements.
static size_t whole, part;

static size_t InputCount(void) {
  return kTable[collective].input_is_part ? part : whole;
}
static size_t OutputCount(void) {
  return kTable[collective].output_is_part ? part : whole;
}
// Where a rank's input is in memory that it shares with the output.
static size_t InputInPlace(void) {
  return kTable[collective].input_is_part ? rank * part : 0;
}

static void CallMpi(float* input, float* output) {
  const int in_place = input == output;
  const void* const from = in_place ? MPI_IN_PLACE : input;
  const int of_part = (int)part;
  const MPI_Comm comm = MPI_COMM_WORLD;
  switch (collective) {
    case kAllReduce:
      MPI_Allreduce(from, output, (int)whole, MPI_FLOAT, MPI_SUM, comm);
      break;
    case kReduceScatter:
      MPI_Reduce_scatter_block(from, output, of_part, MPI_FLOAT, MPI_SUM, comm);
      break;
    case kAllGather:
      MPI_Allgather(from, of_part, MPI_FLOAT, output, of_part, MPI_FLOAT, comm);
      break;
    case kBroadcast:  // always in place
      MPI_Bcast(rank == kRoot ? input : output, (int)whole, MPI_FLOAT, kRoot,
                comm);
      break;
    case kReduce:
      MPI_Reduce(rank == kRoot ? from : input, output, (int)whole, MPI_FLOAT,
                 MPI_SUM, kRoot, comm);
      break;
    case kGather:
      MPI_Gather(rank == kRoot ? from : input + (in_place ? InputInPlace() : 0),
                 of_part, MPI_FLOAT, output, of_part, MPI_FLOAT, kRoot, comm);
      break;
    case kScatter:
      MPI_Scatter(input, of_part, MPI_FLOAT,
                  in_place && rank == kRoot ? MPI_IN_PLACE : output, of_part,
                  MPI_FLOAT, kRoot, comm);
      break;
    case kAllToAll:
      MPI_Alltoall(input, of_part, MPI_FLOAT, output, of_part, MPI_FLOAT, comm);
      break;
    case kCollectives:
      break;
  }
}

// Returns this rank's time, in microseconds.
static double Call(float* input, float* output) {
  MPI_Barrier(MPI_COMM_WORLD);
  const double start = MPI_Wtime();
  if (touch) {
    RewriteInput(input + (input == output ? InputInPlace() : 0),
                 InputCount() * sizeof(float));
  }
  if (ring) {
    RingAllreduce(input, output, whole);
  } else {
    CallMpi(input, output);
  }
  if (touch) ReadOutput(output, OutputCount() * sizeof(float));
  return 1e6 * (MPI_Wtime() - start);
}

// What each rank has got, one after the other.
static uint64_t CountWrongParts(const float* output, size_t first) {
  uint64_t wrong = 0;
  for (int from = 0; from < size; ++from) {
    wrong += CountWrongInputs(output + from * part, first, part, from);
  }
  return wrong;
}

// Of this rank's output; of the root's of a broadcast, out of place, its input.
static uint64_t CountWrong(const float* input, const float* output) {
  switch (collective) {
    case kAllReduce:
      return CountWrongSums(output, 0, whole, size);
    case kReduceScatter:
      return CountWrongSums(output, rank * part, part, size);
    case kAllGather:
      return CountWrongParts(output, 0);
    case kBroadcast:
      return CountWrongInputs(rank == kRoot ? input : output, 0, whole, kRoot);
    case kReduce:
      return rank == kRoot ? CountWrongSums(output, 0, whole, size) : 0;
    case kGather:
      return rank == kRoot ? CountWrongParts(output, 0) : 0;
    case kScatter:
      // In place the root's part stays where it is.
      return CountWrongInputs(
          input == output && rank == kRoot ? output + kRoot * part : output,
          rank * part, part, kRoot);
    case kAllToAll:
      return CountWrongParts(output, rank * part);
    case kCollectives:
      break;
  }
  return 1;
}

static void Fill(float* input, int in_place) {
  FillInput(input + (in_place ? InputInPlace() : 0), InputCount(), rank);
}

// The order is bench/allreduce's: first call, warm-ups, timed calls, a checked
// call. Returns how many values were wrong, over all ranks.
static uint64_t Measure(float* input, float* output, int warmups,
                        int iterations) {
  const int in_place = input == output;
  const int calls = 1 + warmups + iterations;
  double* mine = malloc(calls * sizeof *mine);
  double* slowest = malloc(calls * sizeof *slowest);
  for (int i = 0; i < calls; ++i) {
    if (i == 0 || (in_place && i % CallsUntilRefill(size) == 0)) {
      Fill(input, in_place);
    }
    mine[i] = Call(input, output);
  }
  MPI_Reduce(mine, slowest, calls, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);

  memset(output, 0xff, OutputCount() * sizeof(float));  // NaN
  if (in_place) Fill(input, in_place);
  Call(input, output);
  uint64_t wrong = CountWrong(input, output);
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

// Returns whether `word` names one.
static int ParseCollective(const char* word) {
  const char kPrefix[] = "collective=";
  if (strncmp(word, kPrefix, sizeof kPrefix - 1) != 0) return 0;
  for (int i = 0; i < kCollectives; ++i) {
    if (!strcmp(word + sizeof kPrefix - 1, kTable[i].name)) {
      collective = (enum Collective)i;
      return 1;
    }
  }
  return 0;
}

// Returns whether the arguments after the first three are known words.
static int ParseWords(int argc, char** argv) {
  int collectives = 0;
  for (int i = 4; i < argc; ++i) {
    ring |= !strcmp(argv[i], "ring");
    touch |= !strcmp(argv[i], "touch");
    pinned |= !strcmp(argv[i], "pinned");
    huge |= !strcmp(argv[i], "huge");
    if (ParseAlign(argv[i]) >= 0) align = ParseAlign(argv[i]);
    collectives += ParseCollective(argv[i]);
  }
  const int words = ring + touch + pinned + huge + (align >= 0) + collectives;
  if (align < 0) align = kMallocAlign;
  return argc == 4 + words && collectives <= 1 &&
         (!ring || collective == kAllReduce);
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
            "[collective=NAME|ring|touch|pinned|huge|align=BYTES]...\n");
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  whole = bytes / sizeof(float);
  part = whole / size;
  if (kTable[collective].has_parts) whole = part * size;
  if (whole == 0) {
    fprintf(stderr, "mpi_allreduce: %lld bytes are no element for each rank\n",
            bytes);
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  float* input = Allocate(bytes);
  float* output = Allocate(bytes);
  arrived = ring ? Allocate((whole / size + 1) * sizeof(float)) : NULL;
  uint64_t wrong = Measure(input, output, warmups, iterations);
  if (collective != kAllToAll) {
    wrong += Measure(output, output, warmups, iterations);
  }
  MPI_Finalize();
  return wrong != 0;
}
