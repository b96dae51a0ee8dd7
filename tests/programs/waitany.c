/* The benchmark of Böhme et al. ("Performance Simulation of Non-blocking Communication", Figure 4): rank 0 processes the messages of the others in the
 * order of their arrival. Because of foo they arrive in the order of the ranks; if foo is balanced, bar reverses
 * it. Regions sleep, so that two CPUs carry four ranks.
 *
 *   waitany ITERATIONS UNIT_US balanced|original
 *
 * Rank 0 prints how long all took from MPI_Init to MPI_Finalize, in seconds, and the largest share by which a rank
 * slept too long, in per cent. */
#define _GNU_SOURCE
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

static double late, unit;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

static void region(const char *name, double units) {
    double begin = now(), length = units * unit * 1e-6;
    struct timespec t = {(time_t)length, (long)((length - (time_t)length) * 1e9)};
    MPI_Pcontrol(1, name);
    nanosleep(&t, NULL);
    MPI_Pcontrol(-1, name);
    late += now() - begin - length;
}

int main(int argc, char **argv) {
    static const double foo[] = {4, 4, 10, 16}, bar[] = {0, 9, 6, 3};
    enum { BYTES = 64 };
    char message[4][BYTES];
    int rank, size;
    MPI_Init(&argc, &argv);
    double begin = now();
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (argc < 4 || size != 4) MPI_Abort(MPI_COMM_WORLD, 2);
    prctl(PR_SET_TIMERSLACK, 1000, 0, 0, 0);
    int iterations = atoi(argv[1]), balanced = !strcmp(argv[3], "balanced");
    unit = atof(argv[2]);
    memset(message, 0, sizeof message);
    for (int i = 0; i < iterations; i++) {
        MPI_Request requests[3];
        if (rank == 0)
            for (int from = 1; from < 4; from++)
                MPI_Irecv(message[from], BYTES, MPI_BYTE, from, 17, MPI_COMM_WORLD, &requests[from - 1]);
        region("foo", balanced ? (foo[0] + foo[1] + foo[2] + foo[3]) / 4 : foo[rank]);
        if (rank == 0) {
            for (int n = 0; n < 3; n++) {
                int which;
                MPI_Waitany(3, requests, &which, MPI_STATUS_IGNORE);
                region("process", 1);
            }
        } else {
            region("bar", bar[rank]);
            MPI_Send(message[0], BYTES, MPI_BYTE, 0, 17, MPI_COMM_WORLD);
        }
        MPI_Barrier(MPI_COMM_WORLD);
    }
    double took = now() - begin, share = late / took, most, longest;
    MPI_Reduce(&share, &most, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    MPI_Reduce(&took, &longest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    if (rank == 0) printf("%.6f %.3f\n", longest, 100 * most);
    MPI_Finalize();
    return 0;
}
