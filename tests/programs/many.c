/* A rank that sends to itself: many ITERATIONS */
#include <mpi.h>
#include <stdlib.h>

int main(int argc, char **argv) {
    char out = 0, in;
    MPI_Init(&argc, &argv);
    for (int i = 0; argc > 1 && i < atoi(argv[1]); i++) {
        MPI_Request requests[2];
        MPI_Irecv(&in, 1, MPI_BYTE, 0, 1, MPI_COMM_SELF, &requests[0]);
        MPI_Isend(&out, 1, MPI_BYTE, 0, 1, MPI_COMM_SELF, &requests[1]);
        MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    }
    MPI_Finalize();
    return 0;
}
