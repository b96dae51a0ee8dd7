/* Both ranks send a small message before they receive: it must be buffered. */
#include <mpi.h>

int main(int argc, char **argv) {
    static char out[100], in[100];
    int rank;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    for (int i = 0; i < 3; i++) {
        MPI_Send(out, sizeof out, MPI_CHAR, 1 - rank, 17, MPI_COMM_WORLD);
        MPI_Recv(in, sizeof in, MPI_CHAR, 1 - rank, 17, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    MPI_Finalize();
    return 0;
}
