/* Each rank sends to the next one ten times, and all meet after each round. */
#include <mpi.h>

int main(int argc, char **argv) {
    int rank, ranks;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    for (int round = 0; round < 10; round++) {
        int above = (rank + 1) % ranks, below = (rank + ranks - 1) % ranks, got;
        double one = 1, sum;
        MPI_Sendrecv(&rank, 1, MPI_INT, above, 7, &got, 1, MPI_INT, below, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Allreduce(&one, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
        if (got != below || sum != ranks) MPI_Abort(MPI_COMM_WORLD, 1);
    }
    MPI_Finalize();
    return 0;
}
