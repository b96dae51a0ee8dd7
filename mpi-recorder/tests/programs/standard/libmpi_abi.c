/* An MPI library with the ABI of MPI 5.0, for tests: translates every call to the installed MPICH, which is loaded
 * where nothing else finds its symbols. `functions.h` has one TRANSLATED function for each of MPICH's prototypes,
 * written by the test. A handle that is not predefined is MPICH's own number. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "handles.h"

typedef uintptr_t Word; /* a handle of the standard ABI */
typedef struct { int source, tag, error, internal[5]; } Status;

static void *find(const char *name) {
    static void *mpich;
    /* Calls that MPICH makes to its own public functions stay inside of it. */
    if (!mpich) mpich = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
    void *found = mpich ? dlsym(mpich, name) : NULL;
    if (!found) {
        fprintf(stderr, "libmpi_abi: %s: %s\n", name, dlerror());
        abort();
    }
    return found;
}

#define REAL(NAME) ({ \
    static __typeof__(&MPI_##NAME) real; \
    if (!real) real = find("PMPI_" #NAME); \
    real; })

/* to_X and of_X: a handle for MPICH and back. */
#define TO(TYPE, NAME, VALUE) if (!strcmp(#TYPE, type) && word == VALUE) return (uintptr_t)MPI_##NAME;
#define OF(TYPE, NAME, VALUE) if (!strcmp(#TYPE, type) && word == (uintptr_t)MPI_##NAME) return VALUE;
static uintptr_t to(const char *type, Word word) {
    PREDEFINED(TO)
    return word;
}
static Word of(const char *type, uintptr_t word) {
    PREDEFINED(OF)
    return word;
}
#define CONVERT(TYPE) \
    static MPI_##TYPE to_##TYPE(Word word) { return (MPI_##TYPE)to(#TYPE, word); } \
    static Word of_##TYPE(MPI_##TYPE handle) { \
        return of(#TYPE, sizeof handle == 4 ? (uint32_t)(uintptr_t)handle : (uintptr_t)handle); \
    }
#pragma GCC diagnostic ignored "-Wint-to-pointer-cast"
#pragma GCC diagnostic ignored "-Wpointer-to-int-cast"
HANDLES(CONVERT)

/* Numbers by what they mean. */
#define TO_NUMBER(NAME, VALUE) case VALUE: return MPI_##NAME;
#define OF_NUMBER(NAME, VALUE) case MPI_##NAME: return VALUE;
#define MEANING(NAME, LIST) \
    static int to_##NAME(int value) { switch (value) { LIST(TO_NUMBER) } return value; } \
    static int of_##NAME(int value) { switch (value) { LIST(OF_NUMBER) } return value; }
#define RANKS(X) X(ANY_SOURCE, -1) X(PROC_NULL, -3) X(ROOT, -4)
#define TAGS(X) X(ANY_TAG, -2)
#define LEVELS(X) X(THREAD_SINGLE, 0) X(THREAD_FUNNELED, 1024) X(THREAD_SERIALIZED, 2048) X(THREAD_MULTIPLE, 4096)
#define TOPOLOGIES(X) X(CART, 211) X(GRAPH, 212) X(DIST_GRAPH, 213)
#define SPLITS(X) X(COMM_TYPE_SHARED, 221)
#define LOCKS(X) X(LOCK_EXCLUSIVE, 301) X(LOCK_SHARED, 302)
#define SEEKS(X) X(SEEK_SET, 401) X(SEEK_CUR, 402) X(SEEK_END, 403)
MEANING(rank, RANKS)
MEANING(tag, TAGS)
MEANING(level, LEVELS)
MEANING(topology, TOPOLOGIES)
MEANING(split, SPLITS)
MEANING(lock, LOCKS)
MEANING(seek, SEEKS)

static int to_mode(int mode) {
    if (mode & ~(2 | 32)) abort(); /* not used by the tests */
    return (mode & 2 ? MPI_MODE_CREATE : 0) | (mode & 32 ? MPI_MODE_RDWR : 0);
}

static void *to_buffer(const void *buffer) { return buffer == (void *)1 ? MPI_IN_PLACE : (void *)buffer; }

static int *to_weights(const int *weights) {
    if (weights != (int *)10) return (int *)weights;
    return *(int **)find("MPI_UNWEIGHTED");
}

static MPI_Status to_status(const Status *from) {
    MPI_Status status = {.MPI_SOURCE = to_rank(from->source), .MPI_TAG = to_tag(from->tag), .MPI_ERROR = from->error};
    status.count_lo = from->internal[3]; /* not where MPICH has them */
    status.count_hi_and_cancelled = from->internal[1];
    return status;
}

static Status of_status(MPI_Status from) {
    Status status = {of_rank(from.MPI_SOURCE), of_tag(from.MPI_TAG), from.MPI_ERROR, {0}};
    status.internal[3] = from.count_lo;
    status.internal[1] = from.count_hi_and_cancelled;
    return status;
}

/* Lengths of the lists of datatypes: the first of two is for sending. */
static int peers(MPI_Comm comm, int neighbors, int sends) {
    int n = 0, flag = 0, kind = MPI_UNDEFINED;
    if (!neighbors) {
        REAL(Comm_test_inter)(comm, &flag);
        flag ? REAL(Comm_remote_size)(comm, &n) : REAL(Comm_size)(comm, &n);
        return n;
    }
    REAL(Topo_test)(comm, &kind);
    if (kind == MPI_CART) {
        REAL(Cartdim_get)(comm, &n);
        return 2 * n;
    }
    int rank, ins, outs;
    REAL(Comm_rank)(comm, &rank);
    if (kind == MPI_GRAPH) {
        REAL(Graph_neighbors_count)(comm, rank, &n);
        return n;
    }
    REAL(Dist_graph_neighbors_count)(comm, &ins, &outs, &flag);
    return sends ? outs : ins;
}

/* Never freed: a nonblocking call may use the list until it completes. */
static MPI_Datatype *to_types(const Word *types, int n) {
    MPI_Datatype *list = malloc((n + 1) * sizeof *list);
    for (int i = 0; i < n; i++) list[i] = to_Datatype(types[i]);
    return list;
}

#define TRANSLATED(NAME, PARAMETERS) \
    int standard_##NAME PARAMETERS __asm__("PMPI_" #NAME); \
    extern __typeof__(standard_##NAME) public_##NAME __asm__("MPI_" #NAME) __attribute__((weak, alias("PMPI_" #NAME))); \
    int standard_##NAME PARAMETERS

#include "functions.h"
