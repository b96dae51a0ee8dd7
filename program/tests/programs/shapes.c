/* Two ranks that communicate in one way each, by the first argument. Who sends what to whom is fixed; where
 * one rank sleeps, the other has to wait for it. */
#include <mpi.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MANY = 64 };
static int rank, other;

/* Everyone is here, then rank `late` sleeps. */
static void apart(int late) {
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == late)
        usleep(400000);
}

static void persistent(void) {
    int out[2] = {1, 2}, in[2];
    MPI_Request requests[4];
    for (int i = 0; i < 2; i++) {
        MPI_Recv_init(&in[i], 1, MPI_INT, other, i, MPI_COMM_WORLD, &requests[i]);
        MPI_Send_init(&out[i], 1, MPI_INT, other, i, MPI_COMM_WORLD, &requests[2 + i]);
    }
    /* Inactive requests complete at once. */
    MPI_Waitall(4, requests, MPI_STATUSES_IGNORE);
    apart(1);
    for (int step = 0; step < 10; step++) {
        MPI_Startall(4, requests);
        MPI_Waitall(4, requests, MPI_STATUSES_IGNORE);
    }
    MPI_Wait(&requests[0], MPI_STATUS_IGNORE);
    MPI_Start(&requests[0]);
    MPI_Start(&requests[2]);
    MPI_Wait(&requests[2], MPI_STATUS_IGNORE);
    MPI_Wait(&requests[0], MPI_STATUS_IGNORE);
    for (int i = 0; i < 4; i++)
        MPI_Request_free(&requests[i]);
}

static void between_groups(void) {
    MPI_Comm own, both, merged;
    int got;
    MPI_Comm_split(MPI_COMM_WORLD, rank, 0, &own);
    MPI_Intercomm_create(own, 0, MPI_COMM_WORLD, other, 7, &both);
    apart(1);
    for (int i = 0; i < 5; i++) {
        if (rank == 1)
            MPI_Send(&i, 1, MPI_INT, 0, 3, both);
        MPI_Status status;
        if (rank == 0)
            MPI_Recv(&got, 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, both, &status);
    }
    MPI_Barrier(both);
    MPI_Intercomm_merge(both, rank, &merged);
    MPI_Barrier(merged);
    MPI_Comm_free(&merged);
    MPI_Comm_free(&both);
    MPI_Comm_free(&own);
}

static void neighbours(void) {
    /* Of two ranks in a ring, each is the left and the right neighbour of the other. */
    MPI_Comm ring;
    int size = 2, periodic = 1, out[2] = {rank, rank}, in[2];
    MPI_Cart_create(MPI_COMM_WORLD, 1, &size, &periodic, 0, &ring);
    apart(1);
    MPI_Neighbor_allgather(out, 1, MPI_INT, in, 1, MPI_INT, ring);
    MPI_Request request;
    MPI_Ineighbor_alltoall(out, 1, MPI_INT, in, 1, MPI_INT, ring, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Comm_free(&ring);

    /* Only rank 1 sends, so rank 1 never waits. */
    MPI_Comm graph;
    MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, rank == 0, &other, MPI_UNWEIGHTED, rank == 1, &other,
                                   MPI_UNWEIGHTED, MPI_INFO_NULL, 0, &graph);
    apart(1);
    MPI_Neighbor_alltoall(out, 1, MPI_INT, in, 1, MPI_INT, graph);
    MPI_Comm_free(&graph);
}

static void fences(void) {
    int *memory, value = rank;
    MPI_Win window;
    MPI_Win_allocate(sizeof(int), sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &window);
    MPI_Win_fence(0, window);
    apart(1);
    MPI_Put(&value, 1, MPI_INT, other, 0, 1, MPI_INT, window);
    MPI_Win_fence(0, window);
    MPI_Win_free(&window);
}

/* Rank 0 sends, rank 1 completes the receives in every way there is. */
static void many(void) {
    int data[MANY], indices[MANY], count, flag, index;
    MPI_Request requests[MANY];
    for (int way = 0; way < 5; way++) {
        if (rank == 0) {
            MPI_Barrier(MPI_COMM_WORLD);
            if (way == 0)
                usleep(400000);
            for (int i = 0; i < MANY; i++)
                MPI_Isend(&data[i], 1, MPI_INT, 1, i % 3, MPI_COMM_WORLD, &requests[i]);
            MPI_Waitall(MANY, requests, MPI_STATUSES_IGNORE);
            continue;
        }
        for (int i = 0; i < MANY; i++)
            MPI_Irecv(&data[i], 1, MPI_INT, way == 1 ? MPI_ANY_SOURCE : 0, i % 3, MPI_COMM_WORLD, &requests[i]);
        MPI_Barrier(MPI_COMM_WORLD);
        for (int done = 0; done < MANY;) {
            switch (way) {
            case 0: MPI_Waitany(MANY, requests, &index, MPI_STATUS_IGNORE); done++; break;
            case 1: MPI_Waitsome(MANY, requests, &count, indices, MPI_STATUSES_IGNORE); done += count; break;
            case 2: MPI_Testany(MANY, requests, &index, &flag, MPI_STATUS_IGNORE); done += flag; break;
            case 3: MPI_Testsome(MANY, requests, &count, indices, MPI_STATUSES_IGNORE); done += count; break;
            case 4: MPI_Testall(MANY, requests, &flag, MPI_STATUSES_IGNORE); done += flag ? MANY : 0; break;
            }
        }
    }
}

static void probes(void) {
    int data[4] = {0}, flag = 0;
    MPI_Message message;
    MPI_Status status;
    MPI_Request request;
    apart(0);
    if (rank == 0) {
        for (int i = 1; i <= 3; i++)
            MPI_Send(data, i, MPI_INT, 1, i, MPI_COMM_WORLD);
        return;
    }
    MPI_Mprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &message, &status);
    MPI_Mrecv(data, 4, MPI_INT, &message, MPI_STATUS_IGNORE);
    while (!flag)
        MPI_Improbe(0, 2, MPI_COMM_WORLD, &flag, &message, &status);
    MPI_Imrecv(data, 4, MPI_INT, &message, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Probe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &status);
    MPI_Recv(data, 4, MPI_INT, status.MPI_SOURCE, status.MPI_TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static void cancelled(void) {
    int data[2] = {0};
    MPI_Request requests[2];
    if (rank == 1) {
        /* The second receive takes the message, since the first one is cancelled before it is sent. */
        for (int i = 0; i < 2; i++)
            MPI_Irecv(&data[i], 1, MPI_INT, 0, 5, MPI_COMM_WORLD, &requests[i]);
        MPI_Cancel(&requests[0]);
        MPI_Wait(&requests[0], MPI_STATUS_IGNORE);
    }
    apart(0);
    if (rank == 0) {
        for (int i = 0; i < 2; i++)
            MPI_Send(&data[i], 1, MPI_INT, 1, 5, MPI_COMM_WORLD);
    } else {
        MPI_Wait(&requests[1], MPI_STATUS_IGNORE);
        MPI_Recv(data, 1, MPI_INT, MPI_ANY_SOURCE, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
}

/* A collective and three messages that rank 0 does not record. */
static void switched_off(void) {
    int sum, got;
    if (rank == 0)
        MPI_Pcontrol(0);
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    for (int i = 0; i < 3; i++) {
        if (rank == 1)
            MPI_Send(&i, 1, MPI_INT, 0, 9, MPI_COMM_WORLD);
        else
            MPI_Recv(&got, 1, MPI_INT, MPI_ANY_SOURCE, 9, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    if (rank == 0)
        MPI_Pcontrol(2);
    apart(1);
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 1)
        MPI_Send(&sum, 1, MPI_INT, 0, 9, MPI_COMM_WORLD);
    else
        MPI_Recv(&got, 1, MPI_INT, 1, 9, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    other = 1 - rank;
    struct { const char *name; void (*run)(void); } ways[] = {
        {"persistent", persistent}, {"between_groups", between_groups}, {"neighbours", neighbours},
        {"fences", fences}, {"many", many}, {"probes", probes}, {"cancelled", cancelled},
        {"switched_off", switched_off},
    };
    for (size_t i = 0; argc > 1 && i < sizeof ways / sizeof *ways; i++)
        if (!strcmp(ways[i].name, argv[1]))
            ways[i].run();
    MPI_Finalize();
    return 0;
}
