/* Rank 0 receives from two others, in one way after another of completing requests. In each, rank 1 computes for one unit
 * (region `first`) before it sends and rank 2 for two (`second`), so that rank 1 comes first; in the last one, rank 2
 * takes `late` instead. Regions sleep, so that two CPUs carry three ranks.
 *
 *   order UNIT_MS
 */
#define _GNU_SOURCE
#include <mpi.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <time.h>

#define W MPI_COMM_WORLD

static int rank, tag, message[3];
static double unit;
static MPI_Request requests[3];

static void region(const char *name, double units) {
    double length = units * unit * 1e-3;
    struct timespec t = {(time_t)length, (long)((length - (time_t)length) * 1e9)};
    MPI_Pcontrol(1, name);
    nanosleep(&t, NULL);
    MPI_Pcontrol(-1, name);
}

/* Everyone begins together; the two others send. */
static void begin(const char *last) {
    tag++;
    MPI_Barrier(W);
    if (rank == 0) return;
    region(rank == 1 ? "first" : last, rank == 1 ? 1 : 2);
    MPI_Send(message, 1, MPI_INT, 0, tag, W);
}

static void receive(void) {
    for (int from = 1; from <= 2; from++) MPI_Irecv(&message[from], 1, MPI_INT, from, tag, W, &requests[from - 1]);
}

static void waitany(int count) {
    int which;
    for (int i = 0; i < 2; i++) MPI_Waitany(count, requests, &which, MPI_STATUS_IGNORE);
}

int main(int argc, char **argv) {
    int which, flag, done, indices[3];
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(W, &rank);
    prctl(PR_SET_TIMERSLACK, 1000, 0, 0, 0);
    unit = atof(argv[1]);

    begin("second"); /* MPI_Waitany */
    if (rank == 0) {
        receive();
        waitany(2);
    }
    begin("second"); /* MPI_Waitsome */
    if (rank == 0) {
        receive();
        for (int left = 2; left > 0; left -= done) MPI_Waitsome(2, requests, &done, indices, MPI_STATUSES_IGNORE);
    }
    begin("second"); /* MPI_Testany: fails, then finds one of the two */
    if (rank == 0) {
        receive();
        MPI_Testany(2, requests, &which, &flag, MPI_STATUS_IGNORE);
        region("work", 2.5);
        do MPI_Testany(2, requests, &which, &flag, MPI_STATUS_IGNORE); /* one test may not be enough to fetch it */
        while (!flag);
        MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    }
    begin("second"); /* MPI_Testsome: fails, then finds the one that is there */
    if (rank == 0) {
        receive();
        MPI_Testsome(2, requests, &done, indices, MPI_STATUSES_IGNORE);
        region("work", 1.5);
        do MPI_Testsome(2, requests, &done, indices, MPI_STATUSES_IGNORE);
        while (done == 0);
        MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    }
    begin("second"); /* A request that is cancelled is never complete */
    if (rank == 0) {
        receive();
        MPI_Irecv(message, 1, MPI_INT, 1, 99, W, &requests[2]);
        waitany(3);
        MPI_Cancel(&requests[2]);
        MPI_Wait(&requests[2], MPI_STATUS_IGNORE);
    }
    /* Persistent requests, twice */
    if (rank == 0)
        for (int from = 1; from <= 2; from++)
            MPI_Recv_init(&message[from], 1, MPI_INT, from, tag + 1, W, &requests[from - 1]);
    for (int round = 0; round < 2; round++) {
        begin("second");
        tag--;
        if (rank == 0) {
            MPI_Startall(2, requests);
            waitany(2);
        }
    }
    if (rank == 0)
        for (int i = 0; i < 2; i++) MPI_Request_free(&requests[i]);
    tag++;
    begin("late"); /* MPI_Test of the later one fails each time */
    if (rank == 0) {
        receive();
        region("work", 1);
        for (int i = 0; i < 3; i++) {
            region("work", 0.2);
            MPI_Test(&requests[1], &flag, MPI_STATUS_IGNORE);
        }
        MPI_Wait(&requests[0], MPI_STATUS_IGNORE);
        MPI_Wait(&requests[1], MPI_STATUS_IGNORE);
    }
    MPI_Barrier(W);
    MPI_Finalize();
    return 0;
}
