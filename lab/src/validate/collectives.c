/* Times of a collective on two or more ranks, as in published measurements: each rank times itself after a barrier,
 * and the time of an iteration is that of the slowest. Prints one in us per line.
 *
 * Usage: collectives barrier|allreduce ITERATIONS */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    int rank, barrier = argc > 1 && !strcmp(argv[1], "barrier");
    int n = argc > 2 ? atoi(argv[2]) : 1000, warm_up = 2000;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    double *own = calloc(n, sizeof *own), *slowest = calloc(n, sizeof *slowest), in = 1, out;
    if (n <= 0 || !own || !slowest)
        MPI_Abort(MPI_COMM_WORLD, 1);
    for (int i = -warm_up; i < n; i++) {
        MPI_Barrier(MPI_COMM_WORLD);
        double begin = MPI_Wtime();
        if (barrier)
            MPI_Barrier(MPI_COMM_WORLD);
        else
            MPI_Allreduce(&in, &out, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
        double took = MPI_Wtime() - begin;
        if (i >= 0)
            own[i] = took * 1e6;
    }
    MPI_Reduce(own, slowest, n, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    for (int i = 0; rank == 0 && i < n; i++)
        printf("%.4f\n", slowest[i]);
    MPI_Finalize();
    return 0;
}
