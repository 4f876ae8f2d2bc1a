// usage: mpirun ... mpi_allreduce
//
// Allreduces by MPI in the manner of OSU's benchmark (sizes doubling, several
// rounds of each, latency printed by rank 0), with every result checked.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { kMaxCount = 1 << 20, kRounds = 10 };

static double Input(int rank, int i, int round) {
  return (double)(rank + 1) * (i % 1009) + round;
}

static int Check(int rank, int size, int count, double* in, double* out) {
  double seconds = 0;
  for (int round = 0; round < kRounds; ++round) {
    for (int i = 0; i < count; ++i) {
      in[i] = Input(rank, i, round);
      out[i] = -1;
    }
    MPI_Barrier(MPI_COMM_WORLD);
    const double start = MPI_Wtime();
    MPI_Allreduce(in, out, count, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    seconds += MPI_Wtime() - start;
    for (int i = 0; i < count; ++i) {
      const double want =
          (double)(size * (size + 1) / 2) * (i % 1009) + size * round;
      if (out[i] != want) {
        fprintf(stderr, "rank %d of %d, count %d, round %d: [%d] = %f not %f\n",
                rank, size, count, round, i, out[i], want);
        return 1;
      }
    }
  }
  if (rank == 0) {
    printf("%10d %12.2f\n", count * (int)sizeof(double),
           seconds / kRounds * 1e6);
  }
  return 0;
}

int main(int argc, char** argv) {
  int rank;
  int size;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  double* in = malloc(sizeof(double) * kMaxCount);
  double* out = malloc(sizeof(double) * kMaxCount);
  int failed = in == NULL || out == NULL;
  if (rank == 0) {
    printf("# %d ranks\n#    bytes  latency[us]\n", size);
  }
  for (int count = 1; count <= kMaxCount && !failed; count *= 2) {
    failed = Check(rank, size, count, in, out);
  }
  free(out);
  free(in);
  if (failed) {
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  MPI_Finalize();
  if (rank == 0) {
    printf("correct\n");
  }
  return 0;
}
