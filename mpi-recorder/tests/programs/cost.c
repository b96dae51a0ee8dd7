/* Measures what the collector adds to a call: blocks of calls through the wrappers alternate with blocks of the
 * same calls made to the library itself. Prints lower quartiles in nanoseconds of CPU time. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { BLOCKS = 201, CALLS = 4000 };

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t); /* others may use the CPU */
    return t.tv_sec * 1e9 + t.tv_nsec;
}

static int compare(const void *a, const void *b) {
    double x = *(double *)a, y = *(double *)b;
    return x < y ? -1 : x > y;
}

static void *find(const char *name) {
    Dl_info info;
    void *any = dlsym(RTLD_DEFAULT, "MPI_Wtime"); /* not wrapped */
    if (!dladdr(any, &info)) exit(9);
    void *function = dlsym(dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD), name);
    if (!function) exit(9);
    return function;
}

#define MEASURE(WHAT, PER, BARE, WRAPPED) do { \
    double bare[BLOCKS], more[BLOCKS]; \
    for (int block = 0; block < BLOCKS; block++) { \
        double t0 = now(); \
        for (int i = 0; i < CALLS; i++) { BARE; } \
        double t1 = now(); \
        for (int i = 0; i < CALLS; i++) { WRAPPED; } \
        double t2 = now(); \
        bare[block] = (t1 - t0) / CALLS / PER; \
        more[block] = (t2 - t1) / CALLS / PER; \
    } \
    qsort(bare, BLOCKS, sizeof(double), compare); \
    qsort(more, BLOCKS, sizeof(double), compare); \
    printf("%-28s bare %.1f wrapped %.1f added %.1f ns a call\n", WHAT, bare[BLOCKS / 4], \
        more[BLOCKS / 4], more[BLOCKS / 4] - bare[BLOCKS / 4]); \
} while (0)

int main(int argc, char **argv) {
    int x[4], y[4];
    MPI_Request q[2];
    MPI_Init(&argc, &argv);
    typeof(&MPI_Send) send = find("PMPI_Send");
    typeof(&MPI_Isend) isend = find("PMPI_Isend");
    typeof(&MPI_Irecv) irecv = find("PMPI_Irecv");
    typeof(&MPI_Wait) wait = find("PMPI_Wait");
    typeof(&MPI_Waitall) waitall = find("PMPI_Waitall");
    typeof(&MPI_Allreduce) allreduce = find("PMPI_Allreduce");
    typeof(&MPI_Iprobe) iprobe = find("PMPI_Iprobe");
    typeof(&MPI_Test) test = find("PMPI_Test");
    int flag;
    /* A yardstick for this machine. */
    double clock[BLOCKS];
    for (int block = 0; block < BLOCKS; block++) {
        struct timespec t;
        double t0 = now();
        for (int i = 0; i < CALLS; i++) clock_gettime(CLOCK_MONOTONIC, &t);
        clock[block] = (now() - t0) / CALLS;
    }
    qsort(clock, BLOCKS, sizeof(double), compare);
    printf("reading the clock %.1f ns\n", clock[BLOCKS / 4]);
    MEASURE("MPI_Send to nobody", 1,
        send(x, 1, MPI_INT, MPI_PROC_NULL, 1, MPI_COMM_WORLD),
        MPI_Send(x, 1, MPI_INT, MPI_PROC_NULL, 1, MPI_COMM_WORLD));
    MEASURE("MPI_Isend, MPI_Wait nobody", 2,
        isend(x, 1, MPI_INT, MPI_PROC_NULL, 1, MPI_COMM_WORLD, q); wait(q, MPI_STATUS_IGNORE),
        MPI_Isend(x, 1, MPI_INT, MPI_PROC_NULL, 1, MPI_COMM_WORLD, q); MPI_Wait(q, MPI_STATUS_IGNORE));
    MEASURE("Irecv, Isend, Waitall self", 3,
        irecv(y, 1, MPI_INT, 0, 1, MPI_COMM_SELF, q); isend(x, 1, MPI_INT, 0, 1, MPI_COMM_SELF, q + 1);
        waitall(2, q, MPI_STATUSES_IGNORE),
        MPI_Irecv(y, 1, MPI_INT, 0, 1, MPI_COMM_SELF, q); MPI_Isend(x, 1, MPI_INT, 0, 1, MPI_COMM_SELF, q + 1);
        MPI_Waitall(2, q, MPI_STATUSES_IGNORE));
    MEASURE("MPI_Allreduce self", 1,
        allreduce(x, y, 1, MPI_INT, MPI_SUM, MPI_COMM_SELF),
        MPI_Allreduce(x, y, 1, MPI_INT, MPI_SUM, MPI_COMM_SELF));
    MEASURE("MPI_Iprobe, nothing there", 1,
        iprobe(0, 9, MPI_COMM_SELF, &flag, MPI_STATUS_IGNORE),
        MPI_Iprobe(0, 9, MPI_COMM_SELF, &flag, MPI_STATUS_IGNORE));
    MPI_Irecv(y, 1, MPI_INT, 0, 9, MPI_COMM_SELF, q);
    MEASURE("MPI_Test, not complete", 1,
        test(q, &flag, MPI_STATUS_IGNORE),
        MPI_Test(q, &flag, MPI_STATUS_IGNORE));
    MPI_Cancel(q);
    MPI_Wait(q, MPI_STATUS_IGNORE);
    MPI_Finalize();
    return 0;
}
