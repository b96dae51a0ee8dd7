/* An MPI of two ranks over shared memory that behaves exactly like the LogGOPS model: every call and every
 * message takes what the environment says, by busy waiting. It has the ABI of MPICH and only the functions that
 * the worker of `detour mpi net` calls. Times in ns:
 *   SHIM_OS, SHIM_OR, SHIM_L, SHIM_g, SHIM_G, SHIM_O (G and O per byte), SHIM_S in bytes, SHIM_FILE.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define SLOTS 128
/* What is carried of a message; measured messages may be larger, their bytes do not matter. */
#define CARRIED (128 << 10)

struct slot {
    _Atomic int state; /* 0 free, 1 sent, 2 request, 3 granted, 4 payload */
    int bytes;
    double arrival, granted;
    char data[CARRIED];
};

struct lane {
    struct slot slots[SLOTS];
};

static struct shared {
    struct lane lanes[2]; /* by sender */
    _Atomic int arrived[2];
    _Atomic double ns_per_tick; /* 0 until rank 0 is ready */
} *shared;

static int rank, sent, received, barriers;
static double os, or, L, g, G, O, S, nic_free;

static double seconds_clock(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e9 + t.tv_nsec;
}

#ifdef __x86_64__
/* The processor's counter: reading it takes a fraction of what clock_gettime takes, which would be part of every
 * call. Both ranks use rank 0's scale. */
static double now(void) { return __builtin_ia32_rdtsc() * shared->ns_per_tick; }

static double scale(void) {
    double ticks = __builtin_ia32_rdtsc(), begin = seconds_clock(), end;
    while ((end = seconds_clock()) < begin + 50e6)
        ;
    return (end - begin) / (__builtin_ia32_rdtsc() - ticks);
}
#else
static double now(void) { return seconds_clock(); }
static double scale(void) { return 1; }
#endif

static double until(double end) {
    while (now() < end)
        ;
    return end;
}

static double number(const char *name) {
    const char *text = getenv(name);
    if (!text) {
        fprintf(stderr, "shim: %s is not set\n", name);
        exit(1);
    }
    return atof(text);
}

int PMPI_Init(int *argc, char ***argv) {
    (void)argc, (void)argv;
    os = number("SHIM_OS"), or = number("SHIM_OR"), L = number("SHIM_L"), g = number("SHIM_g");
    G = number("SHIM_G"), O = number("SHIM_O"), S = number("SHIM_S");
    rank = (int)number("PMI_RANK");
    int file = open(getenv("SHIM_FILE"), O_RDWR | O_CREAT, 0600);
    if (file < 0 || ftruncate(file, sizeof *shared))
        return 1;
    shared = mmap(0, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, file, 0);
    if (shared == MAP_FAILED)
        return 1;
    if (rank == 0)
        shared->ns_per_tick = scale();
    while (shared->ns_per_tick == 0)
        ;
    return 0;
}

static double larger(double a, double b) { return a > b ? a : b; }

int PMPI_Send(const void *data, int bytes, int type, int to, int tag, int comm) {
    (void)type, (void)to, (void)tag, (void)comm;
    double begin = now(), more = bytes > 1 ? bytes - 1 : 0;
    struct slot *slot = &shared->lanes[rank].slots[sent++ % SLOTS];
    while (atomic_load(&slot->state))
        ;
    slot->bytes = bytes;
    memcpy(slot->data, data, bytes < CARRIED ? bytes : CARRIED);
    double left;
    if (bytes <= S) {
        left = begin + os + more * O;
        double inject = larger(left, nic_free);
        nic_free = inject + g + more * G;
        slot->arrival = inject + L + more * G;
        atomic_store(&slot->state, 1);
        until(left);
    } else {
        slot->arrival = begin + os + L;
        atomic_store(&slot->state, 2);
        while (atomic_load(&slot->state) != 3)
            ;
        left = slot->granted + os + more * O;
        nic_free = left + g + more * G;
        slot->arrival = left + L + more * G;
        atomic_store(&slot->state, 4);
        until(left + more * G);
    }
    return 0;
}

int PMPI_Recv(void *data, int bytes, int type, int from, int tag, int comm, void *status) {
    (void)type, (void)from, (void)tag, (void)comm, (void)status;
    double begin = now();
    struct slot *slot = &shared->lanes[!rank].slots[received++ % SLOTS];
    int state;
    while (!(state = atomic_load(&slot->state)))
        ;
    if (state == 2) {
        slot->granted = larger(begin, slot->arrival) + L;
        atomic_store(&slot->state, 3);
        while (atomic_load(&slot->state) != 4)
            ;
    }
    if (slot->bytes != bytes) {
        fprintf(stderr, "shim: %d bytes sent, %d received\n", slot->bytes, bytes);
        exit(1);
    }
    double end = larger(begin, slot->arrival) + or + (bytes > 1 ? bytes - 1 : 0) * O;
    until(slot->arrival);
    memcpy(data, slot->data, bytes < CARRIED ? bytes : CARRIED);
    atomic_store(&slot->state, 0);
    until(end);
    return 0;
}

int PMPI_Sendrecv(const void *out, int outs, int type, int to, int tag, void *in, int ins, int in_type,
                  int from, int in_tag, int comm, void *status) {
    PMPI_Send(out, outs, type, to, tag, comm);
    return PMPI_Recv(in, ins, in_type, from, in_tag, comm, status);
}

int PMPI_Barrier(int comm) {
    (void)comm;
    atomic_fetch_add(&shared->arrived[rank], 1);
    barriers++;
    while (atomic_load(&shared->arrived[!rank]) < barriers)
        ;
    return 0;
}

int PMPI_Iprobe(int from, int tag, int comm, int *flag, void *status) {
    (void)from, (void)tag, (void)comm, (void)status;
    return *flag = 0;
}

int PMPI_Comm_rank(int comm, int *out) { return (void)comm, *out = rank, 0; }
int PMPI_Comm_size(int comm, int *out) { return (void)comm, *out = 2, 0; }
int PMPI_Finalize(void) { return PMPI_Barrier(0); }

int PMPI_Get_library_version(char *text, int *length) {
    *length = sprintf(text, "a network with known parameters");
    return 0;
}
