/* A bulk-synchronous program: each rank computes for some time of its own and meets the others. The
   arguments are the number of steps and the milliseconds of a step. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static double own(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

int main(int argc, char **argv) {
    int rank, size;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    int steps = argc > 1 ? atoi(argv[1]) : 100;
    double work = (argc > 2 ? atof(argv[2]) : 5) * 1e-3;
    for (int i = 0; i < steps; i++) {
        double end = own() + work, one = rank + 1, other, sum;
        while (own() < end) {}
        int right = (rank + 1) % size, left = (rank + size - 1) % size;
        MPI_Sendrecv(&one, 1, MPI_DOUBLE, right, 7, &other, 1, MPI_DOUBLE, left, 7, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
        MPI_Allreduce(&other, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
        if (sum != size * (size + 1) / 2.0) {
            fprintf(stderr, "wrong sum: %g\n", sum);
            MPI_Abort(MPI_COMM_WORLD, 1);
        }
    }
    MPI_Finalize();
    return 0;
}
