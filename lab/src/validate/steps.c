/* A bulk-synchronous program: each rank does the same work, then all meet in an allreduce. */
#include <mpi.h>
#include <stdlib.h>

static volatile double kept;

static void work(long turns) {
    double x = 1.0;
    for (long turn = 0; turn < turns; turn++)
        x = x * 0.999999 + 1e-6;
    kept = x;
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    int steps = argc > 1 ? atoi(argv[1]) : 100;
    long turns = argc > 2 ? atol(argv[2]) : 1000000;
    for (int step = 0; step < steps; step++) {
        double one = 1, sum;
        work(turns);
        MPI_Allreduce(&one, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    }
    MPI_Finalize();
    return 0;
}
