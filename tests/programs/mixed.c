/* Four ranks that use most of what can be re-enacted: sub-communicators, persistent requests, vector and nonblocking
 * collectives, probes, neighbours in a grid, wildcards, tests, cancelled requests.
 *
 *   mixed ITERATIONS */
#include <mpi.h>
#include <stdlib.h>

enum { N = 4, BYTES = 20000 };
static char out[N * BYTES], in[N * BYTES];

int main(int argc, char **argv) {
    int rank, size, flag, which, done, indices[N];
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (size != N || argc < 2) MPI_Abort(MPI_COMM_WORLD, 2);
    int next = (rank + 1) % N, last = (rank + N - 1) % N;
    MPI_Comm half, other, grid;
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &half);
    MPI_Comm_dup(MPI_COMM_WORLD, &other);
    int dims[] = {2, 2}, periods[] = {1, 1};
    MPI_Cart_create(MPI_COMM_WORLD, 2, dims, periods, 0, &grid);
    MPI_Request persistent[2], many[2 * N];
    MPI_Send_init(out, 100, MPI_BYTE, next, 3, MPI_COMM_WORLD, &persistent[0]);
    MPI_Recv_init(in, 100, MPI_BYTE, last, 3, MPI_COMM_WORLD, &persistent[1]);
    for (int i = 0; i < atoi(argv[1]); i++) {
        int counts[N], places[N], back[N], back_places[N];
        MPI_Pcontrol(1, "messages");
        MPI_Sendrecv(out, BYTES, MPI_BYTE, next, 1, in, BYTES, MPI_BYTE, last, 1, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
        /* The same tag on another communicator. */
        MPI_Sendrecv(out, 50, MPI_BYTE, last, 1, in, 50, MPI_BYTE, next, 1, other, MPI_STATUS_IGNORE);
        MPI_Startall(2, persistent);
        MPI_Waitall(2, persistent, MPI_STATUSES_IGNORE);
        if (rank == 0) {
            for (int n = 1; n < N; n++) {
                MPI_Status status;
                MPI_Probe(MPI_ANY_SOURCE, 5, MPI_COMM_WORLD, &status);
                MPI_Recv(in, BYTES, MPI_BYTE, status.MPI_SOURCE, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            }
            for (int n = 1; n < N; n++)
                MPI_Recv(in, BYTES, MPI_BYTE, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        } else {
            MPI_Send(out, 10 * rank, MPI_BYTE, 0, 5, MPI_COMM_WORLD);
            MPI_Send(out, 100 * rank, MPI_BYTE, 0, 10 + rank, MPI_COMM_WORLD);
        }
        MPI_Barrier(MPI_COMM_WORLD);
        MPI_Pcontrol(-1, "messages");
        MPI_Pcontrol(1, "choices");
        for (int peer = 0; peer < N; peer++) {
            MPI_Irecv(in + peer * BYTES, BYTES, MPI_BYTE, peer, 7, other, &many[peer]);
            MPI_Issend(out, 1000, MPI_BYTE, peer, 7, other, &many[N + peer]);
        }
        MPI_Waitany(2 * N, many, &which, MPI_STATUS_IGNORE);
        MPI_Waitsome(2 * N, many, &done, indices, MPI_STATUSES_IGNORE);
        MPI_Testsome(2 * N, many, &done, indices, MPI_STATUSES_IGNORE);
        MPI_Testany(2 * N, many, &which, &flag, MPI_STATUS_IGNORE);
        for (flag = 0; !flag;) MPI_Testall(2 * N, many, &flag, MPI_STATUSES_IGNORE);
        MPI_Request never;
        MPI_Irecv(in, BYTES, MPI_BYTE, next, 99, MPI_COMM_WORLD, &never);
        MPI_Cancel(&never);
        MPI_Wait(&never, MPI_STATUS_IGNORE);
        MPI_Pcontrol(-1, "choices");
        MPI_Pcontrol(1, "collectives");
        MPI_Bcast(out, 800, MPI_BYTE, 1, half);
        MPI_Allreduce(MPI_IN_PLACE, in, 10, MPI_DOUBLE, MPI_SUM, half);
        MPI_Reduce(out, in, 10, MPI_DOUBLE, MPI_MAX, 2, MPI_COMM_WORLD);
        MPI_Gather(out, 30, MPI_BYTE, in, 30, MPI_BYTE, 3, MPI_COMM_WORLD);
        MPI_Scatter(out, 40, MPI_BYTE, in, 40, MPI_BYTE, 1, MPI_COMM_WORLD);
        MPI_Allgather(out, 16, MPI_BYTE, in, 16, MPI_BYTE, MPI_COMM_WORLD);
        MPI_Alltoall(out, 64, MPI_BYTE, in, 64, MPI_BYTE, MPI_COMM_WORLD);
        MPI_Scan(out, in, 3, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
        MPI_Exscan(out, in, 3, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
        MPI_Reduce_scatter_block(out, in, 5, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
        for (int peer = 0; peer < N; peer++) {
            counts[peer] = 10 * (rank + 1) + peer;
            back[peer] = 10 * (peer + 1) + rank;
            places[peer] = back_places[peer] = peer * 100;
        }
        MPI_Alltoallv(out, counts, places, MPI_BYTE, in, back, back_places, MPI_BYTE, MPI_COMM_WORLD);
        for (int peer = 0; peer < N; peer++) back[peer] = 7 * (peer + 1);
        MPI_Gatherv(out, 7 * (rank + 1), MPI_BYTE, in, back, back_places, MPI_BYTE, 2, MPI_COMM_WORLD);
        MPI_Scatterv(out, back, places, MPI_BYTE, in, 7 * (rank + 1), MPI_BYTE, 0, MPI_COMM_WORLD);
        MPI_Allgatherv(out, 7 * (rank + 1), MPI_BYTE, in, back, back_places, MPI_BYTE, MPI_COMM_WORLD);
        MPI_Neighbor_alltoall(out, 20, MPI_BYTE, in, 20, MPI_BYTE, grid);
        MPI_Iallreduce(out, in, 10, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD, &many[0]);
        MPI_Ibarrier(half, &many[1]);
        MPI_Ibcast(out, 5000, MPI_BYTE, 0, other, &many[2]);
        MPI_Waitall(3, many, MPI_STATUSES_IGNORE);
        MPI_Comm again;
        MPI_Comm_dup(half, &again);
        MPI_Comm_free(&again);
        MPI_Pcontrol(-1, "collectives");
    }
    MPI_Request_free(&persistent[0]);
    MPI_Request_free(&persistent[1]);
    MPI_Finalize();
    return 0;
}
