/* MPI_Allreduce, timed as all_reduce.cc times ours: `mpirun -n RANKS all_reduce_mpi CASE,CASE,... [BATCHES]` prints the same lines. */

#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static double CpuSeconds(void) {
  struct timespec time;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static float FromBrain(uint16_t value) {
  const uint32_t bits = (uint32_t)value << 16;
  float number;
  memcpy(&number, &bits, 4);
  return number;
}
static uint16_t ToBrain(float number) {
  uint32_t bits;
  memcpy(&bits, &number, 4);
  return (uint16_t)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}
/* MPI has no bfloat16. */
static void SumBrains(void* in, void* inout, int* count, MPI_Datatype* type) {
  const uint16_t* const a = in;
  uint16_t* const b = inout;
  (void)type;
  for (int i = 0; i < *count; ++i) b[i] = ToBrain(FromBrain(a[i]) + FromBrain(b[i]));
}

static void Fill(char* data, long count, int brain, int offset) {
  for (long i = 0; i < count; ++i) {
    const float value = (float)(i % 13 + offset);
    if (brain) {
      ((uint16_t*)data)[i] = ToBrain(value);
    } else {
      ((float*)data)[i] = value;
    }
  }
}
static int IsSum(const char* data, long count, int brain, int ranks, int offsets) {
  for (long i = 0; i < count; ++i) {
    const float value = brain ? FromBrain(((const uint16_t*)data)[i]) : ((const float*)data)[i];
    if (value != (float)(i % 13 * ranks + offsets)) return 0;
  }
  return 1;
}

static int CompareDoubles(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

static void RunCase(const char* name, int rank, int ranks, long batches_wanted, MPI_Op sum_brains) {
  const long bytes = atol(strchr(name, '/') + 1);
  const int brain = strstr(name, "bfloat16") != NULL;
  const long count = bytes / (brain ? 2 : 4);
  long batch = (4L << 20) / bytes, batches;
  if (batch < 1) batch = 1;
  if (batch > 64) batch = 64;
  batches = (512L << 20) / (bytes * batch);
  if (batches < 5) batches = 5;
  if (batches > 100) batches = 100;
  if (batches_wanted > 0) batches = batches_wanted;
  const long warm_up = batches_wanted > 0 ? (batches + 2) / 3 : batches < 5 ? batches : 5;
  char** const data = malloc((size_t)batch * sizeof(char*));
  for (long i = 0; i < batch; ++i) data[i] = malloc((size_t)bytes);
  double* const seconds = calloc((size_t)batches, sizeof(double));
  double cpu = 0;
  for (long step = -warm_up; step < batches; ++step) {
    const int offset = (int)((step + warm_up) % 5);
    for (long i = 0; i < batch; ++i) Fill(data[i], count, brain, offset + rank);
    MPI_Barrier(MPI_COMM_WORLD);
    const double cpu_begin = CpuSeconds(), begin = MPI_Wtime();
    for (long i = 0; i < batch; ++i) {
      MPI_Allreduce(MPI_IN_PLACE, data[i], (int)count, brain ? MPI_UINT16_T : MPI_FLOAT, brain ? sum_brains : MPI_SUM,
                    MPI_COMM_WORLD);
    }
    if (step >= 0) {
      seconds[step] = (MPI_Wtime() - begin) / (double)batch;
      cpu += CpuSeconds() - cpu_begin;
    }
    for (long i = 0; i < batch; ++i) {
      if (!IsSum(data[i], count, brain, ranks, ranks * offset + ranks * (ranks - 1) / 2)) {
        fprintf(stderr, "%s: a sum is wrong\n", name);
        MPI_Abort(MPI_COMM_WORLD, 1);
      }
    }
  }
  MPI_Allreduce(MPI_IN_PLACE, seconds, (int)batches, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  MPI_Allreduce(MPI_IN_PLACE, &cpu, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
  if (rank == 0) {
    qsort(seconds, (size_t)batches, sizeof(double), CompareDoubles);
    printf("{\"case\": \"%s\", \"seconds\": %.9e, \"cpu_ns_per_byte\": %.9e}\n", name, seconds[batches / 2],
           cpu * 1e9 / (double)(bytes * batch * batches));
    fflush(stdout);
  }
  for (long i = 0; i < batch; ++i) free(data[i]);
  free(data);
  free(seconds);
}

int main(int argc, char** argv) {
  int rank, ranks;
  MPI_Op sum_brains;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  MPI_Op_create(SumBrains, 1, &sum_brains);
  const long batches = argc > 2 ? atol(argv[2]) : 0;
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == 0 && batches > 0) {
    printf("{\"case\": \"ready\"}\n");
    fflush(stdout);
  }
  for (char* name = strtok(argv[1], ","); name; name = strtok(NULL, ",")) {
    RunCase(name, rank, ranks, batches, sum_brains);
  }
  MPI_Op_free(&sum_brains);
  MPI_Finalize();
  return 0;
}
