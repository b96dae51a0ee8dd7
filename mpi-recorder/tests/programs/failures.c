/* Receives that fail because the message is longer than the buffer, in every kind of call, on 2 ranks: rank 0
 * sends, rank 1 receives. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

#define W MPI_COMM_WORLD
static char b[400];
static int rank;

/* Rank 0 sends messages of these sizes, with consecutive tags; they have arrived when this returns. */
static void sent(int tag, int count, const int *sizes) {
    MPI_Barrier(W);
    for (int i = 0; rank == 0 && i < count; i++) MPI_Send(b, sizes[i], MPI_BYTE, 1, tag + i, W);
    MPI_Barrier(W);
}

static void fails(int error) {
    if (error == MPI_SUCCESS) exit(7);
}

int main(int argc, char **argv) {
    MPI_Request q[2];
    int index, count, indices[2];
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(W, &rank);
    MPI_Comm_set_errhandler(W, MPI_ERRORS_RETURN);

    sent(1, 1, (int[]){50});
    if (rank) fails(MPI_Recv(b, 10, MPI_BYTE, MPI_ANY_SOURCE, MPI_ANY_TAG, W, MPI_STATUS_IGNORE));

    if (rank) {
        MPI_Irecv(b, 10, MPI_BYTE, MPI_ANY_SOURCE, 2, W, &q[0]);
        MPI_Irecv(b + 100, 100, MPI_BYTE, 0, 3, W, &q[1]);
    }
    sent(2, 2, (int[]){50, 60});
    if (rank) fails(MPI_Waitall(2, q, MPI_STATUSES_IGNORE));
    /* MPICH returns at the first error, and leaves the other one to be waited for again. */
    if (rank && q[1] != MPI_REQUEST_NULL) MPI_Wait(&q[1], MPI_STATUS_IGNORE);

    if (rank) MPI_Irecv(b, 10, MPI_BYTE, MPI_ANY_SOURCE, 4, W, &q[0]);
    sent(4, 1, (int[]){50});
    if (rank) fails(MPI_Wait(&q[0], MPI_STATUS_IGNORE));

    if (rank) {
        MPI_Irecv(b, 10, MPI_BYTE, MPI_ANY_SOURCE, 5, W, &q[0]);
        MPI_Irecv(b + 100, 100, MPI_BYTE, MPI_ANY_SOURCE, 6, W, &q[1]);
    }
    sent(5, 1, (int[]){50});
    if (rank) fails(MPI_Waitany(2, q, &index, MPI_STATUS_IGNORE));
    sent(6, 1, (int[]){30});
    if (rank) MPI_Wait(&q[1], MPI_STATUS_IGNORE);

    if (rank) {
        MPI_Irecv(b, 10, MPI_BYTE, MPI_ANY_SOURCE, 7, W, &q[0]);
        MPI_Irecv(b + 100, 100, MPI_BYTE, MPI_ANY_SOURCE, 8, W, &q[1]);
    }
    sent(7, 2, (int[]){50, 40});
    if (rank) fails(MPI_Waitsome(2, q, &count, indices, MPI_STATUSES_IGNORE));
    MPI_Finalize();
    return 0;
}
