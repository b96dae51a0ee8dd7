/* A bulk-synchronous program: each rank computes for the same CPU time, then all meet in an allreduce. CPU time, not
 * work: a virtual CPU is not equally fast from one run to the next. */
#include <mpi.h>
#include <stdlib.h>
#include <time.h>

static double own(void) {
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return now.tv_sec + now.tv_nsec * 1e-9;
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    int steps = argc > 1 ? atoi(argv[1]) : 100;
    double compute = 1e-6 * (argc > 2 ? atof(argv[2]) : 10000);
    for (int step = 0; step < steps; step++) {
        double one = 1, sum, until = own() + compute;
        while (own() < until) {}
        MPI_Allreduce(&one, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    }
    MPI_Finalize();
    return 0;
}
